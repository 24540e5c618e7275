"""In which folders the name of a repository counts.

A folder's remote is written by whoever makes its files: a folder that was unpacked, synced or cloned could name any repository,
be given what was recorded in that one, and have its own words recalled there. So a name that is known counts only in folders
that are known to have it. Where nothing is known by that name there is nothing to be had, and the first folder has it. The
folder is a session's own, or the repository's root. Any other repository is known by its root's folder alone, and what is said
in it is recorded so: a person may link that folder with the repository, and undo it.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import structs

from crystal_core.database import Database
from crystal_core.projects import NO_FOLDERS, ProjectKey, repository_folders, was_said_in
from crystal_node.base.project import Project

if TYPE_CHECKING:
    from crystal_mirror.operations import Capture, LinkProjects, Operation

Roots = Mapping[ProjectKey, str]
"""Of pairs of folder and repository, the folder that the repository is in, where it is another one."""


def counts(database: Database, place: Project) -> bool:
    """Whether the place's repository counts there."""
    own = _folders(place.project, place.root)
    if not place.repository or not own:
        return False
    if any(was_said_in(database, (folder, place.repository)) for folder in own):
        return True
    known = repository_folders(database, place.repository)
    return known is None or not known.isdisjoint(own)


def key_of(database: Database, place: Project) -> ProjectKey:
    """The project of a place: by its repository too, where that counts, else by the folder that its repository is in."""
    return (place.project, place.repository) if counts(database, place) else (place.root or place.project, "")


def claim(database: Database, folder: str, repository: str, now_ms: int) -> "list[LinkProjects]":
    """The link by which a folder has a repository (``projects.claims``), if nothing is known by that name yet."""
    if not repository or folder in NO_FOLDERS or repository_folders(database, repository) is not None:
        return []
    from crystal_mirror.operations import (
        LinkProjects,  # lazy: it loads cryptography, which a search does without
    )

    return [LinkProjects((folder, repository), ("", repository), True, now_ms)]


def claimed(
    database: Database, captures: "Sequence[Capture]", roots: Roots, now_ms: int
) -> "list[Operation]":
    """The captures, without the repository where its name does not count; and the claim of a repository's root, if
    the first thing that is recorded of it was said in a folder within."""
    found: list[Operation] = []
    folders: dict[str, frozenset[str]] = {}
    for capture in captures:
        name, root = capture.repository, roots.get((capture.project, capture.repository), "")
        own = _folders(capture.project, root)
        if name and own and name not in folders:
            found += claim(database, root, name, now_ms)
            known = repository_folders(database, name)
            folders[name] = own if known is None else known
        counted = bool(name) and not folders.get(name, frozenset()).isdisjoint(own)
        if name and not counted:
            found.append(structs.replace(capture, project=root or capture.project, repository=""))
        else:
            found.append(capture)
    return found


def _folders(*names: str) -> frozenset[str]:
    return frozenset(names) - NO_FOLDERS
