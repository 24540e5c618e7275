"""Recording: from transcripts into the outbox, each message exactly once, even if several processes read the same files.

A pass reads a bounded part of one transcript and commits it together with the position reached. If another process has
committed meanwhile, or private mode has changed, the part is read again. So neither concurrent captures nor a crash lose or
double a message.

``crystal capture off`` pauses recording of all tools or of some: nothing is read meanwhile, and what was said is read when it
is on again. Private mode is for all tools.
"""

import asyncio
import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import structs

from crystal_core.projects import NO_FOLDERS, project_keys
from crystal_mirror.errors import TransactionStale
from crystal_mirror.operations import PIECE_BYTES_MAX
from crystal_node.base.clock import now_ms, uptime_ms
from crystal_node.base.decoding import from_msgpack
from crystal_node.base.errors import UsageError
from crystal_node.base.project import OUTSIDE
from crystal_node.base.settings import with_current_options
from crystal_node.base.wording import counted
from crystal_node.capture.adapter import (
    Adapter,
    CaptureCounts,
    TranscriptReading,
    decode_state,
    encode_state,
)
from crystal_node.capture.documents import UndatedAdapter
from crystal_node.capture.forgotten import without_forgotten
from crystal_node.capture.imported import without_imported
from crystal_node.capture.line_adapter import QUIET_MS
from crystal_node.capture.line_reader import START, FileState, unsure
from crystal_node.capture.private_words import without_private
from crystal_node.capture.reading import ReadRequest, kept_state, read_part
from crystal_node.capture.redaction import Redacted, redact
from crystal_node.capture.tools import Choice, adapters_of, all_adapters, chosen, discovered
from crystal_node.device.activity import (
    Activity,
    UnknownLines,
    note,
    note_problems,
    note_strange,
    read_strange,
)
from crystal_node.device.agent_name import named_as_before, waits
from crystal_node.device.device import Device
from crystal_node.device.journal import SqliteJournal
from crystal_node.device.privacy import Privacy, read_privacy, write_privacy
from crystal_node.device.repositories import claimed

if TYPE_CHECKING:
    from crystal_node.capture.read_ahead import ReadAhead

META_FROM = "setup.history-from"
"""The moment from which on everything is recorded, if what was said before was skipped."""
META_UNREAD = "node.capture-unread"
"""Folders that could not be read when everything in them was to be skipped."""
LOOK_MS = 60_000
"""So rarely a process looks whether these can be read. Until then their transcripts are read as if they had just been found."""
_TRIES_MAX = 10
"""How often one part is read again because another process committed it first. Each time somebody made progress."""
BACKLOG_BYTES_MIN = 32 * 1024 * 1024
"""From so many unread bytes on, child processes read ahead. Starting one takes as long as reading 6 MB."""
READERS_MAX = 2
"""So many keep the process that commits busy."""


@dataclass
class RecordReport:
    """What a capture pass did. ``problems``: transcripts that could not be read, and why. ``strange``: unknown lines by tool,
    since a message of it was last read.

    Nothing was read in ``private`` mode, or while recording is ``off``. ``waiting``: transcripts that wait for the vault's
    memory (``device.agent_name``).
    """

    files: int = 0
    operations: int = 0
    counts: CaptureCounts = field(default_factory=CaptureCounts)
    problems: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    strange: dict[str, UnknownLines] = field(default_factory=dict[str, UnknownLines])
    private: bool = False
    off: bool = False
    waiting: int = 0

    def meet(self, tool: str, counts: CaptureCounts, now_ms: int) -> None:
        """Counts one reading of a tool's file. A message in it shows that the tool's format is still known."""
        if counts.understood:
            self.strange.pop(tool, None)
        elif counts.spots:
            first = counts.spots[0]
            before = self.strange.get(tool) or UnknownLines(
                tool, 0, str(first.path), first.offset, first.reason, now_ms, now_ms
            )
            self.strange[tool] = structs.replace(before, lines=before.lines + counts.strange, at=now_ms)

    @property
    def redacted(self) -> int:
        return sum(self.counts.redacted.values())

    @property
    def skipped(self) -> int:
        return sum(self.counts.skipped.values())

    def waiting_words(self) -> str:
        """One line for people, if anything waits."""
        return f"{counted(self.waiting, 'transcript')} of before will be read after a sync that brings the vault's memory"

    def words(self) -> str:
        """One line for people, "" when nothing was recorded."""
        if not self.operations:
            return ""
        text = counted(self.counts.messages, "message")
        if self.counts.actions:
            text += f" and {counted(self.counts.actions, 'tool call')}"
        text += f" from {counted(self.files, 'transcript')}"
        if self.redacted:
            text += f", {counted(self.redacted, 'credential')} blanked out"
        return text


