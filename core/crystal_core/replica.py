"""The replica over `crystal.db`: the replicated state, its acks, digest and position, changed in one transaction.

`Replica` implements the port `crystal_mirror.ports.Replica`. The replica and its transactions have the same reading methods;
inside a transaction they see its own changes. Nothing read is kept between transactions.

After a forget the file is scrubbed, so that the text's bytes leave the WAL too. If another process's reading prevents that,
it is done after the next transaction or at the next opening; the need for it commits with the forget.
"""

import hmac
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from crystal_core.database import Database
from crystal_core.errors import ForeignSecret
from crystal_core.messages import recorded, said_alike
from crystal_core.state import acks, digests, mirror_log, pending
from crystal_core.state import files as filerows
from crystal_core.state.digests import Digests
from crystal_core.state.fulltext import indexed_terms, purge
from crystal_core.state.operations import StateRows
from crystal_core.state.unembedded import unembedded
from crystal_core.state.vectors import pass_over, without_vectors
from crystal_crypto.hierarchy import VaultSecret
from crystal_mirror.operations import Capture, Operation, encode_operation
from crystal_mirror.ports import FileRow, Vectors
from crystal_mirror.types import EntryState, KeptEntry, Origin, Position, StateDigest

if TYPE_CHECKING:
    from crystal_core.snapshots.export import StateExport
    from crystal_core.snapshots.load import PartSums

_META_SECRET = mirror_log.RESERVED + "secret"
_META_SCRUB = mirror_log.RESERVED + "scrub"
_SECRET_LABEL = b"crystal/core/secret-check"


class ReplicaReader:
    """Reading methods of a replica and its transactions."""

    def __init__(self, database: Database, secret: VaultSecret) -> None:
        self.database = database
        self._secret = secret

    def position(self) -> Position:
        return mirror_log.position(self.database)

    def ack(self, device: bytes, incarnation: bytes) -> int:
        return acks.ack(self.database, device, incarnation)

    def done(self, origin: Origin) -> bool:
        return acks.done(self.database, origin)

    def acks(self) -> list[tuple[bytes, bytes, int]]:
        return acks.acks(self.database)

    def digest(self) -> StateDigest:
        return digests.current(self.database, self._secret.state_key)

    def recompute_digest(self) -> StateDigest:
        with self.database.snapshot():
            return digests.recomputed(self.database, self._secret.state_key)

    def unembedded(self, operations: Sequence[Operation]) -> list[str]:
        with self.database.snapshot():
            return unembedded(self.database, self._secret, operations)

    def entries(self, epoch: int, first: int, limit: int) -> list[KeptEntry]:
        return mirror_log.entries(self.database, epoch, first, limit)

    def last_entry(self, epoch: int) -> KeptEntry | None:
        return mirror_log.last_entry(self.database, epoch)

    def kept(self, state: EntryState) -> list[KeptEntry]:
        return mirror_log.kept(self.database, state)

    def oldest_kept(self) -> tuple[int, int] | None:
        return mirror_log.oldest_kept(self.database)

    def kept_bytes(self, epoch: int, first: int) -> int:
        return mirror_log.kept_bytes(self.database, epoch, first)

    def meta_get(self, name: str) -> bytes | None:
        return mirror_log.meta_get(self.database, name)

    def is_condemned(self, name: bytes) -> bool:
        return filerows.is_condemned(self.database, name)

    def files(self) -> Iterator[FileRow]:
        return filerows.files(self.database)

    def file(self, path: str) -> FileRow | None:
        return filerows.file(self.database, path)

    def hides(self, content: bytes) -> bool:
        """Whether a capture of the text with that hash would be left out now; pending operations count."""
        return pending.is_suppressed(self.database, self._secret.forget_hash(content))

    def hidden(self, contents: Sequence[bytes]) -> set[bytes]:
        """Those of the content hashes for which `hides` is true."""
        if not pending.anything_suppressed(self.database):
            return set()
        hashes = self._secret.forget_hashes(contents)
        hidden = pending.suppressed_among(self.database, hashes)
        return {content for content, each in zip(contents, hashes, strict=True) if each in hidden}

    def without_vectors(self, limit: int) -> list[tuple[bytes, str]]:
        return without_vectors(self.database, limit)

    def recorded(self, capture: Capture) -> list[bool]:
        """For each piece of a capture, whether it is already stored at the same place; pending operations count."""
        return recorded(self.database, self._secret, capture)

    def said_alike(self, capture: Capture, imported: str, *, timed: bool = False) -> list[bool]:
        """For each piece of a capture, whether its session has that text from elsewhere: `messages.said_alike`."""
        return said_alike(self.database, self._secret, capture, imported, timed=timed)


