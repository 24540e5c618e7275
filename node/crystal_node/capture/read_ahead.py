"""Transcripts of a large backlog, read in further processes while this one commits what was read.

Each process reads one transcript after the other, in the order in which they are recorded, and together they stay a few parts
ahead. What they read counts only if it was read from exactly the state, the privacy and the exclusions that hold when it is to
be committed; otherwise, and if a process has died, the part is read here, as it is without them. So positions are committed
with their messages as ever, and losing a process loses nothing.
"""

import pickle
import struct
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from itertools import takewhile
from types import TracebackType
from typing import Self

import msgspec

from crystal_crypto.errors import UNDECODABLE
from crystal_node.base.decoding import from_msgpack
from crystal_node.base.settings import Settings, bare_environment
from crystal_node.capture.adapter import TranscriptReading
from crystal_node.capture.exclusions import Exclusions
from crystal_node.capture.reading import ReadPart, ReadRequest

PARTS_AHEAD_MAX = 6
"""Parts that are kept until they are asked for, of all transcripts; each was made of about 4 MiB."""
ANSWER_BYTES_MAX = 256 * 1024 * 1024

HEAD = struct.Struct(">cI")
"""Frame header in both directions: a letter and the length of what follows."""
REQUEST, PART, ENDED = b"r", b"p", b"e"
GO_ON = b""
"""In place of a request: the next part of the same transcript is wanted. Each question has one answer."""


class ReadAhead:
    """What processes of their own read of these transcripts, which are asked for in this order. A context manager: they end
    with it."""

    def __init__(self, settings: Settings, requests: Sequence[ReadRequest], processes: int) -> None:
        self._settings = settings
        self._transcripts = {request.path: _Transcript(request) for request in requests}
        self._waiting = deque(self._transcripts.values())
        self._changed = threading.Condition()
        self._wanted: _Transcript | None = None
        self._closed = False
        self._children = _started(settings, processes)
        self._threads = [threading.Thread(target=self._serve, args=(child,)) for child in self._children]
        self._serving = len(self._threads)

    @property
    def processes(self) -> list[subprocess.Popen[bytes]]:
        return [child.process for child in self._children]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for child in self._children:
            child.kill()
        for thread in self._threads:
            thread.join()
        for child in self._children:
            child.close()

    def reading(self, request: ReadRequest) -> TranscriptReading | None:
        """The part that is asked for, once it is read; None if it is not read ahead, nor is what follows in this transcript.

        Raises:
            OSError: the exclusions cannot be read.
        """
        transcript = self._transcripts.get(request.path)
        if transcript is None:
            return None
        for passed in [*takewhile(lambda each: each is not transcript, self._transcripts.values())]:
            self._drop(passed)  # nobody asked for it, and a child may be waiting with its parts
        data = self._next(transcript) if transcript.expected == request else None
        part = None if data is None else _decoded(data)
        if part is None or part.excluded != self._excluded():
            self._drop(transcript)
            return None
        reading = part.reading()
        transcript.expected = request.after(reading)
        if not reading.more:
            self._drop(transcript)
        return reading

    def _excluded(self) -> tuple[object, ...]:
        return Exclusions.read(self._settings.home.root, self._settings.person_home).all

    def _next(self, transcript: "_Transcript") -> bytes | None:
        """The next part of a transcript, encoded; None if none will come."""
        with self._changed:
            self._wanted = transcript
            self._changed.notify_all()
            while not (transcript.parts or transcript.ended or self._closed):
                if not (transcript.begun or self._serving):
                    break
                self._changed.wait()
            self._wanted = None
            self._changed.notify_all()
            return transcript.parts.popleft() if transcript.parts else None

    def _drop(self, transcript: "_Transcript") -> None:
        """Nothing of it is wanted any more."""
        with self._changed:
            del self._transcripts[transcript.first.path]
            transcript.ended = True
            transcript.parts.clear()
            self._changed.notify_all()

    def _serve(self, child: "_Child") -> None:
        """Has one child read. The thread spends its time in system calls, which let the others run."""
        try:
            while child.lives and (transcript := self._begin()) is not None:
                self._read(child, transcript)
        finally:
            with self._changed:
                self._serving -= 1
                self._changed.notify_all()

    def _read(self, child: "_Child", transcript: "_Transcript") -> None:
        try:
            asked = child.ask(msgspec.msgpack.encode(transcript.first))
            while asked and (data := child.answer()) is not None:
                # It reads on while this part waits for room, unless nothing of the transcript is wanted any more.
                asked = not transcript.ended and child.ask(GO_ON)
                self._keep(transcript, data)
        finally:
            with self._changed:
                transcript.ended = True
                self._changed.notify_all()

    def _keep(self, transcript: "_Transcript", data: bytes) -> None:
        """Adds a part, once there is room for it, unless nothing of the transcript is wanted any more."""
        with self._changed:
            # What is waited for always has room: else parts of later transcripts could keep it out.
            while not (
                self.kept < PARTS_AHEAD_MAX or transcript is self._wanted or transcript.ended or self._closed
            ):
                self._changed.wait()
            if not transcript.ended:
                transcript.parts.append(data)
                self._changed.notify_all()

    @property
    def kept(self) -> int:
        """How many parts nobody has asked for yet."""
        return sum(len(each.parts) for each in [*self._transcripts.values()])

    def _begin(self) -> "_Transcript | None":
        with self._changed:
            while self._waiting and not self._closed:
                transcript = self._waiting.popleft()
                if not transcript.ended:
                    transcript.begun = True
                    return transcript
        return None


