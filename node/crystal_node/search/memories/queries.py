"""Memories as documents: a page of them, one, its history."""

from collections.abc import Sequence

from crystal_core.memories import (
    Memory,
    MemoryEvent,
    MemoryStatus,
    count_memories,
    memories,
    memory,
    memory_chain,
    memory_history,
)
from crystal_mirror.membership.status import device_name
from crystal_node.base.errors import NoSuchEntry
from crystal_node.base.lookup import find_text
from crystal_node.base.wording import iso
from crystal_node.device.device import Device
from crystal_node.search.memories.documents import (
    HistoryDocument,
    MemoriesDocument,
    MemoryDocument,
    MemoryEventDocument,
)
from crystal_node.search.projects import scope_words


def list_memories(
    device: Device,
    *,
    category: str | None = None,
    status: MemoryStatus | None = MemoryStatus.ACTIVE,
    scopes: Sequence[str] | None = None,
    limit: int = 20,
    offset: int = 0,
) -> MemoriesDocument:
    """A page of them, the newest first. ``status`` None: in any state; ``scopes`` None: of any scope."""
    database = device.replica.database
    with database.snapshot():
        found = memories(
            database, category=category, status=status, scopes=scopes, limit=limit, offset=offset
        )
        total = count_memories(database, category=category, status=status, scopes=scopes)
        shown = [memory_document(device, each) for each in found]
    return MemoriesDocument(memories=shown, total=total, more=offset + len(shown) < total)


def find_memory(device: Device, given: str) -> Memory:
    """The memory whose id begins so.

    Raises:
        Usage: not the beginning of an id, or of more than one text's.
        NoSuchEntry: no text here has that id, or it is no memory.
    """
    database = device.replica.database
    found = memory(database, find_text(database, given).id)
    if found is None:
        raise NoSuchEntry(
            "that text is no memory", hint="`crystal memories list` shows those that there are."
        )
    return found


def memory_document(device: Device, found: Memory) -> MemoryDocument:
    successor = ""
    if found.superseded_by is not None:
        chain = memory_chain(device.replica.database, found.id)
        successor = next((each.id.hex() for each in chain if each.forget_hash == found.superseded_by), "")
    scope, project = scope_words(found.scope)
    return MemoryDocument(
        id=found.id.hex(),
        text=found.text,
        category=found.category,
        confidence=found.confidence,
        status=found.status.value,
        agent=found.agent,
        device=_name(device, found.device),
        created_at=iso(found.created_at) or "",
        changed_at=iso(found.changed_at) or "",
        superseded_by=successor,
        provisional=found.pending,
        scope=scope,
        project=project,
    )


def history_of(device: Device, given: str) -> HistoryDocument:
    """How a memory came to be what it is. Raises what ``find_memory`` raises."""
    found = find_memory(device, given)
    events = memory_history(device.replica.database, found.id)
    return HistoryDocument(id=found.id.hex(), events=[_event(device, each) for each in events])


def _event(device: Device, event: MemoryEvent) -> MemoryEventDocument:
    scope, project = scope_words(event.scope)
    return MemoryEventDocument(
        id=event.id.hex(),
        what=event.what,
        at=iso(event.at) or "",
        agent=event.agent,
        device=_name(device, event.device),
        text=event.text,
        category=event.category,
        confidence=event.confidence,
        status=event.status.value,
        provisional=event.pending,
        scope=scope,
        project=project,
    )


def _name(device: Device, identity: bytes) -> str:
    return device_name(device.member, identity) or identity.hex()[:8]
