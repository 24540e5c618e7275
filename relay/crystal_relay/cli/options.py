"""Options of several commands."""

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
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document; errors are JSON on stderr.")]
