"""Importing records into the memory, from whatever source: in batches, each once; a repeated import adds nothing.

A message that the memory has at the same place is skipped, forgotten texts stay forgotten, and credentials are redacted, as
in all recorded texts. Nothing is imported in private mode.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from itertools import groupby

from msgspec import structs

from crystal_core.cutting.messages import split_message
from crystal_core.memories import MemoryStatus, memory
from crystal_mirror.operations import (
    PIECE_BYTES_MAX,
    PIECES_MAX,
    SUPERSEDES_MAX,
    Amend,
    Capture,
    Operation,
    Piece,
    Remember,
)
from crystal_node.base.clock import now_ms
from crystal_node.base.wording import counted
from crystal_node.capture.forgotten import without_forgotten
from crystal_node.capture.imported import in_memory
from crystal_node.capture.messages import OPERATION_TEXT_BYTES, PIECE_BYTES_BESIDE_TEXT, derived_id
from crystal_node.capture.redaction import redact
from crystal_node.device.agent_name import named_as_before
from crystal_node.device.device import Device
from crystal_node.device.privacy import PrivateNow, read_privacy
from crystal_node.safekeeping.portable.export_format import MemoryRecord, PieceRecord

BATCH_OPERATIONS = 16

Progress = Callable[[int], None]
"""Called with the number of records read."""


@dataclass
class ImportCounts:
    """What an import did. ``new``, ``known``, ``forgotten``: messages (pieces of long ones count each) that are new here,
    known, or were forgotten here; ``redacted``: credentials; ``too_long``: memories over the size limit; ``by_agent``: new
    messages."""

    new: int = 0
    known: int = 0
    forgotten: int = 0
    memories: int = 0
    memories_known: int = 0
    too_long: int = 0
    redacted: int = 0
    by_agent: dict[str, int] = field(default_factory=dict[str, int])

    def document(self) -> dict[str, object]:
        """For ``--json``."""
        return asdict(self)


class RecordImporter:
    """Imports records through one device; with ``dry_run`` it only counts."""

    def __init__(self, device: Device, *, dry_run: bool, progress: Progress = lambda _: None) -> None:
        self._device, self._dry_run, self._progress = device, dry_run, progress
        self._waiting: list[Operation] = []
        self.taken = ImportCounts()

    def pieces(self, records: Iterable[PieceRecord]) -> None:
        """Imports messages. Raises PrivateNow, JournalDamaged, VaultDataError: run it again; what was imported stays."""
        looked_at = 0
        for common, group in groupby(records, key=_place):
            for capture in self._captures(common, group):
                looked_at += len(capture.pieces)
                fresh = self._fresh(capture)
                if fresh is not None:
                    self._accept(fresh)
                self._progress(looked_at)
        self.flush()

    def memories(self, records: Iterable[MemoryRecord]) -> None:
        """Imports memories, superseded ones before their successors. Raises as ``pieces``."""
        found = {sha256(record.text.encode()).hexdigest(): record for record in records}
        clean = {name: self._clean(record.text) for name, record in found.items()}
        former: dict[str, list[str]] = {}
        for name, record in found.items():
            if record.superseded_by in found:
                former.setdefault(record.superseded_by, []).append(clean[name])
        for name in sorted(found, key=lambda name: (-_successors(found, name), found[name].created_at)):
            successor = found[name].superseded_by
            succeeded = successor in found and not self._hides(clean[successor])
            self._memory(found[name], clean[name], former.get(name, []), succeeded)
        self.flush()

    def other(self, operation: Operation) -> None:
        """Imports another operation, such as a document."""
        self._accept(operation)

    def flush(self) -> None:
        """Records the waiting operations."""
        operations, self._waiting = self._waiting, []
        if not operations or self._dry_run:
            return

        def refuse_private() -> None:
            if read_privacy(self._device.journal).on:
                raise PrivateNow("private mode is on: nothing is recorded")

        self._device.accept(operations, refuse_private)

    def _accept(self, *operations: Operation) -> None:
        """Queues operations that are recorded all or none."""
        self._waiting += operations
        if len(self._waiting) >= BATCH_OPERATIONS:
            self.flush()

    def _captures(
        self, common: tuple[str, str, str, str, str], group: Iterable[PieceRecord]
    ) -> Iterator[Capture]:
        pieces: list[Piece] = []
        size = 0
        for piece in self._cut(group):
            added = len(piece.text.encode()) + PIECE_BYTES_BESIDE_TEXT
            if pieces and (len(pieces) >= PIECES_MAX or size + added > OPERATION_TEXT_BYTES):
                yield Capture(*common, tuple(pieces))
                pieces, size = [], 0
            pieces.append(piece)
            size += added
        if pieces:
            yield Capture(*common, tuple(pieces))

    def _cut(self, group: Iterable[PieceRecord]) -> Iterator[Piece]:
        """Splits a text that is too long for a piece into several, under a message id of their own."""
        for record in group:
            text = self._clean(record.text)
            cut = list(split_message(text))
            message = record.message
            if len(cut) > 1:
                message = derived_id("import", record.session, record.message, str(record.part), text)
            for number, part in enumerate(cut):
                place = record.part if len(cut) == 1 else number
                yield Piece(part, record.role, record.created_at, message, place, record.model)

    def _clean(self, text: str) -> str:
        redacted = redact(text.encode("utf-8", "replace").decode())
        self.taken.redacted += redacted.counts.total()
        return redacted.text

    def _fresh(self, capture: Capture) -> Capture | None:
        (capture,) = named_as_before(self._device.replica.database, [capture])
        stands = in_memory(self._device, capture)
        self.taken.known += sum(stands)
        pieces = tuple(piece for piece, known in zip(capture.pieces, stands, strict=True) if not known)
        if not pieces:
            return None
        kept = without_forgotten(self._device, [structs.replace(capture, pieces=pieces)])
        left = [each for each in kept if isinstance(each, Capture)]
        new = sum(len(each.pieces) for each in left)
        self.taken.forgotten += len(pieces) - new
        self.taken.new += new
        if new:
            self.taken.by_agent[capture.agent] = self.taken.by_agent.get(capture.agent, 0) + new
        return left[0] if left else None

    def _hides(self, text: str) -> bool:
        return self._device.replica.hides(sha256(text.encode()).digest())

    def _memory(self, record: MemoryRecord, text: str, former: list[str], succeeded: bool) -> None:
        """``succeeded``: its successor is imported, too, and was not forgotten here."""
        content = sha256(text.encode()).digest()
        if not text.strip() or len(text.encode()) > PIECE_BYTES_MAX:
            self.taken.too_long += bool(text.strip())
            return
        if self._hides(text):
            self.taken.forgotten += 1
            return
        if memory(self._device.replica.database, content) is not None:
            self.taken.memories_known += 1
            return
        secret = self._device.member.secret
        self.taken.memories += 1
        names = [secret.forget_hash(sha256(each.encode()).digest()) for each in former]
        operations: list[Operation] = [
            Remember(
                text,
                record.category,
                record.agent,
                record.created_at,
                record.confidence,
                tuple(names[start : start + SUPERSEDES_MAX]),
                record.scope,
            )
            for start in range(0, max(len(names), 1), SUPERSEDES_MAX)
        ]
        lone = record.status == MemoryStatus.SUPERSEDED.value and not succeeded
        if lone or record.status == MemoryStatus.RETIRED.value:
            keyed = secret.forget_hash(content)
            operations.append(Amend(keyed, None, None, "retired", record.agent, now_ms()))
        self._accept(*operations)


def _successors(found: dict[str, MemoryRecord], name: str) -> int:
    """The length of its chain of successors."""
    seen: set[str] = set()
    while name in found and name not in seen:
        seen.add(name)
        name = found[name].superseded_by
    return len(seen)


def _place(record: PieceRecord) -> tuple[str, str, str, str, str]:
    return record.agent, record.session, record.project, record.repository, record.source


def say_counts(taken: ImportCounts, *, dry_run: bool, say: Callable[[str], None]) -> None:
    """Says what was imported, or would be."""
    say("Would come in:" if dry_run else "Came in; other devices have it after the next sync:")
    say(f"  messages: {taken.new:,} new, {taken.known:,} known, {taken.forgotten:,} forgotten here")
    for agent, count in sorted(taken.by_agent.items()):
        say(f"    {agent}: {count:,}")
    say(f"  memories: {taken.memories:,} new, {taken.memories_known:,} known")
    if taken.too_long:
        say(f"  {counted(taken.too_long, 'memory', 'memories')} over the limit of one, left out")
    if taken.redacted:
        say(f"  {counted(taken.redacted, 'credential')} blanked out")
