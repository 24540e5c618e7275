"""Copies of sessions as devices write them, made directly."""

from hashlib import sha256
from pathlib import Path

import zstandard

from crystal_node.derive.sessions.layout import (
    HEAD_NAME,
    Base,
    Head,
    Segment,
    Stream,
    encode_head,
    segment_path,
)
from crystal_node.derive.sessions.streams import EMPTY, LineDigest

SESSION = "0b6e8476-1f2f-4087-b614-062a5a99d83f"


def lines(first: int, end: int, word: str = "line") -> bytes:
    return b"".join(b'{"n":%d,"text":"%s"}\n' % (n, word.encode()) for n in range(first, end))


def stream_of(
    parts: list[bytes], base: Base | None = None, path: str = ""
) -> tuple[Stream, list[tuple[Segment, bytes]]]:
    digest = LineDigest(base.digest, base.bytes) if base else LineDigest()
    segments: list[tuple[Segment, bytes]] = []
    for part in parts:
        first = digest.bytes
        digest.lines(part)
        packed = zstandard.compress(part)
        segment = Segment(
            first=first,
            end=digest.bytes,
            sha256=sha256(part).hexdigest(),
            digest=digest.hex,
            packed=len(packed),
        )
        segments.append((segment, packed))
    found = Stream(
        path=path,
        bytes=digest.bytes,
        digest=digest.hex,
        base=base,
        segments=tuple(one for one, _ in segments),
    )
    return found, segments


def head_of(
    device: str,
    parts: list[bytes],
    *,
    number: int = 1,
    base: Base | None = None,
    at: int = 1000,
    tool: str = "claude-code",
) -> Head:
    return Head(
        tool=tool,
        session=SESSION,
        device=device * 32,
        number=number,
        main=stream_of(parts, base)[0],
        updated_at=at,
    )


def base_of(head: Head, count: int | None = None) -> Base:
    """The whole of a copy as base, or its first bytes up to the end of a segment."""
    wanted = head.main.bytes if count is None else count
    digest = next((one.digest for one in head.main.segments if one.end == wanted), EMPTY)
    return Base(device=head.device, number=head.number, bytes=wanted, digest=digest)


def write(root: Path, head: Head, parts: list[bytes]) -> Head:
    """Writes a copy's files as a device would."""
    folder = head.place.folder(root)
    stream, segments = stream_of(parts, head.main.base)
    for segment, packed in segments:
        path = segment_path(folder, stream, segment)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(packed)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / HEAD_NAME).write_bytes(encode_head(head))
    return head
