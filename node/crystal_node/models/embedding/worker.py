"""The built-in embedder in a child process (``crystal_core.embed.worker``), for processes that live long.

::

    none ── first text or query ──► starts ── first answer ──► ready ── texts, queries ──► ready
      ▲                                                          │ release, close: killed, when nothing is under way
      └──────────────────────────────────────────────────────────┴ it died, is late or has no vectors to give: killed

onnxruntime, its model and the memory that an allocator keeps for them take some 50 MB. ``release`` cannot give all of it back
while the process lives; a process that ends does. If a worker that was ready dies, a new one answers the request. A request
that no worker answers fails with EmbedderDied, and search goes on by words.

Only threads and pipes are used: Windows has no fork, and no ``select`` for pipes.
"""

import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec

from crystal_core.embed.builtin import QUERY_CHARACTERS_MAX, BuiltinEmbedder
from crystal_core.embed.port import (
    EmbedderClosed,
    EmbedderDied,
    EmbedderUnavailable,
    EmbeddingError,
    ModelDamaged,
)
from crystal_core.embed.session import PROCESS_ENVIRONMENT
from crystal_core.embed.worker import (
    EmbeddingReply,
    EmbeddingRequest,
    Failed,
    Opening,
    QueryRequest,
    QueryVector,
    StoredRequest,
    StoredVectors,
    receive,
    send,
    to_bytes,
)
from crystal_crypto.errors import UNDECODABLE
from crystal_node.base.settings import child_environment

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_PROGRAM = (
    "from crystal_node.base.process_memory import keep_others_out; keep_others_out(); "
    "from crystal_core.embed.worker import main; main()"
)
COMMAND = (sys.executable, "-P", "-c", _PROGRAM)
ANSWER_SECONDS_MAX = 20.0
"""Limit for the answer to a query, the start of the worker included, which takes 0.2 s of processor time."""
SECONDS_PER_BYTE_MAX = 0.004
"""Added to the limit for each byte of text. A small computer needs a sixth of this for texts with the most tokens."""
REQUEST_BYTES_MAX = 256 * 1024
REQUEST_TEXTS_MAX = 256
"""Texts of one request: several times as many as the model's threads take at once."""
_HINT = "It is started again when it is needed; until then, search works by keyword."

_replies: msgspec.msgpack.Decoder[EmbeddingReply] = msgspec.msgpack.Decoder(EmbeddingReply)


class _NoAnswer(Exception):
    """The worker died, or was killed because it was late. The message says which."""


class WorkerEmbedder:
    """``BuiltinEmbedder`` in a child of this process. ``answer_seconds``: the limit for the answer to a query."""

    def __init__(
        self,
        *,
        threads: int | None = None,
        directory: Path | None = None,
        command: Sequence[str] = COMMAND,
        answer_seconds: float = ANSWER_SECONDS_MAX,
    ) -> None:
        self._threads = threads
        self._directory = directory
        self._command = command
        self._answer_seconds = answer_seconds
        self._model = BuiltinEmbedder(threads=threads, directory=directory)  # for its identity: loads nothing
        self._lock = threading.Lock()
        self._worker: _Worker | None = None
        self._closed = False

    @property
    def identity(self) -> str:
        """Raises ModelDamaged."""
        return self._model.identity

    @property
    def dimensions(self) -> int:
        """Raises ModelDamaged."""
        return self._model.dimensions

    @property
    def loaded(self) -> bool:
        """Whether a worker runs that has loaded its model."""
        worker = self._worker
        return worker is not None and worker.ready and worker.runs

    @property
    def process(self) -> "subprocess.Popen[bytes] | None":
        """The worker's process, from the first request until ``release``; None without one."""
        worker = self._worker
        return None if worker is None else worker.process

    def embed_windows(self, texts: Sequence[str]) -> list[list[bytes]]:
        """See the port. Raises ModelDamaged, EmbedderClosed, EmbedderUnavailable, EmbedderDied or EmbeddingError."""
        found: list[list[bytes]] = []
        for request in _requests(texts):
            seconds = self._answer_seconds + SECONDS_PER_BYTE_MAX * sum(map(len, request.texts))
            reply = self._asked(request, seconds)
            if not isinstance(reply, StoredVectors) or len(reply.texts) != len(request.texts):
                raise EmbeddingError(
                    "the embedding model's process answered something else than it was asked"
                )
            found += reply.texts
        return found

    def embed_query(self, text: str) -> "NDArray[np.float32]":
        """See the port. Raises as ``embed_windows``."""
        self._running()  # a worker starts while this process loads NumPy
        import numpy as np

        reply = self._asked(QueryRequest(to_bytes(text[:QUERY_CHARACTERS_MAX])), self._answer_seconds)
        if not isinstance(reply, QueryVector):
            raise EmbeddingError("the embedding model's process answered something else than it was asked")
        return np.frombuffer(reply.vector, "<f4").astype(np.float32)

    def release(self) -> None:
        """Ends the worker, after its current request if it has one. The next request starts another worker."""
        with self._lock:
            worker, self._worker = self._worker, None
        if worker is not None:
            worker.release()

    def close(self) -> None:
        """Ends the worker at once: a request under way raises EmbedderClosed."""
        with self._lock:
            self._closed = True
            worker, self._worker = self._worker, None
        if worker is not None:
            worker.released = True
            worker.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _asked(self, request: EmbeddingRequest, seconds: float) -> EmbeddingReply:
        reply = self._reply(request, seconds)
        if isinstance(reply, Failed):
            kind = ModelDamaged if reply.damaged else EmbeddingError
            raise kind(reply.message, hint=reply.hint)
        return reply

    def _reply(self, request: EmbeddingRequest, seconds: float) -> EmbeddingReply:
        replaced = False
        while True:
            worker = self._running()
            try:
                return worker.ask(request, seconds)
            except _NoAnswer as error:
                if worker.released and not worker.late:
                    continue
                if worker.late or replaced or not worker.ready:
                    raise EmbedderDied(str(error), hint=_HINT) from error
                replaced = True  # it may have been killed while it was idle

    def _running(self) -> "_Worker":
        identity = self.identity
        with self._lock:
            if self._closed:
                raise EmbedderClosed("this embedder was closed")
            if self._worker is None or not self._worker.runs:
                opening = Opening(identity, self._threads, str(self._directory or ""))
                try:
                    self._worker = _Worker(self._command, opening)
                except OSError as error:
                    what = f"the embedding model's process cannot be started: {error.strerror}"
                    raise EmbedderUnavailable(what, hint=_HINT) from error
            return self._worker


