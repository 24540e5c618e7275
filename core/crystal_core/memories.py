"""Queries over memories: lists, lookup by id, history. Pending operations count.

A memory's id is the content hash of its text. Its state is one of three:

    active      searches return it
    retired     kept but not returned, until it is made active again
    superseded  replaced by another memory; remembering its text again makes it active
"""

import json
from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from crystal_core.database import Database, Row
from crystal_core.schema import HIDDEN

CHAIN_MAX = 256
"""Memories in one history; a longer chain loses its oldest."""


class Category(StrEnum):
    """Category of a memory."""

    FACT = "fact"
    PREFERENCE = "preference"
    EVENT = "event"
    OPINION = "opinion"
    SKILL = "skill"


class MemoryScope(StrEnum):
    """Where a memory is put before agents."""

    PROJECT = "project"
    EVERYWHERE = "everywhere"


class MemoryStatus(StrEnum):
    """State of a memory, see the module."""

    ACTIVE = "active"
    RETIRED = "retired"
    SUPERSEDED = "superseded"


class Change(StrEnum):
    """Kind of a change to a memory."""

    REMEMBERED = "remembered"
    AMENDED = "amended"
    SUPERSEDED = "superseded"


class Memory(Struct, frozen=True):
    """A memory.

    ``forget_hash``: keyed hash by which operations name it; ``superseded_by``: that of its successor. ``pending``: known to
    this device only, so far. Agent, time and device are those that remembered it first. ``scope``: the project that it is for,
    by its repository or else its folder; "" for everywhere.
    """

    id: bytes
    forget_hash: bytes
    text: str
    category: str
    agent: str
    created_at: int
    device: bytes
    confidence: int
    status: MemoryStatus
    superseded_by: bytes | None
    changed_at: int
    pending: bool
    scope: str


class MemoryEvent(Struct, frozen=True):
    """A change to a memory: ``what`` is remembered, amended or superseded; the other fields are its state afterwards."""

    id: bytes
    what: str
    at: int
    agent: str
    device: bytes
    pending: bool
    text: str
    category: str
    confidence: int
    status: MemoryStatus
    superseded_by: bytes | None
    scope: str


_SELECT = f"""
SELECT c.id, s.forget_hash, c.text, s.category, s.agent, s.created_at, s.device, s.confidence, s.status, s.superseded_by,
    s.changed_at, s.pending, s.scope
FROM memory_states s JOIN chunks c ON c.rowid = s.chunk WHERE s.forget_hash NOT IN ({HIDDEN})
"""  # noqa: S608 - constants of ours
_IS_ONE_OF = " AND s.scope IN (SELECT value FROM json_each(?))"
_IS = {
    MemoryStatus.ACTIVE: "s.status = 'active' AND s.superseded_by = x''",
    MemoryStatus.RETIRED: "s.status = 'retired' AND s.superseded_by = x''",
    MemoryStatus.SUPERSEDED: "s.superseded_by <> x''",
}


def memories(
    database: Database,
    *,
    category: str | None = None,
    status: MemoryStatus | None = MemoryStatus.ACTIVE,
    scopes: Sequence[str] | None = None,
    limit: int = 100,
    offset: int = 0,
) -> list[Memory]:
    """Return memories, newest first. `status` None: in any state; `scopes` None: of any scope."""
    where, bindings = _where(category, status, scopes)
    rows = database.rows(
        f"{_SELECT}{where} ORDER BY s.created_at DESC, c.id LIMIT ? OFFSET ?", (*bindings, limit, offset)
    )
    return [_memory(row) for row in rows]


def count_memories(
    database: Database,
    *,
    category: str | None = None,
    status: MemoryStatus | None = MemoryStatus.ACTIVE,
    scopes: Sequence[str] | None = None,
) -> int:
    where, bindings = _where(category, status, scopes)
    return int(database.value(f"SELECT count(*) FROM ({_SELECT}{where})", bindings))  # noqa: S608 - constants of ours


def memory(database: Database, content: bytes) -> Memory | None:
    """Return the memory with that id."""
    row = database.row(f"{_SELECT} AND c.id = ? LIMIT 1", (content,))
    return None if row is None else _memory(row)


