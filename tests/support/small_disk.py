"""A small file system of a test's own, which is full when it is full. Needs the right to mount."""

import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

_BALLAST = "ballast"


@contextmanager
def mounted_disk(folder: Path, kib: int) -> Generator[Path]:
    """An empty one of so many KiB at a new ``folder``. Skips the test where it cannot be mounted."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={kib}k,mode=700", "crystal-test", str(folder)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("a small file system can only be mounted as root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=True)


def fill(disk: Path, left: int) -> None:
    """Leaves about so many bytes free."""
    free = shutil.disk_usage(disk).free
    with (disk / _BALLAST).open("ab") as file:
        file.write(bytes(max(free - left, 0)))


def empty(disk: Path) -> None:
    """Takes away what ``fill`` wrote."""
    (disk / _BALLAST).unlink()


def grow(disk: Path) -> None:
    """Makes it 100 MB large."""
    subprocess.run(["mount", "-o", "remount,size=100m", str(disk)], capture_output=True, check=True)
