"""An entry in and out of a JSON file, everything else to the byte as it was, comments too."""

from collections.abc import Iterator

from crystal_node.agent.hooks import jsondocument
from crystal_node.agent.hooks.jsondocument import DamagedDocument
from crystal_node.surfaces.mcp.clients.entries import NAME, EntryOwner

_PROJECTS = "projects"


def entry_in(text: str, at: tuple[str, ...]) -> object:
    """The entry of our name; None if there is none. Raises DamagedDocument."""
    return jsondocument.value_at(_checked(text, at), (*at, NAME)) if text.strip() else None


def ours_in(text: str, at: tuple[str, ...], owner: EntryOwner) -> Iterator[jsondocument.Path]:
    """Where entries of ours are: the person's own, and those of single projects."""
    if f'"{NAME}"' not in text:
        return
    found = jsondocument.parse(text)
    projects = jsondocument.members(jsondocument.value_at(found, (_PROJECTS,)))
    for outer in ((), *((_PROJECTS, name) for name in projects)):
        path = (*outer, *at, NAME)
        if owner.owns(jsondocument.value_at(found, path)):
            yield path


def with_entry(text: str, at: tuple[str, ...], entry: dict[str, object]) -> str:
    """The file with this entry in the place of the one of our name, if there is one."""
    text = text if text.strip() else "{}\n"
    found = _checked(text, at)
    present = jsondocument.value_at(found, (*at, NAME))
    if present == entry:
        return text
    return jsondocument.with_value(text, (*at, NAME), entry)


def without_entries(text: str, at: tuple[str, ...], owner: EntryOwner) -> str:
    """The file without any entry of ours."""
    for path in list(ours_in(text, at, owner)):
        text = jsondocument.without(text, path)
    return text


def _checked(text: str, at: tuple[str, ...]) -> object:
    found = jsondocument.parse(text)
    for depth in range(len(at) + 1):
        value = jsondocument.value_at(found, at[:depth])
        if value is not None and not isinstance(value, dict):
            where = jsondocument.place(text, at[:depth])
            raise DamagedDocument(f"{where}: {'.'.join(at[:depth]) or 'the file'} is no object")
    return found
