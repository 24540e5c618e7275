"""SIGKILL at any moment, to any process: no message is lost, none is doubled, and all devices agree in the
end.

Rerun a failure with its seed: `CRYSTAL_TEST_SEED=… pytest tests/system/test_kills.py`. More kills:
CRYSTAL_TEST_KILLS.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import apsw
import pytest

from tests.support.machine import Machine, Vault, transcript, turn
from tests.support.relay_process import RelayProcess
from tests.system.children import Children, exit_code, kill

KILLS = int(os.environ.get("CRYSTAL_TEST_KILLS", "200"))
STORM_SECONDS_MAX = 45.0 * max(KILLS / 200, 1)
"""On a machine that is busy with other things the storm ends after this time, with fewer kills."""
KILLS_MIN = 20
RELAY_KILLS_EVERY = 20


@dataclass
class Storm:
    """What was written where, and the machines that are killed while they deal with it."""

    vault: Vault
    random: random.Random
    log: Path
    children: Children = field(default_factory=Children)
    written: list[str] = field(default_factory=list[str])
    halves: dict[Path, str] = field(default_factory=dict[Path, str])
    survived: int = 0
    lifetime: float = 0.0

    def measure(self) -> None:
        """How long a process lives that nobody kills, on this machine, now: kills come at random within that time."""
        for _ in range(2):
            transcript(self.vault.core, text := f"Remark {len(self.written)}, before the storm.", name="calm")
            self.written.append(text)
            for command in ("capture", "sync"):
                started = time.monotonic()
                assert exit_code(self.children.start(self.vault.core, command, log=self.log), 60) == 0
                self.lifetime = time.monotonic() - started

    def say_something(self, machine: Machine) -> None:
        """Adds to one of the machine's transcripts: whole lines, and now and then the first half of one."""
        name = f"{machine.root.name}-{self.random.randrange(3)}"
        path = transcript(machine, name=name)
        with path.open("a", encoding="utf-8") as file:
            file.write(self.halves.pop(path, ""))
            for _ in range(self.random.randrange(1, 4)):
                text = f"Remark {len(self.written)} of the storm, by {name}: the gauge reads {self.random.random()}."
                line = turn(text, session=name)
                self.written.append(text)
                if self.random.random() < 0.2:
                    cut = self.random.randrange(1, len(line))
                    file.write(line[:cut])
                    self.halves[path] = line[cut:]
                    return
                file.write(line)

    def kill_one(self) -> None:
        """Starts a command on a machine that has just heard something, and kills it after a random time."""
        machine = self.random.choice(self.vault.machines)
        self.say_something(machine)
        arguments = self.random.choice((("capture",), ("sync",), ("sync",), ("sync", "--watch")))
        child = self.children.start(machine, *arguments, log=self.log)
        second = (
            self.children.start(machine, "capture", log=self.log) if self.random.random() < 0.15 else None
        )
        time.sleep(self.random.uniform(0.0, self.lifetime))
        self.survived += not child.is_alive()
        kill(child)
        if second is not None:
            kill(second)

    def finish(self) -> None:
        """Completes half-written lines, and lets everything come to rest."""
        for path, rest in self.halves.items():
            with path.open("a", encoding="utf-8") as file:
                file.write(rest)
        for _ in range(2):
            for machine in self.vault.machines:
                child = self.children.start(machine, "capture", log=self.log)
                assert exit_code(child, 60) == 0, self.log.read_text()[-2000:]
        for machine in (*self.vault.nodes, self.vault.core, *self.vault.nodes, self.vault.core):
            child = self.children.start(machine, "sync", log=self.log)
            assert exit_code(child, 60) == 0, self.log.read_text()[-2000:]


def _places(machine: Machine) -> Counter[str]:
    """How often each text stands in the memory, by the places that it came from."""
    connection = apsw.Connection(str(machine.home / "memory" / "crystal.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        rows = connection.execute(
            "SELECT text FROM occurrences JOIN chunks ON chunks.rowid = occurrences.chunk"
        )
        return Counter(str(text) for (text,) in rows)
    finally:
        connection.close()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_processes_killed_at_any_moment_lose_nothing_double_nothing_and_agree(
    relay: RelayProcess, vault: Vault, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    seed = int(os.environ.get("CRYSTAL_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 2**32)
    record_property("seed", seed)
    vault.add()
    vault.add()
    storm = Storm(vault, random.Random(seed), tmp_path / "storm.log")
    storm.measure()
    started = time.monotonic()
    kills = 0
    while kills < KILLS and (kills < KILLS_MIN or time.monotonic() - started < STORM_SECONDS_MAX):
        storm.kill_one()
        kills += 1
        if kills % RELAY_KILLS_EVERY == 0:
            relay.kill()
            relay.start()
    storm.finish()
    said = storm.log.read_text()
    record_property("kills", kills)
    assert "Traceback" not in said, f"seed {seed}: {said[-3000:]}"
    assert storm.survived < kills * 3 // 4, f"{storm.survived} of {kills} were not killed at work"
    expected = Counter(storm.written)
    for machine in vault.machines:
        assert _places(machine) == expected, f"seed {seed}, {machine.root.name}"
        status = machine.call("status", "--json").json
        assert (status["outbox"]["pending"], status["quarantined"], status["memory"]["provisional"]) == (
            0,
            0,
            0,
        )
        assert machine.call("verify", "--json").json["ok"] is True
    assert len(vault.digests()) == 1
