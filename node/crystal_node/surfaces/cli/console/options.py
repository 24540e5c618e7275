"""Options that several commands share."""

from typing import Annotated

import typer

Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document; errors are JSON on standard error.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing.")]
Relay = Annotated[
    str | None,
    typer.Option("--relay", metavar="URL", help="The relay's address, such as https://relay.example.org."),
]
Agent = Annotated[
    str | None, typer.Option("--agent", metavar="ID", help="The agent that the texts belong to.")
]