class _Asks(NamedTuple):
    """The fields that all ``ReadRequest``s of one pass share."""

    privacy: Privacy
    begin: int
    quiet_ns: int
    unread: set[str]
    """Folders in which every transcript without a state counts as skipped."""


class Recorder:
    """Records one device's transcripts. Used from one event loop; files are read in a thread."""

    def __init__(self, device: Device, *, nudges: bool = True) -> None:
        """``nudges``: whether what is recorded wakes a running watcher. One that records by itself is told by the report, and a
        nudge would cost it a second round for each message."""
        self._device = device
        self._nudges = nudges
        self._settings = device.settings
        self._adapters = adapters_of(self._settings, self._settings.person_home, self._projects)
        self._lock = asyncio.Lock()
        self._looked_at: int | None = None

    def folders(self) -> list[Path]:
        """Folders in which transcripts appear, whether they exist yet or not."""
        return [folder for adapter in self._wanted() for folder in adapter.folders]

    def concerns(self, path: Path) -> bool:
        """Whether a changed file is a transcript, by its name alone."""
        return any(adapter.concerns(str(path)) for adapter in self._adapters)

    async def record(self, paths: Iterable[Path] | None = None) -> RecordReport:
        """One pass over these transcripts (and those in these folders), or over all known ones. Records nothing in private mode
        or while recording is off.

        Raises:
            LocalStorage, JournalDamaged, VaultDataError: this device cannot keep what was read; nothing is lost.
        """
        async with self._lock:
            privacy = read_privacy(self._device.journal)
            if privacy.on:
                return RecordReport(private=True)
            wanted = self._wanted()
            if not self._settings.capture.on:
                return RecordReport(off=True)
            named = None if paths is None else list(paths)
            self._look_at_unread()
            choices = discovered(wanted) if named is None else chosen(self._all(), named)
            journal = self._device.journal
            report = RecordReport(strange={each.tool: each for each in read_strange(journal)})
            await self._pass(self._ready(choices, report), privacy, report)
            note_strange(journal, report.strange.values())
            looked_at = None if named is None else [str(path) for path in named]
            note_problems(journal, report.problems, looked_at=looked_at)
            return report

    async def go_private(self) -> RecordReport:
        """Turns private mode on, then records what was in the transcripts before.

        If this is interrupted, the next call, or turning it off, records the rest.
        """
        async with self._lock:
            journal = self._device.journal
            with journal.transaction():
                privacy = read_privacy(journal).turned_on(now_ms(), uptime_ms())
                write_privacy(journal, privacy)
            report = await self._catch_up(privacy)
            report.private = True
            return report

    async def go_public(self) -> RecordReport:
        """Turns private mode off and skips everything in the transcripts by now. ``files`` counts them."""
        async with self._lock:
            journal = self._device.journal
            await self._catch_up(read_privacy(journal))
            report = RecordReport()
            states, unread = await self._ends(report)
            with journal.transaction():
                privacy = read_privacy(journal)
                if privacy.on:
                    for key, state in states.items():
                        journal.set_file_state(key, state)
                    note_unread(journal, unread)
                    write_privacy(journal, privacy.turned_off(now_ms(), uptime_ms()))
                    report.files = len(states)
            return report

    async def _catch_up(self, privacy: Privacy) -> RecordReport:
        """Records what was said before private mode went on, once."""
        if not privacy.on or privacy.caught_up:
            return RecordReport()
        report = RecordReport()
        await self._pass(discovered(self._wanted()), privacy, report)
        journal = self._device.journal
        with journal.transaction():
            if read_privacy(journal) == privacy:
                write_privacy(journal, structs.replace(privacy, caught_up=True))
        return report

    async def _ends(self, report: RecordReport) -> tuple[dict[str, bytes], list[str]]:
        """For each transcript, also of tools that are not recorded, the state after everything in it; and the folders that
        could not be read."""
        states: dict[str, bytes] = {}
        unread: list[str] = []
        for adapter, found in discovered(self._all()):
            if found.problem is not None:
                report.problems.append((str(found.path), found.problem))
                if found.is_unread_folder:
                    unread.append(_key(found.path))
                continue
            key = _key(found.path)
            try:
                state = await asyncio.to_thread(adapter.skip, found.path)
            except OSError as error:
                _problem(report, found.path, error)
                before = self._device.journal.file_state(key)
                state = unsure(None if before is None else decode_state(before))
            states[key] = encode_state(state)
        return states, unread

    def _look_at_unread(self) -> None:
        """Looks whether folders can be read that could not: not for each message, as it lists the folders of all tools."""
        now = uptime_ms()
        if self._looked_at is None or now - self._looked_at >= LOOK_MS:
            skip_unread(self._device.journal, self._all())
            self._looked_at = now

    def _ready(self, choices: Iterable[Choice], report: RecordReport) -> Iterator[Choice]:
        """Those that need not wait for the vault's memory; counts the others."""
        for adapter, found in choices:
            if waits(self._device.journal, adapter.agent_of(found.path)):
                report.waiting += 1
            else:
                yield adapter, found

    async def _pass(self, choices: Iterable[Choice], privacy: Privacy, report: RecordReport) -> None:
        begin = int(self._device.journal.meta_get(META_FROM) or 0)
        unread = _unread_folders(self._device.journal)
        asks = _Asks(privacy, begin, (now_ms() - QUIET_MS) * 1_000_000, unread)
        # A transcript that its tool moved comes before the new file under its old name, which still has its state.
        ordered = [each for each in sorted(choices, key=_stays) if self._changed(each, asks)]
        with self._read_ahead(ordered, asks) as ahead:
            for adapter, found in ordered:
                if found.problem is not None:
                    report.problems.append((str(found.path), found.problem))
                    continue
                try:
                    recorded = await self._file(adapter, found.path, asks, ahead, report)
                except OSError as error:
                    _problem(report, found.path, error)
                    continue
                report.files += recorded

    def _changed(self, choice: Choice, asks: "_Asks") -> bool:
        """Whether a transcript has something to read or a problem to report."""
        adapter, found = choice
        if found.problem is not None:
            return True
        before, request = self._request(adapter, found.path, asks)
        with suppress(OSError):  # `_file` gets the same error and reports it
            return before is None or not adapter.unchanged(found.path, request.state, asks.quiet_ns)
        return True

    def _read_ahead(
        self, choices: Iterable[Choice], asks: "_Asks"
    ) -> "AbstractContextManager[ReadAhead | None]":
        """The children that read these transcripts; none if less than BACKLOG_BYTES_MIN is unread, or on one processor."""
        processes = min(_processors(), READERS_MAX)
        requests: list[ReadRequest] = []
        backlog = 0
        if processes > 1:
            for adapter, found in choices:
                request = None if found.problem is not None else self._request(adapter, found.path, asks)[1]
                unread = 0 if request is None else _unread(request)
                if request is not None and unread:
                    requests.append(request)
                    backlog += unread
        if backlog < BACKLOG_BYTES_MIN:
            return nullcontext()
        from crystal_node.capture.read_ahead import ReadAhead  # lazy: most passes are small

        return ReadAhead(self._settings, requests, processes)

    def _request(self, adapter: Adapter, path: Path, asks: "_Asks") -> tuple[bytes | None, ReadRequest]:
        """The stored state of a transcript, and the request for its next part."""
        before = self._device.journal.file_state(_key(path))
        state = self._former(adapter, path) if before is None else decode_state(before)
        if before is None and not asks.unread.isdisjoint(map(str, _places(path))):
            state = unsure(None)
        agent = adapter.agent_of(path)
        return before, ReadRequest(
            adapter.name, os.fsencode(path), state, agent, asks.quiet_ns, asks.privacy, asks.begin
        )

    async def _file(
        self, adapter: Adapter, path: Path, asks: "_Asks", ahead: "ReadAhead | None", report: RecordReport
    ) -> bool:
        """Reads one transcript to its end. Returns whether anything of it was recorded.

        Raises:
            OSError: it cannot be read (failures to *write* are errors of the databases, not this).
        """
        recorded = False
        tries = 0
        privacy = asks.privacy
        while True:
            before, request = self._request(adapter, path, asks)
            if before is not None and adapter.unchanged(path, request.state, asks.quiet_ns):
                return recorded
            if request.state is None and isinstance(adapter, UndatedAdapter):
                copied = await asyncio.to_thread(adapter.copied, path, self._skipped(adapter, path))
                request = structs.replace(request, state=copied)
            reading = None if ahead is None else await asyncio.to_thread(ahead.reading, request)
            if reading is None:
                reading = await asyncio.to_thread(read_part, adapter, request)
            try:
                self._commit(path, before, privacy, reading)
            except TransactionStale:
                tries += 1
                if tries >= _TRIES_MAX or read_privacy(self._device.journal) != privacy:
                    return recorded
                continue
            report.counts.add(reading.counts)
            if adapter.concerns(str(path)):  # a file that a person names may be of any kind
                report.meet(adapter.name, reading.counts, now_ms())
            report.operations += len(reading.operations)
            recorded = recorded or bool(reading.operations)
            if not reading.more:
                return recorded

    def _commit(self, path: Path, before: bytes | None, privacy: Privacy, reading: TranscriptReading) -> None:
        """Commits what was read and the position. Raises TransactionStale if another process committed meanwhile."""
        journal = self._device.journal
        key, after = _key(path), encode_state(kept_state(reading))

        def advance() -> None:
            if journal.file_state(key) != before or read_privacy(journal) != privacy:
                raise TransactionStale("another process has read this transcript meanwhile")
            journal.set_file_state(key, after)
            if reading.operations:
                note(journal, Activity.CAPTURE, now_ms())

        known = self._device.replica.database
        said = named_as_before(known, reading.operations)
        ours = without_imported(self._device, claimed(known, said, reading.roots, now_ms()))
        operations = without_forgotten(self._device, ours)
        if operations:
            self._device.accept(operations, advance, nudges=self._nudges)
        elif after != before:
            with journal.transaction():
                advance()

    def _skipped(self, adapter: Adapter, path: Path) -> list[tuple[Path, FileState]]:
        """The tool's other transcripts of which some messages stay out, with their states."""
        known = self._device.journal.file_states()
        found = [each.path for each in adapter.discover() if each.problem is None and each.path != path]
        states = [(other, decode_state(known[key])) for other in found if (key := _key(other)) in known]
        return [(other, state) for other, state in states if state is not None and state.stepped_over]

    def _former(self, adapter: Adapter, path: Path) -> FileState | None:
        """The state of a transcript under the name that it had before its tool moved it."""
        former = adapter.former(path)
        data = None if former is None else self._device.journal.file_state(_key(former))
        return None if data is None else decode_state(data)

    def _wanted(self) -> list[Adapter]:
        """The adapters of the current settings: recording may be turned on or off while this process runs."""
        settings = with_current_options(self._settings)
        if settings is not self._settings:
            self._settings = settings
            self._adapters = adapters_of(settings, settings.person_home, self._projects)
        return self._adapters

    def _all(self) -> list[Adapter]:
        return all_adapters(self._settings, self._settings.person_home, self._projects)

    def _projects(self) -> set[Path]:
        return known_projects(self._device)


