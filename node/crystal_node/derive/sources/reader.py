"""Reader of a source's files: decodes them, removes credentials and cuts them into passages, in batches in a thread.

A file is opened component by component and never through a link, so that none can be swapped in after the scan. Encodings are
UTF-8, and UTF-16 and UTF-32 with a byte order mark. Everything else counts as of unknown encoding, or as binary if it holds a
zero byte.
"""

import codecs
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from crystal_core.cutting import Passage, PassageKind, cut
from crystal_core.documents import Document
from crystal_mirror.files.ports import FileTrouble
from crystal_node.base.secret_files import secret_form
from crystal_node.capture.redaction import redact
from crystal_node.derive.sources.database import SENT, KnownFile
from crystal_node.derive.sources.filetypes import Skipped, bytes_max, is_python, kind_of
from crystal_node.derive.sources.scan import SourceStamp, stamp_of
from crystal_node.sync.files.folders import READ, folder_of, troubles

TEXT_CHARS_MAX = 8 * 1024 * 1024
"""Of one document's extracted text."""
LINE_CHARS_MEAN_MAX = 500
LINE_CHARS_MAX = 20_000
"""Code with lines this long, or this long on average, was generated."""

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)

Extract = Callable[[PassageKind, bytes], "str | Skipped"]
"""Text of a PDF or HTML: see ``extraction``."""


@dataclass(frozen=True, slots=True)
class SourceContent:
    """A file's bytes, their SHA-256 as ``digest``, and its stamp when it was read."""

    data: bytes
    digest: bytes
    stamp: SourceStamp


@dataclass(frozen=True, slots=True)
class Prepared:
    """A document ready to be sent. ``redacted``: how many credentials were removed."""

    kind: PassageKind
    passages: tuple[Passage, ...]
    redacted: int


def read_file(root: Path, path: str) -> SourceContent | Skipped | None:
    """Reads a file below a source's root; None if it is gone. A root that is a file holds itself under its name."""
    single = not root.is_dir()
    limit = bytes_max(kind_of(path))
    try:
        with folder_of(root.parent if single else root, path) as found:
            if found is None:
                return None
            with troubles():
                return _read(found[0], found[1], limit)
    except FileTrouble:
        return Skipped.UNREADABLE


def prepare(path: str, data: bytes, extract: Extract) -> Prepared | Skipped:
    """A file's text in passages. The same bytes under the same name give the same passages."""
    kind = kind_of(path)
    text = extract(kind, data) if kind in (PassageKind.PDF, PassageKind.HTML) else decoded(data)
    if isinstance(text, Skipped):
        return text
    if len(text) > TEXT_CHARS_MAX:
        return Skipped.TOO_LARGE
    if kind in (PassageKind.CODE, PassageKind.TEXT) and _is_minified(text):
        return Skipped.MINIFIED
    redacted = redact(text.replace("\0", ""))
    passages = cut(redacted.text, kind, python=is_python(path))
    return Prepared(kind, tuple(passages), redacted.counts.total()) if passages else Skipped.EMPTY


def decoded(data: bytes) -> str | Skipped:
    """The text of a file's bytes."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            try:
                return data[len(mark) :].decode(encoding)
            except UnicodeDecodeError:
                return Skipped.ENCODING
    if b"\0" in data:
        return Skipped.BINARY
    try:
        return data.decode()
    except UnicodeDecodeError:
        return Skipped.ENCODING


def _read(folder: int, name: str, limit: int) -> SourceContent | Skipped | None:
    try:
        descriptor = os.open(name, READ, dir_fd=folder)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            return Skipped.SPECIAL
        data = file.read(limit + 1)
        after = os.fstat(descriptor)
    if len(data) > limit:
        return Skipped.TOO_LARGE
    # A file that changed meanwhile is taken as it is, with a stamp that no later scan matches.
    stamp = stamp_of(info) if stamp_of(info) == stamp_of(after) else SourceStamp(-1, 0, 0, info.st_ino)
    return SourceContent(data, sha256(data).digest(), stamp)


def _is_minified(text: str) -> bool:
    lines = text.count("\n") + 1
    if len(text) > LINE_CHARS_MAX and len(text) / lines > LINE_CHARS_MEAN_MAX:
        spaces = text.count(" ")
        return spaces * 12 < len(text) or max(map(len, text.split("\n"))) > LINE_CHARS_MAX
    return False


BATCH_FILES = 50
BATCH_BYTES = 512 * 1024
BATCH_SECONDS = 1.0
QUIET_NS = 2_000_000_000
"""A file changed this shortly before it was read may change again with the same stamp: it is read again."""

_CHANGED = SourceStamp(-1, -1, -1, 0)


@dataclass(frozen=True, slots=True)
class ReadResult:
    """A file that was read. ``prepared``: None if the vault has its content already."""

    path: str
    known: KnownFile | None = None
    modified_ns: int = 0
    prepared: Prepared | None = None
    gone: bool = False
    opened: bool = False


@dataclass(frozen=True, slots=True)
class BatchReader:
    """Reads files of a source in batches, in a thread. Those in ``stale`` are put again even if they have not changed."""

    root: Path
    files: Iterator[tuple[str, SourceStamp]]
    known: dict[str, KnownFile]
    vault: dict[str, Document]
    extract: Extract
    stop: threading.Event
    stale: frozenset[str] = frozenset()

    def batch(self) -> list[ReadResult]:
        """The next batch of files."""
        found: list[ReadResult] = []
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

    def _read(self, path: str, stamp: SourceStamp) -> ReadResult:
        found = read_file(self.root, path)
        if found is None:
            return ReadResult(path, gone=True)
        if isinstance(found, Skipped):
            return ReadResult(path, KnownFile(stamp, b"", found.value))
        quiet = time.time_ns() - max(found.stamp.modified_ns, found.stamp.changed_ns) > QUIET_NS
        stamp = _sized(found.stamp if quiet else _CHANGED, found)
        if secret_form(found.data) is not None:
            return ReadResult(path, KnownFile(stamp, found.digest, Skipped.SECRET_CONTENT.value), opened=True)
        there, before = self.vault.get(path), self.known.get(path)
        same = there is not None and there.version == found.digest and there.complete
        if there is not None and same and path not in self.stale:
            redacted = before.redacted if before is not None else 0
            return ReadResult(path, KnownFile(stamp, found.digest, SENT, there.total, redacted), opened=True)
        prepared = prepare(path, found.data, self.extract)
        if isinstance(prepared, Skipped):
            return ReadResult(path, KnownFile(stamp, found.digest, prepared.value), opened=True)
        kept = KnownFile(stamp, found.digest, SENT, len(prepared.passages), prepared.redacted)
        return ReadResult(path, kept, found.stamp.modified_ns, prepared, opened=True)


def _sized(stamp: SourceStamp, found: SourceContent) -> SourceStamp:
    """The stamp with the size that was read, which people are shown even if the stamp is not valid."""
    return replace(stamp, size=len(found.data))
