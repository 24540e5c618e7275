"""The project that a search is narrowed to: found where its folder was moved, its nearest names told where it is unknown."""

from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from crystal_core.database import Database
from crystal_core.projects import NO_FOLDERS, named, project_keys
from crystal_core.search.filters import Scope
from crystal_node.base.project import repository_name

NAMES_MAX = 3
"""Most names that are told."""
_COMPARED_MAX = 5000
_ALIKE_MIN = 0.5
"""Likeness of two names, from 0 to 1, from which on one may be meant by the other."""


def known_project(database: Database, scope: Scope, given: str, person_home: Path) -> tuple[Scope, str]:
    """The scope, and a note if nothing was said in a project of that name.

    ``given``: as the person named it. A folder of this machine that was moved since is found by its repository.
    """
    wanted = scope.project
    if wanted is None:
        return scope, ""
    keys = list(project_keys(database))
    if any(named(key, wanted) for key in keys):
        return scope, ""
    repository = repository_name(_folder(given, person_home))
    if repository and any(repository == key[1] for key in keys):
        return replace(scope, project=repository), ""
    names = _nearest(wanted, (name for key in keys for name in key if name not in NO_FOLDERS))
    nearest = f"; the nearest are {', '.join(repr(name[:80]) for name in names)}" if names else ""
    return scope, f"nothing was said in a project called {wanted[:80]!r}{nearest}"


def _folder(given: str, person_home: Path) -> str:
    return f"{person_home}{given[1:]}" if given == "~" or given.startswith("~/") else given


def _nearest(wanted: str, names: Iterable[str]) -> list[str]:
    """The names whose last part is most alike, or that contain what is wanted."""
    from difflib import get_close_matches

    by_end: dict[str, str] = {}
    for name in names:
        by_end.setdefault(_end(name), name)
        if len(by_end) == _COMPARED_MAX:
            break
    end = _end(wanted)[:80]
    holding = [by_end[known] for known in sorted(by_end, key=len) if end and (end in known or known in end)]
    alike = [by_end[known] for known in get_close_matches(end, by_end, NAMES_MAX, _ALIKE_MIN)]
    return list(dict.fromkeys([*holding, *alike]))[:NAMES_MAX]


def _end(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2].lower()