def memory_chain(database: Database, content: bytes) -> list[Memory]:
    """Return the memory, its successors and all that these superseded, oldest first."""
    start = memory(database, content)
    if start is None:
        return []
    found = {start.forget_hash: start}
    waiting = [start]
    while waiting and len(found) < CHAIN_MAX:
        now = waiting.pop(0)
        rows = database.rows(
            f"{_SELECT} AND (s.forget_hash = ? OR s.superseded_by = ?)",
            (now.superseded_by or b"", now.forget_hash),
        )
        for near in map(_memory, rows):
            if near.forget_hash not in found:
                found[near.forget_hash] = near
                waiting.append(near)
    return sorted(found.values(), key=lambda each: (each.created_at, each.id))


def memory_history(database: Database, content: bytes) -> list[MemoryEvent]:
    """Return all changes to the memories of a chain, by their devices' clocks; changes of one memory keep their order.

    Empty for an unknown id.
    """
    placed: list[tuple[int, bool, MemoryEvent]] = []
    for each in memory_chain(database, content):
        moment = 0
        for event in _events(database, each):
            moment = max(moment, event.at)
            placed.append((moment, event.what == Change.SUPERSEDED, event))
    return [event for _, _, event in sorted(placed, key=lambda each: each[:2])]


def _events(database: Database, now: Memory) -> list[MemoryEvent]:
    """Return a memory's changes. Rows of `memory_changes` hold its state before each; its own row, after the last."""
    rows = database.rows(
        "SELECT m.kind, m.category, m.confidence, m.status, m.superseded_by, m.scope, m.agent, m.at, m.device"
        " FROM memory_changes m JOIN chunks c ON c.rowid = m.chunk WHERE c.id = ? ORDER BY m.number",
        (now.id,),
    )
    stands = database.row(
        "SELECT m.category, m.confidence, m.status, m.superseded_by, m.scope FROM memories m"
        " JOIN chunks c ON c.rowid = m.chunk WHERE c.id = ?",
        (now.id,),
    )
    made = [("remembered", now.created_at, now.agent, now.device)]
    made += [(row[0], row[7], row[6], row[8]) for row in rows]
    states = [row[1:6] for row in rows]
    states.append(stands or (now.category, now.confidence, "active", b"", now.scope))
    events = [
        _event(now, what, at, agent, device, stands is None, state)
        for (what, at, agent, device), state in zip(made, states, strict=True)
    ]
    pending = database.rows(
        "SELECT p.kind, p.at, p.agent, o.device, p.category, p.confidence, p.status, p.superseded_by,"
        " p.scope"
        " FROM provisional_memories p JOIN provisional o ON o.number = p.number WHERE p.forget_hash = ? ORDER BY p.number",
        (now.forget_hash,),
    )
    state = states[-1]
    for place, (kind, at, agent, device, *change) in enumerate(pending):
        state = tuple(old if new is None else new for old, new in zip(state, change, strict=True))
        if stands is None and place == 0 and kind == "remembered":
            events = [_event(now, kind, at, agent, device, True, state)]
        else:
            events.append(_event(now, kind, at, agent, device, True, state))
    return events


def _event(
    memory: Memory, what: str, at: int, agent: str, device: bytes, pending: bool, state: Row
) -> MemoryEvent:
    category, confidence, status, superseded_by, scope = state
    return MemoryEvent(
        memory.id,
        what,
        int(at),
        agent,
        bytes(device),
        pending,
        memory.text,
        category,
        int(confidence),
        MemoryStatus.SUPERSEDED if superseded_by else MemoryStatus(status),
        bytes(superseded_by) or None,
        scope,
    )


def _where(
    category: str | None, status: MemoryStatus | None, scopes: Sequence[str] | None
) -> tuple[str, tuple[str, ...]]:
    where = "" if status is None else f" AND {_IS[status]}"
    bindings: tuple[str, ...] = ()
    if category is not None:
        where, bindings = f"{where} AND s.category = ?", (category,)
    if scopes is not None:
        where += _IS_ONE_OF
        bindings = (*bindings, json.dumps(list(scopes)))
    return where, bindings


def _memory(row: Row) -> Memory:
    found = Memory(*row)
    superseded_by = bytes(found.superseded_by or b"") or None
    return replace(
        found,
        status=MemoryStatus.SUPERSEDED if superseded_by else MemoryStatus(found.status),
        superseded_by=superseded_by,
        pending=bool(found.pending),
    )
