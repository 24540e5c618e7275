"""Backfill: reading transcripts from their beginning, for messages that are not in the memory yet.

It finds what `crystal up --from-now` skipped, what a tool wrote while it was not recorded, and what was recorded and then lost.
What is in the memory already is skipped, so that a killed backfill is simply run again. Private spans stay hidden, as do, on a
device that was ever private, messages without a time. What was forgotten stays forgotten.

The recorder's position in a file is not changed, except that a file which was never read counts as read afterwards.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import structs

from crystal_mirror.errors import TransactionStale
from crystal_mirror.operations import Capture, Operation
from crystal_node.base.agent_names import agent_alias
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import UsageError
from crystal_node.base.settings import Settings, with_current_options
from crystal_node.capture.adapter import (
    Adapter,
    CaptureCounts,
    FoundTranscript,
    Hides,
    TranscriptReading,
    encode_state,
)
from crystal_node.capture.forgotten import without_forgotten
from crystal_node.capture.imported import in_memory
from crystal_node.capture.line_adapter import QUIET_MS
from crystal_node.capture.line_reader import FileState
from crystal_node.capture.recorder import known_projects
from crystal_node.capture.tools import TOOLS, adapters_of, discovered
from crystal_node.device.agent_name import named_as_before, waits
from crystal_node.device.device import Device
from crystal_node.device.privacy import Privacy, PrivateNow, read_privacy
from crystal_node.device.repositories import claimed

EMBEDDED_A_SECOND = 25.0
"""Chunks a second that one core of a small machine embeds, roughly."""
SENT_SHARE = 0.45
"""Share of a text's bytes that compressed and sealed entries take, roughly."""
SENT_BESIDE = 60
"""Bytes of a chunk beside its text, roughly."""

TELL_SECONDS = 1.0

Progress = Callable[[str, int, int], None]
"""Called with a line for people, the bytes done, and the bytes in all."""


def unheard(_text: str, _done: int, _total: int) -> None:
    """Ignores progress."""


@dataclass(frozen=True, slots=True)
class BackfillRequest:
    """``agent`` and ``tool`` "": all. ``dry_run``: count only. ``limit``: chunks to record at most, 0 for all.

    ``settle``: even in a dry run, a file that is completely in the memory counts as read.
    """

    agent: str = ""
    tool: str = ""
    dry_run: bool = False
    limit: int = 0
    settle: bool = False


@dataclass
class BackfillResult:
    """What was read. ``chunks``: in the transcripts; ``recorded``: of these, already in the memory; ``new``, ``new_bytes``:
    the rest. ``taken``: chunks that were recorded now. ``more``: the limit was reached."""

    files: int = 0
    bytes: int = 0
    counts: CaptureCounts = field(default_factory=CaptureCounts)
    chunks: int = 0
    recorded: int = 0
    forgotten: int = 0
    new: int = 0
    new_bytes: int = 0
    taken: int = 0
    more: bool = False
    tools: dict[str, int] = field(default_factory=dict[str, int])
    problems: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    @property
    def embed_seconds(self) -> float:
        """Estimate of the seconds that the Core needs to embed the new chunks."""
        return self.new / EMBEDDED_A_SECOND

    @property
    def send_bytes(self) -> int:
        return round(self.new_bytes * SENT_SHARE) + self.new * SENT_BESIDE

    def document(self) -> dict[str, object]:
        """For ``--json`` and for other devices: no text, and no paths except those of problems."""
        return {
            "files": self.files,
            "bytes": self.bytes,
            "tools": self.tools,
            "messages": self.counts.messages,
            "redacted": sum(self.counts.redacted.values()),
            "skipped_reasons": dict(self.counts.skipped),
            "chunks": self.chunks,
            "already_recorded": self.recorded,
            "forgotten": self.forgotten,
            "new": self.new,
            "estimate": {"embed_seconds": round(self.embed_seconds, 1), "send_bytes": self.send_bytes},
            "taken": self.taken,
            "more": self.more,
            "problems": [{"path": path, "problem": problem} for path, problem in self.problems],
        }


async def backfill(device: Device, request: BackfillRequest, progress: Progress = unheard) -> BackfillResult:
    """Reads transcripts, counts, and records what is new unless it is a dry run.

    Raises:
        PrivateNow: private mode is on. UsageError: recording is off, or there is no such tool.
        LocalStorage, JournalDamaged, VaultDataError: this device cannot keep what was read; run it again.
    """
    privacy = read_privacy(device.journal)
    if privacy.on:
        raise PrivateNow("private mode is on: nothing is recorded")
    # The background service runs on while a person turns recording off.
    settings = with_current_options(device.settings)
    if not settings.capture.on:
        raise UsageError("recording is off on this device", hint="`crystal capture on` turns it on.")
    if waits(device.journal, settings.agent_id):
        raise UsageError(
            "the vault's memory has not come to this device yet",
            hint="`crystal sync` brings it; then backfill.",
        )
    work = _Backfill(device, settings, request, privacy, progress)
    await work.run()
    return work.result


