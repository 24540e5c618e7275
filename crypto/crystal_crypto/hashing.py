"""The one pass of SHA-256 over an entry's body.

    body digest = SHA-256(label | SHA-256(piece 0) | SHA-256(piece 1) | …)        pieces of 128 KiB, the last one shorter

The signed header states the body's length, hence the number of pieces, so no other body of any length has the same digest
unless SHA-256 collides. Pieces let a second processor help with a large body; the result does not depend on who computed it.
"""

import functools
import hashlib
import os
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from crystal_crypto import labels
from crystal_crypto.limits import BODY_PIECE_BYTES, KIB

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

_WAIT_SECONDS: Final = 0.0002  # about what two pieces take
_SHARED_BYTES_MIN: Final = 256 * KIB  # below this, asking for help takes longer than it saves


def body_digest(body: memoryview) -> bytes:
    """32 bytes. Raises nothing of its own; safe to call from any thread."""
    count = -(-len(body) // BODY_PIECE_BYTES)
    todo = deque(range(count))  # popleft is atomic
    digests = [b""] * count

    def work() -> None:
        while True:
            try:
                n = todo.popleft()
            except IndexError:
                return
            digests[n] = hash_piece(n)

    def hash_piece(n: int) -> bytes:
        return hashlib.sha256(body[n * BODY_PIECE_BYTES : (n + 1) * BODY_PIECE_BYTES]).digest()

    helper = _helper() if len(body) >= _SHARED_BYTES_MIN else None
    try:
        asked = helper.submit(work) if helper is not None else None
    except RuntimeError:  # no thread available, or the interpreter is ending: only slower
        asked = None
    work()
    # A helper that has not started is not waited for; one that was suspended during a piece only briefly.
    if asked is not None and not asked.cancel():
        with suppress(TimeoutError):
            asked.result(timeout=_WAIT_SECONDS)
    for n in range(count):
        digests[n] = digests[n] or hash_piece(n)
    return hashlib.sha256(labels.ENTRY_BODY + b"".join(digests)).digest()  # §5.4-1


@functools.cache
def _helper() -> "ThreadPoolExecutor | None":
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if processors < 2:
        return None
    from concurrent.futures import ThreadPoolExecutor  # lazy: only large bodies need it

    return ThreadPoolExecutor(1, thread_name_prefix="crystal-hash")
