"""Moving the Core with real processes while three devices record: planned, and by force after the Core was killed.

After each move everything that was said has to be on every device, and all digests equal: what loses something is no figure.
"""

import json
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from bench.harness import Row, value_at_most
from crystal_node.base.agent_names import CLAUDE_CODE
from crystal_node.capture.tools import TOOLS
from crystal_node.surfaces.demo.machines import DemoDevice, DemoRelay

_PLANNED_SECONDS = 10.0
_FORCED_SECONDS = 60.0
_SETTLES_SECONDS_MAX = 120.0
_PAUSE_SECONDS = 0.2
"""Between two messages of one device: a person and an agent that talk fast."""


def run(quick: bool) -> list[Row]:
    """The figures of moving the Core."""
    times = 1 if quick else 5
    with tempfile.TemporaryDirectory(prefix="crystal-bench-") as folder:
        household = _Household(Path(folder))
        try:
            planned = [household.move(forced=False) for _ in range(times)]
            forced = [household.move(forced=True) for _ in range(times)]
            said = household.check()
        finally:
            household.close()
    note = f"median of {times}, 3 devices recording, {said:,} messages, none lost"
    return [
        Row(
            name="crystal promote, planned: until the new Core leads",
            value=median(planned),
            unit="s",
            target=value_at_most(_PLANNED_SECONDS),
            note=note,
        ),
        Row(name="crystal promote, planned: slowest", value=max(planned), unit="s"),
        Row(
            name="crystal promote --force after the Core was killed: until the new Core leads",
            value=median(forced),
            unit="s",
            target=value_at_most(_FORCED_SECONDS),
            note=note,
        ),
        Row(name="crystal promote --force: slowest", value=max(forced), unit="s"),
    ]


class _Machine(DemoDevice):
    """A device with a transcript of its own and a watcher."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder / name / "home")
        self.name = name
        self._user = folder / name
        self.transcript = self._user / ".claude" / "projects" / "-work" / "session.jsonl"
        self.transcript.parent.mkdir(parents=True)
        self._watcher: subprocess.Popen[bytes] | None = None

    def environment(self, token: str = "") -> dict[str, str]:
        without = ",".join(name for name in TOOLS if name != CLAUDE_CODE)
        mine = {"HOME": str(self._user), "CRYSTAL_CAPTURE_WITHOUT": without}
        return super().environment(token) | mine

    def watch(self) -> None:
        self._watcher = subprocess.Popen(
            [sys.executable, "-m", "crystal_node", "sync", "--watch"],
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _until(lambda: bool(self.run("status")["watching"]))

    def end(self, how: signal.Signals) -> None:
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.send_signal(how)
            watcher.wait(30)

    def say(self, text: str, number: int) -> None:
        record = {
            "type": "user",
            "uuid": f"{self.name}-{number}",
            "parentUuid": None,
            "sessionId": f"session-{self.name}",
            "timestamp": "2026-01-05T09:00:00.000Z",
            "cwd": "/work",
            "version": "2.0.0",
            "isSidechain": False,
            "message": {"role": "user", "content": text},
        }
        with self.transcript.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def remembered(self) -> set[str]:
        database = next(self.home.rglob("crystal.db"))
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            return {text for (text,) in connection.execute("SELECT text FROM chunks WHERE provisional = 0")}


class _Household:
    """A vault of three devices, each of which may lead."""

    def __init__(self, folder: Path) -> None:
        self.relay = DemoRelay(folder / "relay")
        self.relay.start()
        self.machines = [_Machine(folder, name) for name in ("desktop", "laptop", "phone")]
        core, *others = self.machines
        core.run("init", "--role", "core", "--relay", self.relay.url, "--yes", token=self.relay.token)
        for machine in others:
            code = str(core.run("pair", "--offline", "--yes")["code"])
            machine.run("pair", "--code", "-", "--relay", self.relay.url, typed=code)
        for machine in self.machines:
            machine.watch()
        self.core = core
        self.said: list[str] = []

    def move(self, *, forced: bool) -> float:
        """Makes the next machine the Core. Returns the seconds from the start of the command until it led."""
        heir = self.machines[(self.machines.index(self.core) + 1) % len(self.machines)]
        with self._talking():
            time.sleep(2.0)
            if forced:
                self.core.end(signal.SIGKILL)
            started = time.perf_counter()
            options = ("--force", "--yes") if forced else ()
            done: dict[str, Any] = heir.run("promote", *options)
            elapsed = time.perf_counter() - started
            if done["way"] != ("forced" if forced else "planned"):
                raise AssertionError(f"the Core was moved otherwise: {done['way']}")
            if forced:
                self.core.watch()
            time.sleep(1.0)
        self.core = heir
        self.check()
        return elapsed

    def check(self) -> int:
        """Waits until everybody has everything. Returns how many messages that is."""

        def settled() -> bool:
            waits = any(machine.run("status")["outbox"]["pending"] for machine in self.machines)
            return not waits and all(set(self.said) <= machine.remembered() for machine in self.machines)

        _until(settled)
        _until(lambda: len({machine.run("verify")["digest"] for machine in self.machines}) == 1)
        roles = [machine.run("role")["role"] for machine in self.machines]
        if roles.count("core") != 1:
            raise AssertionError(f"there is not one Core: {roles}")
        return len(self.said)

    def close(self) -> None:
        for machine in self.machines:
            machine.end(signal.SIGTERM)
        self.relay.stop()

    @contextmanager
    def _talking(self) -> Generator[None]:
        stop = threading.Event()

        def talk() -> None:
            while not stop.wait(_PAUSE_SECONDS):
                for machine in self.machines:
                    text = f"Message {len(self.said)} of the {machine.name}: the tide gauge reads {len(self.said) * 7}."
                    machine.say(text, len(self.said))
                    self.said.append(text)

        talker = threading.Thread(target=talk)
        talker.start()
        try:
            yield
        finally:
            stop.set()
            talker.join()


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.perf_counter() + _SETTLES_SECONDS_MAX
    while not condition():
        if time.perf_counter() > deadline:
            raise TimeoutError(f"it did not come to that within {_SETTLES_SECONDS_MAX:.0f} s")
        time.sleep(0.1)
