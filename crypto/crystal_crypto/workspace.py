"""Memory for one decrypted body, used again instead of being returned to the system.

A fresh megabyte for each entry costs more in page faults than its decryption. So up to two large buffers are kept, whichever
threads use them, and they are wiped when they come back: plaintext does not outlive the call that needed it.
"""

from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from crystal_crypto.limits import ENTRY_BYTES_MAX, KIB

_POOLED_BYTES_MIN: Final = 64 * KIB
_POOLED_MAX: Final = 2
_ZEROS: Final = bytes(64 * KIB)

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
                for start in range(0, size, len(_ZEROS)):
                    view[start : start + len(_ZEROS)] = _ZEROS[: size - start]
    finally:
        if pooled:
            _pool.append(buffer)


def _pooled() -> bytearray:
    try:
        return _pool.pop()
    except IndexError:
        return bytearray(ENTRY_BYTES_MAX)
