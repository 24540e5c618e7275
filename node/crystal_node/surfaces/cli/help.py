"""``crystal help``: the help of a topic, of a command, or of all."""

from typing import Annotated

import typer

from crystal_node.base.errors import UsageError
from crystal_node.surfaces.cli.app import COMMANDS, Topic, build

Words = Annotated[
    list[str] | None, typer.Argument(metavar="[TOPIC | COMMAND ...]", help="What to show the help of.")
]
All = Annotated[bool, typer.Option("--all", help="List all commands, by topic.")]


def run(words: Words = None, every: All = False) -> None:
    """Show the help of a topic, of a command, or of all.

    The topics: setup, finding, remembering, recording, machines, safety, data.

    Example:

        crystal help --all
        crystal help machines
        crystal help devices revoke
    """
    asked = [] if words is None else words
    topic = next((each for each in Topic if asked and asked[0] == each.value), None)
    if every or not asked:
        listed = [command.name for command in COMMANDS] if every else None
        _show(["--help"], listed)
    elif topic is not None:
        _show(["--help"], [command.name for command in COMMANDS if command.topic is topic])
    elif asked[0] in {command.name for command in COMMANDS}:
        _show([*asked, "--help"])
    else:
        topics = ", ".join(each.value for each in Topic)
        raise UsageError(
            f"there is no command and no topic {asked[0][:60]!r}",
            hint=f"The topics are {topics}; `crystal help --all` lists all commands.",
        )


def _show(arguments: list[str], listed: list[str] | None = None) -> None:
    parser = build(arguments) if listed is None else build(arguments, listed)
    parser(args=arguments, prog_name="crystal", standalone_mode=False)
