"""Projects: what is said belongs to one, by the folder and the repository that it was said in.

A folder is relative to the person's home and a repository is a remote without user and protocol, so both mean the same on
every device. Two places are of one project if they have the same repository, or the same folder: a folder that was given
another repository stays one project.

Whoever makes a folder's files chooses its remote. So a repository that is known counts only in the folders that are known to
have it (`repository_folders`); another folder is a project of its own, which a person may link with it.

A person may link two projects: what is known of the one is then known in the other. Links are replicated, pending ones
count, and they do not go on: a link to a project is none to those that this one is linked to.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from crystal_core.database import Database

ProjectKey = tuple[str, str]
"""A project's folder and its repository; "" if unknown. "." is the home itself, which is no project."""

OUTSIDE = "…/"
"""Beginning of the name of a folder outside of the home."""
NO_FOLDERS = frozenset(("", "."))
"""Folders that are no project."""

SAID_LOOKED_AT = 500
"""Messages of a place among which an agent's are looked for."""

LINK_COLUMNS = "folder, repository, other_folder, other_repository"
LINK_IS = "folder = ? AND repository = ? AND other_folder = ? AND other_repository = ?"


class Names(NamedTuple):
    """The names of some projects by which their places are known."""

    folders: frozenset[str]
    repositories: frozenset[str]

    def have(self, key: ProjectKey) -> bool:
        """Whether the place is in one of them: by its repository, or by its folder where no repository says otherwise.

        A folder outside of the home may be another one on another device, so it counts only where neither has a repository.
        """
        folder, repository = key
        if repository in self.repositories:
            return True
        if folder not in self.folders:
            return False
        return not repository or (not self.repositories and not folder.startswith(OUTSIDE))


@dataclass(frozen=True, slots=True)
class Link:
    """Two linked projects. ``pending``: known to this device only, so far."""

    one: ProjectKey
    other: ProjectKey
    at: int
    pending: bool


@dataclass(slots=True)
class Project:
    """A project that something was said in, or that a memory or a link is about. ``last_at`` in ms since 1970, 0 if unknown."""

    repository: str
    folders: list[str] = field(default_factory=list[str])
    """Those that it was in, the latest first."""
    conversations: int = 0
    messages: int = 0
    memories: int = 0
    last_at: int = 0

    @property
    def key(self) -> ProjectKey:
        return (self.folders[0] if self.folders else "", self.repository)

    @property
    def name(self) -> str:
        return scope_of(self.key)

    def has(self, key: ProjectKey) -> bool:
        """Whether that place, or the place that a link names, is in it."""
        return Names(frozenset(self.folders) - NO_FOLDERS, frozenset((self.repository,)) - {""}).have(key)


def names_of(keys: Iterable[ProjectKey]) -> Names:
    """Return the names of these projects; unknown folders and repositories, and the home itself, name none."""
    keys = tuple(keys)
    return Names(frozenset(key[0] for key in keys) - NO_FOLDERS, frozenset(key[1] for key in keys) - {""})


def scope_of(key: ProjectKey) -> str:
    """Return the scope of a memory that is for this project alone: its repository, or its folder if it has none, or
    "" (everywhere) if it is no project."""
    return key[1] or ("" if key[0] in NO_FOLDERS else key[0])


def named(key: ProjectKey, name: str) -> bool:
    """Whether a project is called that: by its folder, its repository, or the end of one from a slash on."""
    return any(each == name or each.endswith(f"/{name}") for each in key)


def link_of(one: ProjectKey, other: ProjectKey) -> tuple[str, str, str, str]:
    """Return both projects in the order in which a link of them is kept."""
    first, second = sorted((one, other))
    return (*first, *second)


def links(database: Database) -> list[Link]:
    """Return all links, by name."""
    found = {
        tuple(names): Link((names[0], names[1]), (names[2], names[3]), int(at), False)
        for *names, at in database.rows(f"SELECT {LINK_COLUMNS}, at FROM project_links")  # noqa: S608
    }
    pending = f"SELECT linked, {LINK_COLUMNS}, at FROM provisional_links ORDER BY number"  # noqa: S608
    for is_linked, *names, at in database.rows(pending):
        if is_linked:
            found.setdefault(tuple(names), Link((names[0], names[1]), (names[2], names[3]), int(at), True))
        else:
            found.pop(tuple(names), None)
    return [found[names] for names in sorted(found)]


def linked(database: Database, key: ProjectKey) -> tuple[ProjectKey, ...]:
    """Return this project and those that it is linked to."""
    own = names_of([key])
    others: dict[ProjectKey, None] = {}
    for link in links(database):
        if own.have(link.one):
            others[link.other] = None
        if own.have(link.other):
            others[link.one] = None
    return (key, *(other for other in others if not own.have(other)))


