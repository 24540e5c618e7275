"""The processes that make up a server: started, waited for, and all ended, whatever happened in between."""

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path

START_SECONDS_MAX = 60.0
PAUSE_SECONDS = 0.02

# Below the ports that the kernel gives to outgoing connections: nothing takes one of these by chance.
PORTS = range(20_000, 32_000)

_BOUND = Path(__file__).with_name("bound.py")


class Daemons:
    """A server's processes and their directory. Use `daemons()`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *command: str | Path, extra: Mapping[str, str] | None = None) -> None:
        """Start one in the foreground. What it prints goes to `<name>.log`; `name` is for the messages."""
        with (self.directory / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_BOUND), str(os.getpid()), *map(str, command)],
                cwd=self.directory,
                env=os.environ | (extra or {}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def run(self, *command: str | Path) -> str:
        """Run one to its end. The answer is what it printed."""
        done = subprocess.run(
            [str(part) for part in command],
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=START_SECONDS_MAX,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(
                f"{' '.join(map(str, command))}: {done.returncode}\n{done.stderr}\n{self.logs()}"
            )
        return done.stdout

    def until(self, what: str, ready: Callable[[], bool]) -> None:
        """Wait until `ready` says so. An early end of a process or the deadline is an error that shows the logs."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while not ready():
            ended = [name for name, process in self._running.items() if process.poll() is not None]
            if ended or time.monotonic() > deadline:
                raise RuntimeError(f"no {what}; ended: {ended or 'none'}\n{self.logs()}")
            time.sleep(PAUSE_SECONDS)

    def logs(self) -> str:
        """The ends of all logs."""
        return "\n".join(
            f"--- {path.name}\n{path.read_text(errors='replace')[-3_000:]}"
            for path in sorted(self.directory.glob("*.log"))
        )

    def stop(self) -> None:
        """Kill all, each with whatever it started itself. What they would put in order is thrown away anyway."""
        for process in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        for process in self._running.values():
            process.wait()
        self._running.clear()


@contextlib.contextmanager
def daemons(name: str) -> Generator[Daemons]:
    """Processes in a temporary directory. At the end they are gone, and so is the directory."""
    directory = Path(tempfile.mkdtemp(prefix=f"crystal-{name}-"))
    running = Daemons(directory)
    try:
        yield running
    finally:
        running.stop()
        shutil.rmtree(directory, ignore_errors=True)


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    while True:
        port = random.choice(PORTS)
        with socket.socket() as attempt, contextlib.suppress(OSError):
            attempt.bind(("127.0.0.1", port))
            return port


def accepts(port: int) -> bool:
    """Whether somebody listens there."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