class ReplicaTransaction(ReplicaReader):
    """Changes that commit together. Created by `Replica.transaction`; not usable after it."""

    def __init__(self, database: Database, secret: VaultSecret) -> None:
        super().__init__(database, secret)
        self._digests = Digests(database, secret.state_key)
        self._rows = StateRows(database, secret, self._digests)
        self._over = False

    def digest(self) -> StateDigest:
        return StateDigest.of(self._digests.sums())

    def recompute_digest(self) -> StateDigest:
        self._rows.index()
        return super().recompute_digest()

    def without_vectors(self, limit: int) -> list[tuple[bytes, str]]:
        self._rows.index()
        return super().without_vectors(limit)

    def apply(self, origin: Origin, operation: Operation, vectors: Vectors) -> None:
        """Apply one operation. `vectors` is called once for each chunk that the replicated state gains, in order.

        Raises UnusableVectors; the transaction must then be abandoned.
        """
        self._check()
        self._rows.apply(origin, operation, vectors)

    @property
    def left_out(self) -> bool:
        return self._rows.left_out

    def mark_done(self, origin: Origin) -> None:
        self._check()
        acks.mark_done(self.database, self._digests, origin)

    def set_position(self, position: Position) -> None:
        self._check()
        mirror_log.set_position(self.database, position)

    def keep_entry(self, epoch: int, sequence: int, data: bytes, state: EntryState) -> None:
        self._check()
        mirror_log.keep_entry(self.database, KeptEntry(epoch, sequence, data, state))

    def drop_entry(self, epoch: int, sequence: int) -> None:
        self._check()
        mirror_log.drop_entry(self.database, epoch, sequence)

    def set_entry_state(self, epoch: int, sequence: int, state: EntryState) -> None:
        self._check()
        mirror_log.set_entry_state(self.database, epoch, sequence, state)

    def meta_set(self, name: str, value: bytes | None) -> None:
        """Set a named value. Raises ValueError for a name reserved to the database itself."""
        self._check()
        if name.startswith(mirror_log.RESERVED):
            raise ValueError(f"the name {name!r} is reserved")
        mirror_log.meta_set(self.database, name, value)

    def wipe(self) -> None:
        self._check()
        self._rows.wipe()

    def load(self, part: bytes) -> None:
        """Add the rows of a snapshot's part. Raises Malformed; the transaction must then be abandoned."""
        from crystal_core.snapshots.load import load  # lazy, as `export`

        self._check()
        self._rows.index()
        load(self.database, self._secret, self._digests, part)

    def embed_anew(self, content: bytes, windows: Sequence[bytes]) -> None:
        """Replace the vectors of the chunk with that content hash. Raises UnusableVectors, as `apply` does."""
        self._check()
        self._rows.embed_anew(content, windows)

    def pass_over(self, content: bytes) -> int | None:
        """Gives up making vectors of the chunk with that content hash, if it is the first without: `vectors.pass_over`."""
        self._check()
        self._rows.index()
        return pass_over(self.database, content)

    def drop_vectors(self) -> None:
        self._check()
        self._rows.drop_vectors()

    def condemn(self, names: Sequence[bytes]) -> None:
        self._check()
        filerows.condemn(self.database, self._digests, names)

    def drop_entries_before(self, epoch: int, sequence: int) -> int:
        """Drop all kept entries before that place, scrub their bytes from the file, and return their number."""
        self._check()
        dropped = mirror_log.drop_entries_before(self.database, epoch, sequence)
        if dropped:
            self._rows.deleted = True
        return dropped

    def finish(self) -> None:
        """Write what is written once per transaction. For `Replica.transaction` only."""
        self._rows.finish()
        self._digests.save()
        if self._rows.deleted:
            mirror_log.meta_set(self.database, _META_SCRUB, b"1")
        self._over = True

    def _check(self) -> None:
        if self._over or not self.database.in_transaction():
            raise RuntimeError("this transaction is over")