def note_unread(journal: SqliteJournal, folders: Iterable[str]) -> None:
    """Notes, within a transaction, folders that could not be read now that everything in them is to be skipped."""
    _set_unread(journal, _unread_folders(journal).union(folders))


def skip_unread(journal: SqliteJournal, adapters: Iterable[Adapter]) -> None:
    """Transcripts whose folder could not be read then, and now can, count as skipped, like one that itself could not.

    A folder that has none now may be a place where nothing is mounted: it stays noted until a transcript is found in it.
    """
    noted = _unread_folders(journal)
    if not noted:
        return
    readable: set[str] = set()
    unread: set[str] = set()
    inside: list[str] = []
    for _, each in discovered(adapters):
        folders = noted.intersection(map(str, _places(each.path)))
        if folders and each.is_unread_folder:
            unread.add(_key(each.path))
        elif folders:
            readable |= folders
            if each.problem is None:
                inside.append(_key(each.path))
    if not readable and unread <= noted:
        return
    with journal.transaction():
        now = _unread_folders(journal)  # another process may have noted some meanwhile
        _set_unread(journal, (now - readable) | unread)
        for key in inside:
            if journal.file_state(key) is None:
                journal.set_file_state(key, encode_state(unsure(None)))


def _set_unread(journal: SqliteJournal, folders: set[str]) -> None:
    if folders != _unread_folders(journal):
        journal.meta_set(META_UNREAD, msgspec.msgpack.encode(sorted(folders)) if folders else None)


