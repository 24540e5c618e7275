"""The oracle: the replicated state as plain dictionaries, folded from the mirror's entries apart from the product's code.

A history is named by the hash of its last entry that is not void: the hash chain makes the whole log before it a function
of that hash. `Histories` folds entries in any order that their chain allows and remembers the state behind each, so that a
device's rows can be compared after every step at the cost of what is new.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import msgspec

from crystal_crypto.entry import Entry, Kind, parse
from crystal_crypto.hierarchy import GenerationKey, VaultSecret
from crystal_mirror.entries.batches import Announced, Batch, opened_batch
from crystal_mirror.operations import (
    Amend,
    Capture,
    ChangeFiles,
    DropDocument,
    DropFile,
    DropSource,
    FilePart,
    Forget,
    LinkProjects,
    Operation,
    PutDocument,
    PutFile,
    PutSource,
    Remember,
    Replace,
    Replaced,
    blob_name,
    decode_operation,
    encode_operation,
)
from crystal_mirror.types import ZERO_HASH, Origin
from tests.mirror.independent_memories import Kept
from tests.sim import filemodel
from tests.sim.embedding import embed
from tests.sim.filemodel import Files, living

Occurrence = tuple[bytes, str, str, int, str]
"""Chunk, session, message, part, agent: the place that counts as one."""


class Violation(AssertionError):
    """A promise was broken. Says which, by whom, and what was seen."""


@dataclass
class State:
    """What an honest device holds. Everything is keyed by content, nothing by row."""

    chunks: dict[bytes, tuple[bytes, ...]] = field(default_factory=dict[bytes, tuple[bytes, ...]])
    texts: dict[bytes, str] = field(default_factory=dict[bytes, str])
    occurrences: dict[Occurrence, tuple[object, ...]] = field(
        default_factory=dict[Occurrence, tuple[object, ...]]
    )
    kept: Kept = field(default_factory=Kept)
    """Memories, sources and documents, by the second reader's rules."""
    suppressed: frozenset[bytes] = frozenset()
    done: frozenset[Origin] = frozenset()
    files: Files = field(default_factory=Files)
    condemned: frozenset[bytes] = frozenset()

    def copy(self) -> "State":
        return State(
            dict(self.chunks),
            dict(self.texts),
            dict(self.occurrences),
            self.kept.copy(),
            self.suppressed,
            self.done,
            dict(self.files),
            self.condemned,
        )

    def apply(self, secret: VaultSecret, origin: Origin, operation: Operation) -> list[str]:
        """Applies one operation; returns the texts that are new by it, in order."""
        new: list[str] = []

        def is_condemned(part: FilePart) -> bool:
            return blob_name(secret, part.content, part.named) in self.condemned

        match operation:
            case Capture():
                for piece in operation.pieces:
                    chunk = sha256(piece.text.encode()).digest()
                    if secret.forget_hash(chunk) in self.suppressed:
                        continue
                    self._add(chunk, piece.text, new)
                    self.occurrences.setdefault(
                        (chunk, operation.session, piece.message, piece.part, operation.agent),
                        (
                            piece.role,
                            piece.created_at,
                            operation.project,
                            operation.repository,
                            operation.source,
                            origin.device,
                            piece.model,
                        ),
                    )
            case Remember():
                chunk = sha256(operation.text.encode()).digest()
                self.suppressed -= {secret.forget_hash(chunk)}
                self._add(chunk, operation.text, new)
                self.kept.remember(chunk, origin.device, _plain(operation), secret.forget_hash)
            case Amend():
                self.kept.amend(origin.device, _plain(operation), secret.forget_hash)
            case Forget():
                self.suppressed |= set(operation.targets)
                for chunk in [c for c in self.chunks if secret.forget_hash(c) in operation.targets]:
                    del self.chunks[chunk], self.texts[chunk]
                    self.kept.forget(chunk)
                    for place in [place for place in self.occurrences if place[0] == chunk]:
                        del self.occurrences[place]
            case Replace():
                for each in operation.replaced:
                    self._replace(secret, each, new)
            case PutFile():
                filemodel.put(self.files, origin, operation, is_condemned)
            case DropFile():
                filemodel.drop(self.files, origin, operation)
            case ChangeFiles():
                for change in operation.changes:
                    if isinstance(change, PutFile):
                        filemodel.put(self.files, origin, change, is_condemned)
                    else:
                        filemodel.drop(self.files, origin, change)
            case PutSource():
                _, name, *source = _plain(operation)
                self.kept.sources[name] = (origin.device, *source)
            case LinkProjects():
                self.kept.link(origin.device, _plain(operation))
            case DropSource():
                self._release(self.kept.drop_source(operation.name))
            case PutDocument():

                def take(text: str) -> bytes | None:
                    chunk = sha256(text.encode()).digest()
                    if secret.forget_hash(chunk) in self.suppressed:
                        return None
                    self._add(chunk, text, new)
                    return chunk

                self._release(self.kept.put_document(origin.device, _plain(operation), take))
            case DropDocument():
                self._release(self.kept.drop_document(origin.device, operation.source, operation.path))
        return new

    def _replace(self, secret: VaultSecret, replaced: Replaced, new: list[str]) -> None:
        self.suppressed |= {replaced.target}
        chunk = sha256(replaced.text.encode()).digest()
        for old in [old for old in self.chunks if secret.forget_hash(old) == replaced.target]:
            if secret.forget_hash(chunk) not in self.suppressed:
                self._add(chunk, replaced.text, new)
                for place in [place for place in self.occurrences if place[0] == old]:
                    self.occurrences.setdefault((chunk, *place[1:]), self.occurrences[place])
                self.kept.replace(old, chunk, secret.forget_hash)
            del self.chunks[old], self.texts[old]
            self.kept.forget(old)
            for place in [place for place in self.occurrences if place[0] == old]:
                del self.occurrences[place]

    def _add(self, chunk: bytes, text: str, new: list[str]) -> None:
        if chunk not in self.chunks:
            self.chunks[chunk] = ()  # the batch says by which model
            self.texts[chunk] = text
            new.append(text)

    def _release(self, chunks: set[bytes]) -> None:
        """What nothing has any more, after it was taken out of a document."""
        said = {place[0] for place in self.occurrences}
        for chunk in chunks - said - self.kept.memories.keys() - self.kept.stand():
            del self.chunks[chunk], self.texts[chunk]

    def acks(self) -> tuple[set[tuple[bytes, bytes, int]], set[tuple[bytes, bytes, int]]]:
        """The done operations as unbroken runs (their last sequence) and as lone ones beyond gaps."""
        streams: dict[tuple[bytes, bytes], set[int]] = {}
        for device, incarnation, sequence in self.done:
            streams.setdefault((device, incarnation), set()).add(sequence)
        runs: set[tuple[bytes, bytes, int]] = set()
        lone: set[tuple[bytes, bytes, int]] = set()
        for stream, sequences in streams.items():
            end = -1
            while end + 1 in sequences:
                end += 1
            if end >= 0:
                runs.add((*stream, end))
            lone |= {(*stream, sequence) for sequence in sequences if sequence > end}
        return runs, lone