class _Backfill:
    def __init__(
        self,
        device: Device,
        settings: Settings,
        request: BackfillRequest,
        privacy: Privacy,
        progress: Progress,
    ) -> None:
        self._device, self._settings, self._request = device, settings, request
        self._privacy, self._progress = privacy, progress
        self._agents = (request.agent, agent_alias(request.agent))
        self._told = 0.0
        self.result = BackfillResult()

    async def run(self) -> None:
        found = await asyncio.to_thread(lambda: list(self._transcripts()))
        total = sum(size for _, _, size in found)
        for adapter, path, size in found:
            self.result.files += 1
            self.result.tools[adapter.name] = self.result.tools.get(adapter.name, 0) + 1
            try:
                await self._file(adapter, path)
            except OSError as error:
                self.result.problems.append((str(path), f"cannot be read: {error.strerror or error}"))
            self.result.bytes += size
            self._tell(f"{self.result.files:,} of {len(found):,} transcripts", total)
            if self.result.more:
                return

    def _tell(self, text: str, total: int) -> None:
        """Reports progress from time to time, and at the end."""
        now = time.monotonic()
        if now - self._told >= TELL_SECONDS or self.result.bytes >= total:
            self._told = now
            self._progress(text, self.result.bytes, total)

    def _transcripts(self) -> Iterator[tuple[Adapter, Path, int]]:
        for adapter, found in discovered(self._adapters()):
            if found.problem is not None:
                self.result.problems.append((str(found.path), found.problem))
            elif not self._request.agent or adapter.agent_of(found.path) in self._agents:
                size = _size(found)
                if size is not None:
                    yield adapter, found.path, size

    def _adapters(self) -> list[Adapter]:
        settings, tool = self._settings, self._request.tool
        wanted = adapters_of(settings, settings.person_home, lambda: known_projects(self._device))
        if not tool:
            return wanted
        if tool not in TOOLS:
            raise UsageError(f"there is no tool {tool[:40]!r}", hint=f"Tools: {', '.join(TOOLS)}.")
        chosen = [one for one in wanted if one.name == tool]
        if not chosen:
            raise UsageError(f"{tool} is not recorded on this device", hint=f"`crystal capture on {tool}`.")
        return chosen

    async def _file(self, adapter: Adapter, path: Path) -> None:
        agent, state, before = adapter.agent_of(path), None, self.result.new
        quiet_ns = (now_ms() - QUIET_MS) * 1_000_000
        # Messages without a time may have been said in a private span.
        hides: Hides = self._privacy.hides_if_unsure if self._privacy.spans else self._privacy.hides
        if adapter.repeats and self._privacy.spans:
            hides = self._privacy.or_version(hides, path)
        while True:
            reading = await asyncio.to_thread(
                adapter.read, path, state, agent=agent, hides=hides, quiet_ns=quiet_ns
            )
            self.result.counts.add(reading.counts)
            self._take(reading)
            if self.result.more:
                return
            state = reading.state
            if not reading.more:
                break
        settled = self._request.settle and self.result.new == before
        if settled or not self._request.dry_run:
            self._done(path, state)

    def _take(self, reading: TranscriptReading) -> None:
        fresh: list[Operation] = []
        known = self._device.replica.database
        for operation in claimed(known, named_as_before(known, reading.operations), reading.roots, now_ms()):
            new = self._fresh(operation) if isinstance(operation, Capture) else operation
            if new is not None:
                fresh.append(new)
        if not fresh or self._request.dry_run:
            return

        def still_public() -> None:
            if read_privacy(self._device.journal) != self._privacy:
                raise TransactionStale("private mode has changed meanwhile")

        try:
            self._device.accept(fresh, still_public)
        except TransactionStale as error:
            raise PrivateNow("private mode was changed while transcripts were read: run it again") from error
        self.result.taken += sum(len(each.pieces) for each in fresh if isinstance(each, Capture))

    def _fresh(self, operation: Capture) -> Capture | None:
        """The part of an operation that is not in the memory yet and may be recorded, up to the limit."""
        result = self.result
        stands = in_memory(self._device, operation)
        result.chunks += len(stands)
        result.recorded += sum(stands)
        pieces = tuple(piece for piece, known in zip(operation.pieces, stands, strict=True) if not known)
        kept = without_forgotten(self._device, [structs.replace(operation, pieces=pieces)]) if pieces else []
        left = [piece for each in kept if isinstance(each, Capture) for piece in each.pieces]
        result.forgotten += len(pieces) - len(left)
        if self._request.limit and result.new + len(left) > self._request.limit:
            result.more = True
            left = left[: self._request.limit - result.new]
        result.new += len(left)
        result.new_bytes += sum(len(piece.text.encode()) for piece in left)
        return structs.replace(operation, pieces=tuple(left)) if left else None

    def _done(self, path: Path, state: FileState) -> None:
        """Notes how far a file was read that the recorder has never read."""
        journal, key = self._device.journal, str(path.absolute())
        with journal.transaction():
            if journal.file_state(key) is None and read_privacy(journal) == self._privacy:
                journal.set_file_state(key, encode_state(state))


def _size(found: FoundTranscript) -> int | None:
    try:
        return found.path.stat().st_size
    except OSError:  # gone meanwhile
        return None
