"""A storm of SIGKILL over a whole vault at work: a Core, two Nodes and the relay, killed at any moment and started again, while
messages, memories, forgets and files are made, and the lead moves. In the end everything accepted is on every device,
exactly once.

`test_kills.py` kills single commands; here continuous watchers die, several at a time, and stay away for a while. Rerun a
storm by its seed: `CRYSTAL_TEST_SEED=… pytest tests/system/test_storms.py`. A longer one: CRYSTAL_TEST_ACTS.
"""

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from tests.support.agreement import check_agreement, text_ids
from tests.support.machine import Machine, Vault, transcript
from tests.support.relay_process import RelayProcess
from tests.support.seeds import seed
from tests.support.watchers import until
from tests.system.children import Children, exit_code, kill

ACTS = int(os.environ.get("CRYSTAL_TEST_ACTS", "120"))
STORM_SECONDS_MAX = 30.0 * max(ACTS / 120, 1)
"""A busy machine ends the storm after this time."""
PAUSE_SECONDS_MAX = 0.12
FILE_BYTES_MAX = 400_000


@dataclass
class Storm:
    """What was made where, and the processes that are killed while they deal with it."""

    vault: Vault
    random: random.Random
    log: Path
    children: Children = field(default_factory=Children)
    running: dict[Path, BaseProcess] = field(default_factory=dict[Path, BaseProcess])
    said: list[str] = field(default_factory=list[str])
    remembered: set[str] = field(default_factory=set[str])
    forgotten: set[str] = field(default_factory=set[str])
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    kills: int = 0
    relay_kills: int = 0
    promotions: int = 0
    unexpected: list[int] = field(default_factory=list[int])

    def start(self) -> None:
        """Whoever is away comes back."""
        for machine in self.vault.machines:
            child = self.running.get(machine.root)
            if child is None or not child.is_alive():
                if child is not None and child.exitcode is not None and child.exitcode > 0:
                    self.unexpected.append(child.exitcode)
                self.running[machine.root] = self.children.start(machine, "sync", "--watch", log=self.log)

    def act(self) -> None:
        """One thing happens."""
        machine = self.random.choice(self.vault.machines)
        what = self.random.choices(
            (self.say, self.remember, self.forget, self.write, self.kill, self.kill_relay, self.promote),
            weights=(30, 12, 8, 12, 25, 4, 3),
        )[0]
        what(machine)
        time.sleep(self.random.uniform(0.0, PAUSE_SECONDS_MAX))

    def say(self, machine: Machine) -> None:
        texts = [
            f"Remark {len(self.said) + number}, by {machine.root.name}: {self.random.random()}."
            for number in range(self.random.randrange(1, 4))
        ]
        self.said += texts
        transcript(machine, *texts, name=f"{machine.root.name}-{self.random.randrange(3)}")

    def remember(self, machine: Machine) -> None:
        text = f"Kept by {machine.root.name}: {self.random.random()}."
        machine.call("remember", text)
        self.remembered.add(text)

    def forget(self, machine: Machine) -> None:
        """Something that this machine knows: a memory or what was said, its own or another's."""
        here = text_ids(machine)
        known = sorted(here.keys() & (self.remembered | set(self.said)))
        if known:
            text = self.random.choice(known)
            machine.call("forget", here[text])
            self.forgotten.add(text)

    def write(self, machine: Machine) -> None:
        """A file of the home, new or changed. Each has one writer: what two write at once is other tests' matter."""
        name = f"notes/{machine.root.name}/{self.random.randrange(6)}.txt"
        data = self.random.randbytes(self.random.randrange(FILE_BYTES_MAX))
        path = machine.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        self.files[name] = data

    def kill(self, machine: Machine) -> None:
        """Dead at once; back when the storm gets round to it."""
        child = self.running[machine.root]
        if child.is_alive():
            kill(child)
            self.kills += 1
        if self.random.random() < 0.6:
            self.start()

    def kill_relay(self, _: Machine) -> None:
        self.vault.relay.kill()
        self.relay_kills += 1
        time.sleep(self.random.uniform(0.0, PAUSE_SECONDS_MAX))
        self.vault.relay.start()

    def promote(self, machine: Machine) -> None:
        """Asks for the lead. The Core may be dead, somebody else faster, or the relay away: then nothing has changed."""
        outcome = machine.call("promote", "--wait", "2", "--yes", "--json", check=False)
        assert outcome.code in (0, 4, 9, 11), outcome
        self.promotions += outcome.code == 0

    def finish(self) -> None:
        """The storm is over: everything comes to rest."""
        for child in self.running.values():
            kill(child)
        for machine in self.vault.machines:
            assert exit_code(self.children.start(machine, "capture", log=self.log), 60) == 0
        until(self._at_rest, "the files on every device", 60)

    def _at_rest(self) -> bool:
        self.vault.settle()  # another device may be the Core by now, which comes late in the row
        self.vault.settle()
        return all(notes(machine) == self.files for machine in self.vault.machines)


def notes(machine: Machine) -> dict[str, bytes]:
    """The files that the storm wrote, and their copies if there should be any."""
    folder = machine.home / "notes"
    return {
        str(path.relative_to(machine.home)): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_vault_whose_processes_are_all_killed_again_and_again_has_everything_everywhere_once(
    relay: RelayProcess, vault: Vault, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    drawn = seed()
    record_property("seed", drawn)
    vault.add()
    vault.add()
    vault.settle()
    storm = Storm(vault, random.Random(drawn), tmp_path / "storm.log")
    storm.start()
    began = time.monotonic()
    try:
        for _ in range(ACTS):
            storm.act()
            if time.monotonic() - began > STORM_SECONDS_MAX:
                break
        storm.finish()
    finally:
        for child in storm.running.values():
            kill(child)
    said = storm.log.read_text()
    record_property("kills", storm.kills)
    record_property("promotions", storm.promotions)
    assert "Traceback" not in said, f"seed {drawn}: {said[-3000:]}"
    assert storm.unexpected == [], f"seed {drawn}: a watcher ended by itself: {said[-3000:]}"
    assert storm.kills > 5
    assert storm.forgotten
    check_agreement(
        vault,
        (text for text in storm.said if text not in storm.forgotten),
        remembered=storm.remembered - storm.forgotten,
        forgotten=storm.forgotten,
        about=f"seed {drawn}",
    )
