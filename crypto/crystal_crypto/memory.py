"""Buffers that hold secrets: reused for decrypted bodies, and wiped.

A fresh megabyte for each entry costs more in page faults than its decryption, so up to two large buffers are kept for all
threads. They are wiped when they come back.

Wiping has limits. `bytes` and `str` cannot be changed in place, libraries make copies of their own, and the kernel may have
swapped a page out. Wiping shortens the time during which a passphrase or a key can be found in memory, and no more.
"""

from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from crystal_crypto.limits import ENTRY_BYTES_MAX, KIB

_POOLED_BYTES_MIN: Final = 64 * KIB
_POOLED_MAX: Final = 2

_pool: deque[bytearray] = deque(maxlen=_POOLED_MAX)  # append and pop are atomic


@contextmanager
def borrowed(size: int) -> Generator[memoryview]:
    """A zeroed buffer of `size` bytes, at most `ENTRY_BYTES_MAX`; invalid and wiped after the block."""
    if size > ENTRY_BYTES_MAX:
        raise ValueError("no entry needs a buffer of that size")
    pooled = size >= _POOLED_BYTES_MIN
    buffer = _pooled() if pooled else bytearray(size)
    try:
        with memoryview(buffer) as whole, whole[:size] as view:
            try:
                yield view
            finally:
                _wipe(view)
    finally:
        if pooled:
            _pool.append(buffer)


def _pooled() -> bytearray:
    try:
        return _pool.pop()
    except IndexError:
        return bytearray(ENTRY_BYTES_MAX)


def _wipe(view: memoryview) -> None:
    if len(view) < _POOLED_BYTES_MIN:
        view[:] = bytes(len(view))
        return
    import ctypes  # lazy: takes 2 ms

    ctypes.memset((ctypes.c_char * len(view)).from_buffer(view), 0, len(view))


def wipe(buffer: bytearray) -> None:
    """Overwrites the bytes in place with zeros. Uses memset, since an assignment to a slice could move them first."""
    import ctypes  # lazy: takes 2 ms

    size = len(buffer)
    if size:
        ctypes.memset((ctypes.c_char * size).from_buffer(buffer), 0, size)


@contextmanager
def wiped(buffer: bytearray) -> Generator[bytearray]:
    """Yields the buffer, and wipes it afterwards, also after an exception."""
    try:
        yield buffer
    finally:
        wipe(buffer)
