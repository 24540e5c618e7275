"""The tools for sources. They do what ``crystal sources`` does, but for one thing: no model confirms that many documents go."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from crystal_node import sources
from crystal_node.mcp.arguments import NoArguments, SourcesAddArguments, SourcesSyncArguments
from crystal_node.mcp.calls import Call, Question
from crystal_node.mcp.rendering import name
from crystal_node.sources.results import SourceAdded, SourcesStatus, SourcesSynced, SourceSynced
from crystal_node.wording import counted, one_line

_LINE_CHARS = 300


def add(call: Call, given: SourcesAddArguments) -> tuple[SourceAdded, str]:
    """``crystal_sources_add``."""
    added = sources.add(
        call.keeper.settings(),
        Path(given.path),
        name=given.name,
        include=given.include,
        exclude=given.exclude,
    )
    what = "has other patterns now" if added.changed else f"is {name(added.path)} now"
    return added, f"The source {name(added.name)} {what}. crystal_sources_sync reads it."


def add_question(_call: Call, given: SourcesAddArguments) -> Question:
    """What the person is asked before a folder of theirs is read."""
    path = one_line(given.path, _LINE_CHARS)
    return Question(
        f"An agent asks to have this read into your memory, on all of your devices:\n\n{path}",
        f"Read {path} and keep it up to date",
        f"add {given.path!r} {given.name!r} {given.include!r} {given.exclude!r}",
    )


def sync(call: Call, given: SourcesSyncArguments) -> tuple[SourcesSynced, str]:
    """``crystal_sources_sync``."""

    def progress(source: str, done: int, total: int) -> None:
        call.check()
        call.progress(done, total or None, f"{one_line(source, 100)}: {done:,} of {total:,} files")

    synced = asyncio.run(
        sources.sync(call.keeper.settings(), given.name or None, progress=progress, seconds=given.seconds)
    )
    lines = [_synced(each) for each in synced.sources] or ["This device has no sources."]
    lines += [f"{name(each)} belongs to another device, which reads it." for each in synced.elsewhere]
    return synced, "\n".join(lines)


def status(call: Call, _given: NoArguments) -> tuple[SourcesStatus, str]:
    """``crystal_sources_status``."""
    found = sources.status(call.keeper.settings())
    lines: list[str] = []
    for each in found.sources:
        where = name(each.path or each.folder)
        owner = "" if each.here else f", on {name(each.device)}"
        size = f"{counted(each.documents, 'document')} in {counted(each.pieces, 'piece')}"
        lines.append(f"{name(each.name)}: {where}{owner}; {size}; last sync {each.last_sync or 'unknown'}.")
        lines += _trouble(each.problem, each.waiting, each.complete)
    return found, "\n".join(lines) or "There are no sources. crystal_sources_add adds one."


def _synced(each: SourceSynced) -> str:
    what = f"{each.new:,} new, {each.changed:,} changed, {each.removed:,} removed of {counted(each.files, 'file')}"
    return "\n".join([f"{name(each.name)}: {what}.", *_trouble(each.problem, each.waiting, each.complete)])


def _trouble(problem: str, waiting: int, complete: bool | None) -> Sequence[str]:
    lines: list[str] = []
    if problem:
        lines.append(f"  It was not looked at: {one_line(problem, _LINE_CHARS)}.")
    if waiting:
        gone = f"  The files of {counted(waiting, 'document')} are gone."
        lines.append(f"{gone} Tell the person: `crystal sources sync --confirm` removes them.")
    if complete is False and not problem:
        lines.append("  It is not finished: call crystal_sources_sync again, and it goes on.")
    return lines