@dataclass(frozen=True)
class History:
    """The log up to one entry: the state behind it, the operations in it (by hash of their bytes), where it stands."""

    state: State
    operations: frozenset[bytes]
    epoch: int
    sequence: int
    sealed_to: int
    """The epoch that goes on from here if the last entry is a seal, else 0."""
    digest: bytes | None
    """What the last batch states."""
    announced: Announced | None = None
    """The newest snapshot that counts."""
    floor: tuple[int, int] = (0, 0)


_EMPTY = History(State(), frozenset(), 1, -1, 0, None)


class Histories:
    """All histories that were ever seen in this world. ``key_of`` gives the key under which an entry was sealed."""

    def __init__(self, key_of: Callable[[Entry], GenerationKey], secret: VaultSecret) -> None:
        self.forbidden: set[bytes] = set()
        """Operations that must not be in any log: made on a device that was out, and accepted by nobody."""
        self.on_announced: Callable[[Announced], None] = lambda _announced: None
        """Is told of each snapshot that an entry announces, when somebody first applies it."""
        self._key_of = key_of
        self.secret = secret
        self._known: dict[bytes, History] = {ZERO_HASH: _EMPTY}
        self._before: dict[bytes, bytes] = {}
        self._operations: dict[bytes, frozenset[bytes]] = {}
        self.contents: set[tuple[bytes, ...]] = set()
        """Of every file that any log ever carried, part by part."""

    def get(self, entry_hash: bytes) -> History | None:
        return self._known.get(entry_hash)

    def fold(self, data: bytes) -> History:
        """Adds one entry behind the history that it names. Raises Violation where an honest log has no such entry."""
        entry = parse(data)
        known = self._known.get(entry.hash)
        if known is not None:
            return known
        header = entry.header
        before = self._known.get(header.previous)
        if before is None:
            raise Violation(f"P5: an entry of epoch {header.epoch} was taken without what it follows")
        in_place = (
            header.epoch == before.sealed_to
            if before.sealed_to
            else header.epoch == before.epoch and header.sequence > before.sequence
        )
        if not in_place:
            raise Violation(
                f"P4: an entry at epoch {header.epoch}, slot {header.sequence} was applied behind epoch {before.epoch}, "
                f"slot {before.sequence}{', which is a seal' if before.sealed_to else ''}"
            )
        if header.kind is Kind.SEAL:
            after = History(
                before.state,
                before.operations,
                header.epoch,
                header.sequence,
                int.from_bytes(entry.public, "big"),
                before.digest,
                before.announced,
                before.floor,
            )
        else:
            after = self._fold_batch(data, before)
        self._known[entry.hash] = after
        self._before[entry.hash] = header.previous
        return after

    def _chain(self, entry_hash: bytes) -> Iterator[bytes]:
        """The entries of one log, from the newest on."""
        while True:
            yield entry_hash
            if entry_hash not in self._before:
                return
            entry_hash = self._before[entry_hash]

    def _fold_batch(self, data: bytes, before: History) -> History:
        entry = parse(data)
        batch = opened_batch(entry, self._key_of(entry))
        state = before.state.copy()
        if batch.drops_vectors:
            state.chunks = dict.fromkeys(state.chunks, ())
        operations = set(before.operations)
        vectors = iter(batch.vectors)
        for origin, encoded in batch.operations:
            name = sha256(encoded).digest()
            if origin in state.done:
                raise Violation(f"P2: operation {_short(origin)} is in one log twice under the same name")
            if name in operations and not self._may_come_twice(origin, decode_operation(encoded), state):
                raise Violation(
                    f"P2: operation {decode_operation(encoded)!r} is in one log twice, now as {_short(origin)}"
                )
            if name in self.forbidden:
                raise Violation(f"P9: operation {_short(origin)} was made on a device after it was revoked")
            for text in state.apply(self.secret, origin, decode_operation(encoded)):
                windows = next(vectors, None)
                # A Core with another model than the vault's makes none, until all is embedded anew.
                if windows is None or windows not in ((), tuple(embed(text, batch.model))):
                    raise Violation("P2: a batch carries other vectors than those of its texts")
                state.chunks[sha256(text.encode()).digest()] = windows
            operations.add(name)
            state.done |= {origin}
            for change in file_changes(decode_operation(encoded)):
                if isinstance(change, PutFile):
                    self.contents.add(tuple(part.content for part in change.parts))
        state.done |= set(batch.also_done)
        for chunk in batch.embedded_anew:
            windows = next(vectors, None)
            if chunk in state.chunks:
                state.chunks[chunk] = tuple(embed(state.texts[chunk], batch.model))
                if windows != state.chunks[chunk]:
                    raise Violation("P2: a batch carries other new vectors than those of its texts")
        state.condemned |= set(batch.condemned)
        _check_versions(before.state, state, batch)
        return History(
            state,
            frozenset(operations),
            entry.header.epoch,
            entry.header.sequence,
            0,
            batch.digest,
            self._announced(batch, before, entry),
            _floor(batch, before),
        )

    def _announced(self, batch: Batch, before: History, entry: Entry) -> Announced | None:
        """Checks that a snapshot is of the very state that the log had at its position."""
        announced = batch.announced
        if announced is None:
            return before.announced
        of = self._known.get(announced.previous)
        place = (entry.header.epoch, entry.header.sequence)
        in_its_log = announced.previous in self._chain(entry.header.previous)
        if of is None or not in_its_log or announced.position[:2] > place:
            raise Violation("P3: a snapshot is announced of a place that its log does not have")
        if of.digest is not None and of.digest != announced.digest:
            raise Violation("P3: a snapshot is announced with another digest than the log has there")
        self.on_announced(announced)
        return announced

    def _may_come_twice(self, origin: Origin, operation: Operation, state: State) -> bool:
        """A file's operation is made again after a crash, and takes its base with it; what a source has is stated as often as
        its device likes. Anything else is offered again by who reads from a snapshot and cannot know whether the log had this
        one or another of its name: rather forgotten twice than never, and no text may come back by it."""
        if isinstance(
            operation,
            Forget | Replace | PutFile | DropFile | ChangeFiles | DropSource | PutDocument | DropDocument,
        ):
            return True
        tried = state.copy()
        tried.apply(self.secret, origin, operation)
        return tried.texts == state.texts

    def operations_in(self, data: bytes) -> frozenset[bytes]:
        """The operations that one authentic mirror entry carries, by hash of their bytes."""
        name = sha256(data).digest()
        if name not in self._operations:
            entry = parse(data)
            carried: frozenset[bytes] = frozenset()
            if entry.header.kind is Kind.BATCH:
                batch = opened_batch(entry, self._key_of(entry))
                carried = frozenset(sha256(encoded).digest() for _, encoded in batch.operations)
            self._operations[name] = carried
        return self._operations[name]


