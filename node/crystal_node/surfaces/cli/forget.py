"""``crystal forget``: remove messages from every device, and report what still holds them."""

from typing import Annotated

import typer

from crystal_core.documents import documents_of
from crystal_mirror.operations import Forget
from crystal_node.agent.forget_report import ForgetReport, forget_report, note_files
from crystal_node.base.errors import NoSuchEntry, UsageError
from crystal_node.base.lookup import StoredText, find_text, is_id, texts_with
from crystal_node.base.settings import resolve
from crystal_node.base.wording import counted, iso, one_line
from crystal_node.derive.resume.forgetting import follow_forgets
from crystal_node.device.device import Device, opened
from crystal_node.search.finding.deep_outcome import forget_mark
from crystal_node.surfaces.cli.console.options import Json, Yes
from crystal_node.surfaces.cli.console.output import emit, note, say
from crystal_node.surfaces.cli.console.prompts import ask, read_secret
from crystal_node.surfaces.cli.console.terminal import is_terminal
from crystal_node.sync.files.artefacts import is_made_here
from crystal_node.sync.files.text_search import files_with

Asked = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="ID... | WORDS",
        help="Ids as search shows them, or their first 8 digits or more; or words that messages contain; - reads the words.",
    ),
]
_ASK = "-"
FORGET_MAX = 100
"""Messages that are forgotten at once by their words: a screen or two, that somebody reads."""
_LINE_CHARS = 110

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


def run(
    asked: Asked = None, report: Report = False, text: Text = False, yes: Yes = False, as_json: Json = False
) -> None:
    """Forget messages on every device, for good.

    Given words, it lists the messages that contain them, and asks before it forgets them. A secret is better typed than given
    as an argument: `crystal forget -`.

    They are hidden here at once, and removed from the other devices with their next sync. No search finds them any more,
    and backfill does not bring them back. The relay's sealed copies are gone within 7 days. A backup, or a device that
    never syncs again, keeps what it has; files that contain a message are named, and are not changed. Only remembering the
    same words lifts it.

    Example:

        crystal forget 3f9a0c12d4e5
        crystal forget "the code of the shed"
        crystal forget --report
    """
    if bool(asked) is report or (text and not report):
        raise UsageError("name the messages to forget, or ask for --report")
    given = asked or []
    with opened(resolve()) as device:
        if report:
            _report(device, text=text, as_json=as_json)
        elif all(is_id(each) for each in given):
            _forget(device, [find_text(device.replica.database, each) for each in given], as_json=as_json)
        else:
            words = read_secret("The words: ", what="words") if given == [_ASK] else " ".join(given)
            _forget_words(device, words, yes=yes, as_json=as_json)


def _forget_words(device: Device, words: str, *, yes: bool, as_json: bool) -> None:
    """Lists what contains the words, and forgets it once somebody has agreed. Raises UsageError."""
    found, count = texts_with(device.replica.database, words, FORGET_MAX)
    if not found:
        raise NoSuchEntry("no message or memory here contains these words")
    if count > FORGET_MAX:
        raise UsageError(
            f"{count:,} messages contain these words, and at most {FORGET_MAX} are forgotten at once",
            hint="Give more words; `crystal search --by message` shows them.",
        )
    if not yes:
        if as_json:
            emit({"would_forget": [{"id": text.id.hex(), "text": text.words} for text in found]})
            return
        for text in found:
            say(f"{text.id.hex()[:12]}  {one_line(text.words, _LINE_CHARS)}")
        if not (
            is_terminal() and ask(f"Forget {counted(count, 'message')} on every device, for good? [yes/no] ")
        ):
            raise UsageError(
                "nothing was forgotten", hint="Answer yes, add --yes, or give the ids of some of them."
            )
    _forget(device, found, as_json=as_json)


def _forget(device: Device, asked: list[StoredText], *, as_json: bool) -> None:
    found = {text.forget_hash: text for text in asked}
    texts = [text.words for text in found.values()]
    documents = documents_of(device.replica.database, [text.chunk for text in found.values()])
    device.accept([Forget(tuple(found))])
    follow_forgets(device.settings.home, forget_mark(device.replica.database))
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
