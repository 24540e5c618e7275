"""Keeps the memory files of AI tools in step with the vault, and says how each is."""

import re
from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from msgspec import structs

from crystal_node.base.locking import FileLock
from crystal_node.base.settings import Settings
from crystal_node.base.wording import counted, printable
from crystal_node.capture.exclusions import Exclusions
from crystal_node.derive.native_memory import disk
from crystal_node.derive.native_memory.disk import LeftAlone, NativeFile
from crystal_node.derive.native_memory.places import FileKey, NativePlace, places
from crystal_node.derive.native_memory.record import Record, absorbed, intended, observed, settled
from crystal_node.derive.native_memory.replicated_text import LINE_CHARS_MAX, LINES_MAX, ShownLine, fault_of
from crystal_node.derive.native_memory.sections import Conflict, conflicts
from crystal_node.derive.native_memory.store import Copies, NativeStore
from crystal_node.device.device import Device
from crystal_node.device.privacy import read_privacy
from crystal_node.search.devices import DeviceNames

_DEVICE_DIGITS = 16
_INCARNATION_DIGITS = 8
_UNNAMED = "a device"


class NativeState(StrEnum):
    """How a file is."""

    IN_STEP = "in-step"
    WAITING = "waiting"
    """The next run changes it, here or in the vault."""
    HELD = "held"
    """It is left as it is, for the reason that is given."""
    ELSEWHERE = "elsewhere"
    """It is in the vault, and this device has no such project or tool."""


@dataclass(frozen=True, slots=True)
class FoundConflict:
    """A conflict of a file. ``line``: the number of its first line, from 1 on."""

    line: int
    texts: tuple[str, ...]
    devices: tuple[str, ...]
    removed_heading: bool


@dataclass(frozen=True, slots=True)
class NativeStatus:
    """One file. ``lines``: how many of them each device wrote, by its name; ``local``: how many stay on this device."""

    tool: str
    name: str
    project: str
    path: str
    state: NativeState
    reason: str = ""
    lines: tuple[tuple[str, int], ...] = ()
    local: int = 0
    conflicts: tuple[FoundConflict, ...] = ()
    problems: tuple[str, ...] = ()
    written: bool = False
    """Whether this run changed the file here."""

    def document(self) -> dict[str, object]:
        """The file as JSON."""
        return {
            "tool": self.tool,
            "name": self.name,
            "project": self.project,
            "path": self.path,
            "state": self.state.value,
            "reason": self.reason,
            "lines_by_device": dict(self.lines),
            "lines_of_this_device_alone": self.local,
            "conflicts": [
                {
                    "line": each.line,
                    "texts": list(each.texts),
                    "devices": list(each.devices),
                    "removed_heading": each.removed_heading,
                }
                for each in self.conflicts
            ],
            "problems": list(self.problems),
            "written": self.written,
        }


def keep_in_step(
    device: Device, settings: Settings, now_ms: int, *, hurried: bool = False
) -> list[NativeStatus]:
    """Records what changed in the tools' files, and writes into them what other devices changed. Does nothing in private mode.

    ``hurried``: also reads files that were changed just now. Raises HomeBusy, OSError.
    """
    return list(kept_in_step(device, settings, now_ms, hurried=hurried))


def kept_in_step(
    device: Device, settings: Settings, now_ms: int, *, hurried: bool = False
) -> Generator[NativeStatus]:
    """As ``keep_in_step``, one file after the other."""
    if read_privacy(device.journal).on:
        return
    with FileLock(
        settings.home.state / "native-memory.lock",
        purpose="crystal native",
        wait_seconds=5.0 if hurried else 0.0,
    ):
        yield from _Keeper(device, settings, now_ms, hurried=hurried, dry=False).run()


def native_status(device: Device, settings: Settings, now_ms: int) -> list[NativeStatus]:
    """How each file is, without changing anything. Raises OSError."""
    return list(_Keeper(device, settings, now_ms, hurried=True, dry=True).run())


