"""Transcripts of a large backlog, which child processes read while this process commits the parts that they have read.

Each child reads one transcript after the other, in the order in which they are recorded, and together the children stay a few
parts ahead. A part counts only if it was read from exactly the state, under the privacy and the exclusions, that hold when it
is committed. Otherwise, and if the child has died, this process reads the part itself, as it does without children. So
positions are still committed with their messages, and a child that dies loses nothing.
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
"""Parts of all transcripts that are kept until they are needed; each is of about 4 MiB of transcript."""
ANSWER_BYTES_MAX = 256 * 1024 * 1024
"""A longer part is taken for an error of the child."""

HEAD = struct.Struct(">cI")
"""Header of a frame in both directions: its kind, and the length of its data in bytes."""
REQUEST, PART, ENDED = b"r", b"p", b"e"
GO_ON = b""
"""Sent in place of a request: asks for the next part of the same transcript. Each question has one answer."""


class ReadAhead:
    """The parts that child processes read of these transcripts. A context manager: the children end with it.

    ``requests``: for the first part of each transcript, in the order in which ``reading`` will be called for them.
    ``processes``: how many children; fewer if the system starts no more.
    """

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
        """The part that is asked for, once it is read. None if this process has to read it, and the rest of its transcript.

        Raises:
            OSError: the exclusions cannot be read.
        """
        transcript = self._transcripts.get(request.path)
        if transcript is None:
            return None
        for passed in [*takewhile(lambda each: each is not transcript, self._transcripts.values())]:
            self._drop(passed)  # it was not asked for, and a child may wait with its parts
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
        """Gives up the rest of a transcript."""
        with self._changed:
            del self._transcripts[transcript.first.path]
            transcript.ended = True
            transcript.parts.clear()
            self._changed.notify_all()

    def _serve(self, child: "_Child") -> None:
        """Has one child read. This thread mostly waits in system calls, during which other threads run."""
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
                # The child reads on while this part waits for room, unless the transcript was given up.
                asked = not transcript.ended and child.ask(GO_ON)
                self._keep(transcript, data)
        finally:
            with self._changed:
                transcript.ended = True
                self._changed.notify_all()

    def _keep(self, transcript: "_Transcript", data: bytes) -> None:
        """Adds a part once there is room for it, unless the transcript was given up."""
        with self._changed:
            # A part that is waited for always has room: else parts of later transcripts could keep it out.
            while not (
                self.kept < PARTS_AHEAD_MAX or transcript is self._wanted or transcript.ended or self._closed
            ):
                self._changed.wait()
            if not transcript.ended:
                transcript.parts.append(data)
                self._changed.notify_all()

    @property
    def kept(self) -> int:
        """How many parts are kept until they are needed."""
        return sum(len(each.parts) for each in [*self._transcripts.values()])

    def _begin(self) -> "_Transcript | None":
        """The next transcript that no child has begun; None if there is none."""
        with self._changed:
            while self._waiting and not self._closed:
                transcript = self._waiting.popleft()
                if not transcript.ended:
                    transcript.begun = True
                    return transcript
        return None


def _started(settings: Settings, processes: int) -> list["_Child"]:
    """The children, fewer than ``processes`` if the system starts no more."""
    children: list[_Child] = []
    with suppress(OSError):
        while len(children) < processes:
            children.append(_Child(settings))
    return children


def _decoded(data: bytes) -> ReadPart | None:
    """The part in these bytes; None if they hold none, so that the child has a fault."""
    try:
        return from_msgpack(data, ReadPart)
    except UNDECODABLE:
        return None


class _Transcript:
    """``expected``: the next request; ``begun``: whether a child reads it; ``ended``: whether no part is added any more."""

    def __init__(self, first: ReadRequest) -> None:
        self.first = self.expected = first
        self.parts = deque[bytes]()
        self.begun = self.ended = False


class _Child:
    """One child process. It inherits no file and no secret, and of the environment the time zone: Aider writes local times."""

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
        """Sends an encoded ReadRequest for a transcript's first part, or GO_ON for the next one. False: the child has died."""
        try:
            if self._told:
                self._write(self._told)
                self._told = b""
            self._write(question)
        except OSError:  # it is dead
            self.lives = False
        return self.lives

    def answer(self) -> bytes | None:
        """The next part of the transcript, encoded; None after the last one, or if the child has died."""
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
