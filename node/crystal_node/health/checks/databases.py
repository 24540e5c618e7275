"""The databases' files, each read by itself and without writing: one that is damaged is named, and what it means is said.

SQLite's quick check looks at every page but not at indexes' contents; with ``deep`` it looks at those as well.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import apsw

from crystal_node.errors import ExitCode
from crystal_node.health.check import Check, State
from crystal_node.home import Home
from crystal_node.settings import Settings
from crystal_node.wording import counted

_FAULTS_SHOWN = 3
_STATE = (
    "Do not delete it: it may hold conversations that are nowhere else yet. Copy the home away, then restore state.db from a "
    "backup (`crystal backup restore`), or join anew."
)
_MEMORY = (
    "`crystal restore` makes the memory anew from the relay, or from another machine's copy (--from PATH). Nothing that waits "
    "to be sent is in that file."
)
_AGAIN = "Stop what uses it and move it away, with its -wal file: it is begun anew, and what it knew is found out again."
_WORKS = "Move it away, with its -wal file, or restore it from a backup: what it kept of work under way is then begun again."


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    fix: str
    state: State


def databases(settings: Settings, *, deep: bool) -> Iterator[Check]:
    """One check for all, or one for each that is damaged."""
    files = [each for each in _files(settings.home) if each.path.exists()]
    damaged = [(file, faults) for file in files if (faults := _faults(file.path, deep=deep))]
    for file, faults in damaged:
        more = f" and {len(faults) - _FAULTS_SHOWN} more" if len(faults) > _FAULTS_SHOWN else ""
        what = f"{file.path} is damaged: {'; '.join(faults[:_FAULTS_SHOWN])}{more}"
        yield Check("databases", file.state, what, file.fix, ExitCode.STORAGE)
    if files and not damaged:
        names = ", ".join(file.path.name for file in files)
        yield Check("databases", State.OK, f"the pages of {counted(len(files), 'file')} are sound ({names})")


def _files(home: Home) -> list[_File]:
    return [
        _File(home.state_database, _STATE, State.FAILED),
        _File(home.database, _MEMORY, State.FAILED),
        _File(home.files_database, _AGAIN, State.WARNING),
        _File(home.jobs_database, _AGAIN, State.WARNING),
        _File(home.commands_database, _WORKS, State.WARNING),
        _File(home.works_database, _WORKS, State.WARNING),
        _File(home.weaver_database, _WORKS, State.WARNING),
    ]


def _faults(path: Path, *, deep: bool) -> list[str]:
    """What SQLite says is wrong; a file that is being changed meanwhile is read as of one moment."""
    pragma = "integrity_check" if deep else "quick_check"
    try:
        database = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    except apsw.Error as error:
        return [str(error)]
    try:
        rows = [str(row[0]) for row in database.execute(f"PRAGMA {pragma}(20)")]
    except apsw.BusyError:
        return []  # somebody works with it right now, who would notice
    except apsw.Error as error:
        return [str(error)]
    finally:
        database.close()
    return [row for row in rows if row != "ok" and "no such module" not in row]
