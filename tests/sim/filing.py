"""What people do with their files, and what must not become of these: nothing that was written is lost (P1), and nothing that
nobody else has is overwritten or removed but into the trash (P7).

Everything written is a content of its own. It counts until the person changes or deletes that very content, on whatever device;
until then it stands in the tree in the end, at its path or at a conflict path beside it.
"""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from crystal_mirror.file_paths import folded
from tests.sim import filemodel
from tests.sim.model import Histories, History, State, Violation
from tests.sim.tree import Removed, SimDisk, cut

if TYPE_CHECKING:
    from tests.sim.device import Home

PATHS = ("notes.md", "Notes.md", "plans/june.md", "plans", "plans/old/may.md", "diary of Ada.txt", "list")
LINES = ("milk and bread, as ever\n", "call the dentist on May 4\n", "the roof leaks above it\n")
FILES_MAX = 6


class Filing:
    """``homes`` gives all that were ever there."""

    def __init__(
        self, histories: Histories, say: Callable[[str], None], plant: Callable[[str, bytes], None]
    ) -> None:
        self.written: dict[tuple[bytes, str], str] = {}
        """What counts: content and path, with the device at which it was written."""
        self.count = 0
        self._histories = histories
        self._say = say
        self._plant = plant

    def act(self, home: "Home", draw: Random) -> None:
        """A person writes, changes, deletes or renames a file on this device."""
        disk = home.disk
        assert disk is not None, "this device has files"
        there = sorted(disk.files)
        kind = draw.choice(("new", "new", "change", "change", "rename", "delete"))
        if kind == "new" and len(there) < FILES_MAX:
            self._write(home, disk, draw.choice(PATHS), draw)
        elif there and kind == "change":
            self._write(home, disk, draw.choice(there), draw)
        elif there and kind == "delete":
            path = draw.choice(there)
            self.let_go(path, disk.files[path].data)
            disk.delete(path)
            self._say(f"{home.name} deletes {path}")
        elif there and kind == "rename":
            path, to = draw.choice(there), draw.choice(PATHS)
            data = disk.files[path].data
            if to not in disk.files and disk.write(to, data):
                disk.delete(path)
                self.let_go(path, data)
                self.written[data, to] = home.name
                self._say(f"{home.name} renames {path} to {to}")

    def p7_only_what_others_have_is_overwritten(self, home: str, removed: Removed) -> None:
        """Raises Violation. What sync took from its place is in the trash, or a version that the log has."""
        known = tuple(part.content for part in cut(removed.data)) in self._histories.contents
        if not removed.overwritten and not removed.trashed:
            raise Violation(f"P7: {home} removed {removed.path}, and it is not in the trash")
        if not known:
            raise Violation(f"P7: {home} gave up {removed.path}, which nobody else has")

    def p1_no_file_is_lost(self, state: State, present: dict[str, "Home"], *, excused: bool) -> None:
        """Raises Violation. ``state`` is what all agreed on in the end; ``present``: the devices that are left. What may not
        travel, since another file differs from it in case alone, stays where it is."""
        standing = {tuple(row[1]) for row in map(filemodel.content, filemodel.living(state.files).values())}
        for each in present.values():
            standing |= set(files_on(each.disk).values()) if each.disk else set[tuple[bytes, ...]]()
        for (data, path), home in self.written.items():
            if tuple(part.content for part in cut(data)) not in standing and home in present and not excused:
                raise Violation(f"P1: what was written to {path} on {home} is lost")

    def disk_was_put_back(self, home: "Home", others: list["Home"]) -> None:
        """What only this disk had may be lost with it."""
        elsewhere = {file.data for other in others if other.disk for file in other.disk.files.values()}
        here = {file.data for file in home.disk.files.values()} if home.disk else set[bytes]()
        for data, path in list(self.written):
            ordered = tuple(part.content for part in cut(data)) in self._histories.contents
            if not ordered and data not in elsewhere | here:
                del self.written[data, path]

    def _write(self, home: "Home", disk: SimDisk, path: str, draw: Random) -> None:
        self.count += 1
        lines = [draw.choice(LINES) for _ in range(draw.randrange(4))]
        lines.insert(draw.randint(0, len(lines)), f"it is number {self.count:10}\n")
        data = "".join(lines).encode()
        old = disk.files.get(path)
        if not disk.write(path, data):
            return
        if old is not None:
            self.let_go(path, old.data)
        self.note_written(home, path, data)
        self._say(f"{home.name} writes {path}")

    def note_written(self, home: "Home", path: str, data: bytes) -> None:
        """From here on it counts; and not even the hash of a part of it may be seen without a key."""
        self.written[data, path] = home.name
        for part in cut(data):
            self._plant("the hash of a file's part", part.content)
            self._plant("the hash of a file's part", part.content.hex().encode())

    def let_go(self, path: str, data: bytes) -> None:
        if self.written.pop((data, path), None) is None:
            for key in [key for key in self.written if key[0] == data]:
                del self.written[key]


def standing_files(history: History) -> dict[str, tuple[bytes, ...]]:
    """The living files of a state: path and content."""
    rows = filemodel.living(history.state.files)
    return {path: tuple(filemodel.content(row)[1]) for path, row in rows.items()}


def refused_on(disk: SimDisk) -> set[str]:
    """Paths that are one file where case does not count."""
    forms = Counter(map(folded, disk.files))
    return {path for path in disk.files if forms[folded(path)] > 1}


def files_on(disk: SimDisk) -> dict[str, tuple[bytes, ...]]:
    return {path: tuple(part.content for part in cut(file.data)) for path, file in disk.files.items()}
