"""The running agent answers searches of this machine's programs, with an index and a model that are in memory already.

Rules:

- Only this user: the socket is mode 0600 in a folder of mode 0700, and on Linux the kernel is asked who is at the other end.
- It reads the memory and nothing else. It runs in threads of its own beside the rounds: neither waits for the other, but for
  the interpreter.
- Nobody needs it. Where it cannot be had, or is not understood, whoever asks opens the memory by itself.
- What was asked is in no log.
"""

import contextlib
import logging
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from crystal_crypto.errors import CrystalError
from crystal_node.base.errors import ExitCode, describe
from crystal_node.base.local_api import reached
from crystal_node.base.settings import Settings
from crystal_node.search.finding.documents import SearchRequest, ShowRequest
from crystal_node.search.finding.finder import Finder
from crystal_node.search.finding.schema_errors import decoded
from crystal_node.search.finding.wire import (
    REQUEST_BYTES_MAX,
    Failure,
    NotUnderstood,
    frame,
    has_sockets,
    read_frame,
)

CALLERS_MAX = 8
"""Answered at once; more wait, and are turned away after a second."""
READ_SECONDS_MAX = 2.0
IDLE_SECONDS = 900.0
"""After that long without a question the model, the index and the database are given back."""
_LOOK_SECONDS = 15.0
_WAITING_MAX = 64


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer's body. ``lost`` is called if whoever asked has gone without it."""

    body: bytes
    lost: Callable[[], None] | None = None


Answer = Callable[[Finder, bytes], Answered]

_log = logging.getLogger("crystal_node.agent.daemon")


class FinderService:
    """One agent's. ``settings`` gives them as they are now: they are read again for each opening of the memory."""

    def __init__(self, settings: Callable[[], Settings], verbs: Mapping[str, Answer] | None = None) -> None:
        self._settings = settings
        self._verbs = {"search": _search, "show": _show, **(verbs or {})}
        self._path: Path = settings().home.finder_socket
        self._listening: socket.socket | None = None
        self._pool = ThreadPoolExecutor(CALLERS_MAX, thread_name_prefix="crystal-find")
        self._waiting = threading.Semaphore(_WAITING_MAX)
        self._guard = threading.Lock()
        self._finder: Finder | None = None
        self._stamp: tuple[int, int] = (0, 0)
        self._busy = 0
        self._asked_at = 0.0
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> str:
        """Listens from now on. Returns why it cannot, "" if it does."""
        if not has_sockets():
            return "searches are not answered by the agent: this system has no such sockets"
        try:
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()  # of an agent that was killed: the home's lock says that there is no other
            with reached(str(self._path)) as name:
                if name is None:
                    return "searches are not answered by the agent: the home's path is too long for a socket"
                listening = _listening_at(name)
        except OSError as error:
            return f"searches are not answered by the agent: {error.strerror or error}"
        self._listening = listening
        for work in (self._accept, self._rest):
            thread = threading.Thread(target=work, name="crystal-find", daemon=True)
            thread.start()
            self._threads.append(thread)
        return ""

    def stop(self) -> None:
        """Listens no more, and closes the memory. Idempotent."""
        if self._ended.is_set():
            return
        self._ended.set()
        if self._listening is not None:
            with contextlib.suppress(OSError):
                self._listening.shutdown(socket.SHUT_RDWR)  # wakes who accepts
            self._listening.close()
            with contextlib.suppress(OSError):
                self._path.unlink()
        self._pool.shutdown(wait=True, cancel_futures=True)
        for thread in self._threads:
            thread.join()
        self._close()

    def _accept(self) -> None:
        assert self._listening is not None
        while not self._ended.is_set():
            try:
                caller, _ = self._listening.accept()
            except OSError:
                if self._ended.wait(0.2):  # also when there are no descriptors left
                    return
                continue
            if not self._waiting.acquire(blocking=False):
                caller.close()
                continue
            try:
                serving = self._pool.submit(self._serve, caller)
            except RuntimeError:  # the pool is over
                caller.close()
                return
            serving.add_done_callback(partial(_hang_up, caller))

    def _serve(self, caller: socket.socket) -> None:
        try:
            with caller, contextlib.suppress(OSError):
                caller.settimeout(READ_SECONDS_MAX)
                if _is_other(caller):
                    return
                with caller.makefile("rb") as file:
                    try:
                        verb, body = read_frame(file, REQUEST_BYTES_MAX)
                    except NotUnderstood:
                        return
                answer = self._answer(verb, body)
                try:
                    caller.sendall(answer.body)
                except OSError:
                    if answer.lost is not None:
                        answer.lost()
        finally:
            self._waiting.release()

    def _answer(self, verb: str, body: bytes) -> Answered:
        """As it is sent."""
        answer = self._verbs.get(verb)
        try:
            if answer is None:
                raise CrystalError(f"an agent of this version does not know {verb!r}")
            with self._open() as finder:
                answered = answer(finder, body)
            return Answered(frame("ok", answered.body), answered.lost)
        except Exception as error:  # noqa: BLE001  whoever asks is told, as by any command
            failure = describe(error)
            if failure.exit_code == ExitCode.UNEXPECTED:
                _log.error("a search failed unexpectedly: %s", type(error).__name__)
                self._close()
            return _failed(Failure(failure.message, failure.hint, failure.exit_code))

    @contextlib.contextmanager
    def _open(self) -> Generator[Finder]:
        settings = self._settings()
        stamp = _stamp(settings)
        with self._guard:
            if self._finder is not None and stamp != self._stamp and not self._busy:
                self._finder.close()
                self._finder = None
            if self._finder is None:
                self._finder, self._stamp = Finder(settings), stamp
            finder = self._finder
            self._busy += 1
            self._asked_at = time.monotonic()
        try:
            yield finder
        finally:
            with self._guard:
                self._busy -= 1

    def _rest(self) -> None:
        """Gives back what nobody has needed for long."""
        while not self._ended.wait(_LOOK_SECONDS):
            if time.monotonic() - self._asked_at > IDLE_SECONDS:
                self._close()

    def _close(self) -> None:
        with self._guard:
            if self._busy and not self._ended.is_set():
                return
            finder, self._finder = self._finder, None
        if finder is not None:
            finder.release()
            finder.close()


