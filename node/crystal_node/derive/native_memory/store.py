"""Where records and copies are kept.

``state/native-memory/<slot>.json`` holds a device's record of a file, and beside it is what the file had before it was first
replaced (``.original``) and last replaced (``.previous``). ``native/<slot>/<device>.json`` of the home holds what one device
knows, and is written by that device alone; file sync brings it to the others. A slot is the hash of what a file is for.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from crystal_crypto.errors import UNDECODABLE
from crystal_node.base.decoding import from_json
from crystal_node.base.errors import ExitCode
from crystal_node.base.home import DIRECTORY_MODE, Home, write_private
from crystal_node.capture.line_reader import open_regular
from crystal_node.derive.native_memory.places import FileKey
from crystal_node.derive.native_memory.record import Record
from crystal_node.derive.native_memory.replicated_text import ReplicatedText, fault_of

FOLDER = "native"
VERSION = 1
COPY_BYTES_MAX = 8 * 1024 * 1024
SLOTS_MAX = 5_000
COPIES_MAX = 1_000
"""Of one file: a vault has fewer devices."""


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the home: what one device knows of a tool's file."""

    version: int
    tool: str
    project: str
    name: str
    text: ReplicatedText

    @property
    def key(self) -> FileKey:
        return FileKey(self.tool, self.name, self.project)


class Copies(NamedTuple):
    """What all devices know of one file, and what could not be taken from a copy, in words for people."""

    key: FileKey | None
    texts: tuple[ReplicatedText, ...]
    problems: tuple[str, ...]


class RecordDamaged(OSError):
    """The record of a file cannot be understood."""

    exit_code = ExitCode.STORAGE
    hint = "Restore it from a backup, or move it away: the file and the vault's lines are then put together again."

    def __str__(self) -> str:
        return str(self.strerror)


class NativeStore:
    """``device``: its id in hex."""

    def __init__(self, home: Home, device: str) -> None:
        self._shared = home.root / FOLDER
        self._own = home.state / "native-memory"
        self._device = device

    def record(self, slot: str) -> Record | None:
        """The record of a file; None if there is none. Raises RecordDamaged, OSError."""
        path = self._own / f"{slot}.json"
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return from_json(data, Record)
        except UNDECODABLE as error:
            raise RecordDamaged(5, f"{path} is damaged", str(path)) from error

    def keep(self, slot: str, record: Record) -> None:
        """Keeps a record, durably. Raises OSError."""
        self._own.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        write_private(self._own / f"{slot}.json", msgspec.json.encode(record))

    def aside(self, slot: str, *, first: bool) -> Path:
        """Where a file's bytes are kept before they are replaced for the first time, or again."""
        self._own.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        return self._own / f"{slot}.{'original' if first else 'previous'}"

    def originals(self, slot: str) -> bool:
        """Whether the file's bytes before it was first replaced are kept."""
        return (self._own / f"{slot}.original").exists()

    def publish(self, key: FileKey, text: ReplicatedText) -> bool:
        """Writes what this device knows where file sync takes it from; False if that is there already. Raises OSError."""
        folder = self._shared / key.slot
        path = folder / f"{self._device}.json"
        copy = Copy(version=VERSION, tool=key.tool, project=key.project, name=key.name, text=text)
        data = msgspec.json.encode(copy) + b"\n"
        try:
            if path.read_bytes() == data:
                return False
        except FileNotFoundError:
            for each in (self._shared, folder):
                each.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        write_private(path, data)
        return True

    def slots(self) -> list[str]:
        """The slots of which the home has copies."""
        try:
            return sorted(
                each.name for each in self._shared.iterdir() if each.is_dir() and not each.is_symlink()
            )[:SLOTS_MAX]
        except FileNotFoundError:
            return []

    def copies(self, slot: str) -> Copies:
        """All copies of one file: also one that a conflict of two devices has put beside another. Raises OSError."""
        texts: list[ReplicatedText] = []
        problems: list[str] = []
        key: FileKey | None = None
        for path in self._paths(slot):
            copy = self._read(path)
            fault = copy if isinstance(copy, str) else fault_of(copy.text)
            if isinstance(copy, str) or fault is not None:
                problems.append(f"{FOLDER}/{slot}/{path.name} is left out: {fault}")
            elif copy.key.slot != slot:
                problems.append(f"{FOLDER}/{slot}/{path.name} is left out: it is of another file")
            else:
                key = copy.key
                texts.append(copy.text)
        return Copies(key, tuple(texts), tuple(problems))

    def _paths(self, slot: str) -> Iterator[Path]:
        folder = self._shared / slot
        try:
            names = sorted(each for each in folder.iterdir() if each.suffix == ".json")
        except (FileNotFoundError, NotADirectoryError):
            return
        yield from names[:COPIES_MAX]

    @staticmethod
    def _read(path: Path) -> Copy | str:
        try:
            with open_regular(path) as file:
                data = file.read(COPY_BYTES_MAX + 1)
        except FileNotFoundError:
            return "it is gone again"
        except OSError as error:
            return f"it cannot be read: {error.strerror or error}"
        if len(data) > COPY_BYTES_MAX:
            return f"it has more than {COPY_BYTES_MAX // 1024**2} MiB"
        try:
            copy = from_json(data, Copy)
        except UNDECODABLE:
            return "it cannot be understood"
        return copy if copy.version == VERSION else "a newer Crystal wrote it"