def projects(database: Database) -> list[Project]:
    """Return all projects, those that were last used first. Reads all occurrences: 0.1 s for 100,000."""
    found: dict[str, Project] = {}
    by_folder: dict[str, Project] = {}
    rows = database.rows(
        "SELECT project, repository, count(DISTINCT agent || char(0) || session), count(*), max(created_at) FROM ("
        " SELECT project, repository, agent, session, created_at FROM occurrences UNION ALL"
        " SELECT project, repository, agent, session, created_at FROM provisional_places"
        " WHERE category IS NULL AND path IS NULL)"
        " GROUP BY project, repository ORDER BY repository = '', max(created_at) DESC, project, repository"
    )
    for folder, repository, conversations, messages, last_at in rows:
        project = by_folder.get(folder) if not repository else found.get(repository)
        if project is None:
            if not scope_of((folder, repository)):
                continue
            project = found[scope_of((folder, repository))] = Project(repository)
        if folder not in NO_FOLDERS and folder not in project.folders:
            project.folders.append(folder)
            by_folder.setdefault(folder, project)
        project.conversations += conversations
        project.messages += messages
        project.last_at = max(project.last_at, last_at)
    for folder, repository in claims(links(database)):
        project = found.setdefault(repository, Project(repository))
        if folder not in project.folders:
            project.folders.append(folder)
            by_folder.setdefault(folder, project)
    _count_memories(database, found, by_folder)
    return sorted(found.values(), key=lambda each: (-each.last_at, each.name))


def _count_memories(database: Database, found: dict[str, Project], by_folder: dict[str, Project]) -> None:
    """Add the memories of each project, and the projects that only memories name."""
    for scope, count in database.rows(
        "SELECT scope, count(*) FROM memory_places WHERE scope <> '' GROUP BY scope"
    ):
        project = found.get(scope) or by_folder.get(scope)
        if project is None:
            project = found[scope] = Project("", [scope])
        project.memories += count


def project_keys(database: Database) -> Iterator[ProjectKey]:
    """Iterate over the pairs of folder and repository that something was said in, pending captures too, perhaps twice."""
    yield from _pairs(database, "occurrences")
    yield from _pairs(database, "provisional_places")


def claims(found: Iterable[Link]) -> list[ProjectKey]:
    """Return the folders that have a repository by a claim, even if nothing was said in them. A claim is a link of folder and
    repository with the repository alone."""
    pairs = [names for link in found for names in ((link.one, link.other), (link.other, link.one))]
    return [one for one, other in pairs if one[0] and other == ("", one[1])]


def was_said_in(database: Database, key: ProjectKey) -> bool:
    """Return whether something was recorded in exactly this folder and repository. One lookup."""
    return database.row(_SAID_IN, (*key, *key)) is not None


_SAID_IN = """
SELECT 1 FROM occurrences WHERE project = ? AND repository = ?
UNION ALL SELECT 1 FROM provisional_places WHERE project = ? AND repository = ? LIMIT 1
"""


def repository_folders(database: Database, repository: str) -> frozenset[str] | None:
    """Return the folders that are known to have a repository; None if nothing at all is known by its name.

    These are the folders that something was recorded in under it, and its claims. Pending ones count.
    """
    all_links = links(database)
    found = {folder for folder, name in (*project_keys(database), *claims(all_links)) if name == repository}
    if found:
        return frozenset(found - NO_FOLDERS)
    named_in_link = any(repository in (link.one[1], link.other[1]) for link in all_links)
    known = named_in_link or database.row(_IS_SCOPE, (repository, repository)) is not None
    return frozenset() if known else None


_IS_SCOPE = """
SELECT 1 FROM memory_states WHERE scope = ? UNION ALL SELECT 1 FROM memory_changes WHERE scope = ? LIMIT 1
"""


def said_only_in(database: Database, agent: str, keys: Iterable[ProjectKey]) -> bool:
    """Return whether all that was said in this agent's name was said in these projects; without any, in no project at all.

    False too where nothing was said there, and where another place has so much of other agents that looking would take long.
    """
    names = names_of(keys)
    nowhere = not (names.folders or names.repositories)
    here = False
    for pair in set(project_keys(database)):
        if names.have(pair) or (nowhere and not scope_of(pair)):
            here = True
            continue
        said = [name for (name,) in database.rows(_SAID, (*pair, SAID_LOOKED_AT))]
        if agent in said or len(said) == SAID_LOOKED_AT or database.row(_PENDING, (*pair, agent)) is not None:
            return False
    return here


_SAID = """
SELECT agent FROM occurrences INDEXED BY occurrences_by_project WHERE project = ? AND repository = ? LIMIT ?
"""
_PENDING = """
SELECT 1 FROM provisional_places WHERE category IS NULL AND path IS NULL AND project = ? AND repository = ? AND agent = ?
"""


def _pairs(database: Database, table: str) -> Iterator[ProjectKey]:
    """Iterate over all pairs of project and repository, each by one or two lookups in their index."""
    columns = f"SELECT project, repository FROM {table}"  # noqa: S608 - a name of ours
    same = f"{columns} WHERE project = ? AND repository > ? ORDER BY repository LIMIT 1"
    other = f"{columns} WHERE project > ? ORDER BY project, repository LIMIT 1"
    pair = database.row(f"{columns} ORDER BY project, repository LIMIT 1")
    while pair is not None:
        yield pair[0], pair[1]
        pair = database.row(same, pair) or database.row(other, pair[:1])
