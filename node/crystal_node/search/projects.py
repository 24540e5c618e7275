"""Projects: listed, found by their names, linked; and which one a memory is for.

A project is named by its repository or its folder, whole or by the end from a slash on. A folder that is there is named by its
path too, though nothing was recorded in it yet.
"""

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from crystal_core.memories import Category, MemoryScope
from crystal_core.projects import (
    NO_FOLDERS,
    Link,
    Names,
    Project,
    ProjectKey,
    links,
    named,
    names_of,
    project_keys,
    projects,
    scope_of,
)
from crystal_mirror.operations import LinkProjects
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import NoSuchEntry, UsageError
from crystal_node.base.project import ProjectFinder
from crystal_node.base.wording import iso, one_line
from crystal_node.device.device import Device
from crystal_node.device.repositories import claim, key_of

NO_PROJECT: ProjectKey = ("", "")
_NAMED_MAX = 5
"""Projects that an error about a name names."""
_NAME_CHARS = 120
_LIST_HINT = (
    "`crystal projects list` shows them. One that was moved or renamed keeps both names: link the old to the new,"
    " `crystal projects link OLD NEW`."
)


class ProjectDocument(Struct, frozen=True, kw_only=True):
    """A project. ``name``: its repository, or its folder if it has none; ``linked``: the names of those it is linked to;
    ``last_at``: when something was last said in it, ISO 8601, "" if unknown."""

    name: str
    repository: str
    folders: list[str]
    conversations: int
    messages: int
    memories: int
    last_at: str
    linked: list[str]


class ProjectsDocument(Struct, frozen=True, kw_only=True):
    """All projects, those that were last used first."""

    projects: list[ProjectDocument]


class LinkDocument(Struct, frozen=True, kw_only=True):
    """Two projects, and whether they are linked now."""

    one: str
    other: str
    linked: bool


def list_projects(device: Device) -> ProjectsDocument:
    """All projects that something was said in, or that a memory or a link is about."""
    database = device.replica.database
    with database.snapshot():
        found = projects(database)
        pairs = links(database)
    for key in (key for link in pairs for key in (link.one, link.other)):
        if not any(project.has(key) for project in found):
            found.append(Project(key[1], [key[0]] if key[0] else []))
    return ProjectsDocument(projects=[_document(each, pairs) for each in found])


def project_here(device: Device, folder: str) -> ProjectKey:
    """The project of a folder of this machine, in a repository that counts there of its root; no name in it if it is none."""
    place = ProjectFinder(device.settings.person_home).of(folder)
    folder, repository = key_of(device.replica.database, place)
    return (place.root, repository) if repository else (folder, "")


def find_project(device: Device, name: str, *, here: Path | None = None) -> ProjectKey:
    """The project of that name. With ``here`` the path of a folder is a name too, from there on.

    Raises:
        NoSuchEntry: no project is called that.
        Usage: several are.
    """
    shown = one_line(name, _NAME_CHARS)
    if here is not None and (folder := _folder(name, here)) is not None:
        place = ProjectFinder(device.settings.person_home).of(str(folder))
        key = key_of(device.replica.database, place)
        if scope_of(key):
            return _identity(key)
    known = _known(device)
    found = [key for key in known if name in key] or [key for key in known if name and named(key, name)]
    identities = sorted({_identity(key) for key in _with_repositories(found, known)})
    if not identities:
        raise NoSuchEntry(f"no project is called {shown}", hint=_LIST_HINT)
    if len(identities) > 1:
        some = ", ".join(scope_of(key) for key in identities[:_NAMED_MAX])
        raise UsageError(
            f"{len(identities)} projects are called {shown}", hint=f"Write out which one: {some}."
        )
    return identities[0]


def _folder(name: str, here: Path) -> Path | None:
    """The folder that a name is the path of; None if it is none, as ``~nobody`` where nobody is called that."""
    try:
        folder = here / Path(name).expanduser()
        return folder.resolve() if folder.is_dir() else None
    except (OSError, RuntimeError, ValueError):
        return None


def claims_of(device: Device, name: str, here: Path) -> list[LinkProjects]:
    """The claim of a folder of that name on its repository, if that was known nowhere: a link would make it known."""
    folder = _folder(name, here)
    if folder is None:
        return []
    place = ProjectFinder(device.settings.person_home).of(str(folder))
    return claim(device.replica.database, place.root, place.repository, now_ms())


def link_projects(
    device: Device, one: ProjectKey, other: ProjectKey, claims: Sequence[LinkProjects] = ()
) -> LinkDocument:
    """Link two projects on all devices, and make the claims of their folders. Linked ones stay so.

    Raises:
        Usage: both are the same project.
    """
    if names_of([one]).have(other):
        raise UsageError(f"{scope_of(one)} is one project: there is nothing to link")
    if not _between(device, one, other):
        device.accept([*claims, LinkProjects(one, other, True, now_ms())])
    return LinkDocument(one=scope_of(one), other=scope_of(other), linked=True)


