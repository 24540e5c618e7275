"""The nouns of the protocol: identifiers, positions, origins, and what a device keeps of the mirror log.

Everything here is an immutable, comparable value. Lengths of byte strings are checked where they enter (``Header`` parsing,
database rows), so the rest of the code relies on them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from hashlib import sha256
from typing import NamedTuple

from crystal_crypto.limits import MAC_BYTES, SIGNATURE_BYTES

DEVICE_ID_BYTES = 16
INCARNATION_BYTES = 8
HASH_BYTES = 32
TAIL_BYTES = MAC_BYTES + SIGNATURE_BYTES
"""The end of an entry, which a round that finds nothing new reads to see that it is still the same one."""

ZERO_HASH = bytes(HASH_BYTES)

ACTION = "action"
ACTION_ROLES = (ACTION, f"subagent-{ACTION}")
"""Roles of pieces that are tool calls instead of messages."""


class Origin(NamedTuple):
    """The permanent name of one operation: the device that made it, its incarnation, and the sequence there. Never reused."""

    device: bytes
    incarnation: bytes
    sequence: int


class Position(NamedTuple):
    """A place in the mirror: the next slot to read or write in ``epoch``, and the hash of the last non-void entry."""

    epoch: int
    sequence: int
    previous: bytes


START = Position(1, 0, ZERO_HASH)


class EntryState(IntEnum):
    """What a kept mirror slot means to this device."""

    UNSENT = 1
    """Sealed and committed by this Core; not yet known to be on the relay."""
    SENT = 2
    """Verified and applied (or known to be on the relay, for the Core's own)."""
    VOID = 3
    """Does not verify against the device log; kept, counted, stepped over."""


@dataclass(frozen=True, slots=True)
class KeptEntry:
    """One slot of the mirror as this device keeps it: the sealed bytes, which can be put again identically."""

    epoch: int
    sequence: int
    data: bytes
    state: EntryState


ONLY_WITH_ROWS = frozenset({"document_parts", "documents", "memory_changes", "project_links", "sources"})
"""Tables that count in the digest only if they have rows, so that states from before these tables keep their digest."""


@dataclass(frozen=True, slots=True, order=True)
class TableSum:
    """The digest of one table: the sum mod 2^256 of its rows' keyed hashes (big-endian) and the number of rows."""

    name: str
    sum: bytes
    count: int


@dataclass(frozen=True, slots=True)
class StateDigest:
    """The digest of the replicated state. Two devices have the same digest if and only if they hold the same rows."""

    tables: tuple[TableSum, ...]

    @classmethod
    def of(cls, tables: Sequence[TableSum]) -> "StateDigest":
        return cls(tuple(sorted(tables)))

    def to_bytes(self) -> bytes:
        """SHA-256 over the tables in order of their names, each length-prefixed. 32 bytes."""
        state = sha256(b"crystal/v2/state")  # §11.6-3
        for table in self.tables:
            if table.name in ONLY_WITH_ROWS and not table.count:  # §11.6-3
                continue
            name = table.name.encode()
            state.update(len(name).to_bytes(1, "big") + name + table.sum + table.count.to_bytes(8, "big"))
        return state.digest()

    def hex(self) -> str:
        return self.to_bytes().hex()
