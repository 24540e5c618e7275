"""An entry in and out of a TOML file, everything else to the byte as it was.

The entry is a table of its own at the end of the file. What is written or cut is checked by parsing: the file must then say
what it said before, with or without that table, and nothing else may have changed. What cannot be done so is not done.
"""

import json
import re
import tomllib

from crystal_node.agent.hooks.jsondocument import DamagedDocument, members
from crystal_node.surfaces.mcp.clients.entries import NAME, EntryOwner

_HEADER = re.compile(r"^[ \t]*\[[ \t]*([^\[\]]+?)[ \t]*\][ \t]*(#.*)?$")


def entry_in(text: str, at: tuple[str, ...]) -> object:
    """The entry of our name; None if there is none. Raises DamagedDocument."""
    found: object = _parsed(text)
    for step in (*at, NAME):
        found = members(found).get(step)
    return found


def with_entry(text: str, at: tuple[str, ...], entry: dict[str, object]) -> str:
    """The file with this entry in the place of the one of our name, if there is one."""
    present = entry_in(text, at)
    if present == entry:
        return text
    if present is not None:
        text = _cut(text, at)
    newline = "\r\n" if "\r\n" in text else "\n"
    gap = "" if not text.strip() else newline if text.endswith("\n") else newline * 2
    added = text + gap + newline.join(_table(at, entry)) + newline
    if _without(_parsed(added), at) != _without(_parsed(text), at) or entry_in(added, at) != entry:
        raise DamagedDocument("the servers are written in a way that a table cannot be added to")
    return added


def without_entry(text: str, at: tuple[str, ...], owner: EntryOwner) -> str:
    """The file without the entry, if that is ours."""
    return _cut(text, at) if owner.owns(entry_in(text, at)) else text


def _table(at: tuple[str, ...], entry: dict[str, object]) -> list[str]:
    lines = [f"[{'.'.join((*at, NAME))}]"]
    for key, value in entry.items():
        inner = members(value)
        if inner:
            # JSON's strings are TOML's basic strings.
            inside = ", ".join(f"{name} = {json.dumps(each)}" for name, each in inner.items())
            lines.append(f"{key} = {{ {inside} }}")
        else:
            lines.append(f"{key} = {json.dumps(value)}")
    return lines


def _cut(text: str, at: tuple[str, ...]) -> str:
    """Without the table of our name and those below it. The end that is tried first is the next line that may begin a table."""
    wanted = _without(_parsed(text), at)
    lines = text.splitlines(keepends=True)
    first = next((index for index, line in enumerate(lines) if _names(line, (*at, NAME))), None)
    if first is None:
        raise DamagedDocument("the entry is written in a way that it cannot be taken out of")
    ends = [index for index in range(first + 1, len(lines)) if lines[index].lstrip().startswith("[")]
    for end in [*ends, len(lines)]:
        begin = first
        if end == len(lines) and begin and not lines[begin - 1].strip():
            begin -= 1
        left = "".join(lines[:begin] + lines[end:])
        try:
            if _without(tomllib.loads(left), at) == wanted and entry_in(left, at) is None:
                return left
        except (tomllib.TOMLDecodeError, DamagedDocument):
            continue
    raise DamagedDocument("the entry is written in a way that it cannot be taken out of")


def _names(line: str, path: tuple[str, ...]) -> bool:
    found = _HEADER.match(line.rstrip("\r\n"))
    return found is not None and tuple(part.strip().strip("\"'") for part in found[1].split(".")) == path


def _without(document: dict[str, object], at: tuple[str, ...]) -> dict[str, object]:
    """What a file says besides our entry. An empty table of servers says nothing."""
    if not at:
        return {name: value for name, value in document.items() if name != NAME}
    inner = _without(members(document.get(at[0])), at[1:])
    rest = {name: value for name, value in document.items() if name != at[0]}
    return rest | {at[0]: inner} if inner else rest


def _parsed(text: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DamagedDocument(str(error)) from None
    except RecursionError:
        raise DamagedDocument("it is nested too deeply") from None