class Replica(ReplicaReader):
    """The replicated state, and the provisional rows beside it."""

    def __init__(self, database: Database, secret: VaultSecret) -> None:
        """Raises ForeignSecret if the rows were written under another vault's secret."""
        super().__init__(database, secret)
        self._secret_check = hmac.digest(secret.state_key, _SECRET_LABEL, "sha256")
        known = self.meta_get(_META_SECRET)
        if known is not None and not hmac.compare_digest(known, self._secret_check):
            raise ForeignSecret(f"{database.path} was written with the keys of another vault")
        self._scrub_if_due()

    @classmethod
    def open(cls, path: Path | str, secret: VaultSecret) -> "Replica":
        """Open or create the database at `path` (or `:memory:`). Raises what `Database.open` and `Replica` raise."""
        database = Database.open(path)
        try:
            return cls(database, secret)
        except BaseException:
            database.close()
            raise

    def clone(self) -> "Replica":
        """Return a copy of the committed state, in memory, on its own connection."""
        return Replica(Database.from_bytes(self.database.to_bytes()), self._secret)

    def close(self) -> None:
        self.database.close()

    @contextmanager
    def transaction(self) -> Generator[ReplicaTransaction]:
        """Write transaction: an exception rolls everything back. Durable on exit.

        Raises VaultBusy if another process holds the database for too long, VaultFull, VaultDamaged.
        """
        with self.database.transaction():
            self._sign()
            transaction = ReplicaTransaction(self.database, self._secret)
            yield transaction
            transaction.finish()
        self._scrub_if_due()

    def index_provisional(self, origin: Origin, operation: Operation, encoded: bytes | None = None) -> None:
        """Make an operation of this device findable by keyword until it is applied; a forget hides at once. `encoded`: the
        operation's bytes, if it is encoded already.

        Runs in its own transaction. Idempotent; does nothing for an origin that is done. Survives a crash of the process but
        not always a power failure: at start the outbox, which does, is compared with `provisional_origins`.
        """
        with self.database.transaction(durable=False):
            self._sign()
            if not acks.done(self.database, origin):
                kept = encode_operation(operation) if encoded is None else encoded
                pending.index(self.database, self._secret, origin, operation, kept)

    @contextmanager
    def export(self) -> Generator["StateExport"]:
        """The currently committed state, for long reads while writers continue."""
        from crystal_core.snapshots.export import exported  # lazy: few processes make or load a snapshot

        with exported(self.database, self._secret.state_key) as export:
            yield export

    def part_sums(self) -> "PartSums":
        from crystal_core.snapshots.load import PartSums  # lazy, as `export`

        return PartSums(self._secret.state_key)

    def provisional_origins(self) -> set[Origin]:
        return pending.origins(self.database)

    def provisional_operation(self, origin: Origin) -> Operation | None:
        """The operation that `index_provisional` made findable; None if it is not kept (any more)."""
        return pending.operation(self.database, origin)

    def drop_provisional(self, origin: Origin) -> None:
        """Remove the rows that `index_provisional` made for this origin and that are not replicated. Idempotent."""
        with self.database.transaction():
            suppressed = pending.drop(self.database, origin)
            if suppressed:
                purge(
                    self.database,
                    {term for text in suppressed for term in indexed_terms(self.database, text)},
                )
                mirror_log.meta_set(self.database, _META_SCRUB, b"1")
        self._scrub_if_due()

    def _sign(self) -> None:
        """Record at the first change under which vault's secret the database is written."""
        known = self.meta_get(_META_SECRET)
        if known is None:
            mirror_log.meta_set(self.database, _META_SECRET, self._secret_check)
        elif not hmac.compare_digest(known, self._secret_check):
            raise ForeignSecret(f"{self.database.path} was written with the keys of another vault")

    def _scrub_if_due(self) -> None:
        if self.meta_get(_META_SCRUB) is None or self.database.in_transaction():
            return
        if self.database.scrub():
            mirror_log.meta_set(self.database, _META_SCRUB, None)
