"""Transcripts that Codex has compressed: ``rollout-….jsonl.zst`` in place of ``rollout-….jsonl``, with the same content.

One is unpacked into ``state/unpacked`` and copied from there. If its plain form was copied to its end before, as it is
when the background service ran, nothing is copied again.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from msgspec import structs

from crystal_crypto import compression
from crystal_crypto.errors import CrystalError, Malformed
from crystal_node.base.errors import ExitCode
from crystal_node.base.home import write_private
from crystal_node.capture.folders import files_below
from crystal_node.capture.line_reader import FileState, open_regular
from crystal_node.derive.sessions.database import Cursor, SessionDatabase
from crystal_node.derive.sessions.lines import state_at

ENDING = ".zst"
COMPRESSED_BYTES_MAX = 128 * 1024 * 1024
UNPACKED_BYTES_MAX = 512 * 1024 * 1024
"""Held in memory while one is unpacked. A larger one is left out, and named."""


class NotUnpacked(CrystalError):
    """A compressed transcript is damaged or too large."""

    exit_code = ExitCode.STORAGE
    hint = "See with `zstd -t` whether it is whole. `codex resume` unpacks it; it is copied then."


def is_compressed(path: Path) -> bool:
    return path.name.endswith(ENDING)


def plain(path: Path) -> Path:
    """The name that the transcript has when it is not compressed."""
    return path.with_name(path.name.removesuffix(ENDING))


def compressed_in(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        for each in files_below(folder, lambda name: name.endswith(f".jsonl{ENDING}")):
            if each.problem is None:
                yield each.path


class CompressedTranscripts:
    """Copies them. ``folder``: for what is unpacked, removed with it; one process uses it at a time."""

    def __init__(self, folder: Path, database: SessionDatabase) -> None:
        self._folder = folder
        self._database = database

    def copy(self, path: Path, former: Path | None, copy_plain: Callable[[Path], int]) -> int:
        """Copies what is new in one. ``former``: where its plain form was before it was archived; ``copy_plain`` copies the
        unpacked file, and says by how many bytes the copy grew.

        Raises:
            OSError: it cannot be read, or the home not be written. NotUnpacked.
        """
        with open_regular(path) as file:
            found = os.fstat(file.fileno())
            packed = file.read(COMPRESSED_BYTES_MAX + 1)
        if len(packed) > COMPRESSED_BYTES_MAX:
            raise NotUnpacked(f"it is larger than {COMPRESSED_BYTES_MAX // 2**20} MiB")
        try:
            data = compression.decompress_frames(packed, UNPACKED_BYTES_MAX)
        except Malformed as error:
            raise NotUnpacked(str(error)) from error
        shutil.rmtree(self._folder, ignore_errors=True)  # of a process that was killed
        unpacked = self._folder / plain(path).name
        try:
            self._folder.mkdir(mode=0o700, parents=True)
            write_private(unpacked, data)
            # It says how old the session is: what is checked out now is not what an old one had seen.
            os.utime(unpacked, ns=(found.st_mtime_ns, found.st_mtime_ns))
            known = self._copied_whole((plain(path), former), unpacked, len(data))
            grown = 0
            if known is None:
                grown = copy_plain(unpacked)
                known = self._database.cursor(unpacked)
            if known is not None:
                state = FileState(
                    offset=found.st_size,
                    size=found.st_size,
                    modified=found.st_mtime_ns,
                    changed=found.st_ctime_ns,
                    inode=found.st_ino,
                )
                self._database.set_cursor(path, structs.replace(known, state=state))
            return grown
        finally:
            self._database.drop_cursor(unpacked)
            shutil.rmtree(self._folder, ignore_errors=True)

    def _copied_whole(self, forms: Iterable[Path | None], unpacked: Path, size: int) -> Cursor | None:
        """The cursor of a plain form, if that was this content and was copied to its end."""
        for each in forms:
            known = self._database.cursor(each) if each is not None else None
            if known is None or known.state.offset != size:
                continue
            there = state_at(unpacked, size)
            if (there.head_bytes, there.head, there.tail_bytes, there.tail) == (
                known.state.head_bytes, known.state.head, known.state.tail_bytes, known.state.tail,
            ):  # fmt: skip
                return known
        return None
