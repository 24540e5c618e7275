"""What is inside an entry's body: frames, an end mark, padding.

    frame:  codec (1) | length (4) | stored length (4) | stored data        codec 1 = as it is, 2 = one zstd frame
    end:    0 (1)
    padding: zero bytes up to the padded length (`padding`)

Rules: each frame is compressed by itself, so that one conversation's text never shares statistics with another's secrets.
A zstd frame must be smaller than its data, and the padding exactly as long as the content requires: one content has one
layout. All lengths are checked before the first frame is decompressed.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from crystal_crypto import compression
from crystal_crypto.errors import Malformed, TooLarge
from crystal_crypto.limits import FRAME_HEADER_BYTES, FRAMES_MAX, PLAINTEXT_BYTES_MAX
from crystal_crypto.padding import padded_length

_END: Final = 0
_AS_IS: Final = 1
_ZSTD: Final = 2
_HEAD: Final = struct.Struct(">BII")
_ZEROS: Final = bytes(4096)


@dataclass(frozen=True, slots=True)
class Frame:
    """One piece of an entry. `compress=False` for what is known not to shrink, such as vectors.

    `thorough` spends more time to pack closer: for what is written once and then kept and fetched by many.
    """

    data: bytes
    compress: bool = True
    thorough: bool = False


def content_of(frames: Sequence[Frame], content_bytes_max: int) -> bytes:
    """Frames, end mark and padding. Raises TooLarge."""
    if len(frames) > FRAMES_MAX:
        raise TooLarge(f"an entry has at most {FRAMES_MAX} frames, not {len(frames)}")
    if sum(len(frame.data) for frame in frames) > PLAINTEXT_BYTES_MAX:
        raise TooLarge(f"an entry's frames are at most {PLAINTEXT_BYTES_MAX} bytes together")
    parts: list[bytes] = []
    length = 1
    for frame in frames:
        packed = compression.compress(frame.data, thorough=frame.thorough) if frame.compress else None
        stored = frame.data if packed is None else packed
        codec = _AS_IS if packed is None else _ZSTD
        length += FRAME_HEADER_BYTES + len(stored)
        if length > content_bytes_max:
            raise TooLarge(f"an entry's content is at most {content_bytes_max} bytes after compression")
        parts.append(_HEAD.pack(codec, len(frame.data), len(stored)))
        parts.append(stored)
    parts.append(bytes(1 + padded_length(length) - length))
    return b"".join(parts)


def frames_of(plain: bytes) -> list[bytes]:
    """The frames' data. Raises Malformed or TooLarge."""
    view = memoryview(plain)
    frames = _table(view)
    return [
        bytes(view[start : start + stored])
        if codec == _AS_IS
        else compression.decompress(view[start : start + stored], length)
        for codec, length, start, stored in frames
    ]


def _table(view: memoryview) -> list[tuple[int, int, int, int]]:
    """(codec, length, start, stored length) of each frame, all checked."""
    frames: list[tuple[int, int, int, int]] = []
    total = at = 0
    while True:
        if at >= len(view):
            raise Malformed("an entry's content has no end mark")
        if view[at] == _END:
            break
        if len(frames) == FRAMES_MAX:
            raise TooLarge(f"an entry has at most {FRAMES_MAX} frames")
        if len(view) - at < FRAME_HEADER_BYTES:
            raise Malformed("a frame is cut within its header")
        codec, length, stored = _HEAD.unpack_from(view, at)
        at += FRAME_HEADER_BYTES
        if codec not in (_AS_IS, _ZSTD):
            raise Malformed(f"a frame has the unknown codec {codec}")
        total += length
        if total > PLAINTEXT_BYTES_MAX:
            raise TooLarge(f"an entry's frames are at most {PLAINTEXT_BYTES_MAX} bytes together")
        if stored > len(view) - at:
            raise Malformed("a frame is longer than the content that holds it")
        if (stored != length) if codec == _AS_IS else (stored >= length):
            raise Malformed("a frame's stored length does not fit its codec")
        frames.append((codec, length, at, stored))
        at += stored
    if padded_length(at + 1) != len(view):
        raise Malformed("an entry's padding has the wrong length")
    if any(view[at:]):
        raise Malformed("an entry's padding is not zero")
    return frames
