"""How much room the disks of a home have: asked of the file system, at the price of a call for each folder."""

import os
from dataclasses import dataclass
from pathlib import Path

from crystal_node.base.home import Home
from crystal_node.base.wording import counted, size

FREE_BYTES_MIN = 256 * 1024 * 1024
"""With less, a batch of the mirror with its index and its write-ahead log may not fit any more."""
FREE_FILES_MIN = 500
"""Names of files that the file system has left."""


@dataclass(frozen=True, slots=True)
class Disk:
    """``files``: how many more it can hold, None where it does not count them."""

    folder: Path
    free: int
    files: int | None
    read_only: bool

    @property
    def low(self) -> bool:
        return self.free < FREE_BYTES_MIN or (self.files is not None and self.files < FREE_FILES_MIN)

    @property
    def words(self) -> str:
        if self.free >= FREE_BYTES_MIN and self.files is not None:
            return counted(self.files, "name") + " of files are"
        return f"{size(self.free)} are"


def disks_of(home: Home) -> tuple[Disk, ...]:
    """That of the home, and that of the database where it is another one. What cannot be asked is left out."""
    found: dict[int, Disk] = {}
    for folder in (home.root, home.database.parent):
        try:
            device, about = folder.stat().st_dev, os.statvfs(folder)
        except OSError:
            continue
        files = about.f_favail if about.f_files else None
        read_only = bool(about.f_flag & os.ST_RDONLY)
        found.setdefault(device, Disk(folder, about.f_bavail * about.f_frsize, files, read_only))
    return tuple(found.values())
