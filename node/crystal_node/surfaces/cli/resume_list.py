"""The list of `crystal resume`: shown from a cache at once, while what changed since is read.

Loads no argument parser, no settings and no database before a person sees the list.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence

from crystal_node.base.wording import ago, counted, one_line
from crystal_node.derive.resume.rows import SessionIndex, SessionRow, read_index
from crystal_node.surfaces.cli.console.picker import Choice, ListView, PickerState, pick

_NAME_CHARS = 60

Refresh = Callable[[Callable[[SessionIndex], None]], SessionIndex]
"""Looks at all copies again; is given what to call with what is known so far."""


def can_list() -> bool:
    """Whether standard input and error are a terminal that can move its cursor."""
    terminal = sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
    return terminal and os.environ.get("TERM", "dumb") not in ("", "dumb", "unknown")


def listed(home: str) -> tuple[SessionRow | None, bool]:
    """Have a person choose from all sessions of a home. Returns the choice, None if they went away, and whether there was a
    list: without a cache, or a terminal, the command itself has to see to it."""
    if not can_list():
        return None, False
    index = read_index(home)
    if not index.sessions:
        return None, False

    def refresh(tell: Callable[[SessionIndex], None]) -> SessionIndex:
        from crystal_node.base.settings import resolve
        from crystal_node.derive.resume.sessions import Sessions

        sessions = Sessions(resolve())
        sessions.refresh(tell)
        return sessions.index

    return choose(index, refresh), True


def choose(
    index: SessionIndex,
    refresh: Refresh,
    takes: Callable[[SessionRow, SessionIndex], bool] = lambda _row, _index: True,
) -> SessionRow | None:
    """Have a person choose from the sessions of an index, which is replaced by a newer one while they look. None if they went
    away. ``takes``: which are listed."""
    current = [index]
    now = time.time_ns() // 1_000_000
    view = ListView[SessionRow](
        key=lambda row: f"{row.tool}/{row.session}/{row.device}/{row.number}",
        words=lambda row: _words(row, current[0]),
        choice=lambda row: choice_of(row, current[0], now),
    )

    def rows() -> Sequence[SessionRow]:
        return [row for row in current[0].rows() if takes(row, current[0])]

    newer: list[SessionIndex] = []
    reading, writing = os.pipe()

    def told(found: SessionIndex) -> None:
        newer.append(found)
        os.write(writing, b"+")

    def look() -> None:
        from crystal_crypto.errors import CrystalError

        # A failure to look again leaves the list as it is; resuming from it then says what is wrong.
        try:
            told(refresh(told))
        except (OSError, CrystalError):
            return

    def replaced() -> Sequence[SessionRow]:
        current[0] = newer[-1]
        return rows()

    state = PickerState("resume", rows(), view)
    # Begun before the list is shown, it would take turns with what shows it.
    return pick(state, reading, replaced, threading.Thread(target=look, daemon=True).start)


def choice_of(row: SessionRow, index: SessionIndex, now: int) -> Choice:
    """A session as a line of the list. ``now``: milliseconds since 1970."""
    project = one_line(row.project.rpartition("/")[2] or row.project, _NAME_CHARS)
    fork = f"one of {row.branches} branches" if row.branches > 1 else ""
    about = " · ".join(part for part in (row.project, counted(row.lines, "line"), fork, row.session) if part)
    return Choice(
        columns=(
            ago((now - row.updated_at) / 1000) if row.updated_at else "undated",
            row.tool,
            one_line(index.device_name(row.device), _NAME_CHARS),
            project,
        ),
        title=row.title or "untitled",
        behind=f"+{row.new_lines:,}" if row.new_lines else "",
        preview=(about, row.last_words),
    )


def _words(row: SessionRow, index: SessionIndex) -> str:
    name = index.device_name(row.device)
    return f"{row.title}\n{row.tool} {name} {row.project} {row.session} {row.last_words}".casefold()
