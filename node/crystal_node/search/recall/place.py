"""Where a session is held: its project, as conversations and memories are known by, and the projects that are linked to it.

Exact identities only: nothing of a project whose name ends alike, or whose folder lies within. A folder in a repository that
has a remote is of that repository's project where the remote counts (``device.repositories``); any other folder is a project of
its own. The person's home itself, and a session without a folder, are no project: memories that hold everywhere count there,
and nothing else.
"""

from pathlib import Path
from shlex import quote

from crystal_core.database import Database
from crystal_core.projects import ProjectKey, linked, names_of
from crystal_node.base.project import Project, ProjectFinder
from crystal_node.base.wording import one_line
from crystal_node.device.repositories import counts

_NAME_CHARS = 120


def place_of(cwd: str, person_home: Path) -> Project:
    """The place of a folder as a hook names it, which need not exist."""
    return ProjectFinder(person_home).of(cwd)


def is_project(key: ProjectKey) -> bool:
    names = names_of([key])
    return bool(names.folders or names.repositories)


def searched_projects(database: Database, key: ProjectKey) -> list[ProjectKey]:
    """The project and those linked to it; none if it is none."""
    return list(linked(database, key)) if is_project(key) else []


def unlinked_line(database: Database, place: Project) -> str:
    """What to tell the person where the folder's repository is known, but not to be this folder's; "" elsewhere."""
    if (
        not place.root
        or counts(database, place)
        or ("", place.repository) in linked(database, (place.root, ""))
    ):
        return ""
    name = one_line(place.repository, _NAME_CHARS)
    return (
        f"Crystal knows the repository {name} from another folder, and recalls nothing of it here. If this is yours too:"
        f" crystal projects link . {quote(name)}"
    )
