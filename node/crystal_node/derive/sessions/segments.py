"""Writing segments and heads of this device's copies, and which segments are merged when.

A few seconds of a session become one small segment. Sixteen of about one size become one of the next (a log-structured merge),
so that a session has some dozens of files at most and each byte is sent a few times. A session that is quiet is merged into
large ones, which compress as one file does.
"""

import os
import secrets
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path

from crystal_crypto import compression
from crystal_node.base.file_rules import TEMPORARY_PREFIX
from crystal_node.base.home import DIRECTORY_MODE, FILE_MODE, sync_directory
from crystal_node.derive.sessions.layout import (
    HEAD_NAME,
    Head,
    Segment,
    Stream,
    encode_head,
    is_segment_name,
    stream_folder,
)
from crystal_node.derive.sessions.streams import LineDigest

MERGE_COUNT = 16
MERGED_BYTES_MAX = 4 * 1024 * 1024
"""Of a merge while the session grows."""
SETTLED_BYTES_MAX = 32 * 1024 * 1024
"""Of a segment of a settled session."""
SETTLED_SHARE = 4
"""What follows a settled segment is merged with it once it is a quarter as large."""
SETTLED_TOGETHER_BYTES = 1024 * 1024
"""A smaller session is one segment when it is quiet."""
_LEVEL, _SETTLED_LEVEL = 3, 9


def write_segment(folder: Path, stream: Stream, data: bytes, *, settled: bool = False) -> Stream:
    """The stream with these whole lines after it, whose segment is on the disk then. Raises OSError."""
    digest = LineDigest(stream.digest, stream.bytes)
    digest.lines(data)
    segment = put_segment(folder, stream.path, stream.bytes, data, digest.hex, settled=settled)
    return _with(stream, (*stream.segments, segment))


def put_segment(
    folder: Path, path: str, first: int, data: bytes, digest: str, *, settled: bool = False
) -> Segment:
    """Writes a segment's file durably. ``digest``: of the stream up to its end. Raises OSError."""
    level = _SETTLED_LEVEL if settled else _LEVEL
    packed = compression.frame_of(data, level=level)
    segment = Segment(
        first=first,
        end=first + len(data),
        sha256=sha256(data).hexdigest(),
        digest=digest,
        packed=len(packed),
    )
    target = stream_folder(folder, path)
    target.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    put_file(target / segment.file_name, packed)
    return segment


def write_head(root: Path, head: Head) -> None:
    """Replaces the head, after all that it names is on the disk. Raises OSError."""
    folder = head.place.folder(root)
    folder.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    put_file(folder / HEAD_NAME, encode_head(head))


def put_file(path: Path, data: bytes) -> None:
    """Writes a file durably under a name that the sync leaves alone, then gives it its own. Raises OSError."""
    temporary = path.with_name(f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def tidy(folder: Path, head: Head, *, older_than: float) -> int:
    """Removes segments that the head does not name any more, last changed before ``older_than`` (seconds since 1970). Returns
    how many. Raises OSError."""
    named = {
        stream_folder(folder, stream.path) / segment.file_name
        for stream in head.streams
        for segment in stream.segments
    }
    places = [folder, *_folders(folder / "side")]
    gone = 0
    for place in places:
        for path in _files(place):
            if is_segment_name(path.name) and path not in named and path.lstat().st_mtime < older_than:
                path.unlink(missing_ok=True)
                gone += 1
    return gone


def growing_run(segments: Sequence[Segment]) -> int:
    """How many of the last segments are to be merged now, 0 for none: at least ``MERGE_COUNT``, none of which is large beside
    the others, so that a byte is written once for each power of that count that its segment grows by."""
    best = total = largest = 0
    for count, segment in enumerate(reversed(segments), 1):
        size = segment.end - segment.first
        total, largest = total + size, max(largest, size)
        if total > MERGED_BYTES_MAX:
            break
        if count >= MERGE_COUNT and largest * (MERGE_COUNT // 4) <= total:
            best = count
    return best


def settled_runs(segments: Sequence[Segment]) -> list[tuple[int, int]]:
    """Which segments (from, to) of a quiet session are to be merged, each run into one."""
    sizes = [segment.end - segment.first for segment in segments]
    start = 0
    if sum(sizes) > SETTLED_TOGETHER_BYTES:
        # From the end: a segment that is large beside all that follows it stays as it was sent.
        start, following = len(sizes), 0
        while start and sizes[start - 1] < max(following * SETTLED_SHARE, SETTLED_BYTES_MAX // SETTLED_SHARE):
            start -= 1
            following += sizes[start]
    runs: list[tuple[int, int]] = []
    at = start
    while at < len(sizes):
        end, total = at, 0
        while end < len(sizes) and (end == at or total + sizes[end] <= SETTLED_BYTES_MAX):
            total += sizes[end]
            end += 1
        if end - at > 1:
            runs.append((at, end))
        at = end
    return runs


def replaced(stream: Stream, start: int, end: int, merged: Segment) -> Stream:
    """The stream with one segment in the place of several."""
    return _with(stream, (*stream.segments[:start], merged, *stream.segments[end:]))


def _with(stream: Stream, segments: Iterable[Segment]) -> Stream:
    kept = tuple(segments)
    return Stream(
        path=stream.path,
        bytes=kept[-1].end if kept else stream.bytes,
        digest=kept[-1].digest if kept else stream.digest,
        base=stream.base,
        segments=kept,
        whole=stream.whole,
    )


def _folders(folder: Path) -> list[Path]:
    return [each for each in folder.iterdir() if each.is_dir()] if folder.is_dir() else []


def _files(folder: Path) -> list[Path]:
    return [each for each in folder.iterdir() if each.is_file()] if folder.is_dir() else []
