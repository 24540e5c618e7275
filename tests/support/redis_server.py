"""A real Redis of its own, on a Unix socket: to be killed, emptied and started again."""

import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

_PROGRAMS = ("redis-server", "valkey-server")
_STARTS_SECONDS_MAX = 20.0


class RedisServer:
    """Keeps nothing on disk: what is killed has forgotten everything."""

    def __init__(self, program: str, folder: Path) -> None:
        self._program = program
        self._socket = folder / "redis.sock"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self._socket}"

    def start(self) -> None:
        self._process = subprocess.Popen(
            [
                self._program,
                "--port",
                "0",
                "--unixsocket",
                str(self._socket),
                "--save",
                "",
                "--appendonly",
                "no",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self._socket.parent,
        )
        deadline = time.monotonic() + _STARTS_SECONDS_MAX
        while not self._socket.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self._program} did not start")
            time.sleep(0.01)

    def kill(self) -> None:
        """SIGKILL. The socket's file stays, as it would."""
        self._end(signal.SIGKILL)
        self._socket.unlink(missing_ok=True)

    def pause(self) -> None:
        """It answers nobody any more, and hangs up on nobody."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(20)
            self._process = None


@contextmanager
def redis_server() -> Generator[RedisServer]:
    """A running one. Skips the test where none is installed."""
    program = next((each for each in _PROGRAMS if shutil.which(each)), None)
    if program is None:
        pytest.skip("neither redis-server nor valkey-server is installed")
    # A socket's name is short, and a test's own folder is not.
    with tempfile.TemporaryDirectory(prefix="redis-") as folder:
        server = RedisServer(program, Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.kill()
