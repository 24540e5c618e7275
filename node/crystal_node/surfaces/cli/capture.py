"""``crystal capture``: records transcripts, one pass; or turns recording on and off, and says how it stands."""

from pathlib import Path
from typing import Annotated

import typer

from crystal_node.surfaces.cli.options import Agent, Debug, Json
from crystal_node.surfaces.cli.output import emit, note, say

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[PATH...|on|off|status [TOOL...]]",
        help="Transcripts, or folders of them. Without: all that is known here. A file named on: ./on",
    ),
]
_SWITCHES = ("on", "off", "status")


def run(words: Words = None, agent: Agent = None, as_json: Json = False, debug: Debug = False) -> None:
    """Record what conversations gained since the last time. Nothing leaves this machine yet: `crystal sync` sends it.

    Transcripts are only read. Credentials are blanked out before anything is stored. A pass can be repeated or killed at
    any time: nothing is recorded twice, and nothing is lost.

    off pauses recording, of everything or of the tools that are named, also by the agent and until it is on again. What is
    said meanwhile waits where it is, and is recorded then: to have it never recorded, there is `crystal private`.

    Example:

        crystal capture
        crystal capture ~/.claude/projects/-home-me-work --agent cc-mini
        crystal capture off codex
        crystal capture status
    """
    if words and words[0] in _SWITCHES:
        from crystal_node.surfaces.cli.capture_switch import show_tools, turn

        if words[0] == "status":
            show_tools(words[1:], as_json=as_json)
        else:
            turn(words[1:], on=words[0] == "on", as_json=as_json)
        return
    _record([Path(word) for word in words or []], agent, as_json=as_json)


def _record(paths: list[Path], agent: str | None, *, as_json: bool) -> None:
    import asyncio

    from crystal_node.base.errors import NoSuchEntry
    from crystal_node.base.settings import Flags, resolve
    from crystal_node.base.wording import printable
    from crystal_node.capture.recording import Recorder
    from crystal_node.device.device import opened

    missing = [path for path in paths if not path.exists()]
    if missing:
        raise NoSuchEntry(
            f"there is no {missing[0]}", hint="Give a transcript (.jsonl) or a folder that holds some."
        )
    with opened(resolve(Flags(agent=agent))) as device:
        report = asyncio.run(Recorder(device).record(paths or None))
    if as_json:
        emit(
            {
                "messages": report.counts.messages,
                "redacted": report.redacted,
                "skipped": report.skipped,
                "files": report.files,
                "operations": report.operations,
                "private": report.private,
                "off": report.off,
                "redacted_kinds": dict(report.counts.redacted),
                "skipped_reasons": dict(report.counts.skipped),
                "strange": report.counts.strange,
                "spots": [
                    {"path": str(spot.path), "offset": spot.offset, "reason": spot.reason}
                    for spot in report.counts.spots
                ],
                "problems": [{"path": path, "problem": problem} for path, problem in report.problems],
            }
        )
        return
    if report.private:
        say("Private mode is on: nothing was recorded. `crystal private off` ends it.")
        return
    if report.off:
        say("Recording is off: nothing was recorded, and what is said waits. `crystal capture on` ends it.")
        return
    say(f"Recorded {report.words()}." if report.words() else "Nothing new.")
    if report.skipped:
        common = ", ".join(f"{count:,} {reason}" for reason, count in report.counts.skipped.most_common(4))
        say(f"Not words of a conversation, left out: {common}.")
    if report.counts.strange:
        note(printable(f"! {report.counts.strange_words()}"))
    for path, problem in report.problems:
        note(f"! {path} {problem}")
