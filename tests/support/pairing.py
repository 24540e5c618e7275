"""Two real `crystal pair --json` processes, followed event by event, and what a whole pairing looks like.

with inviting(vault.core) as inviter:
    with joining(machine, inviter.code()) as newcomer:
        inviter.type(newcomer.event("digits")["digits"])
        assert inviter.end() == newcomer.end() == 0
"""

import contextlib
import json
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

from tests.support import programs
from tests.support.machine import Machine

SECONDS_MAX = 60.0

Event = dict[str, Any]


class Side:
    """A `crystal pair` process. Standard input stays open until `end` or `eof`."""

    def __init__(self, machine: Machine, *arguments: str, **variables: str) -> None:
        self._process = programs.started(
            "crystal_node",
            ["pair", "--json", *arguments],
            env=machine.environment | variables,
            prefix=machine.prefix,
            fresh=machine.fresh,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        self.events: list[Event] = []
        self.errors = ""
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._threads = [
            threading.Thread(target=self._read_out, daemon=True),
            threading.Thread(target=self._read_err, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def event(self, name: str) -> Event:
        """The next event of that name, once it comes."""
        found = self.event_unless(name, lambda: False)
        assert found is not None, f"it ended before {name}: {self.events}\n{self.errors}"
        return found

    def event_unless(self, name: str, stop: Callable[[], bool]) -> Event | None:
        """The next event of that name; None if the process ends, or `stop` says so, before it comes."""
        deadline = time.monotonic() + SECONDS_MAX
        while not stop():
            assert time.monotonic() < deadline, f"no {name} came, but {self.events}\n{self.errors}"
            try:
                line = self._lines.get(timeout=0.05)
            except queue.Empty:
                continue
            if line is None:
                self._lines.put(None)
                return None
            self.events.append(json.loads(line))
            if self.events[-1]["event"] == name:
                return self.events[-1]
        return None

    def code(self) -> str:
        """The invite's text, once it is shown."""
        return str(self.event("invite")["code"])

    def type(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text + "\n")
        self._process.stdin.flush()

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """What Ctrl-C does."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL. Idempotent."""
        self._process.kill()
        self._process.wait()
        for thread in self._threads:
            thread.join(SECONDS_MAX)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def end(self) -> int:
        """Its exit code, once it has ended; the rest of its events are in `events`."""
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        code = self._process.wait(SECONDS_MAX)
        for thread in self._threads:
            thread.join(SECONDS_MAX)
        while (line := self._lines.get()) is not None:
            self.events.append(json.loads(line))
        return code

    @property
    def error(self) -> Event:
        """The JSON document at the end of standard error, after `end`."""
        document: Event = json.loads(self.errors[self.errors.index("{") :])
        return document

    @property
    def names(self) -> list[str]:
        """Of all events."""
        return [event["event"] for event in self.events]

    def _read_out(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _read_err(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.errors += line


@contextlib.contextmanager
def inviting(machine: Machine, *arguments: str, **variables: str) -> Generator[Side]:
    """A machine that invites; its process is gone at the end."""
    with _side(machine, *arguments, **variables) as side:
        yield side


@contextlib.contextmanager
def joining(machine: Machine, code: str, *arguments: str, **variables: str) -> Generator[Side]:
    """A machine that joins with a code, and confirms unless the test does; its process is gone at the end."""
    path = machine.root / "code"
    path.write_text(code)
    with _side(machine, "--code-file", str(path), "--yes", *arguments, **variables) as side:
        yield side


def pair(core: Machine, newcomer: Machine, *arguments: str, relay: str = "") -> tuple[Side, Side]:
    """A whole pairing that goes well. `arguments` are the inviting side's."""
    options = ("--relay", relay) if relay else ()
    with inviting(core, *arguments) as inviter, joining(newcomer, inviter.code(), *options) as joiner:
        inviter.type(str(joiner.event("digits")["digits"]))
        codes = (inviter.end(), joiner.end())
        assert codes == (0, 0), f"{codes}\n{inviter.errors}\n{joiner.errors}"
    return inviter, joiner


def hurried(folder: Path, seconds: Mapping[str, float]) -> str:
    """A PYTHONPATH for sides with other times: `{"newcomer.ANSWER_SECONDS_MAX": 3.0}` for one that nobody will answer.

    Only for waits that are in vain in that test: what can come may take its full time on a slow machine.
    """
    folder.mkdir()
    lines: list[str] = []
    for name, value in seconds.items():
        module, _, constant = name.partition(".")
        lines += [
            f"import crystal_node.safekeeping.pairing.{module} as {module}",
            f"assert {module}.{constant}",
        ]
        lines += [f"{module}.{constant} = {value}"]
    (folder / "sitecustomize.py").write_text("\n".join(lines) + "\n")
    return str(folder)


def members(machine: Machine) -> list[dict[str, Any]]:
    """The device list as a machine has it."""
    listed: list[dict[str, Any]] = machine.call("devices", "--json").json["devices"]
    return listed


@contextlib.contextmanager
def _side(machine: Machine, *arguments: str, **variables: str) -> Generator[Side]:
    side = Side(machine, *arguments, **variables)
    try:
        yield side
    finally:
        side.kill()
