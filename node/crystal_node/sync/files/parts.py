"""Files as parts, cut by content, so that a change moves only the parts around it.

FastCDC (pyfastcdc): 256 KiB to 4 MiB, 1 MiB on average. The cut points depend on a seed from the keys in force, so that neither
a relay nor a device that was put out can recognise a known file by the sizes of its parts. Devices need not cut the same way:
a file consists of the parts that its author cut.
"""

import os
import stat
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from crystal_mirror.files.ports import FileMoved, FileTrouble, LocalFile, PartPlace
from crystal_mirror.operations import FilePart
from crystal_node.base.secret_files import is_recovery_kit
from crystal_node.sync.files.folders import READ, folder_of, troubles
from crystal_node.sync.files.scan import local_of

PART_BYTES_MIN = 256 * 1024  # §14-1
PART_BYTES_MEAN = 1024 * 1024
PART_BYTES_MAX = 4 * 1024 * 1024  # §14-1

_GONE = "the file is gone"

KIT_FILE_BYTES_MAX = 16 * 1024
"""Larger files are not looked at for being a recovery kit: its page has four thousand characters."""


class Cutter:
    """Cuts files of one home, by one seed of 63 bits."""

    def __init__(self, root: Path, seed: int) -> None:
        from pyfastcdc import FastCDC  # lazy: most commands cut no file

        self._root, self.seed = root, seed
        self._chunker = FastCDC(
            PART_BYTES_MEAN - PART_BYTES_MIN, min_size=PART_BYTES_MIN, max_size=PART_BYTES_MAX, seed=seed
        )

    def cut(self, local: LocalFile) -> Iterator[FilePart]:
        """Yields the hashed parts of a file. Raises FileMoved if it is not, or does not stay, as it was looked at."""
        with folder_of(self._root, local.path) as found:
            if found is None:
                raise FileMoved(_GONE)
            with troubles():
                descriptor = _opened(found)
        with os.fdopen(descriptor, "rb", buffering=0) as file, troubles():
            if _stamped(descriptor, local.path) != local.stamp:
                raise FileMoved("the file changed before it was read")
            if local.stamp.size <= PART_BYTES_MIN:  # the cutter would return one part, more slowly
                whole = file.read(PART_BYTES_MIN + 1)
                if len(whole) <= KIT_FILE_BYTES_MAX and is_recovery_kit(whole):
                    raise FileTrouble(
                        "it is a recovery kit, which opens the vault: keep it on paper, on no device"
                    )
                if whole:
                    yield FilePart(sha256(whole).digest(), len(whole))
            else:
                for chunk in self._chunker.cut_stream(cast("Any", file)):
                    yield FilePart(sha256(chunk.data).digest(), chunk.length)
            if _stamped(descriptor, local.path) != local.stamp:
                raise FileMoved("the file changed while it was read")


def read_place(root: Path, place: PartPlace) -> bytes:
    """The bytes at that place now; fewer if the file ends before."""
    with folder_of(root, place.path) as found:
        if found is None:
            raise FileMoved(_GONE)
        with troubles():
            descriptor = _opened(found)
            try:
                data = bytearray()
                while len(data) < place.length:
                    piece = os.pread(descriptor, place.length - len(data), place.offset + len(data))
                    if not piece:
                        break
                    data += piece
                return bytes(data)
            finally:
                os.close(descriptor)


def _opened(found: tuple[int, str]) -> int:
    folder, name = found
    try:
        descriptor = os.open(name, READ, dir_fd=folder)
    except FileNotFoundError:
        raise FileMoved(_GONE) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileTrouble("it is no regular file")
    return descriptor


def _stamped(descriptor: int, path: str) -> object:
    return local_of(path, os.fstat(descriptor), 0).stamp