def _unread_folders(journal: SqliteJournal) -> set[str]:
    data = journal.meta_get(META_UNREAD)
    return set() if data is None else from_msgpack(data, set[str])


def known_projects(device: Device) -> set[Path]:
    """The folders below the person's home that the memory has a conversation from, on any device."""
    home = device.settings.person_home
    return {
        home / folder
        for folder, _ in project_keys(device.replica.database)
        if folder not in NO_FOLDERS and not folder.startswith(OUTSIDE) and ".." not in Path(folder).parts
    }


def clean_text(text: str) -> Redacted:
    """A memory as it can be stored: valid characters, credentials redacted.

    Raises:
        UsageError: nothing is left, or it is too long.
    """
    # Python makes lone surrogates of arguments that are no UTF-8.
    whole = without_private(text.encode("utf-8", "replace").decode("utf-8").replace("\0", "").strip())
    redacted = redact(whole)
    if not redacted.text.strip():
        raise UsageError("there is nothing to remember", hint='Say it: crystal remember "…"')
    if len(redacted.text.encode()) > PIECE_BYTES_MAX:
        raise UsageError(
            f"a memory has at most {PIECE_BYTES_MAX // 1024} KiB", hint="Split it, or say it shorter."
        )
    return redacted


def _stays(choice: Choice) -> bool:
    adapter, found = choice
    return adapter.former(found.path) is None


def _problem(report: RecordReport, path: Path, error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        report.problems.append((str(path), f"cannot be read: {error.strerror or error}"))


def _unread(request: ReadRequest) -> int:
    """About how many bytes of a file are unread."""
    state = request.state or START
    try:
        size = Path(os.fsdecode(request.path)).lstat().st_size
    except OSError:  # `_file` gets the same error and reports it
        return 0
    return max(size - max(state.offset, state.size), 0)


def _processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _places(path: Path) -> tuple[Path, ...]:
    """A path and the folders that it is in."""
    whole = path.absolute()
    return whole, *whole.parents


def _key(path: Path) -> str:
    """The key of a transcript's state."""
    return str(path.absolute())
