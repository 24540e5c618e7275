"""The demo's pairing: two real ``crystal pair`` processes, and a person who carries six digits from one to the other."""

import json
import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from crystal_node.surfaces.demo.machines import DemoCommandFailed, DemoDevice, command_of, failure

PAIR_SECONDS_MAX = 60.0


class _Talk:
    """A process whose standard output is a line of JSON for each event."""

    def __init__(self, device: DemoDevice, *arguments: str) -> None:
        self._process = subprocess.Popen(
            command_of(*arguments),
            env=device.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        # A process that says nothing must not hold the demo up for ever.
        self._watch = threading.Timer(PAIR_SECONDS_MAX, self._process.kill)
        self._watch.start()

    def type(self, line: str) -> None:
        assert self._process.stdin is not None, "it was opened with a pipe"
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def until(self, event: str) -> dict[str, Any]:
        """The next event of that name. Raises CommandFailed if the process ends before."""
        assert self._process.stdout is not None, "it was opened with a pipe"
        for line in self._process.stdout:
            said: dict[str, Any] = json.loads(line)
            if said["event"] == event:
                return said
        _, complaint = self._process.communicate()
        raise (
            failure("pair", complaint)
            if complaint.strip()
            else DemoCommandFailed("`crystal pair` just ended")
        )

    def end(self) -> None:
        self._watch.cancel()
        if self._process.poll() is None:
            self._process.terminate()
        self._process.communicate()

    def finish(self) -> None:
        """Waits for its end. Raises CommandFailed unless that was a good one."""
        _, complaint = self._process.communicate()
        if self._process.returncode:
            raise failure("pair", complaint)


def pair(inviter: DemoDevice, newcomer: DemoDevice, name: str) -> str:
    """Brings the newcomer in by an invite. Returns the digits that were typed.

    Raises:
        CommandFailed: one of the two ended by an error, or not in time.
    """
    with _talk(inviter, "pair") as here:
        code = str(here.until("invite")["code"])
        with _talk(newcomer, "pair", "--code", "-", "--name", name, "--yes") as there:
            there.type(code)
            digits = str(there.until("digits")["digits"])
            here.until("digits-wanted")
            here.type(digits)
            there.until("joined")
            here.until("paired")
            there.finish()
        here.finish()
    return digits


@contextmanager
def _talk(device: DemoDevice, *arguments: str) -> Generator[_Talk]:
    talk = _Talk(device, *arguments)
    try:
        yield talk
    finally:
        talk.end()
