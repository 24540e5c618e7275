"""``crystal open``: the conversation around a message, on any device, offline."""

from typing import Annotated

import typer

from crystal_mirror.membership.status import device_name
from crystal_node.base.project import ProjectFinder
from crystal_node.base.settings import resolve
from crystal_node.base.wording import clock_time, counted, iso, one_line, printable
from crystal_node.device.device import Device, opened
from crystal_node.device.repositories import key_of
from crystal_node.search.conversation import Transcript, transcript
from crystal_node.surfaces.cli.console.options import Json
from crystal_node.surfaces.cli.console.output import emit, say
from crystal_node.surfaces.cli.console.place import working_folder

Hit = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="The id that `crystal search` shows, with its @ part if it has one; or its first 8 digits.",
    ),
]
Around = Annotated[
    int | None,
    typer.Option("--around", metavar="N", min=0, max=100_000, help="Only N messages before and after it."),
]


def run(hit: Hit, around: Around = None, as_json: Json = False) -> None:
    """Show the whole conversation around a message.

    Shows who said what, when and on which machine, also on machines where it did not take place. Works offline.

    Example:

        crystal open 3f9a2c41 --around 20
    """
    with opened(resolve()) as device:
        database = device.replica.database
        here = key_of(database, ProjectFinder(device.settings.person_home).of(working_folder()))
        found = transcript(database, hit, before=around, after=around, here=here)
        if as_json:
            emit(_document(device, found))
        else:
            _print(device, found)


def _document(device: Device, found: Transcript) -> dict[str, object]:
    names = _names(device, found)
    return {
        "agent": found.agent,
        "session": found.session,
        "project": found.project,
        "repository": found.repository,
        "source": found.source,
        "left_out": {"before": found.before, "after": found.after},
        "pieces": [
            {
                "id": piece.id,
                "text": piece.text,
                "role": piece.role,
                "created_at": iso(piece.created_at) if piece.created_at else None,
                "device": piece.device.hex() or None,
                "device_name": names[piece.device],
                "message": piece.message,
                "part": piece.part,
                "provisional": piece.provisional,
                "hit": piece.hit,
            }
            for piece in found.pieces
        ],
    }


def _print(device: Device, found: Transcript) -> None:
    names = _names(device, found)
    head = [found.agent, found.project or found.repository, found.session]
    if any(head):
        say(f"# {one_line(', '.join(part for part in head if part), 300)}")
    if found.before:
        say(f"({counted(found.before, 'message')} before this)")
    for piece in found.pieces:
        moment = clock_time(piece.created_at) if piece.created_at else "undated"
        name = one_line(names[piece.device], 60)
        mark = "> " if piece.hit else "  "
        shared = ", not shared yet" if piece.provisional else ""
        say(f"{mark}{moment}  {one_line(piece.role, 60)}{' on ' + name if name else ''}{shared}")
        for line in piece.text.splitlines():
            say(f"    {printable(line)}")
    if found.after:
        say(f"({counted(found.after, 'message')} after this)")


def _names(device: Device, found: Transcript) -> dict[bytes, str]:
    return {
        maker: (device_name(device.member, maker) or maker.hex()[:8]) if maker else ""
        for maker in {piece.device for piece in found.pieces}
    }