def unlink_projects(device: Device, one: ProjectKey, other: ProjectKey) -> LinkDocument:
    """Undo the link of two projects on all devices.

    Raises:
        NoSuchEntry: they are not linked.
    """
    found = _between(device, one, other)
    if not found:
        raise NoSuchEntry(f"{scope_of(one)} and {scope_of(other)} are not linked", hint=_LIST_HINT)
    device.accept([LinkProjects(each.one, each.other, False, now_ms()) for each in found])
    return LinkDocument(one=scope_of(one), other=scope_of(other), linked=False)


def asked_scope(device: Device, wanted: MemoryScope | None, project: str, place: ProjectKey) -> str | None:
    """The scope of a memory as it was asked for; None if it was not. ``project`` names the project, else it is ``place``.

    Raises what ``find_project`` raises; Usage also if both are asked for, or a project that is none.
    """
    if project and wanted is MemoryScope.EVERYWHERE:
        raise UsageError("a memory is for everywhere, or for one project")
    if project:
        return scope_of(find_project(device, project))
    if wanted is MemoryScope.PROJECT:
        if not scope_of(place):
            raise UsageError(
                "nothing says which project it is for", hint="Name the project, or be in its folder."
            )
        return scope_of(place)
    return None if wanted is None else ""


def inferred_scope(category: Category, place: ProjectKey) -> str:
    """The scope of a memory that was not asked for: a preference is for everywhere, anything else for where it is made."""
    return "" if category is Category.PREFERENCE else scope_of(place)


def scopes_of(
    device: Device, wanted: MemoryScope | None, project: str, place: ProjectKey
) -> list[str] | None:
    """The scopes of the memories to list; None for all. Raises what ``asked_scope`` raises."""
    asked = asked_scope(device, wanted, project, place)
    if not asked:
        return None if asked is None else [""]
    key = find_project(device, project) if project else place
    known = [each for each in _known(device) if names_of([key]).have(each)]
    names = names_of([key, *known])
    return sorted(names.folders | names.repositories)


def scope_words(scope: str) -> tuple[str, str]:
    """A memory's scope as documents have it: where, and the project's name, "" if it is for everywhere."""
    return (MemoryScope.PROJECT.value, scope) if scope else (MemoryScope.EVERYWHERE.value, "")


def _document(project: Project, pairs: list[Link]) -> ProjectDocument:
    others = [link.other for link in pairs if project.has(link.one)]
    others += [link.one for link in pairs if project.has(link.other)]
    return ProjectDocument(
        name=project.name,
        repository=project.repository,
        folders=project.folders,
        conversations=project.conversations,
        messages=project.messages,
        memories=project.memories,
        last_at=iso(project.last_at) or "",
        linked=sorted({scope_of(each) for each in others if not project.has(each)}),
    )


def _known(device: Device) -> list[ProjectKey]:
    """The projects that something is known of, by each pair of names that they have."""
    database = device.replica.database
    found = dict.fromkeys(project_keys(database))
    found.update(dict.fromkeys(key for link in links(database) for key in (link.one, link.other)))
    names = names_of(found)
    for (scope,) in database.rows(
        "SELECT scope FROM memory_states WHERE scope <> '' UNION SELECT scope FROM memory_changes WHERE scope <> ''"
    ):
        if scope not in names.folders and scope not in names.repositories:
            found[scope, ""] = None
    return [key for key in found if scope_of(key)]


def _with_repositories(found: list[ProjectKey], known: list[ProjectKey]) -> list[ProjectKey]:
    """The same, where a folder alone is known with one repository elsewhere as that."""
    of_folder: dict[str, set[str]] = {}
    for folder, repository in known:
        if repository:
            of_folder.setdefault(folder, set()).add(repository)
    lone = {folder: min(names) for folder, names in of_folder.items() if len(names) == 1}
    return [(folder, repository or lone.get(folder, "")) for folder, repository in found]


def _identity(key: ProjectKey) -> ProjectKey:
    """The name by which a project is linked: its repository alone, or its folder if it has none."""
    return ("", key[1]) if key[1] else (key[0] if key[0] not in NO_FOLDERS else "", "")


def _between(device: Device, one: ProjectKey, other: ProjectKey) -> list[Link]:
    first, second = names_of([one]), names_of([other])

    def joins(link: Link, these: Names, those: Names) -> bool:
        return these.have(link.one) and those.have(link.other)

    return [
        link
        for link in links(device.replica.database)
        if joins(link, first, second) or joins(link, second, first)
    ]