def _hang_up(caller: socket.socket, serving: "Future[None]") -> None:
    """On who waited for his turn when it ended: he asks the disk, and not in ten minutes."""
    if serving.cancelled():
        caller.close()


def _search(finder: Finder, body: bytes) -> Answered:
    return Answered(msgspec.json.encode(finder.search(decoded(body, SearchRequest))))


def _show(finder: Finder, body: bytes) -> Answered:
    return Answered(msgspec.json.encode(finder.show(decoded(body, ShowRequest))))


def _failed(failure: Failure) -> Answered:
    return Answered(frame("failed", msgspec.json.encode(failure)))


def _stamp(settings: Settings) -> tuple[int, int]:
    """Tells a memory that was put in the place of another, and settings that were changed."""
    stamps: list[int] = []
    for path in (settings.home.database, settings.home.config_file):
        try:
            info = path.stat()
        except OSError:
            stamps.append(0)
        else:
            stamps.append(info.st_ino if path == settings.home.database else info.st_mtime_ns)
    return stamps[0], stamps[1]


def _listening_at(name: str) -> socket.socket:
    """Its owner's only, at no moment anybody else's: its folder is private too."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(name)
        os.chmod(name, 0o600)  # noqa: PTH101  the name is the socket's
        listening.listen(_WAITING_MAX)
    except BaseException:
        listening.close()
        raise
    return listening


def _is_other(caller: socket.socket) -> bool:
    """Whether another user is at the other end, as far as the system tells."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return False
    _, uid, _ = struct.unpack("3i", caller.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i")))
    return bool(uid != os.geteuid())
