"""``crystal capture``: record transcripts once, turn recording on or off, and show its status."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from crystal_node.base.clock import now_ms
from crystal_node.base.errors import NoSuchEntry, NotSetUp, UsageError
from crystal_node.base.settings import Flags, Settings, resolve
from crystal_node.base.wording import ago, counted, iso, printable, size
from crystal_node.capture.exclusions import Exclusion, Exclusions, end, exclusion_of, write
from crystal_node.capture.recorder import Recorder
from crystal_node.capture.tools import TOOLS
from crystal_node.device.device import opened
from crystal_node.surfaces.cli.console.options import Agent, Json
from crystal_node.surfaces.cli.console.output import emit, note, say
from crystal_node.surfaces.setup.tools import AiTool, check_names, find_tools, read_states, switch

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[PATH...|on|off|status [TOOL...]|exclude|pause|include PROJECT...]",
        help="Transcripts, or folders of them. Without: all that is known here. A file named on: ./on",
    ),
]
_SWITCHES = ("on", "off", "status")
_CHOICES = ("exclude", "pause", "include")


def run(words: Words = None, agent: Agent = None, as_json: Json = False) -> None:
    """Record new messages of this machine's conversations.

    Transcripts are only read, and nothing leaves this machine: `crystal sync` sends what was recorded. Credentials are
    blanked out before anything is stored. A pass can be repeated or killed at any time: nothing is recorded twice, and
    nothing is lost.

    `off` stops recording, also by the background service, of everything or of the tools named. What is said meanwhile
    stays in the transcripts and is recorded after `on`. To leave it out for good, use `crystal private`. `status` shows
    each tool, and what is kept out.

    `exclude` keeps a project out of the record on all of your devices. Name its folder (with everything below it) or its
    repository. `pause` does the same, but only for what is said from now on. What is kept out is never recorded.
    `include` ends both.

    Example:

        crystal capture
        crystal capture ~/.claude/projects/-home-me-work --agent cc-mini
        crystal capture off codex
        crystal capture exclude ~/work/diary example.org/me/diary
        crystal capture status
    """
    if words and words[0] in _SWITCHES:
        if words[0] == "status":
            show_tools(words[1:], as_json=as_json)
        else:
            turn(words[1:], on=words[0] == "on", as_json=as_json)
        return
    if words and words[0] in _CHOICES:
        keep_out(words[0], words[1:], as_json=as_json)
        return
    _record([Path(word) for word in words or []], agent, as_json=as_json)


def _record(paths: list[Path], agent: str | None, *, as_json: bool) -> None:
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
                "actions": report.counts.actions,
                "redacted": report.redacted,
                "skipped": report.skipped,
                "files": report.files,
                "operations": report.operations,
                "private": report.private,
                "off": report.off,
                "waiting": report.waiting,
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
    if report.waiting:
        note(f"! {report.waiting_words()}")
    say(f"Recorded {report.words()}." if report.words() else "Nothing new.")
    if report.skipped:
        common = ", ".join(f"{count:,} {reason}" for reason, count in report.counts.skipped.most_common(4))
        say(f"Not part of the conversation, left out: {common}.")
    if report.counts.strange:
        note(printable(f"! {report.counts.strange_words()}"))
    for path, problem in report.problems:
        note(f"! {path} {problem}")


def turn(names: Sequence[str], *, on: bool, as_json: bool) -> None:
    """Turn recording on or off, of everything or of these tools, and wake the background service."""
    before = resolve()
    switch(before, TOOLS, names, on=on)
    settings = resolve()
    settings.home.ask_to_look()
    changed = (before.capture.on, before.capture.without) != (settings.capture.on, settings.capture.without)
    if as_json:
        emit(_document(settings) | {"changed": changed})
        return
    what = f"The conversations of {', '.join(names)}" if names else "Conversations"
    if on and names and not settings.capture.on:
        say(f"{what} are recorded once recording is on: `crystal capture on`.")
    elif on:
        say(f"{what} are recorded, what was said meanwhile as well.")
        if not names and settings.capture.without:
            off = sorted(settings.capture.without)
            say(f"Still off: {', '.join(off)} (`crystal capture on {' '.join(off)}`).")
    else:
        say(
            f"{what} are not recorded from now on. What is said meanwhile waits, and is recorded when it is on again."
        )


def keep_out(how: str, named: Sequence[str], *, as_json: bool) -> None:
    """Keep projects out of the record, or end that, and wake the background service."""
    settings = resolve()
    if settings.vault is None:
        raise NotSetUp(f"{settings.home.root} belongs to no vault yet", hint="`crystal up` makes one.")
    if not named:
        raise UsageError(
            f"there is no project to {how}",
            hint=f"Name a folder or a repository: `crystal capture {how} ~/work/diary`.",
        )
    root, now, changed = settings.home.root, now_ms(), False
    known = Exclusions.read(root, settings.person_home)
    meant: list[Exclusion] = []
    strange: list[str] = []
    for word in named:
        found = exclusion_of(word, settings.person_home, since=0 if how == "exclude" else now)
        if not found:
            raise UsageError(
                f"{printable(word)[:200]!r} is no folder here and no repository",
                hint="Give a folder of this machine, one below ~, or a repository as example.org/owner/name.",
            )
        if how == "include" and not any(map(known.naming, found)):
            strange.append(found[0].subject)
        else:
            meant += found
    for one in meant:
        excluded = known.naming(one)
        if how == "include":
            end(root, one.subject, until=now)
            changed = changed or bool(excluded)
        elif not any(each.since <= one.since for each in excluded):
            write(root, one)
            changed = True
    settings.home.ask_to_look()
    if as_json:
        emit(_document(resolve()) | {"changed": changed})
        return
    if strange:
        still = printable(", ".join(one.subject for one in _kept_out(settings))) or "nothing"
        note(f"{printable(', '.join(strange))}: not kept out under that name. Kept out: {still}.")
    if not meant:
        return
    names = printable(", ".join(one.subject for one in meant))
    said = {
        "exclude": "kept out of the record, also what was said before and is not recorded yet",
        "pause": "what is said from now on is never recorded, until `crystal capture include`",
        "include": "recorded from now on; what was said meanwhile is not",
    }
    say(f"{names}: {said[how]}. Your other devices follow with their next sync.")
    if how == "include" and not strange and (others := _kept_out(settings)):
        say(f"Still kept out: {printable(', '.join(one.subject for one in others))}.")


def show_tools(names: Sequence[str], *, as_json: bool) -> None:
    """Show each tool: whether it is found and on, how much it has, and how much waits."""
    settings = resolve()
    check_names(TOOLS, names)
    private, states = read_states(settings)
    tools = [tool for tool in find_tools(settings, states) if not names or tool.name in names]
    if as_json:
        emit(_document(settings) | {"private": private, "tools": [tool.document() for tool in tools]})
        return
    say("Recording is on." if settings.capture.on else "Recording is OFF: `crystal capture on` ends that.")
    if private:
        say("Private mode is ON: nothing is recorded (`crystal private off` ends it).")
    for one in _kept_out(settings):
        since = f" since {iso(one.since)}" if one.since else ""
        say(f"Kept out{since}: {printable(one.subject)} (`crystal capture include` ends it).")
    for tool in tools:
        say(f"  {tool.name:<12} {_tool_status(settings, tool)}")
        for path, problem in tool.problems:
            note(f"! {path} {problem}")


def _tool_status(settings: Settings, tool: AiTool) -> str:
    if not tool.there:
        return "not here" if tool.wanted else "not here, and off"
    parts = ["on" if tool.wanted and settings.capture.on else "off", counted(tool.transcripts, "transcript")]
    if tool.recorded_at:
        parts.append(f"last recorded {ago(max(now_ms() - tool.recorded_at, 0) / 1000)} ago")
    parts.append(f"{size(tool.waiting)} waiting" if tool.waiting else "nothing waiting")
    return ", ".join(parts)


def _document(settings: Settings) -> dict[str, object]:
    kept_out = [
        {"folder": one.folder, "repository": one.repository, "since": iso(one.since)}
        for one in _kept_out(settings)
    ]
    return {
        "capture": settings.capture.on,
        "without": sorted(settings.capture.without),
        "excluded": kept_out,
    }


def _kept_out(settings: Settings) -> list[Exclusion]:
    found = Exclusions.read(settings.home.root, settings.person_home).all
    return sorted((one for one in found if one.holds), key=lambda one: one.subject)
