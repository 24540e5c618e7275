"""The background service's API on its Unix socket: the gateway's routes (docs/gateway.md), for the home's owner alone.

One HTTP/1.1 request, one answer, then the end. Loads next to nothing, because hooks run at every prompt: no package but the
standard library's, and of that as little as can be.

``VERSION`` goes with each request. A service of another version refuses it, and the caller does without, as if no service ran.
"""

import os
import socket
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import NamedTuple

VERSION = b"1"
VERSION_HEADER = b"crystal-api"
EXIT_CODE_HEADER = b"crystal-exit-code"
REQUEST_BYTES_MAX = 1024 * 1024
ANSWER_BYTES_MAX = 128 * 1024 * 1024
"""A thousand messages of 64 KiB, escaped."""
SOCKET_NAME_BYTES_MAX = 100
"""Of 104 (macOS) to 108 (Linux)."""
CONNECT_SECONDS_MAX = 0.5
SEARCH_SECONDS_MAX = 630.0
"""A deep search may take as long as its longest setting allows, and the fast one behind it."""
WAIT_SECONDS_MAX = 7 * 86_400.0
"""How long a caller may wait for a job's end."""
_HEAD_BYTES_MAX = 16 * 1024
_PIECE_BYTES = 1024 * 1024


class ServiceAway(OSError):
    """No service was reached: nothing was asked of anybody."""


class NotUnderstood(ValueError):
    """Something answered, but not as a service of this version does."""


class ServiceAnswer(NamedTuple):
    """``exit_code``: what a command with that error ends with; 0 if there is none."""

    status: int
    exit_code: int
    body: bytes

    @property
    def good(self) -> bool:
        return 200 <= self.status < 300


def socket_path(home: str) -> str:
    """Where the service of a home listens."""
    return os.path.join(home, "state", "agent", "api.sock")  # noqa: PTH118  pathlib costs 5 ms


def has_sockets() -> bool:
    """Whether this system has Unix sockets."""
    return hasattr(socket, "AF_UNIX")


def ask(home: str, method: str, target: str, body: bytes = b"", *, seconds: float) -> ServiceAnswer:
    """The service's answer, within ``seconds`` in all. ``body``: JSON.

    Raises:
        ServiceAway: nobody was reached.
        TimeoutError: no answer came in time.
        NotUnderstood, OSError: the answer broke off, or is none of this API.
    """
    if not has_sockets():
        raise ServiceAway("this system has no Unix sockets")
    deadline = time.monotonic() + seconds
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        try:
            line.settimeout(min(seconds, CONNECT_SECONDS_MAX))
            with short_name(socket_path(home)) as name:
                if name is None:
                    raise ServiceAway("the home's path is too long for a socket")
                line.connect(name)
        except OSError as error:
            raise ServiceAway(str(error)) from error
        line.settimeout(max(deadline - time.monotonic(), 0.001))
        line.sendall(
            b"%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s: %s\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            % (method.encode("ascii"), target.encode("ascii"), VERSION_HEADER, VERSION, len(body))
            + body
        )
        return _answer(line, deadline)


@contextmanager
def short_name(path: str) -> Generator[str | None]:
    """A name for the socket at ``path`` that the system takes, good within the context; None where there is none.

    On Linux a path that is too long is named by its folder, opened. Raises OSError: there is no such folder.
    """
    if len(os.fsencode(path)) <= SOCKET_NAME_BYTES_MAX:
        yield path
        return
    if not sys.platform.startswith("linux"):
        yield None
        return
    folder, name = os.path.split(path)
    opened = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{opened}/{name}"
    finally:
        os.close(opened)


def _answer(line: socket.socket, deadline: float) -> ServiceAnswer:
    data = bytearray()
    while (end := data.find(b"\r\n\r\n")) < 0:
        if len(data) > _HEAD_BYTES_MAX:
            raise NotUnderstood("the answer's head is too large")
        data += _more(line, deadline)
    status, length, exit_code = _head(bytes(data[:end]))
    end += 4
    while len(data) - end < length:
        data += _more(line, deadline)
    return ServiceAnswer(status, exit_code, bytes(data[end : end + length]))


def _head(head: bytes) -> tuple[int, int, int]:
    """Status, length of the body and exit code. Raises NotUnderstood."""
    first, *lines = head.split(b"\r\n")
    words = first.split(b" ", 2)
    if len(words) < 2 or words[0] != b"HTTP/1.1" or not words[1].isdigit():
        raise NotUnderstood("no answer of this API")
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
    if fields.get(VERSION_HEADER) != VERSION:
        raise NotUnderstood("another version's answer")
    length, exit_code = fields.get(b"content-length", b""), fields.get(EXIT_CODE_HEADER, b"0")
    if not (length.isdigit() and exit_code.isdigit()) or int(length) > ANSWER_BYTES_MAX:
        raise NotUnderstood("no answer of this API")
    return int(words[1]), int(length), int(exit_code)


def _more(line: socket.socket, deadline: float) -> bytes:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("no answer in time")
    line.settimeout(left)
    came = line.recv(_PIECE_BYTES)
    if not came:
        raise NotUnderstood("the answer broke off")
    return came