class _Keeper:
    def __init__(self, device: Device, settings: Settings, now_ms: int, *, hurried: bool, dry: bool) -> None:
        own = device.member.device_id.hex()
        stream = device.journal.stream()
        incarnation = b"" if stream is None else stream.incarnation
        self._writer = f"{own[:_DEVICE_DIGITS]}-{incarnation.hex()[:_INCARNATION_DIGITS] or '0'}"
        self._device, self._settings, self._now, self._hurried, self._dry = (
            device,
            settings,
            now_ms,
            hurried,
            dry,
        )
        self._store = NativeStore(settings.home, own)
        self._names = DeviceNames(device.replica.database)
        self._ids = {
            each.device.hex()[:_DEVICE_DIGITS]: each.device.hex() for each in device.member.log.members()
        }

    def run(self) -> Iterator[NativeStatus]:
        settings = self._settings
        tools = settings.capture.native_memory
        if not tools:
            return
        copies = {slot: self._store.copies(slot) for slot in self._store.slots()}
        known = frozenset(
            each.key for each in copies.values() if each.key is not None and each.key.tool in tools
        )
        exclusions = Exclusions.read(settings.home.root, settings.person_home)
        seen: dict[Path, str] = {}
        done: set[FileKey] = set()
        for place in places(settings, tools, self._device.replica.database, exclusions, known):
            try:
                target = place.path.resolve()
            except (OSError, RuntimeError):  # links in a circle: ``disk.read`` says so
                target = place.path
            if place.key in done:
                yield self._held(
                    place, "another folder here is of the same project, and that one is kept in step"
                )
            elif target in seen:
                yield self._held(place, f"it is the same file as {seen[target]}")
            else:
                seen[target] = str(place.path)
                done.add(place.key)
                yield self._place(place, copies.get(place.key.slot) or Copies(place.key, (), ()))
        for key in sorted(known - done, key=lambda each: (each.tool, each.project, each.name)):
            yield NativeStatus(key.tool, key.name, key.project, "", NativeState.ELSEWHERE)

    def _place(self, place: NativePlace, copies: Copies) -> NativeStatus:
        slot = place.key.slot
        try:
            file = disk.read(place.path, self._settings.home.root)
        except LeftAlone as error:
            return self._held(place, str(error))
        except OSError as error:
            return self._held(place, f"it cannot be read: {error.strerror}")
        before = self._store.record(slot)
        if before is None and file.data is None and not copies.texts:
            return NativeStatus(
                place.key.tool, place.key.name, place.key.project, str(place.path), NativeState.IN_STEP
            )
        if not (self._hurried or file.is_quiet):
            return self._status(place, before or Record(), NativeState.WAITING, copies)
        if len(file.lines) > LINES_MAX:
            return self._held(place, f"it has more than {LINES_MAX:,} lines")
        long = next((number for number, line in enumerate(file.lines, 1) if len(line) > LINE_CHARS_MAX), 0)
        if long:  # the other devices would refuse all of this device's copy
            return self._held(place, f"its line {long} has more than {LINE_CHARS_MAX:,} characters")
        record = before or Record()
        record = settled(record, written=not Path(record.temporary).exists())
        if file.data is not None or _is_removal(place, record):
            record = observed(record, file.lines, writer=self._writer, count=self._now)
        if refused := fault_of(record.text):
            return self._held(place, f"other devices would refuse it: {refused}")
        if record != before:
            self._keep(slot, record)
        record, left_out, fault = absorbed(record, copies.texts)
        if left_out:
            problem = f"{counted(left_out, 'copy', 'copies')} of other devices left out: with it {fault}"
            copies = copies._replace(problems=(*copies.problems, problem))
        lines = intended(record, self._name)
        state, reason, written = self._bring(place, file, record, lines)
        if state is NativeState.IN_STEP and not self._dry:
            record = structs.replace(record, shown=lines)
        if not self._dry:
            self._keep(slot, record)
            if record.text.seen:
                self._store.publish(place.key, record.text)
        elif record != before and state is NativeState.IN_STEP:
            state = NativeState.WAITING
        return self._status(
            place, structs.replace(record, shown=lines), state, copies, reason=reason, written=written
        )

    def _bring(
        self, place: NativePlace, file: NativeFile, record: Record, lines: tuple[ShownLine, ...]
    ) -> tuple[NativeState, str, bool]:
        """Writes the file's lines into it. Returns how it is then, why, and whether it was changed."""
        words = [line.text for line in lines]
        gone = not words and place.many
        if file.lines == words and (file.data is not None or not words):
            return NativeState.IN_STEP, "", False
        data = file.encoded(words)
        over = place.cap.over(words, len(data))
        if over is not None:
            return (
                NativeState.HELD,
                f"with the other devices' lines it would have {over}; they stay in the vault",
                False,
            )
        if self._dry:
            return NativeState.WAITING, "", False
        slot = place.key.slot
        kept = self._store.aside(slot, first=not self._store.originals(slot))
        try:
            prepared = disk.prepare(file, data, disk.temporary(file, slot), kept)
            self._keep(slot, structs.replace(record, writing=lines, temporary=str(prepared)))
            replaced = disk.commit(file, prepared, remove=gone)
        except OSError as error:
            return NativeState.HELD, f"it cannot be written: {error.strerror}", False
        if not replaced:
            # It was changed this moment: the record says so before the temporary file goes.
            self._keep(slot, record)
            with suppress(FileNotFoundError):
                prepared.unlink()
            return NativeState.WAITING, "", False
        return NativeState.IN_STEP, "", True

    def _keep(self, slot: str, record: Record) -> None:
        if not self._dry:
            self._store.keep(slot, record)

    def _held(self, place: NativePlace, reason: str) -> NativeStatus:
        key = place.key
        return NativeStatus(key.tool, key.name, key.project, str(place.path), NativeState.HELD, reason)

    def _status(
        self,
        place: NativePlace,
        record: Record,
        state: NativeState,
        copies: Copies,
        *,
        reason: str = "",
        written: bool = False,
    ) -> NativeStatus:
        lines = record.shown or ()
        counts: dict[str, int] = {}
        for line in lines:
            if line.dots and not line.mark and not line.local and line.text.strip():
                name = self._name(line.dots[0][0])
                counts[name] = counts.get(name, 0) + 1
        return NativeStatus(
            place.key.tool,
            place.key.name,
            place.key.project,
            str(place.path),
            state,
            reason,
            tuple(sorted(counts.items())),
            sum(line.local for line in lines),
            tuple(self._found(each) for each in conflicts(record.text, lines)),
            copies.problems,
            written,
        )

    def _found(self, conflict: Conflict) -> FoundConflict:
        texts = tuple(line.text for line in conflict.lines)
        names = tuple(dict.fromkeys(map(self._name, conflict.writers)))
        return FoundConflict(conflict.at + 1, texts, names, conflict.revived)

    def _name(self, writer: str) -> str:
        """A device's name, as it may stand in a comment of HTML."""
        digits = writer[:_DEVICE_DIGITS]
        name = self._names.name(self._ids.get(digits, digits))
        return re.sub(r"[^\w .]+", " ", printable(name)).strip()[:60] or _UNNAMED


def _is_removal(place: NativePlace, record: Record) -> bool:
    """Whether a missing file was removed: one of several of a folder whose main file is there. Any other may be on a disk that
    is not, and comes back."""
    return place.many and bool(record.shown) and place.path.with_name("MEMORY.md").exists()
