"""The content of an entry's body: frames, an end mark, padding.

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
from crystal_crypto.limits import FRAME_HEADER_BYTES, FRAMES_MAX, KIB, PLAINTEXT_BYTES_MAX
from crystal_crypto.padding import padded_length

_END: Final = 0
_AS_IS: Final = 1
_ZSTD: Final = 2
_HEAD: Final = struct.Struct(">BII")
_COPIED_BYTES_MAX: Final = 64 * KIB


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of an entry. `compress=False` for data that is known not to shrink, such as vectors.

    `thorough` spends more time to pack closer: for what is written once and then kept and fetched by many.
    """

    data: bytes
    compress: bool = True
    thorough: bool = False


def content_of(frames: Sequence[Frame], content_bytes_max: int) -> tuple[list[bytes], int]:
    """Frames, end mark and padding, in parts to be put one after the other, and their length. Raises TooLarge."""
    if len(frames) > FRAMES_MAX:  # §3-1
        raise TooLarge(f"an entry has at most {FRAMES_MAX} frames, not {len(frames)}")
    if sum(len(frame.data) for frame in frames) > PLAINTEXT_BYTES_MAX:  # §3-1
        raise TooLarge(f"an entry's frames are at most {PLAINTEXT_BYTES_MAX} bytes together")
    parts: list[bytes] = []
    small: list[bytes] = []  # joined: a call of the cipher costs more than copying a few bytes
    length = 1
    for frame in frames:
        # §5.2-1
        packed = compression.compress(frame.data, thorough=frame.thorough) if frame.compress else None
        stored = frame.data if packed is None else packed
        codec = _AS_IS if packed is None else _ZSTD
        length += FRAME_HEADER_BYTES + len(stored)
        if length > content_bytes_max:  # §3-1
            raise TooLarge(f"an entry's content is at most {content_bytes_max} bytes after compression")
        small.append(_HEAD.pack(codec, len(frame.data), len(stored)))
        if len(stored) < _COPIED_BYTES_MAX:
            small.append(stored)
        else:
            parts += (b"".join(small), stored)
            small = []
    padded = padded_length(length)  # §5.3-1
    small.append(bytes(1 + padded - length))
    parts.append(b"".join(small))
    return parts, padded


def frames_of(plain: memoryview) -> list[bytes]:
    """The frames' data. Raises Malformed or TooLarge."""
    return [
        bytes(plain[start : start + stored])
        if codec == _AS_IS
        else compression.decompress(plain[start : start + stored], length)
        for codec, length, start, stored in _table(plain)
    ]


def _table(view: memoryview) -> list[tuple[int, int, int, int]]:
    """(codec, length, start, stored length) of each frame, all checked."""
    frames: list[tuple[int, int, int, int]] = []
    total = at = 0
    while True:
        if at >= len(view):  # §5.5-10
            raise Malformed("an entry's content has no end mark")
        if view[at] == _END:
            break
        if len(frames) == FRAMES_MAX:  # §5.5-10
            raise TooLarge(f"an entry has at most {FRAMES_MAX} frames")
        if len(view) - at < FRAME_HEADER_BYTES:  # §5.5-10
            raise Malformed("a frame is cut within its header")
        codec, length, stored = _HEAD.unpack_from(view, at)
        at += FRAME_HEADER_BYTES
        if codec not in (_AS_IS, _ZSTD):  # §5.5-10
            raise Malformed(f"a frame has the unknown codec {codec}")
        total += length
        if total > PLAINTEXT_BYTES_MAX:  # §5.5-10
            raise TooLarge(f"an entry's frames are at most {PLAINTEXT_BYTES_MAX} bytes together")
        if stored > len(view) - at:  # §5.5-10, §3-2
            raise Malformed("a frame is longer than the content that holds it")
        if (stored != length) if codec == _AS_IS else (stored >= length):  # §5.2-2, §5.5-10
            raise Malformed("a frame's stored length does not fit its codec")
        frames.append((codec, length, at, stored))
        at += stored
    if padded_length(at + 1) != len(view):  # §5.5-11, §5.3-1
        raise Malformed("an entry's padding has the wrong length")
    if bytes(view[at:]) != bytes(len(view) - at):  # §5.5-11
        raise Malformed("an entry's padding is not zero")
    return frames