def file_changes(operation: Operation) -> tuple[PutFile | DropFile, ...]:
    """What an operation does to files."""
    if isinstance(operation, ChangeFiles):
        return operation.changes
    return (operation,) if isinstance(operation, PutFile | DropFile) else ()


def _plain(operation: Operation) -> list[Any]:
    """As it is on the wire."""
    return msgspec.msgpack.decode(encode_operation(operation))  # type: ignore[no-any-return]


def _floor(batch: Batch, before: History) -> tuple[int, int]:
    floor = batch.floor or before.floor
    newest = batch.announced or before.announced
    if floor < before.floor:
        raise Violation(f"P5: the floor went back from {before.floor} to {floor}")
    if batch.floor is not None and (newest is None or newest.position[:2] < floor):
        raise Violation(f"P6: a floor at {floor} is above the newest snapshot")
    return floor


def _check_versions(before: State, after: State, batch: Batch) -> None:
    """A version of a file leaves the tree only by an operation that was made from it."""
    left = {(path, row[0]) for path, row in living(before.files).items()} - {
        (path, row[0]) for path, row in living(after.files).items()
    }
    changes = [change for _, operation in batch.decoded() for change in file_changes(operation)]
    bases = {(change.path, change.base) for change in changes}
    if not left <= bases:
        raise Violation(f"P7: {len(left - bases)} files left the tree without anybody's deletion or change")


def _short(origin: Origin) -> str:
    return f"{origin.device.hex()[:4]}.{origin.incarnation.hex()[:4]}/{origin.sequence}"
