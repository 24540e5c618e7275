"""Many short-lived `crystal` processes: real ones, forked from a server that has the program loaded already.

A fresh interpreter takes 300 ms to come up, in which a SIGKILL hits nothing but imports. These children begin
at `main`, so a kill at a random moment falls into the work itself. Everything else is as in a process that a
person starts: own memory, own file descriptors, own death.
"""

import multiprocessing
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path

from tests.support.machine import Machine

_PRELOADED = ["tests.system.loaded"]


class Children:
    """Starts children for machines. One server for all of them."""

    def __init__(self) -> None:
        self._context: ForkServerContext = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(_PRELOADED)

    def start(
        self, machine: Machine, *arguments: str, log: Path, dies_at_commit: int | None = None
    ) -> BaseProcess:
        """Starts `crystal` with these arguments; what it says is added to `log`. See `run_command`."""
        from tests.system.loaded import run_command

        child = self._context.Process(
            target=run_command,
            args=(list(arguments), machine.environment, str(log), dies_at_commit),
            daemon=True,
        )
        child.start()
        return child


def exit_code(child: BaseProcess, seconds: float) -> int:
    """Waits for a child to end and returns its exit code (negative for a signal)."""
    child.join(seconds)
    assert child.exitcode is not None, f"process {child.pid} did not end within {seconds} s"
    return child.exitcode


def kill(child: BaseProcess) -> None:
    """SIGKILL, and gone when this returns."""
    child.kill()
    child.join(10)
    assert not child.is_alive()
