"""zstd frames (RFC 8878), one for each text that must not share its statistics with another's.

Rules: a frame states its content size, has no dictionary and no checksum (the MAC is the checksum). A reader compares the
stated size with what it was told and with its limit before anything is allocated, and takes no more than that out of the
frame. A zstd context does one thing at a time, so each thread has its own compressors.

The library is Python's own from 3.14 on, and its backport before.
"""

import sys
import threading
from io import BytesIO
from typing import Final

from crystal_crypto.errors import Malformed

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_LEVEL: Final = 3
_LEVEL_THOROUGH: Final = 6
_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_PROBED_BYTES_MIN: Final = 256 * 1024
_PROBE_BYTES: Final = 2048
_PROBES: Final = 4
_PIECE_BYTES: Final = 256 * 1024
_DESCRIPTOR_BYTE: Final = 4
_CHECKSUM_FLAG: Final = 0x04
"""Of the frame header's descriptor (RFC 8878, section 3.1.1.1.1)."""


class _Contexts(threading.local):
    def __init__(self) -> None:
        self.compressor = zstd.ZstdCompressor(level=_LEVEL)
        self.thorough = zstd.ZstdCompressor(level=_LEVEL_THOROUGH)
        self.prober = zstd.ZstdCompressor(level=1)


_contexts = _Contexts()


def compress(data: bytes, *, thorough: bool = False, probing: bool = True) -> bytes | None:
    """One zstd frame, or None where it would not be smaller than `data`. `thorough` takes longer and packs closer; `probing`
    gives up on large data of which some samples do not shrink."""
    if probing and len(data) >= _PROBED_BYTES_MIN and not _promising(data):
        return None
    packed = _frame(_contexts.thorough if thorough else _contexts.compressor, data)
    return packed if len(packed) < len(data) else None


def frame_of(data: bytes, *, level: int) -> bytes:
    """One zstd frame, also where it is larger than ``data``: at most some bytes for each 128 KiB."""
    return _frame(zstd.ZstdCompressor(level=level), data)


def decompress(frame: bytes | memoryview, length: int) -> bytes:
    """Exactly `length` bytes, which the caller has checked against its limit. Raises Malformed for anything else."""
    if bytes(frame[:4]) != _MAGIC:  # §5.5-12
        raise Malformed("a compressed frame does not begin as zstd frames do")
    stated = _frame_info(frame)
    if stated.decompressed_size != length:  # §5.2-2, §5.5-12
        raise Malformed("a compressed frame states another content size than its entry")
    if stated.dictionary_id or frame[_DESCRIPTOR_BYTE] & _CHECKSUM_FLAG:  # §5.5-12
        raise Malformed("a compressed frame uses a dictionary or a checksum")
    try:
        return _content(frame, length)
    except (zstd.ZstdError, MemoryError):
        raise Malformed("a compressed frame does not decompress to its stated size") from None


def decompress_at_most(frame: bytes, length_max: int) -> bytes:
    """The content of another program's frame, whatever its header states. Raises Malformed if it is damaged or longer than
    `length_max` bytes."""
    decompressor = zstd.ZstdDecompressor()
    try:
        data = decompressor.decompress(frame, max_length=length_max + 1)
    except (zstd.ZstdError, MemoryError):
        raise Malformed("a compressed frame is damaged") from None
    if len(data) > length_max or not decompressor.eof:
        raise Malformed("a compressed frame is cut off, or longer than its limit")
    return data


def decompress_frames(data: bytes, length_max: int) -> bytes:
    """The content of another program's file, which may be several frames. Raises Malformed if it is damaged, cut off, or
    longer than `length_max` bytes."""
    parts: list[bytes] = []
    left = length_max
    while data:
        decompressor = zstd.ZstdDecompressor()
        try:
            part = decompressor.decompress(data, max_length=left + 1)
        except (zstd.ZstdError, MemoryError):
            raise Malformed("a compressed file is damaged") from None
        if len(part) > left or not decompressor.eof:
            raise Malformed("a compressed file is cut off, or longer than its limit")
        parts.append(part)
        left -= len(part)
        data = decompressor.unused_data
    return b"".join(parts)


def stated_length(frame: bytes) -> int:
    """The content size that the frame states; nothing else about it is checked. Raises Malformed where there is none."""
    stated = _frame_info(frame).decompressed_size  # §6.2-8
    if stated is None:  # pyright: ignore[reportUnnecessaryComparison]  None if not stated, which the stubs do not say
        raise Malformed("a compressed frame does not state its content size")
    return stated


def _content(frame: bytes | memoryview, length: int) -> bytes:
    """In small pieces: the library holds what it returns, and its unused input, in memory twice."""
    decompressor = zstd.ZstdDecompressor()
    content = BytesIO()
    if length > _PIECE_BYTES:
        content.seek(length - 1)
        content.write(b"\0")  # allocates all of it, once
        content.seek(0)
    taken, ended = 0, False
    while taken < len(frame) and not ended:
        more: bytes | memoryview = frame[taken : taken + _PIECE_BYTES]
        taken += len(more)
        while True:
            piece = decompressor.decompress(more, max_length=_PIECE_BYTES)
            if content.tell() + len(piece) > length:  # §5.5-12
                raise Malformed("a compressed frame gave more than it stated")
            content.write(piece)
            ended = decompressor.eof
            if ended or decompressor.needs_input:
                break
            more = b""
    if not ended or content.tell() != length:  # §5.5-12
        raise Malformed("a compressed frame gave less than it stated")
    if decompressor.unused_data or taken < len(frame):  # §5.5-12
        raise Malformed("a compressed frame is followed by other bytes")
    return content.getvalue()


def _frame(compressor: zstd.ZstdCompressor, data: bytes | memoryview) -> bytes:
    """`data` as one frame. It states its size, because the compressor is given all at once."""
    return compressor.compress(data, zstd.ZstdCompressor.FLUSH_FRAME)


def _frame_info(frame: bytes | memoryview) -> zstd.FrameInfo:
    try:
        return zstd.get_frame_info(frame)
    except zstd.ZstdError:
        raise Malformed("a compressed frame has a damaged zstd header") from None


def _promising(data: bytes) -> bool:
    """Whether any of some samples shrinks: a large block of random bytes is told apart in microseconds."""
    step = (len(data) - _PROBE_BYTES) // (_PROBES - 1)
    view = memoryview(data)
    samples = (view[n * step : n * step + _PROBE_BYTES] for n in range(_PROBES))
    return any(len(_frame(_contexts.prober, sample)) < _PROBE_BYTES for sample in samples)
