"""Reading the files of a source in batches, in a thread, while the event loop has other things to do."""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from crystal_core.documents import Document
from crystal_node.derive.sources.database import SENT, Known
from crystal_node.derive.sources.filetypes import Skipped
from crystal_node.derive.sources.reader import Extract, Prepared, Read, prepare, read_file
from crystal_node.derive.sources.scan import Stamp

BATCH_FILES = 50
BATCH_BYTES = 512 * 1024
BATCH_SECONDS = 1.0
QUIET_NS = 2_000_000_000
"""A file that was changed so shortly before it was read may change again under the same stamp: it is read again."""

_CHANGED = Stamp(-1, -1, -1, 0)


@dataclass(frozen=True, slots=True)
class One:
    """A file that was read. ``prepared`` None: its content is the vault's already."""

    path: str
    known: Known | None = None
    modified_ns: int = 0
    prepared: Prepared | None = None
    gone: bool = False
    opened: bool = False


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads files of a source, in a thread."""

    root: Path
    files: Iterator[tuple[str, Stamp]]
    known: dict[str, Known]
    vault: dict[str, Document]
    extract: Extract
    stop: threading.Event

    def batch(self) -> list[One]:
        """The next files, as many as make a batch."""
        found: list[One] = []
        size = 0
        until = time.monotonic() + BATCH_SECONDS
        for path, stamp in self.files:
            one = self._read(path, stamp)
            found.append(one)
            size += one.known.stamp.size if one.known is not None else 0
            late = time.monotonic() > until or self.stop.is_set()
            if len(found) >= BATCH_FILES or size >= BATCH_BYTES or late:
                break
        return found

    def _read(self, path: str, stamp: Stamp) -> One:
        found = read_file(self.root, path)
        if found is None:
            return One(path, gone=True)
        if isinstance(found, Skipped):
            return One(path, Known(stamp, b"", found.value))
        quiet = time.time_ns() - max(found.stamp.modified_ns, found.stamp.changed_ns) > QUIET_NS
        stamp = _sized(found.stamp if quiet else _CHANGED, found)
        there, before = self.vault.get(path), self.known.get(path)
        if there is not None and there.version == found.digest and there.complete:
            redacted = before.redacted if before is not None else 0
            return One(path, Known(stamp, found.digest, SENT, there.total, redacted), opened=True)
        prepared = prepare(path, found.data, self.extract)
        if isinstance(prepared, Skipped):
            return One(path, Known(stamp, found.digest, prepared.value), opened=True)
        kept = Known(stamp, found.digest, SENT, len(prepared.passages), prepared.redacted)
        return One(path, kept, found.stamp.modified_ns, prepared, opened=True)


def _sized(stamp: Stamp, found: Read) -> Stamp:
    """The size is told to people, whether the stamp can be trusted or not."""
    return replace(stamp, size=len(found.data))
