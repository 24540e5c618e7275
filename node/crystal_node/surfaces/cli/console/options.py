"""Options that several commands share."""

from enum import StrEnum
from typing import Annotated

import typer


class MachineRole(StrEnum):
    """What a machine is set up as."""

    CORE = "core"
    NODE = "node"


Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document; errors are JSON on standard error.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing.")]
Relay = Annotated[
    str | None,
    typer.Option(
        "--relay",
        metavar="URL",
        help="The relay's address, such as https://relay.example.org, or its operator's link; - reads it.",
    ),
]
Agent = Annotated[
    str | None, typer.Option("--agent", metavar="ID", help="The agent that the messages belong to.")
]
DeviceName = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="What your other devices call this one.")
]
KeyStorePlace = Annotated[
    str | None,
    typer.Option("--key-store", metavar="PLACE", help="Where keys are stored: auto, keyring or file."),
]
