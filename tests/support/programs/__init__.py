"""`crystal` and `crystal-relay` in processes of their own, forked from a server that has both loaded already.

A fresh interpreter spends a quarter of a second of processor time on imports before it does anything, a forked process a tenth
of that. All else is as in a process that a person starts: own memory, own descriptors, own environment, own signals, own death.

A fresh interpreter is started where the beginning is the point: with `fresh`, behind a prefix, or with variables that act on an
interpreter or on its loading (PYTHONPATH, LD_PRELOAD …).
"""

import atexit
import contextlib
import errno
import json
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from tests.support.programs.wire import HEADER, PID, STATUS

_PROJECT = Path(__file__).resolve().parents[3]
_ACTS_ON_INTERPRETER = ("PYTHON", "LD_")
STOP_SECONDS_MAX = 10.0


def started(
    module: str,
    arguments: Sequence[str],
    *,
    env: Mapping[str, str],
    prefix: Sequence[str] = (),
    fresh: bool = False,
    stdin: int | IO[Any] | None = None,
    stdout: int | IO[Any] | None = None,
    stderr: int | IO[Any] | None = None,
    encoding: str | None = None,
) -> "subprocess.Popen[Any]":
    """`python -m module` with these arguments; `module` is `crystal_node` or `crystal_relay`."""
    kind = subprocess.Popen if fresh or prefix or _needs_fresh(env) else _Forked
    return kind(
        [*prefix, sys.executable, "-m", module, *arguments],
        env=env,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        encoding=encoding,
    )


def run(
    module: str,
    arguments: Sequence[str],
    *,
    env: Mapping[str, str],
    prefix: Sequence[str] = (),
    fresh: bool = False,
    typed: str = "",
    timeout: float,
) -> "subprocess.CompletedProcess[str]":
    """The same, until it has ended. Killed after `timeout` seconds."""
    pipe = subprocess.PIPE
    with started(
        module,
        arguments,
        env=env,
        prefix=prefix,
        fresh=fresh,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        encoding="utf-8",
    ) as process:
        try:
            out, err = process.communicate(typed, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def _needs_fresh(env: Mapping[str, str]) -> bool:
    names = {name for name in (*env, *os.environ) if name.startswith(_ACTS_ON_INTERPRETER)}
    return any(env.get(name) != os.environ.get(name) for name in names)


class _Forked(subprocess.Popen[Any]):
    """A child of the server. Its end is told through a pipe, for only a parent may wait for a process."""

    _end_told: int

    def _execute_child(self, args: Sequence[str], *others: Any) -> None:
        """subprocess has made the pipes, and hands them over in the order of its own method of this name."""
        env: Mapping[str, str] = others[5]
        pipes: tuple[int, ...] = others[9:15]
        given = [own if own >= 0 else number for number, own in enumerate((pipes[0], pipes[3], pipes[5]))]
        self._end_told, told = os.pipe()
        os.set_blocking(self._end_told, False)
        try:
            self.pid = _server().fork(
                {"arguments": list(args[1:]), "env": dict(env), "cwd": str(Path.cwd())}, [*given, told]
            )
            self._child_created = True
        finally:
            os.close(told)
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _internal_poll(self, *_: object, **__: object) -> int | None:
        """Called by `poll`, and when the object goes."""
        lock: threading.Lock = self._waitpid_lock  # type: ignore[attr-defined]
        if self.returncode is None and lock.acquire(blocking=False):
            try:
                pid, status = self._try_wait(os.WNOHANG)
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
            finally:
                lock.release()
        return self.returncode

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        """As `os.waitpid`: a pid of 0 while it runs. Called with the lock held."""
        if not wait_flags & os.WNOHANG:
            select.select([self._end_told], [], [])
        try:
            said = os.read(self._end_told, STATUS.size)
        except BlockingIOError:
            return 0, 0
        os.close(self._end_told)
        # No word: the server is dead, and with it the knowledge of how this process ended.
        return self.pid, STATUS.unpack(said)[0] if said else 255 << 8


class _Server:
    """The process that forks. One for each process that runs tests; it ends with its standard input."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._line, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.programs.server"],
                cwd=_PROJECT,
                stdin=theirs.fileno(),
                env=os.environ | {"PYTHONPATH": str(_PROJECT)},
            )
        atexit.register(self.close)

    def fork(self, program: dict[str, Any], descriptors: list[int]) -> int:
        """Have it run, and give its process id."""
        request = json.dumps(program).encode()
        with self._lock:
            header = HEADER.pack(len(request))
            socket.send_fds(self._line, [header], descriptors)
            self._line.sendall(request)
            answer = self._line.recv(PID.size, socket.MSG_WAITALL)
        if len(answer) != PID.size:
            raise OSError(errno.EPIPE, "the server that forks programs has ended")
        return int(PID.unpack(answer)[0])

    def close(self) -> None:
        self._line.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS_MAX)
        self._process.kill()
        self._process.wait()


_servers: dict[int, _Server] = {}


def _server() -> _Server:
    """This process's own: a fork of it does not share its line."""
    if os.getpid() not in _servers:
        _servers.clear()
        _servers[os.getpid()] = _Server()
    return _servers[os.getpid()]
