"""Where a session is held: its project, as conversations and memories are known by, and the projects that are linked to it.

Exact identities only: nothing of a project whose name ends alike, or whose folder lies within. A folder in a repository that
has a remote is of that repository's project, wherever it lies; any other folder is a project of its own. The person's home
itself, and a session without a folder, are no project: memories that hold everywhere count there, and nothing else.
"""

from pathlib import Path

from crystal_core.database import Database
from crystal_core.projects import ProjectKey, linked, names_of
from crystal_node.base.project import ProjectFinder


def key_of(cwd: str, person_home: Path) -> ProjectKey:
    """The project of a folder as a hook names it, which need not exist."""
    place = ProjectFinder(person_home).of(cwd)
    return place.project, place.repository


def is_project(key: ProjectKey) -> bool:
    names = names_of([key])
    return bool(names.folders or names.repositories)


def searched_projects(database: Database, key: ProjectKey) -> list[ProjectKey]:
    """The project and those linked to it; none if it is none."""
    return list(linked(database, key)) if is_project(key) else []
