"""Ports of the protocol: the replica, the journal, randomness and vectors.

The store has no port here: flows *yield* requests (``requests.py``) and are sent replies, so that a real relay or a
simulated one can drive a flow and stop it at any request.

Implementers of both databases must hold:

- A transaction is all or nothing, durable when it returns (``synchronous=FULL``), and never half visible to another
  process.
- Two processes may hold the same database. What was read in one transaction may have changed in the next.
- Methods raise on failure, and a failure leaves the database as it was before the transaction.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from crystal_mirror.operations import FilePart, Operation
from crystal_mirror.types import EntryState, KeptEntry, Origin, Position, StateDigest

SNAPSHOT_PART_BYTES_MAX = 4 * 1024 * 1024
"""Content of one part of a snapshot."""

Random = Callable[[int], bytes]
"""``random(n)`` returns n unpredictable bytes (``os.urandom``; in the simulator, from the seed)."""

Vectors = Callable[[str], Sequence[bytes]]
"""Called once for each text that is new to the replicated state, in order: the vectors of its windows, float16
little-endian."""


@dataclass(frozen=True, slots=True)
class FileRow:
    """A file of the replicated tree. ``version`` is the origin of the operation that made it; ``gone`` marks a tombstone."""

    path: str
    version: Origin
    executable: bool
    modified_at: int
    parts: tuple[FilePart, ...]
    gone: bool

    @property
    def size(self) -> int:
        return sum(part.length for part in self.parts)


class Export(Protocol):
    """The replicated state at one moment, unaffected by later commits for as long as it is read."""

    def position(self) -> Position: ...

    def digest(self) -> StateDigest: ...

    def model(self) -> bytes | None:
        """The model that made the vectors; None if there are none."""
        ...

    def parts(self) -> Iterator[bytes]:
        """The rows as parts of a snapshot, each at most ``SNAPSHOT_PART_BYTES_MAX`` bytes. The same rows in the same order
        give the same parts, and a change leaves distant parts as they were."""
        ...


class PartSums(Protocol):
    """The digest of snapshot parts, computed without a database: proves that a snapshot can be read back whole."""

    def add(self, part: bytes) -> None:
        """Raises Malformed."""
        ...

    def digest(self) -> StateDigest: ...


class ReplicaView(Protocol):
    """The replicated state and where it stands in the mirror; read-only."""

    def position(self) -> Position:
        """The next mirror slot and the hash before it; ``START`` when nothing was applied."""
        ...

    def ack(self, device: bytes, incarnation: bytes) -> int:
        """The highest sequence below which every operation of that stream is done; -1 if none."""
        ...

    def done(self, origin: Origin) -> bool: ...

    def acks(self) -> list[tuple[bytes, bytes, int]]: ...

    def digest(self) -> StateDigest: ...

    def recompute_digest(self) -> StateDigest:
        """Recomputes the digest by a full scan: equal to ``digest()`` unless the database is damaged."""
        ...

    def unembedded(self, operations: Sequence[Operation]) -> list[str]:
        """The texts for which applying these operations would need vectors, each once, in that order."""
        ...

    def entries(self, epoch: int, first: int, limit: int) -> list[KeptEntry]:
        """Kept entries of ``epoch`` from slot ``first`` on, by slot."""
        ...

    def last_entry(self, epoch: int) -> KeptEntry | None:
        """The kept entry of ``epoch`` with the highest slot."""
        ...

    def kept(self, state: EntryState) -> list[KeptEntry]:
        """All kept entries in that state, by epoch and slot."""
        ...

    def meta_get(self, name: str) -> bytes | None: ...

    def is_condemned(self, name: bytes) -> bool:
        """Whether the Core has condemned the blob of that name, which is then never used again."""
        ...

    def files(self) -> Iterator[FileRow]:
        """The replicated tree, tombstones included, by path."""
        ...

    def file(self, path: str) -> FileRow | None: ...

    def without_vectors(self, limit: int) -> list[tuple[bytes, str]]:
        """Content hash and text of chunks of the replicated state that have no vectors, oldest first."""
        ...

    def oldest_kept(self) -> tuple[int, int] | None:
        """Epoch and slot of the first kept entry."""
        ...

    def kept_bytes(self, epoch: int, first: int) -> int:
        """Bytes of the kept entries from that slot on, in all epochs."""
        ...


class ReplicaTransaction(ReplicaView, Protocol):
    """Changes that commit together: rows, acks, position, digest and kept entries."""

    def apply(self, origin: Origin, operation: Operation, vectors: Vectors) -> None:
        """Applies one operation. Deterministic: equal histories give equal digests on every device."""
        ...

    @property
    def left_out(self) -> bool:
        """Whether an operation applied in this transaction held a forgotten text, which was left out of the rows."""
        ...

    def mark_done(self, origin: Origin) -> None:
        """Advances the ack of the origin's stream if contiguous, else remembers the origin beyond the gap."""
        ...

    def set_position(self, position: Position) -> None: ...

    def keep_entry(self, epoch: int, sequence: int, data: bytes, state: EntryState) -> None:
        """Keeps the bytes of a slot, replacing what was kept for it."""
        ...

    def drop_entry(self, epoch: int, sequence: int) -> None: ...

    def set_entry_state(self, epoch: int, sequence: int, state: EntryState) -> None: ...

    def meta_set(self, name: str, value: bytes | None) -> None: ...

    def wipe(self) -> None:
        """Removes every replicated row, all acks and the position. Provisional rows, kept entries and meta stay."""
        ...

    def load(self, part: bytes) -> None:
        """Adds the rows of a snapshot part, with indexes and running digest.

        Raises:
            Malformed: not a snapshot part, or its rows clash with existing ones. The transaction must then be abandoned.
        """
        ...

    def embed_anew(self, content: bytes, windows: Sequence[bytes]) -> None:
        """Replaces a chunk's vectors. Does nothing if the replicated state does not have that chunk."""
        ...

    def drop_vectors(self) -> None:
        """Removes all vectors, before those of another model come."""
        ...

    def condemn(self, names: Sequence[bytes]) -> None:
        """Records names of blobs that are never used again. Idempotent."""
        ...

    def drop_entries_before(self, epoch: int, sequence: int) -> int:
        """Drops all kept entries before that slot. Returns how many."""
        ...


