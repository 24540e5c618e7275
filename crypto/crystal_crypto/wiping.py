"""Wiping what can be wiped: a passphrase, the key derived from it, and the master key are kept in bytearrays and overwritten.

What this cannot do: Python copies. `bytes` and `str` are never changed in place, so a secret that was one stays in memory until
its place is used again; libraries make copies of their own; the kernel may have written a page to swap. Wiping makes the time
shorter for which the worst secrets can be found in memory, and no more.
"""

from collections.abc import Generator
from contextlib import contextmanager


def wipe(buffer: bytearray) -> None:
    """Overwrites the bytes in their place with zeros. By memset: an assignment to a slice could move them first."""
    import ctypes  # 2 ms, which only those who keep a passphrase pay

    size = len(buffer)
    if size:
        ctypes.memset((ctypes.c_char * size).from_buffer(buffer), 0, size)


@contextmanager
def wiped(buffer: bytearray) -> Generator[bytearray]:
    """The buffer itself, wiped at the end however it ends."""
    try:
        yield buffer
    finally:
        wipe(buffer)
