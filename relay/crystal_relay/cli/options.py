"""Options of several commands, and variables that have no option. docs/cli.md has a table of all, made from these."""

from typing import Annotated

import typer

StoreAddress = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar="CRYSTAL_RELAY_STORE",
        help="Where objects are kept: file:///directory, s3://bucket/prefix, or memory: (nothing survives).",
        show_default="~/.crystal-relay",
    ),
]
S3Endpoint = Annotated[
    str | None,
    typer.Option(
        "--s3-endpoint",
        envvar="CRYSTAL_RELAY_S3_ENDPOINT",
        metavar="URL",
        help="The object store if not Amazon S3. Credentials come from the usual AWS_ variables or files.",
        show_default=False,
    ),
]
S3AllowHttp = Annotated[
    bool,
    typer.Option(
        "--s3-allow-http",
        envvar="CRYSTAL_RELAY_S3_ALLOW_HTTP",
        help="Allow an http:// endpoint on another machine. For entirely private networks.",
    ),
]
AsJson = Annotated[
    bool,
    typer.Option(
        "--json", envvar="CRYSTAL_RELAY_JSON", help="Print one JSON document; errors are JSON on stderr."
    ),
]

ENROLL_VARIABLE = "CRYSTAL_RELAY_ENROLL_TOKEN"
METRICS_VARIABLE = "CRYSTAL_RELAY_METRICS_TOKEN"
SECRET_VARIABLES = {
    ENROLL_VARIABLE: "An enrolment token beside those of `tokens create`.",
    f"{ENROLL_VARIABLE}_FILE": "A file with it, which may change while the relay runs.",
    METRICS_VARIABLE: "The token that gives access to /metrics. Without one they are not served.",
    f"{METRICS_VARIABLE}_FILE": "A file with it, which may change while the relay runs.",
}
"""Variables of `serve` without an option: everybody on the machine can read a command line."""
