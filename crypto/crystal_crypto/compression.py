"""zstd frames (RFC 8878), one for each text that must not share its statistics with another's.

Rules: a frame states its content size, has no dictionary and no checksum (the MAC is the checksum). A reader compares the
stated size with what it was told and with its limit before anything is allocated: the library's own bound is ignored as
soon as a frame states a size. zstd contexts are not thread-safe, so each thread has its own.
"""

import threading
from typing import Final

import zstandard

from crystal_crypto.errors import Malformed

_LEVEL: Final = 3
_LEVEL_THOROUGH: Final = 6
_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_PROBED_BYTES_MIN: Final = 256 * 1024
_PROBE_BYTES: Final = 2048
_PROBES: Final = 4


def _compressor(level: int) -> zstandard.ZstdCompressor:
    return zstandard.ZstdCompressor(level=level, write_checksum=False, write_content_size=True)


class _Contexts(threading.local):
    def __init__(self) -> None:
        self.compressor = _compressor(_LEVEL)
        self.thorough = _compressor(_LEVEL_THOROUGH)
        self.prober = zstandard.ZstdCompressor(level=1)
        self.decompressor = zstandard.ZstdDecompressor()


_contexts = _Contexts()


def compress(data: bytes, *, thorough: bool = False, probing: bool = True) -> bytes | None:
    """One zstd frame, or None where it would not be smaller than `data`. `thorough` takes longer and packs closer; `probing`
    gives up on large data of which some samples do not shrink."""
    if probing and len(data) >= _PROBED_BYTES_MIN and not _promising(data):
        return None
    packed = (_contexts.thorough if thorough else _contexts.compressor).compress(data)
    return packed if len(packed) < len(data) else None


def decompress(frame: bytes | memoryview, length: int) -> bytes:
    """Exactly `length` bytes, which the caller has checked against its limit. Raises Malformed for anything else."""
    if bytes(frame[:4]) != _MAGIC:  # §5.5-12
        raise Malformed("a compressed frame does not begin as zstd frames do")
    try:
        stated = zstandard.get_frame_parameters(frame)
    except zstandard.ZstdError:
        raise Malformed("a compressed frame has a damaged zstd header") from None
    if stated.content_size != length:  # §5.2-2, §5.5-12
        raise Malformed("a compressed frame states another content size than its entry")
    if stated.dict_id or stated.has_checksum:  # §5.5-12
        raise Malformed("a compressed frame uses a dictionary or a checksum")
    try:
        data = _contexts.decompressor.decompress(frame, allow_extra_data=False)  # §5.5-12
    except (zstandard.ZstdError, MemoryError):
        raise Malformed("a compressed frame does not decompress to its stated size") from None
    if len(data) != length:  # §5.5-12
        raise Malformed("a compressed frame gave another size than it stated")
    return data


def stated_length(frame: bytes) -> int:
    """The content size that the frame states; nothing else about it is checked. Raises Malformed where there is none."""
    try:
        stated = zstandard.frame_content_size(frame)  # §6.2-8
    except zstandard.ZstdError:
        raise Malformed("a compressed frame has a damaged zstd header") from None
    if stated < 0:
        raise Malformed("a compressed frame does not state its content size")
    return stated


def _promising(data: bytes) -> bool:
    """Whether any of some samples shrinks: a large block of random bytes is told apart in microseconds."""
    step = (len(data) - _PROBE_BYTES) // (_PROBES - 1)
    view = memoryview(data)
    samples = (view[n * step : n * step + _PROBE_BYTES] for n in range(_PROBES))
    return any(len(_contexts.prober.compress(sample)) < _PROBE_BYTES for sample in samples)