def _started(settings: Settings, processes: int) -> list["_Child"]:
    """As many as the system lets us have."""
    children: list[_Child] = []
    with suppress(OSError):
        while len(children) < processes:
            children.append(_Child(settings))
    return children


def _decoded(data: bytes) -> ReadPart | None:
    """None: it is no part, so a process went wrong."""
    try:
        return from_msgpack(data, ReadPart)
    except UNDECODABLE:
        return None


class _Transcript:
    """``expected``: what is to be asked for next; ``begun``: by a process; ``ended``: nothing is added."""

    def __init__(self, first: ReadRequest) -> None:
        self.first = self.expected = first
        self.parts = deque[bytes]()
        self.begun = self.ended = False


class _Child:
    """One process. It inherits no file, no secret, and of the environment the time zone alone: Aider writes local times."""

    def __init__(self, settings: Settings) -> None:
        self.lives = True
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-m", "crystal_node.capture.reader_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=bare_environment(),
            start_new_session=True,
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
        self._told = pickle.dumps(settings)

    def kill(self) -> None:
        self.lives = False
        self.process.kill()

    def close(self) -> None:
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()

    def ask(self, question: bytes) -> bool:
        """Whether it could be asked: for the first part of a transcript, by the encoded request, or for the next."""
        try:
            if self._told:
                self._write(self._told)
                self._told = b""
            self._write(question)
        except OSError:  # it is dead
            self.lives = False
        return self.lives

    def answer(self) -> bytes | None:
        """The next part of the transcript, encoded; None when there is no more."""
        head = self._read(HEAD.size)
        kind, length = HEAD.unpack(head) if len(head) == HEAD.size else (ENDED, ANSWER_BYTES_MAX + 1)
        if kind == ENDED and not length:
            return None
        data = self._read(length) if length <= ANSWER_BYTES_MAX else b""
        if length != len(data):
            self.lives = False
            return None
        return data

    def _write(self, data: bytes) -> None:
        assert self.process.stdin is not None, "a pipe"
        self.process.stdin.write(HEAD.pack(REQUEST, len(data)) + data)
        self.process.stdin.flush()

    def _read(self, length: int) -> bytes:
        assert self.process.stdout is not None, "a pipe"
        return self.process.stdout.read(length)