class _Worker:
    """One child, from its start to its end. ``ready``: it has made vectors. ``late``: it did not answer in time and was killed.
    ``released``: it gets no more requests, and ends after the current one."""

    def __init__(self, command: Sequence[str], opening: Opening) -> None:
        """Starts the child. Raises OSError."""
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=child_environment(PROCESS_ENVIRONMENT),
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
        with suppress(OSError):  # it is dead already: the first request notices
            self._send(opening)
        self._lock = threading.Lock()
        self._killed = self.ready = self.late = self.released = False
        threading.Thread(target=self._reap, name="crystal-embedder", daemon=True).start()

    @property
    def runs(self) -> bool:
        return not self._killed and self.process.returncode is None

    def ask(self, request: EmbeddingRequest, seconds: float) -> EmbeddingReply:
        """The reply to one request, within so many seconds. Raises _NoAnswer."""
        with self._lock:
            timer = threading.Timer(seconds, self._time_is_up)
            timer.daemon = True
            timer.start()
            try:
                reply = self._exchange(request)
            except (OSError, ValueError, EOFError, *UNDECODABLE) as error:
                self.kill()
                raise _NoAnswer(self._why(seconds)) from error
            except BaseException:  # else the next request would get this one's reply
                self.kill()
                raise
            finally:
                timer.cancel()
            self.ready = self.ready or not isinstance(reply, Failed)
            self.released = self.released or not self.ready  # without a model it is of no use
        if self.released:
            self.kill()
        return reply

    def release(self) -> None:
        """Kills it, after the current request if there is one."""
        self.released = True
        if self._lock.acquire(blocking=False):  # else `ask` kills it after the answer
            self._lock.release()
            self.kill()

    def kill(self) -> None:
        """Kills it at once, and does not wait for its end."""
        self._killed = True
        with suppress(OSError):  # it is dead
            self.process.kill()

    def _time_is_up(self) -> None:
        self.late = True
        self.kill()

    def _exchange(self, request: EmbeddingRequest) -> EmbeddingReply:
        self._send(request)
        assert self.process.stdout is not None
        data = receive(self.process.stdout)
        if data is None:
            raise EOFError
        return _replies.decode(data)

    def _send(self, message: msgspec.Struct) -> None:
        assert self.process.stdin is not None
        send(self.process.stdin, message)

    def _why(self, seconds: float) -> str:
        if self.late:
            return f"the embedding model's process did not answer within {seconds:.0f} s and was ended"
        return "the embedding model's process ended without an answer"

    def _reap(self) -> None:
        """Waits for its end, so that it leaves no zombie and no open pipe."""
        self.process.wait()
        with self._lock:
            for stream in (self.process.stdin, self.process.stdout):
                with suppress(OSError):  # nobody reads what is still in the buffer
                    if stream is not None:
                        stream.close()


def _requests(texts: Sequence[str]) -> Iterator[StoredRequest]:
    """The texts in requests of at most REQUEST_TEXTS_MAX texts and REQUEST_BYTES_MAX, or one longer text."""
    together: list[bytes] = []
    size = 0
    for text in texts:
        data = to_bytes(text)
        if together and (len(together) == REQUEST_TEXTS_MAX or size + len(data) > REQUEST_BYTES_MAX):
            yield StoredRequest(together)
            together, size = [], 0
        together.append(data)
        size += len(data)
    if together:
        yield StoredRequest(together)
