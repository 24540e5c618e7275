"""A disk that fails under real processes: every flush or every write that they make may be the one, and the power may fail.

    disk = FailingDisk(tmp_path / "disk", shim, machine.home)
    machine.extra |= disk.environment
    disk.fail(Fails.FLUSH, after=3)               # three flushes succeed, and from then on none
    machine.run("capture", check=False)
    disk.lose_power()                             # the home has what was flushed, and nothing else

`disk_shim.c`, compiled for it, stands between the processes and the system's calls.
"""

import errno
import mmap
import shutil
import struct
import subprocess
import sys
from enum import Enum
from pathlib import Path

_SOURCE = Path(__file__).with_name("disk_shim.c")
_ORDER = struct.Struct("<6q")
_EVER = 2**62


class Fails(Enum):
    """What fails, and how the system says it."""

    FLUSH = "a flush fails"
    WRITE = "a write finds the disk full"


class FailingDisk:
    """What is to fail under the processes that are started with its environment, and what did. `root` is on this disk."""

    def __init__(self, folder: Path, shim: Path, root: Path) -> None:
        self._root = root.resolve()
        self._platter = folder / "platter"
        self._file = folder / "order"
        self._shim = shim
        self._kept = self._platter / "tree" / self._root.relative_to("/")
        folder.mkdir(parents=True, exist_ok=True)
        self._file.write_bytes(bytes(_ORDER.size))
        with self._file.open("r+b") as file:
            self._order = mmap.mmap(file.fileno(), _ORDER.size)
        self.flush_all()

    @property
    def environment(self) -> dict[str, str]:
        order, platter = str(self._file), str(self._platter)
        return {"TEST_DISK_ORDER": order, "TEST_DISK_PLATTER": platter, "LD_PRELOAD": str(self._shim)}

    def fail(self, what: Fails, *, after: int = 0, times: int = _EVER) -> None:
        """Let `after` of such calls pass, and fail the next `times`."""
        number = errno.EIO if what is Fails.FLUSH else errno.ENOSPC
        self._order[:] = _ORDER.pack(number, what is Fails.FLUSH, after, times, 0, 0)

    def mend(self) -> None:
        """Nothing fails any more."""
        self._order[:8] = bytes(8)

    @property
    def failed(self) -> int:
        """How many calls failed since `fail`."""
        return int(_ORDER.unpack(self._order[:])[4])

    def flush_all(self) -> None:
        """Everything that is there now would survive. No process of it runs."""
        shutil.rmtree(self._platter, ignore_errors=True)
        shutil.copytree(self._root, self._kept)

    def lose_power(self) -> None:
        """What was not flushed is gone. No process of it runs any more."""
        shutil.rmtree(self._root)
        shutil.copytree(self._kept, self._root)
        self.flush_all()


def compiled_shim(folder: Path) -> Path | str:
    """The shim, made in the folder; a string says what is missing."""
    if sys.platform != "linux":
        return "LD_PRELOAD is Linux's"
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return "there is no C compiler (cc, gcc) to make a disk that fails"
    target = folder / "disk.so"
    made = subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", str(target), str(_SOURCE), "-ldl"],
        capture_output=True,
        text=True,
        check=False,
    )
    return target if made.returncode == 0 else f"a disk that fails cannot be compiled: {made.stderr[:200]}"
