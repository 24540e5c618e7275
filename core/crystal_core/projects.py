"""Projects: what is said belongs to one, by the folder and the repository that it was said in.

A folder is relative to the person's home and a repository is a remote without user and protocol, so both mean the same on
every device. Two places are of one project if they have the same repository, or the same folder: a folder that was given
another repository, or a repository cloned into another folder, stays one project.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from crystal_core.database import Database

ProjectKey = tuple[str, str]
"""A project's folder and its repository; "" if unknown. "." is the home itself, which is no project."""

NO_FOLDERS = frozenset(("", "."))
"""Folders that are no project."""


class Names(NamedTuple):
    """The names of some projects by which their places are known."""

    folders: frozenset[str]
    repositories: frozenset[str]

    def have(self, key: ProjectKey) -> bool:
        """Whether the place is in one of them."""
        return key[0] in self.folders or key[1] in self.repositories


def names_of(keys: Iterable[ProjectKey]) -> Names:
    """Return the names of these projects; unknown folders and repositories, and the home itself, name none."""
    keys = tuple(keys)
    return Names(frozenset(key[0] for key in keys) - NO_FOLDERS, frozenset(key[1] for key in keys) - {""})


def named(key: ProjectKey, name: str) -> bool:
    """Whether a project is called that: by its folder, its repository, or the end of one from a slash on."""
    return any(each == name or each.endswith(f"/{name}") for each in key)


def project_keys(database: Database) -> Iterator[ProjectKey]:
    """Iterate over the pairs of folder and repository that something was said in, pending captures too, perhaps twice."""
    yield from _pairs(database, "occurrences")
    yield from _pairs(database, "provisional_places")


def _pairs(database: Database, table: str) -> Iterator[ProjectKey]:
    """Iterate over all pairs of project and repository, each by one or two lookups in their index."""
    columns = f"SELECT project, repository FROM {table}"  # noqa: S608 - a name of ours
    same = f"{columns} WHERE project = ? AND repository > ? ORDER BY repository LIMIT 1"
    other = f"{columns} WHERE project > ? ORDER BY project, repository LIMIT 1"
    pair = database.row(f"{columns} ORDER BY project, repository LIMIT 1")
    while pair is not None:
        yield pair[0], pair[1]
        pair = database.row(same, pair) or database.row(other, pair[:1])
