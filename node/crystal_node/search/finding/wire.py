"""How a program of this machine and the running agent speak over the agent's socket: one request, one answer, then the end.

    crystal-find/1 SP verb SP length LF body          verb: search, show, recall
    crystal-find/1 SP (ok | failed) SP length LF body

A body is JSON; of a failure it is ``Failure``. Lengths are decimal, and within limits before anything is read. Another number
after the slash is another version of the program: whoever asks then answers from the disk by itself.
"""

import socket
from typing import Protocol

from msgspec import Struct

GREETING = b"crystal-find/1"
VERB_BYTES_MAX = 16
HEADER_BYTES_MAX = 64
REQUEST_BYTES_MAX = 1024 * 1024
ANSWER_BYTES_MAX = 128 * 1024 * 1024
"""A thousand texts of 64 KiB, escaped."""


class NotUnderstood(Exception):
    """What came is none of this."""


class Failure(Struct, frozen=True):
    """An error as the command line would tell it."""

    error: str
    hint: str
    exit_code: int


class Reading(Protocol):
    """What is read from: a buffered file over a socket."""

    def readline(self, size: int = -1, /) -> bytes: ...

    def read(self, size: int = -1, /) -> bytes: ...


def frame(word: str, body: bytes) -> bytes:
    """A request or an answer."""
    return b"%s %s %d\n%s" % (GREETING, word.encode("ascii"), len(body), body)


def read_frame(file: Reading, bytes_max: int) -> tuple[str, bytes]:
    """Its word and its body. Raises NotUnderstood, and what reading raises."""
    header = file.readline(HEADER_BYTES_MAX)
    words = header.removesuffix(b"\n").split(b" ")
    if not header.endswith(b"\n") or len(words) != 3 or words[0] != GREETING:
        raise NotUnderstood("no message of this version")
    word, length = words[1], words[2]
    if not (word.isalpha() and len(word) <= VERB_BYTES_MAX and length.isdigit() and len(length) <= 10):
        raise NotUnderstood("no message of this version")
    size = int(length)
    if size > bytes_max:
        raise NotUnderstood("a message over the limit")
    body = file.read(size)
    if len(body) != size:
        raise NotUnderstood("a message that ends early")
    return word.decode("ascii"), body


def has_sockets() -> bool:
    """Whether this system has them."""
    return hasattr(socket, "AF_UNIX")
