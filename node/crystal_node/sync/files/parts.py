"""Files as parts, cut by content, so that a change moves only the parts around it.

FastCDC (pyfastcdc): parts of 64 KiB on average, larger ones in files over 128 MiB, so that no file has many thousands. The cut
points depend on a seed from the keys in force, so that neither a relay nor a device that was put out can recognise a known file
by the sizes of its parts. Devices need not cut the same way:
a file consists of the parts that its author cut.
"""

import os
import stat
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

from crystal_mirror.files.ports import FileMoved, FileTrouble, LocalFile, PartPlace
from crystal_mirror.operations import FilePart
from crystal_node.base.secret_files import is_recovery_kit
from crystal_node.sync.files.folders import READ, folder_of, troubles
from crystal_node.sync.files.scan import local_of

PART_BYTES_MEANS = tuple(64 * 1024 << doubled for doubled in range(5))
"""64 KiB to 1 MiB."""
SPREAD = 4
"""A part has at least a fourth of the mean, and at most four times as much."""  # §14-1
PARTS_WANTED = 2048
"""Parts on average, beyond which larger ones are cut; their names are sent with each version."""
PARTS_KEPT_MAX = 4096
"""A file that grows is cut as before up to so many parts: cut otherwise, all of it would be sent again."""
WHOLE_BYTES_MAX = 256 * 1024
"""A file of up to this size is one part."""
_HASHED_BYTES = 1024 * 1024
"""Parts that are hashed together in a thread, while the next ones are read and cut."""
_HASHED_AT_ONCE = 4
"""Such groups in memory."""

_GONE = "the file is gone"

KIT_FILE_BYTES_MAX = 16 * 1024
"""Larger files are not looked at for being a recovery kit: its page has four thousand characters."""


def part_bytes_mean(size: int, before: Sequence[FilePart] = ()) -> int:
    """The average size of the parts of a file. ``before``: the parts of the version before it."""
    wanted = next((mean for mean in PART_BYTES_MEANS if size <= mean * PARTS_WANTED), PART_BYTES_MEANS[-1])
    if len(before) < SPREAD:
        return wanted
    had = sum(part.length for part in before) / len(before)
    nearest = min(PART_BYTES_MEANS, key=lambda mean: max(mean / had, had / mean))
    return nearest if size <= nearest * PARTS_KEPT_MAX else wanted


class Cutter:
    """Cuts files of one home, by one seed of 63 bits."""

    def __init__(self, root: Path, seed: int) -> None:
        self._root, self.seed = root, seed

    def _chunker(self, mean: int) -> Any:
        from pyfastcdc import FastCDC  # lazy: most commands cut no file

        least = mean // SPREAD
        return FastCDC(mean - least, min_size=least, max_size=mean * SPREAD, seed=self.seed)

    def cut(self, local: LocalFile, before: Sequence[FilePart] = ()) -> Iterator[FilePart]:
        """Yields the hashed parts of a file. ``before``: those of the version before it.

        Raises FileMoved if it is not, or does not stay, as it was looked at.
        """
        with folder_of(self._root, local.path) as found:
            if found is None:
                raise FileMoved(_GONE)
            with troubles():
                descriptor = _opened(found)
        with os.fdopen(descriptor, "rb", buffering=0) as file, troubles():
            if _stamped(descriptor, local.path) != local.stamp:
                raise FileMoved("the file changed before it was read")
            if local.stamp.size <= WHOLE_BYTES_MAX:
                whole = file.read(WHOLE_BYTES_MAX + 1)
                if len(whole) <= KIT_FILE_BYTES_MAX and is_recovery_kit(whole):
                    raise FileTrouble(
                        "it is a recovery kit, which opens the vault: keep it on paper, on no device"
                    )
                if whole:
                    yield FilePart(sha256(whole).digest(), len(whole))
            else:
                chunker = self._chunker(part_bytes_mean(local.stamp.size, before))
                # Copied: the cutter reads the next ones into the same buffer.
                yield from _hashed(bytes(chunk.data) for chunk in chunker.cut_stream(file))
            if _stamped(descriptor, local.path) != local.stamp:
                raise FileMoved("the file changed while it was read")


def _hashed(pieces: Iterable[bytes]) -> Iterator[FilePart]:
    """The parts that these pieces are, in order. A thread hashes them, without the interpreter's lock."""
    waiting: deque[Future[list[FilePart]]] = deque()
    group: list[bytes] = []
    held = 0
    with ThreadPoolExecutor(1, "hash") as thread:
        for piece in pieces:
            group.append(piece)
            held += len(piece)
            if held >= _HASHED_BYTES:
                waiting.append(thread.submit(_parts_of, group))
                group, held = [], 0
            if len(waiting) == _HASHED_AT_ONCE:
                yield from waiting.popleft().result()
        for each in waiting:
            yield from each.result()
    yield from _parts_of(group)


def _parts_of(pieces: Sequence[bytes]) -> list[FilePart]:
    return [FilePart(sha256(piece).digest(), len(piece)) for piece in pieces]


def read_place(root: Path, place: PartPlace) -> bytes:
    """The bytes at that place now; fewer if the file ends before."""
    with folder_of(root, place.path) as found:
        if found is None:
            raise FileMoved(_GONE)
        with troubles():
            descriptor = _opened(found)
            try:
                return read_at(descriptor, place.offset, place.length)
            finally:
                os.close(descriptor)


def read_pieces(root: Path, local: LocalFile, lengths: Sequence[int]) -> Iterator[bytes]:
    """The bytes of a file in pieces of these lengths; shorter ones where it ends before.

    Raises FileMoved if it is not, or does not stay, as it was looked at.
    """
    with folder_of(root, local.path) as found:
        if found is None:
            raise FileMoved(_GONE)
        with troubles():
            descriptor = _opened(found)
    with os.fdopen(descriptor, "rb", buffering=0), troubles():
        if _stamped(descriptor, local.path) != local.stamp:
            raise FileMoved("the file changed before it was read")
        offset = 0
        for length in lengths:
            yield read_at(descriptor, offset, length)
            offset += length
        if _stamped(descriptor, local.path) != local.stamp:
            raise FileMoved("the file changed while it was read")


def read_at(descriptor: int, offset: int, length: int) -> bytes:
    """So many bytes of an open file; fewer at its end. Not copied unless they come in several pieces."""
    data = os.pread(descriptor, length, offset)
    while data and len(data) < length:
        more = os.pread(descriptor, length - len(data), offset + len(data))
        if not more:
            break
        data += more
    return data


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
