"""A `crystal` process on a real terminal, as a person has it: what is shown is read, what is typed is written."""

import contextlib
import os
import pty
import select
import signal
import time
from collections.abc import Generator

from tests.support import programs
from tests.support.machine import Machine

SECONDS_MAX = 60.0


class Terminal:
    """A `crystal` process whose input and output are a terminal of 100 columns and 40 lines."""

    def __init__(self, machine: Machine, *arguments: str, **variables: str) -> None:
        self._master, terminal = pty.openpty()
        self._process = programs.started(
            "crystal_node",
            arguments,
            env=machine.environment | {"COLUMNS": "100", "LINES": "40", "TERM": "xterm"} | variables,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
        )
        os.close(terminal)
        self._open = True
        self.shown = ""

    def until(self, text: str, times: int = 1) -> None:
        """Reads what is shown until the text stands there so often."""
        deadline = time.monotonic() + SECONDS_MAX
        while self.shown.count(text) < times:
            assert time.monotonic() < deadline, f"{text!r} was not shown:\n{self.shown}"
            if select.select([self._master], [], [], 0.1)[0] and not self._read():
                raise AssertionError(f"it ended before {text!r} was shown:\n{self.shown}")

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def stop(self) -> None:
        """What Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)

    def end(self) -> int:
        """Reads to the end and returns the exit code."""
        deadline = time.monotonic() + SECONDS_MAX
        while time.monotonic() < deadline:
            if select.select([self._master], [], [], 0.1)[0] and not self._read():
                break
        self.close()
        return self._process.wait(SECONDS_MAX)

    def close(self) -> None:
        """The window is closed. Idempotent."""
        if self._open:
            self._open = False
            os.close(self._master)

    def kill(self) -> None:
        """SIGKILL. Idempotent."""
        self._process.kill()
        self._process.wait()
        self.close()

    def _read(self) -> bool:
        try:
            data = os.read(self._master, 65536)
        except OSError:  # how Linux says that the other side is closed
            return False
        self.shown += data.decode("utf-8", "replace")
        return bool(data)


@contextlib.contextmanager
def terminal(machine: Machine, *arguments: str, **variables: str) -> Generator[Terminal]:
    """A terminal whose process is gone at the end."""
    opened = Terminal(machine, *arguments, **variables)
    try:
        yield opened
    finally:
        opened.kill()
