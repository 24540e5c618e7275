"""Resources: parts of the memory that a client can list, attach and read.

    memory://recent            the newest texts
    memory://memories          what was remembered on purpose, newest first
    memory://chunk/{id}        one text, whole
    memory://session/{id}      the conversation that a text belongs to, by the text's id

There is no memory://entity/{name}: this memory keeps no entities, and a search for the name finds more. The list's first page
has the two fixed ones, which can be given before anything is loaded (``greeting``). The newest texts follow, a page at a
time; the cursor is a position in that order, so new texts move nothing.
"""

import re
from dataclasses import dataclass
from urllib.parse import unquote

from crystal_core.database import Database
from crystal_core.memories import memories
from crystal_node.base.errors import NoSuchEntry, UsageError
from crystal_node.base.text_ids import ID_DIGITS_MAX, placed_id
from crystal_node.base.wording import iso, one_line
from crystal_node.search.finding.documents import CONTEXT_MAX, ShowRequest
from crystal_node.search.places import newest_place_to_name
from crystal_node.surfaces.mcp.calls import Call
from crystal_node.surfaces.mcp.fence import Fence, name

RECENT = "memory://recent"
MEMORIES = "memory://memories"
CHUNK = "memory://chunk/"
SESSION = "memory://session/"
PAGE = 50
LISTED_MAX = 1000
"""Newest texts in the list; a search finds the others."""
RECENT_MAX = 50
TEXT_CHARS = 2000
COMPLETIONS_MAX = 100
"""As many as the protocol lets one answer have."""
NEWEST = f"{10**14 - 1}0000"
"""The cursor of the first page of texts."""
_TITLE_CHARS = 80
_BEGUN = re.compile(r"[0-9a-fA-F]{0,64}")
_CURSOR = re.compile(r"[0-9]{1,18}")
_ID = re.compile(r"[0-9a-fA-F]{8,64}(@[0-9a-fA-F]{8})?")

_NEWEST = """
SELECT c.rowid, c.id, c.text,
       coalesce((SELECT max(o.created_at) FROM occurrences o WHERE o.chunk = c.rowid),
                (SELECT m.created_at FROM memories m WHERE m.chunk = c.rowid), 0)
FROM chunks c
WHERE c.rowid < ? AND NOT EXISTS (SELECT 1 FROM provisional_marks m WHERE m.forget_hash = c.forget_hash AND m.hides = 1)
ORDER BY c.rowid DESC LIMIT ?
"""


@dataclass(frozen=True, slots=True)
class ResourceLink:
    """One text in the list."""

    uri: str
    title: str
    size: int


class UnknownResource(NoSuchEntry):
    """There is no resource of that address."""

    hint = "What there is: resources/list and resources/templates/list."


def page(call: Call, cursor: str) -> tuple[list[ResourceLink], str | None]:
    """A page of the newest texts, and the cursor of the next; None at the end.

    Raises:
        Usage: that is no cursor of ours.
    """
    below, listed = _position(cursor)
    with _database(call) as database:
        rows = database.rows(_NEWEST, (below, min(PAGE, LISTED_MAX - listed) + 1))
        places = [newest_place_to_name(database, row[0]) for row in rows[:PAGE]]
    shown = rows[:PAGE]
    found = [
        ResourceLink(
            CHUNK + placed_id(row[1].hex(), place, ID_DIGITS_MAX),
            one_line(row[2], _TITLE_CHARS),
            len(row[2].encode("utf-8", "replace")),
        )
        for row, place in zip(shown, places, strict=True)
    ]
    listed += len(shown)
    more = len(rows) > len(shown) and listed < LISTED_MAX
    return found, f"{shown[-1][0]}{listed:04d}" if more else None


def completed(call: Call, template: str, argument: str, begun: str) -> list[str]:
    """The ids of the newest texts that begin so, for the ``{id}`` of a template; none for anything else."""
    if template not in (CHUNK + "{id}", SESSION + "{id}") or argument != "id" or not _BEGUN.fullmatch(begun):
        return []
    with _database(call) as database:
        rows = database.rows(_NEWEST, (_TOP, LISTED_MAX))
    return [row[1].hex() for row in rows if row[1].hex().startswith(begun.lower())][:COMPLETIONS_MAX]


def read(call: Call, uri: str) -> str:
    """A resource's text, fenced.

    Raises:
        UnknownResource: no such address.
        NoSuchEntry: no such text.
    """
    if uri == RECENT:
        return _recent(call)
    if uri == MEMORIES:
        return _memories(call)
    for prefix, around in ((CHUNK, 0), (SESSION, CONTEXT_MAX)):
        given = unquote(uri.removeprefix(prefix)) if uri.startswith(prefix) else ""
        if _ID.fullmatch(given):
            return _shown(call, given, around)
    raise UnknownResource("there is no such resource")


def _shown(call: Call, given: str, around: int) -> str:
    with call.keeper.finding() as finding:
        found = finding.show(ShowRequest(id=given, before=around, after=around, folder=call.folder))
    fence = Fence(piece.text for piece in found.pieces)
    lines = [fence.explanation]
    for piece in found.pieces:
        lines += ["", f"id {piece.placed_id} | role {name(piece.role)} | {piece.created_at or 'undated'}"]
        lines.append(fence.around(piece.text))
    return "\n".join(lines)


def _recent(call: Call) -> str:
    with _database(call) as database:
        texts = [
            (placed_id(content.hex(), newest_place_to_name(database, chunk)), text, at, "")
            for chunk, content, text, at in database.rows(_NEWEST, (_TOP, RECENT_MAX))
        ]
    return _list(texts)


def _memories(call: Call) -> str:
    with _database(call) as database:
        found = memories(database, limit=RECENT_MAX)
    return _list(
        [(placed_id(each.id.hex(), ""), each.text, each.created_at, each.category) for each in found]
    )


def _list(texts: list[tuple[str, str, int, str]]) -> str:
    if not texts:
        return "There is nothing yet."
    fence = Fence(text for _, text, _, _ in texts)
    lines = [fence.explanation]
    for content, text, at, category in texts:
        about = f"id {content} | {iso(at) or 'undated'}" + (f" | {name(category)}" if category else "")
        lines += ["", about, fence.around(text[:TEXT_CHARS])]
    return "\n".join(lines)


_TOP = 2**62


def _position(cursor: str) -> tuple[int, int]:
    if not _CURSOR.fullmatch(cursor) or len(cursor) < 5:
        raise UsageError("that is no cursor of this list", hint="Begin the list anew, without a cursor.")
    return int(cursor[:-4]), min(int(cursor[-4:]), LISTED_MAX)


def _database(call: Call) -> Database:
    return Database.open(call.keeper.settings().home.database)
