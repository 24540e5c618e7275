"""Extraction of text from PDF and HTML, in a child process with little memory and time.

A foreign PDF must not break the reader: the child (``extraction_child``) gets one document after the other on its standard
input and answers on its standard output. If a document takes too long, the child is killed and another one started. It inherits
no file and no secret, and of the environment only what a process needs to start.
"""

import os
import select
import struct
import subprocess
import sys
import threading
import time
from types import TracebackType

from crystal_core.cutting import PassageKind
from crystal_node.base.settings import bare_environment
from crystal_node.derive.sources.filetypes import Skipped

SECONDS_MAX = 20.0
"""For one document. A PDF of some thousand pages takes about that."""
START_SECONDS_MAX = 30.0
LOOK_SECONDS = 0.2
"""Interval of checking whether to stop."""
WRITE_BYTES = 64 * 1024
ANSWER_BYTES_MAX = 32 * 1024 * 1024
MEMORY_BYTES_MAX = 1024**3
INSTALL = "pip install 'memory-crystal[documents]'"
"""What makes PDF and HTML readable."""

HEAD = struct.Struct(">cI")
"""Frame header in both directions: a letter and the length of what follows. The letter is the kind to the child, and the
outcome from it."""
KINDS = {PassageKind.PDF: b"p", PassageKind.HTML: b"h"}
TEXT, FAILED, LACKING, READY = b"t", b"f", b"l", b"r"


class Extractor:
    """Extracts text in a child that starts with the first document and ends with this object. One thread at a time; another
    may set ``stop`` to interrupt it."""

    def __init__(self, stop: threading.Event | None = None, *, seconds: float = SECONDS_MAX) -> None:
        self.seconds = seconds
        self._stop = stop or threading.Event()
        self._child: subprocess.Popen[bytes] | None = None
        self._lacking: set[PassageKind] = set()

    def __enter__(self) -> "Extractor":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()
            for stream in (child.stdin, child.stdout):
                if stream is not None:
                    stream.close()

    def extract(self, kind: PassageKind, data: bytes) -> str | Skipped:
        if kind in self._lacking:
            return Skipped.NO_EXTRACTOR
        letter, answer = self._asked(kind, data)
        if letter == TEXT:
            return answer.decode("utf-8", "replace")
        if letter == LACKING:
            self._lacking.add(kind)
            return Skipped.NO_EXTRACTOR
        return Skipped.FAILED

    def _asked(self, kind: PassageKind, data: bytes) -> tuple[bytes, bytes]:
        child = self._started()
        if child is None or child.stdin is None or child.stdout is None:
            return FAILED, b""
        until = time.monotonic() + self.seconds
        message = HEAD.pack(KINDS[kind], len(data)) + data
        if not self._written(child.stdin.fileno(), message, until):
            self.close()
            return FAILED, b""
        answer = self._answer(child.stdout.fileno(), until)
        if answer is None:
            self.close()
            return FAILED, b""
        return answer

    def _started(self) -> "subprocess.Popen[bytes] | None":
        if self._child is not None and self._child.poll() is None:
            return self._child
        self.close()
        self._child = subprocess.Popen(
            [sys.executable, "-I", "-m", "crystal_node.derive.sources.extraction_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=bare_environment(),
            cwd="/",
            bufsize=0,
            start_new_session=True,
        )
        for stream in (self._child.stdin, self._child.stdout):
            if stream is not None:
                os.set_blocking(stream.fileno(), False)
        ready = None
        if self._child.stdout is not None:
            ready = self._answer(self._child.stdout.fileno(), time.monotonic() + START_SECONDS_MAX)
        if ready is None or ready[0] != READY:
            self.close()
        return self._child

    def _written(self, descriptor: int, data: bytes, until: float) -> bool:
        rest = memoryview(data)
        while rest:
            if not self._ready(descriptor, until, writing=True):
                return False
            try:
                rest = rest[os.write(descriptor, rest[:WRITE_BYTES]) :]
            except BlockingIOError:
                continue
            except OSError:  # it is dead
                return False
        return True

    def _answer(self, descriptor: int, until: float) -> tuple[bytes, bytes] | None:
        head = self._read(descriptor, HEAD.size, until)
        if head is None:
            return None
        letter, length = HEAD.unpack(head)
        if length > ANSWER_BYTES_MAX:
            return None
        body = self._read(descriptor, length, until)
        return None if body is None else (letter, body)

    def _read(self, descriptor: int, length: int, until: float) -> bytes | None:
        """``length`` bytes; None if they do not come in time."""
        data = bytearray()
        while len(data) < length:
            if not self._ready(descriptor, until, writing=False):
                return None
            try:
                more = os.read(descriptor, length - len(data))
            except BlockingIOError:
                continue
            if not more:
                return None
            data += more
        return bytes(data)

    def _ready(self, descriptor: int, until: float, *, writing: bool) -> bool:
        """Waits until the descriptor is ready; False when time is up or ``stop`` is set."""
        which = select.POLLOUT if writing else select.POLLIN
        poll = select.poll()
        poll.register(descriptor, which)
        while not self._stop.is_set():
            left = until - time.monotonic()
            if left <= 0:
                return False
            if poll.poll(min(left, LOOK_SECONDS) * 1000):
                return True
        return False
