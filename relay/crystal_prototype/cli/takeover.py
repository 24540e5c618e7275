"""``crystal takeover``: copies the home of the published prototype and makes room in it for Crystal."""

from typing import Annotated

import typer

from crystal_node.surfaces.cli.console.options import Json, Yes
from crystal_node.surfaces.cli.console.output import emit, note, say
from crystal_node.surfaces.cli.console.prompts import confirm

EvenSo = Annotated[
    bool, typer.Option("--even-so", help="Go on although something still starts the prototype.")
]


def run(even_so: EvenSo = False, yes: Yes = False, as_json: Json = False) -> None:
    """Take over a home of the published prototype, in place.

    Everything is first copied beside it and compared. What agents wrote stays where it is. Afterwards `crystal up` sets the
    machine up, and `crystal migrate-db` imports what was said and remembered.

    Example:

        crystal takeover
    """
    from datetime import datetime

    from crystal_node.base.settings.settings import places
    from crystal_node.base.wording import counted, size
    from crystal_prototype.home.takeover import look, take_over

    where = places()
    found = look(where)
    if found is not None and not yes:
        about = (
            f"{found.root} is a home of the prototype's, {size(found.bytes)}, with {counted(len(found.agents), 'agent')}."
            " All of it is copied beside it and compared; then the prototype's settings, database and state are taken out.\n"
        )
        confirm("\nType takeover to go on: ", expect="takeover", about=about, as_json=as_json)
    now = datetime.now().astimezone()
    done = take_over(where, now, even_so=even_so, progress=note)
    if as_json:
        emit(
            {
                "copy": str(done.copy),
                "database": None if done.database is None else str(done.database),
                "files": done.files,
                "bytes": done.bytes,
                "copies": [str(copy) for copy in done.copies],
                "databases": [
                    {"path": str(each.database), "messages": each.messages, "memories": each.memories}
                    for each in done.databases
                ],
                "staged": done.staged,
            }
        )
        return
    say(f"All {counted(done.files, 'file')} are in {done.copy}, compared.")
    if len(done.copies) > 1:
        say("There are these copies of this home:")
        for copy in done.copies:
            say(f"  {copy}")
    say("Now set this machine up: crystal up")
    if done.databases or done.staged:
        say("Then bring in what was recorded: `crystal migrate-db` does all of these.")
    for each in done.databases:
        held = (
            "cannot be read"
            if each.messages is None
            else f"{counted(each.messages, 'message')}, {counted(each.memories or 0, 'memory', 'memories')}"
        )
        say(f"  crystal migrate-db {each.database}   ({held})")
    if done.staged:
        held = ", ".join(
            f"{counted(count, 'conversation')} of {agent}" for agent, count in done.staged.items()
        )
        say(f"  crystal migrate-db {done.copy / 'staging'}   ({held} that the prototype never took in)")
