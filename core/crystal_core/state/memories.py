"""Effect of operations on memories, the same on every device.

    Remember   adds a memory; if its text is already remembered, sets category and confidence and makes it current again,
               keeping agent, time and device of the first. The memories that it supersedes name it as their successor.
               Where it states no scope, a memory that is there keeps its own and a new one has that of the first superseded
    Amend      sets category, confidence, status, scope of a memory, as far as stated

A memory is current while it is active and has no successor. Forgetting a successor does not bring back the memory that it
superseded; remembering that one again does. A memory only names a successor that is current at that moment, so successors
never form a cycle.

Before a change, the memory's state is kept in `memory_changes` with who changed it. A change without effect leaves no row.
"""

from collections.abc import Sequence
from typing import NamedTuple

from crystal_core.database import Database
from crystal_core.memories import Change
from crystal_core.state.chunks import ChunkRows
from crystal_core.state.digests import MEMORIES, MEMORY_CHANGES, Digests, memory_change_row, memory_row
from crystal_mirror.operations import Amend, Remember
from crystal_mirror.ports import Vectors
from crystal_mirror.types import Origin


class _Memory(NamedTuple):
    """A row of `memories`, without its chunk."""

    category: str
    agent: str
    created_at: int
    device: bytes
    confidence: int
    status: str
    superseded_by: bytes
    changed_at: int
    scope: str


_COLUMNS = "category, agent, created_at, device, confidence, status, superseded_by, changed_at, scope"
_CHANGE_COLUMNS = "number, kind, category, confidence, status, superseded_by, agent, at, device, scope"


def remember(
    database: Database,
    digests: Digests,
    chunks: ChunkRows,
    origin: Origin,
    operation: Remember,
    vectors: Vectors,
) -> None:
    content, forget_hash, chunk = chunks.take_shown(operation.text, vectors)  # §11.4-2
    category, agent, at, confidence = (
        operation.category,
        operation.agent,
        operation.created_at,
        operation.confidence,
    )
    known = _memory(database, chunk)
    scope = operation.scope
    if known is None:
        if scope is None:  # §11.4-2
            scope = _inherited(database, [target for target in operation.supersedes if target != forget_hash])
        new = _Memory(category, agent, at, origin.device, confidence, "active", b"", at, scope)
        database.run(
            f"INSERT INTO memories (chunk, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
            (chunk, *new),
        )
        digests[MEMORIES].add(memory_row(content, *new))
    else:
        after = known._replace(
            category=category,
            confidence=confidence,
            status="active",
            superseded_by=b"",
            changed_at=at,
            scope=known.scope if scope is None else scope,
        )
        _change(database, digests, chunk, content, known, after, Change.REMEMBERED, agent, origin)
    for target in operation.supersedes:  # §11.4-2
        if target == forget_hash:
            continue
        old, before = _find(database, target)
        if before is not None:
            after = before._replace(superseded_by=forget_hash, changed_at=at)
            _change(database, digests, *old, before, after, Change.SUPERSEDED, agent, origin)


def amend(database: Database, digests: Digests, origin: Origin, operation: Amend) -> None:
    found, before = _find(database, operation.target)  # §11.4-3
    if before is None:
        return
    after = before._replace(
        category=before.category if operation.category is None else operation.category,
        confidence=before.confidence if operation.confidence is None else operation.confidence,
        status=before.status if operation.status is None else operation.status,
        changed_at=operation.at,
        scope=before.scope if operation.scope is None else operation.scope,
    )
    _change(database, digests, *found, before, after, Change.AMENDED, operation.agent, origin)


def remove(database: Database, digests: Digests, chunk: int, content: bytes) -> None:
    """Remove the chunk's memory, if it has one, with its history."""
    for row in database.rows(
        f"SELECT {_CHANGE_COLUMNS} FROM memory_changes WHERE chunk = ?",  # noqa: S608 - constants of ours
        (chunk,),
    ):
        digests[MEMORY_CHANGES].remove(memory_change_row(content, *row))
    memory = _memory(database, chunk)
    if memory is not None:
        digests[MEMORIES].remove(memory_row(content, *memory))
        database.run("DELETE FROM memory_changes WHERE chunk = ?", (chunk,))
        database.run("DELETE FROM memories WHERE chunk = ?", (chunk,))


