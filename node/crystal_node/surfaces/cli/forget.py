"""``crystal forget``: remove messages from every device, and report what still holds them."""

from typing import Annotated

import typer

from crystal_core.documents import documents_of
from crystal_mirror.operations import Forget
from crystal_node.agent.forget_report import ForgetReport, forget_report, note_files
from crystal_node.base.errors import UsageError
from crystal_node.base.lookup import find_text
from crystal_node.base.settings import resolve
from crystal_node.base.wording import counted, iso, one_line
from crystal_node.device.device import Device, opened
from crystal_node.surfaces.cli.console.options import Json
from crystal_node.surfaces.cli.console.output import emit, note, say
from crystal_node.surfaces.cli.console.prompts import read_secret
from crystal_node.sync.files.artefacts import is_made_here
from crystal_node.sync.files.text_search import files_with

Ids = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID...", help="Ids as search shows them; their first 8 digits or more will do."),
]
Report = Annotated[
    bool, typer.Option("--report", help="Say what still holds what was forgotten, and until when.")
]
Text = Annotated[
    bool,
    typer.Option(
        "--text",
        help="With --report: also look in the files here for words, which are typed or piped, never given as an argument.",
    ),
]


def run(ids: Ids = None, report: Report = False, text: Text = False, as_json: Json = False) -> None:
    """Forget messages on every device, for good.

    They are hidden here at once, and removed from the other devices with their next sync. No search finds them any more,
    and backfill does not bring them back. The relay's sealed copies are gone within 7 days. A backup, or a device that
    never syncs again, keeps what it has; files that contain a message are named, and are not changed. Only remembering the
    same words lifts it.

    Example:

        crystal forget 3f9a0c12d4e5
        crystal forget --report
    """
    if bool(ids) is report or (text and not report):
        raise UsageError("name the messages to forget, or ask for --report")
    with opened(resolve()) as device:
        if report:
            _report(device, text=text, as_json=as_json)
        else:
            _forget(device, ids or [], as_json=as_json)


def _forget(device: Device, ids: list[str], *, as_json: bool) -> None:
    found = {text.forget_hash: text for text in (find_text(device.replica.database, given) for given in ids)}
    texts = [text.words for text in found.values()]
    documents = documents_of(device.replica.database, [text.chunk for text in found.values()])
    device.accept([Forget(tuple(found))])
    holding = files_with(device, texts)
    paths = [path for path in holding if not is_made_here(path)]
    made = [path for path in holding if is_made_here(path)]
    if paths:
        note_files(device, paths)
    if as_json:
        emit(
            {
                "forgotten": [text.id.hex() for text in found.values()],
                "files": paths,
                "files_made_anew": made,
                "documents": [{"source": source, "path": path} for source, path in documents],
            }
        )
        return
    for text in found.values():
        say(f"Forgotten: {text.id.hex()[:12]}. Other devices follow with their next sync.")
    for path in made:
        note(f"This file holds it, and the Core makes it again without: {one_line(path, 300)}")
    for source, path in documents:
        note(
            f"It is read in from {one_line(path, 300)} of the source {one_line(source, 80)}. Take it out there as well:"
            " when that part changes, it counts as new."
        )
    for path in paths:
        note(f"This file holds it, and is yours to change: {one_line(path, 300)}")


def _report(device: Device, *, text: bool, as_json: bool) -> None:
    if text:
        wanted = read_secret("The words to look for: ", what="text")
        holding = files_with(device, [wanted])
        note_files(device, [path for path in holding if not is_made_here(path)])
        if not holding:
            note("No file of this home holds those words.")
    found = forget_report(device)
    if as_json:
        emit(_document(found))
    else:
        _tell(found)


def _tell(found: ForgetReport) -> None:
    say(f"{counted(found.texts, 'message')} {'is' if found.texts == 1 else 'are'} forgotten.")
    if not found.holders:
        say("Nothing that this machine knows of holds any of it.")
    for holder in found.holders:
        day = (iso(holder.until) or "")[:10] if holder.until is not None else ""
        say(f"  {holder.where.value}: {one_line(holder.what, 300)}" + (f"; gone by {day}" if day else ""))


def _document(found: ForgetReport) -> dict[str, object]:
    return {
        "forgotten": found.texts,
        "pending": [
            {"epoch": each.epoch, "seq": each.sequence, "since": iso(each.since)} for each in found.pending
        ],
        "holders": [
            {
                "where": holder.where.value,
                "what": holder.what,
                "device": holder.device.hex() or None,
                "until": iso(holder.until) if holder.until is not None else None,
            }
            for holder in found.holders
        ],
    }
