"""An agent's day as Markdown: ``memory/daily/<YYYY-MM-DD>.md``, one line for each conversation of it."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import tzinfo

from crystal_node.base.wording import counted
from crystal_node.derive.artefacts.dates import local_time
from crystal_node.derive.artefacts.markdown import plain

REQUEST_CHARS = 120
PROJECT_CHARS = 60


@dataclass(frozen=True, slots=True)
class DayLine:
    """One conversation's part of a day. ``summary``: its summary's file name."""

    first_at: int
    last_at: int
    pieces: int
    project: str
    request: str
    summary: str


def daily_log(agent: str, day: str, zone: tzinfo, lines: Iterable[DayLine]) -> bytes:
    """The file without its seal: a pure function of its arguments. Lines are in order of their start."""
    text = [f"# {day}, {plain(agent, 100) or 'unnamed'}", "", f"Times are of {zone}.", ""]
    ordered = sorted(lines, key=lambda line: (line.first_at, line.last_at, line.summary))
    text += [_line(line, zone) for line in ordered]
    return ("\n".join(text) + "\n").encode()


def _line(line: DayLine, zone: tzinfo) -> str:
    start, end = local_time(line.first_at, zone), local_time(line.last_at, zone)
    when = f"{start:%H:%M} to {end:%H:%M}" if start is not None and end is not None else "at some time"
    where = f", in {plain(line.project, PROJECT_CHARS)}" if line.project.strip() else ""
    what = f": {plain(line.request, REQUEST_CHARS)}" if line.request.strip() else ""
    return f"- {when}{where}, [{counted(line.pieces, 'piece')}](../sessions/{line.summary}){what}"