class Replica(ReplicaView, Protocol):
    """``crystal.db``."""

    def transaction(self) -> AbstractContextManager[ReplicaTransaction]: ...

    def index_provisional(self, origin: Origin, operation: Operation, encoded: bytes | None = None) -> None:
        """Makes an operation of this device searchable before the Core has ordered it. Idempotent; outside the digest.
        ``encoded``: the operation's bytes, if it is encoded already.

        A forget hides at once. Does nothing for an origin that is done.
        """
        ...

    def export(self) -> AbstractContextManager[Export]:
        """Opens the committed state for a long read while this and other processes go on writing."""
        ...

    def part_sums(self) -> PartSums: ...

    def provisional_origins(self) -> set[Origin]: ...

    def provisional_operation(self, origin: Origin) -> Operation | None:
        """The operation for which ``index_provisional`` made rows, as it was. None if it is not kept, or in it a text that was
        forgotten since."""
        ...

    def drop_provisional(self, origin: Origin) -> None:
        """Removes what ``index_provisional`` made for this origin and the replicated state does not have."""
        ...


class OutboxState(IntEnum):
    """How far an operation of this device has come. A *durable* operation's row is removed."""

    PENDING = 1
    """Accepted and sealed here."""
    STORED = 2
    """The relay has the bytes."""


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """One entry of this device's stream: its place, the operation it carries, and its sealed bytes.

    ``origin`` names the operation; it differs from ``incarnation``/``sequence`` when the operation is offered again.
    """

    incarnation: bytes
    sequence: int
    origin: Origin
    operation: bytes
    sealed: bytes
    state: OutboxState


@dataclass(frozen=True, slots=True)
class OutboxName:
    """An outbox row without its bytes. ``digest`` is the SHA-256 of the operation."""

    incarnation: bytes
    sequence: int
    origin: Origin
    digest: bytes
    state: OutboxState


@dataclass(frozen=True, slots=True)
class Stream:
    """The stream that this device writes: its incarnation, next free sequence, and the hash of the last entry."""

    incarnation: bytes
    sequence: int
    previous: bytes


class JournalView(Protocol):
    """Contents of ``state.db``; read-only."""

    def stream(self) -> Stream | None: ...

    def names(self) -> list[OutboxName]:
        """Everything that is not yet durable, in order of acceptance, without the bytes. Takes time for each row there is."""
        ...

    def name(self, incarnation: bytes, sequence: int) -> OutboxName | None:
        """One of ``names``, by its place in the stream."""
        ...

    def row(self, incarnation: bytes, sequence: int) -> OutboxRow | None: ...

    def first_row(self, state: OutboxState) -> OutboxRow | None:
        """The row in that state that was accepted first."""
        ...

    def log_entries(self) -> list[tuple[int, bytes, bool]]:
        """The device log as verified here: slot, sealed bytes, whether void; by slot, without gaps."""
        ...

    def meta_get(self, name: str) -> bytes | None: ...


class JournalTransaction(JournalView, Protocol):
    """Changes to ``state.db`` that commit together."""

    def set_stream(self, stream: Stream) -> None: ...

    def add_row(self, row: OutboxRow) -> None: ...

    def remove_row(self, incarnation: bytes, sequence: int) -> None: ...

    def set_row_state(self, incarnation: bytes, sequence: int, state: OutboxState) -> None: ...

    def set_all_states(self, before: OutboxState, after: OutboxState) -> None: ...

    def keep_log_entry(self, slot: int, data: bytes, *, void: bool) -> None: ...

    def drop_void_log_entries(self, first: int) -> None:
        """Drops the kept log slots from ``first`` on, which must all be void."""
        ...

    def meta_set(self, name: str, value: bytes | None) -> None: ...


class Journal(JournalView, Protocol):
    """``state.db``: the outbox, the device log, and the positions behind which this device must never go."""

    def transaction(self) -> AbstractContextManager[JournalTransaction]: ...
