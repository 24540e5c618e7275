"""Every database commit of every command is a place to die: enumerated, with real processes.

Where the storm of `test_kills.py` dies at random, these die just before the first commit, the second, and so
on, until the command has no further one. Each time there is new work to do, and the next process finds what
the dead one left.
"""

import signal
import sqlite3
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.machine import Machine, Vault, transcript
from tests.system.children import Children, exit_code

COMMITS_MAX = 60


@dataclass
class Deaths:
    """Commands that die at each of their commits in turn."""

    vault: Vault
    log: Path
    children: Children = field(default_factory=Children)
    written: list[str] = field(default_factory=list[str])

    def say(self, machine: Machine) -> None:
        """Three messages in a transcript, and one memory."""
        texts = [f"Remark {len(self.written) + number} on {machine.root.name}." for number in range(3)]
        self.written += texts
        transcript(machine, *texts, name=f"talk-{machine.root.name}")

    def at_each_commit(self, machine: Machine, *arguments: str) -> int:
        """How many commits the command died before."""
        for number in range(1, COMMITS_MAX):
            self.prepare(machine, arguments[0])
            child = self.children.start(machine, *arguments, log=self.log, dies_at_commit=number)
            code = exit_code(child, 60)
            if code != -signal.SIGKILL:
                assert code == 0, self.log.read_text()[-2000:]
                return number - 1
        raise AssertionError(f"`crystal {arguments[0]}` has more than {COMMITS_MAX} commits")

    def prepare(self, machine: Machine, command: str) -> None:
        """Something to do for the command."""
        self.say(machine)
        if command == "sync":
            for other in self.vault.machines:
                self.run(other, "capture")
                if other is not machine:
                    self.run(other, "sync")

    def run(self, machine: Machine, *arguments: str) -> None:
        assert exit_code(self.children.start(machine, *arguments, log=self.log), 60) == 0

    def check(self) -> None:
        """Everything is everywhere, once. What a newcomer had before it joined waits for its first round."""
        for _ in range(2):
            for machine in self.vault.machines:
                self.run(machine, "capture")
            self.vault.settle()
        for machine in self.vault.machines:
            assert _places(machine) == Counter(self.written)
            status = machine.call("status", "--json").json
            assert (status["outbox"]["pending"], status["memory"]["provisional"]) == (0, 0)
            assert machine.call("verify", "--json").json["ok"] is True
        assert len(self.vault.digests()) == 1


@pytest.fixture
def deaths(vault: Vault, tmp_path: Path) -> Deaths:
    vault.add()
    return Deaths(vault, tmp_path / "deaths.log")


@pytest.mark.slow
@pytest.mark.parametrize("who", ["core", "node"])
def test_capture_may_die_at_any_commit(deaths: Deaths, who: str) -> None:
    machine = deaths.vault.core if who == "core" else deaths.vault.nodes[0]
    assert deaths.at_each_commit(machine, "capture") >= 2
    deaths.check()


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("who", ["core", "node"])
def test_sync_may_die_at_any_commit(deaths: Deaths, who: str) -> None:
    machine = deaths.vault.core if who == "core" else deaths.vault.nodes[0]
    assert deaths.at_each_commit(machine, "sync") >= 4
    deaths.check()


@pytest.mark.slow
def test_joining_may_die_at_any_commit(deaths: Deaths, tmp_path: Path) -> None:
    newcomer = Machine(tmp_path / "newcomer")
    newcomer.root.mkdir()
    code = newcomer.root / "code"
    code.write_text(deaths.vault.code())
    arguments = ("pair", "--code-file", str(code), "--relay", deaths.vault.relay.url)
    assert deaths.at_each_commit(newcomer, *arguments) >= 2
    deaths.vault.nodes.append(newcomer)
    assert len(newcomer.call("devices", "--json").json["devices"]) == 3
    deaths.check()


@pytest.mark.slow
def test_going_private_and_back_may_die_at_any_commit_and_hides_what_it_must(deaths: Deaths) -> None:
    node = deaths.vault.nodes[0]
    assert deaths.at_each_commit(node, "private", "on") >= 1
    transcript(node, "Said in private.", name="private-talk")
    assert exit_code(deaths.children.start(node, "private", "off", log=deaths.log, dies_at_commit=1), 60) < 0
    assert node.call("private", "--json").json["private"] is True, "off only once everything is stepped over"
    node.call("private", "off")
    deaths.check()


def _places(machine: Machine) -> Counter[str]:
    connection = sqlite3.connect(f"file:{machine.home / 'memory' / 'crystal.db'}?mode=ro", uri=True)
    try:
        rows = connection.execute(
            "SELECT text FROM occurrences JOIN chunks ON chunks.rowid = occurrences.chunk"
        )
        return Counter(str(text) for (text,) in rows)
    finally:
        connection.close()
