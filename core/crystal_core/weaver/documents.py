"""Rendering of an agent's files from the outcomes of batches and a model's prose. Pure functions.

File names never come from a model: they are fixed, or a date and the run's id for journals. Every file names its author.
Lengths limit a file as a whole.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import tzinfo

from crystal_core.weaver.answers import CONTEXT_BYTES_MAX, CONTEXT_BYTES_MIN, WARM_START_LINES_MAX, WarmStart
from crystal_core.weaver.prose import cut, one_line, paragraphs
from crystal_core.weaver.quotations import unquoted
from crystal_core.weaver.records import BatchOutcome
from crystal_core.weaver.sources import clock_of

IDENTITY = "IDENTITY.md"
SOUL = "SOUL.md"
CONTEXT = "CONTEXT.md"
REFERENCE = "REFERENCE.md"
MISSED = "memory/missed-tasks.md"
JOURNALS = "memory/journals"
EXTRACT = "EXTRACT.md"
"""Written instead of CONTEXT.md if a model wrote that and there is none now."""
WOVEN = "memory/woven.json"
"""The time up to which this database has read, for the next Core."""
PAGES = (IDENTITY, SOUL, CONTEXT, REFERENCE, MISSED, EXTRACT)

NO_MODEL = "extractive, no model"
_MARK = "_Written by the Dream Weaver"
_RECORD = "A record of what happened, and no instruction to anybody."
_NAME = re.compile(r"[0-9a-z-]+")
_LISTS = (
    ("Decided", "decided"),
    ("Promised", "promised"),
    ("Mattered", "concerned"),
    ("Missed", "missed"),
)
RECENT_MAX = 60
"""Batches that CONTEXT may draw on."""
_ITEM_BYTES_MAX = 220
"""Size of an item in the warm start."""


def journal_name(day: str, run: str) -> str:
    """Return a journal's name. Asserts that day and run have their own form."""
    assert _NAME.fullmatch(day), "a day is a date"
    assert _NAME.fullmatch(run), "a run's id is hexadecimal"
    return f"{JOURNALS}/{day}-{run}.md"


def journal(agent: str, day: str, run: str, outcomes: Sequence[BatchOutcome], zone: tzinfo) -> str:
    """Render a day's journal, one part for each batch."""
    models = sorted({outcome.model for outcome in outcomes})
    pieces = sum(outcome.pieces for outcome in outcomes)
    parts = [
        f"# {day}, {one_line(agent, 64)}",
        f"{_MARK}: {one_line(', '.join(models), 200)}; run {run}, {pieces:,} messages read. {_RECORD}_",
    ]
    for number, outcome in enumerate(outcomes, start=1):
        hours = " to ".join(
            dict.fromkeys(
                clock for clock in (clock_of(outcome.first, zone), clock_of(outcome.last, zone)) if clock
            )
        )
        if len(outcomes) > 1:
            parts.append(f"## Part {number}{', ' + hours if hours else ''}")
        parts += [text for text in (outcome.prose, outcome.note) if text]
        for title, field in _LISTS:
            items: tuple[str, ...] = getattr(outcome, field)
            if items:
                parts.append(f"**{title}**\n\n" + "\n".join(f"- {item}" for item in items))
        if not outcome.prose and not outcome.note:
            parts.append("Nothing of note.")
    return "\n\n".join(parts) + "\n"


def page(title: str, agent: str, prose: str, model: str, today: str, bytes_max: int) -> str:
    """Render IDENTITY or SOUL."""
    head, end = f"# {title} of {one_line(agent, 64)}\n\n", f"\n\n{_signed(model, today)}\n"
    room = bytes_max - len((head + end).encode())
    return head + paragraphs(prose, room) + end


def context(agent: str, warm: WarmStart, recent: Iterable[str], model: str, today: str) -> str:
    """Render CONTEXT: the warm start, its background, and as much of the last days as makes it useful."""
    lines = [f"# Context of {one_line(agent, 64)}", "", _signed(model, today), "", "## Warm start", ""]
    sections = (
        ("Now", warm.now),
        ("The last 48 hours", warm.recent),
        ("The user", warm.user),
        ("Blocked", warm.blocked),
        ("Next", warm.next),
    )
    most = (WARM_START_LINES_MAX - len(sections) * 3) // len(sections)
    for title, items in sections:
        lines += [f"**{title}**", ""]
        lines += [f"- {cut(item, _ITEM_BYTES_MAX)}" for item in items[:most]] or ["- Nothing known."]
        lines += [""]
    text = "\n".join(lines)
    room = CONTEXT_BYTES_MAX - len(text.encode()) - 64
    background = paragraphs(warm.background, max(room, 0))
    if background:
        text += f"\n## Background\n\n{background}\n"
    days: list[str] = []
    for day in recent:
        size = len((text + "".join(days)).encode())
        room = CONTEXT_BYTES_MAX - size - 32
        if size >= CONTEXT_BYTES_MIN or room < 200:
            break
        days.append(cut(day, min(room, 1500)) + "\n\n")
    if days:
        text += "\n## Recent days\n\n" + "".join(days)
    return cut(text.rstrip() + "\n", CONTEXT_BYTES_MAX).rstrip() + "\n"


def recent_days(outcomes: Sequence[tuple[str, BatchOutcome]]) -> list[str]:
    """Return day and prose of each batch, newest first."""
    return [f"{day}: {outcome.prose}" for day, outcome in reversed(outcomes) if outcome.prose]


def recent_days_unquoted(outcomes: Sequence[tuple[str, BatchOutcome]]) -> list[str]:
    """As `recent_days`, without quotations."""
    return [unquoted(text) for text in recent_days(outcomes[-RECENT_MAX:])]


def reference(agent: str, outcomes: Sequence[tuple[str, BatchOutcome]], model: str, today: str) -> str:
    """Render REFERENCE by topic. Of equal lines the last one stays."""
    topics: dict[str, dict[str, str]] = {}
    titles: dict[str, str] = {}
    for day, outcome in outcomes:
        for topic, line in outcome.references:
            titles.setdefault(topic.casefold(), topic)
            topics.setdefault(topic.casefold(), {})[line] = day
    parts = [f"# Reference of {one_line(agent, 64)}", _signed(model, today)]
    for topic in sorted(topics):
        lines = "\n".join(f"- {line} ({day})" for line, day in topics[topic].items())
        parts.append(f"## {titles[topic]}\n\n{lines}")
    return "\n\n".join(parts) + "\n"


def missed(former: str, outcomes: Iterable[tuple[str, BatchOutcome]], model: str, today: str) -> str:
    """Render the missed tasks: existing lines stay as they are, ticked or not, and new ones follow."""
    text = former or f"# Missed tasks\n\n{_signed(model, today)}\n\n"
    new = "".join(
        f"- [ ] {day}: {item}\n"
        for day, outcome in outcomes
        for item in map(unquoted, outcome.missed)
        if f"{day}: {item}" not in text
    )
    return text if not new else text.rstrip("\n") + ("\n\n" if not former else "\n") + new


def unsigned(text: str) -> str:
    """Return a page without its author's line, for a model that writes the next version."""
    return "\n".join(line for line in text.splitlines() if not line.startswith(_MARK)).strip()


def _signed(model: str, today: str) -> str:
    return f"{_MARK} on {today}: {one_line(model, 200)}. {_RECORD}_"
