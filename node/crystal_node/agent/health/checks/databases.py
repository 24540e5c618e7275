"""Databases, each checked by itself without writing. A damaged one is named, with what that means.

SQLite's quick check reads every page but not the indexes' contents; ``deep`` checks these as well.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import apsw

from crystal_core.sqlite_file import open_read_only
from crystal_crypto.errors import CrystalError
from crystal_node.agent.health.findings import Finding, Severity
from crystal_node.base.errors import ExitCode
from crystal_node.base.home import Home
from crystal_node.base.settings import Settings
from crystal_node.base.wording import counted

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
_UNREAD = "Touch nothing. See that the disk works and has room, and that the file is yours; then look again."
_WORKS = "Move it away, with its -wal file, or restore it from a backup: what it kept of work under way is then begun again."

_SOURCES = "Move it away, and say again where they are: crystal sources add FOLDER --name NAME. Nothing is sent again."


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    fix: str
    state: Severity


@dataclass(frozen=True, slots=True)
class _Found:
    """``faults``: of the content. ``unread``: why the file could not be read now, which says nothing about its content."""

    faults: tuple[str, ...] = ()
    unread: str = ""


def databases(settings: Settings, *, deep: bool) -> Iterator[Finding]:
    """One check for all, or one for each that is damaged or cannot be read."""
    looked = [(file, _look(file.path, deep=deep)) for file in _files(settings.home) if file.path.exists()]
    sound = [file.path.name for file, found in looked if not found.faults and not found.unread]
    for file, found in looked:
        if found.faults:
            more = (
                f" and {len(found.faults) - _FAULTS_SHOWN} more" if len(found.faults) > _FAULTS_SHOWN else ""
            )
            what = f"{file.path} is damaged: {'; '.join(found.faults[:_FAULTS_SHOWN])}{more}"
            yield Finding("databases", file.state, what, file.fix, ExitCode.STORAGE)
        elif found.unread:
            what = f"{file.path} cannot be read now: {found.unread}"
            yield Finding("databases", file.state, what, _UNREAD, ExitCode.STORAGE)
    if sound and len(sound) == len(looked):
        what = f"the pages of {counted(len(sound), 'file')} are sound ({', '.join(sound)})"
        yield Finding("databases", Severity.OK, what)


def _files(home: Home) -> list[_File]:
    return [
        _File(home.state_database, _STATE, Severity.FAILED),
        _File(home.database, _MEMORY, Severity.FAILED),
        _File(home.files_database, _AGAIN, Severity.WARNING),
        _File(home.jobs_database, _AGAIN, Severity.WARNING),
        _File(home.commands_database, _WORKS, Severity.WARNING),
        _File(home.works_database, _WORKS, Severity.WARNING),
        _File(home.weaver_database, _WORKS, Severity.WARNING),
        _File(home.sources_database, _SOURCES, Severity.WARNING),
        _File(home.sessions_database, _AGAIN, Severity.WARNING),
    ]


def _look(path: Path, *, deep: bool) -> _Found:
    """What SQLite says of the file, read in one snapshot."""
    pragma = "integrity_check" if deep else "quick_check"
    try:
        database = open_read_only(path)
    except (apsw.Error, CrystalError) as error:
        return _Found(unread=str(error))
    try:
        rows = tuple(str(row[0]) for row in database.execute(f"PRAGMA {pragma}(20)"))
    except (apsw.CorruptError, apsw.NotADBError) as error:
        return _Found((str(error),))
    except apsw.BusyError:
        return _Found()  # in use right now, which would notice damage
    except apsw.Error as error:
        return _Found(unread=str(error))
    finally:
        database.close()
    return _Found(tuple(row for row in rows if row != "ok" and "no such module" not in row))