def move(
    database: Database,
    digests: Digests,
    old: tuple[int, bytes],
    new: tuple[int, bytes],
    names: tuple[bytes, bytes],
) -> None:
    """Give a memory other words; its history and what it superseded stay.

    Where these words are a memory already, that one stays as it is. If nothing superseded it, it now supersedes what this one
    did; otherwise that stays as it is, since successors must not form a circle.

    ``old``, ``new``: rowid and content hash of the chunks; ``names``: their keyed hashes.
    """
    name, after = names
    memory, known = _memory(database, old[0]), _memory(database, new[0])
    if memory is None or (known is not None and known.superseded_by):  # §11.4-17
        return
    if known is None:
        _rename(database, digests, old, new, memory)
    for other, other_content in database.rows(
        "SELECT m.chunk, c.id FROM memories m JOIN chunks c ON c.rowid = m.chunk WHERE m.superseded_by = ?",
        (name,),
    ):
        before = _memory(database, other)
        assert before is not None, "it was found by its successor"
        digests[MEMORIES].remove(memory_row(other_content, *before))
        digests[MEMORIES].add(memory_row(other_content, *before._replace(superseded_by=after)))
    database.run("UPDATE memories SET superseded_by = ? WHERE superseded_by = ?", (after, name))


def _rename(
    database: Database, digests: Digests, old: tuple[int, bytes], new: tuple[int, bytes], memory: _Memory
) -> None:
    (chunk, content), (target, replacement) = old, new
    for row in database.rows(
        f"SELECT {_CHANGE_COLUMNS} FROM memory_changes WHERE chunk = ?",  # noqa: S608 - constants of ours
        (chunk,),
    ):
        digests[MEMORY_CHANGES].remove(memory_change_row(content, *row))
        digests[MEMORY_CHANGES].add(memory_change_row(replacement, *row))
    database.run("UPDATE memory_changes SET chunk = ? WHERE chunk = ?", (target, chunk))
    digests[MEMORIES].remove(memory_row(content, *memory))
    digests[MEMORIES].add(memory_row(replacement, *memory))
    database.run("UPDATE memories SET chunk = ? WHERE chunk = ?", (target, chunk))


def _change(
    database: Database,
    digests: Digests,
    chunk: int,
    content: bytes,
    before: _Memory,
    after: _Memory,
    kind: Change,
    agent: str,
    origin: Origin,
) -> None:
    if after._replace(changed_at=before.changed_at) == before:  # §11.4-4
        return
    number = int(database.value("SELECT count(*) FROM memory_changes WHERE chunk = ?", (chunk,)))  # §11.4-4
    change = (
        number,
        kind.value,
        before.category,
        before.confidence,
        before.status,
        before.superseded_by,
        agent,
        after.changed_at,
        origin.device,
        before.scope,
    )
    database.run(
        f"INSERT INTO memory_changes (chunk, {_CHANGE_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
        (chunk, *change),
    )
    digests[MEMORY_CHANGES].add(memory_change_row(content, *change))
    database.run(
        "UPDATE memories SET category = ?, confidence = ?, status = ?, superseded_by = ?, changed_at = ?, scope = ?"
        " WHERE chunk = ?",
        (
            after.category,
            after.confidence,
            after.status,
            after.superseded_by,
            after.changed_at,
            after.scope,
            chunk,
        ),
    )
    digests[MEMORIES].remove(memory_row(content, *before))
    digests[MEMORIES].add(memory_row(content, *after))


def _inherited(database: Database, targets: Sequence[bytes]) -> str:
    """Return the scope of the first of these that is a memory; everywhere if none is."""
    found = (_find(database, target)[1] for target in targets)
    return next((memory.scope for memory in found if memory is not None), "")


def _memory(database: Database, chunk: int) -> _Memory | None:
    row = database.row(f"SELECT {_COLUMNS} FROM memories WHERE chunk = ?", (chunk,))  # noqa: S608 - constants of ours
    return None if row is None else _Memory(*row)


def _find(database: Database, forget_hash: bytes) -> tuple[tuple[int, bytes], _Memory | None]:
    """Return chunk and content of the text with that keyed hash, and its memory."""
    row = database.row("SELECT rowid, id FROM chunks WHERE forget_hash = ?", (forget_hash,))
    if row is None:
        return (0, b""), None
    return (int(row[0]), bytes(row[1])), _memory(database, row[0])
