"""Options that several verbs take, each spelt and explained once."""

from typing import Annotated

import typer

StoreAddress = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar="CRYSTAL_RELAY_STORE",
        help="Where objects are kept: file:///directory, or memory: (nothing survives).",
        show_default="~/.crystal-relay",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document; errors are JSON on stderr.")]
