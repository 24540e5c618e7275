"""Restoring a vault from a home may be killed anywhere: the next run finishes it, and the home that it comes from is never
touched."""

import random
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.machine import Machine, Vault
from tests.support.recovery import digest_of, fresh_machine, home_bytes, kit_of, lived_in, lost_copy
from tests.support.relay_process import RelayProcess
from tests.system.children import Children, exit_code, kill

COMMITS_MAX = 120
KILLS = 12
_TEXTS = (
    "The boiler is serviced in October.",
    "The spare key hangs behind the archive's door.",
    "Invoices are numbered by year.",
)
_UNSENT = "Recorded, and sent to nobody before the machine was lost."


@dataclass
class Recovery:
    """A vault whose relay and devices are gone, a home without keys, and the kit; restored again and again."""

    relay: RelayProcess
    folder: Path
    home: Path
    kit: Path
    digest: str
    before: dict[str, tuple[str, int, int]]
    log: Path
    children: Children = field(default_factory=Children)
    count: int = 0

    @classmethod
    def of(cls, vault: Vault, folder: Path) -> "Recovery":
        core, laptop, _ = lived_in(vault, _TEXTS)
        laptop.call("remember", _UNSENT)
        kit = folder / "kit.txt"
        kit.write_text(kit_of(core))
        home = lost_copy(laptop, folder)
        digest = digest_of(core)
        for machine in vault.machines:
            shutil.rmtree(machine.root)
        return cls(vault.relay, folder, home, kit, digest, home_bytes(home), folder / "restores.log")

    def fresh(self) -> Machine:
        """A machine that is not set up, and a relay that has nothing."""
        self.relay.kill()
        shutil.rmtree(self.relay.directory)
        self.relay.start()
        self.count += 1
        return fresh_machine(self.folder, f"new-{self.count}")

    def arguments(self) -> tuple[str, ...]:
        where = ("--from", str(self.home), "--relay", self.relay.url, "--kit", str(self.kit))
        return ("recovery", "restore", *where, "--enroll-token", self.relay.enroll_token, "--json")

    def check(self, machine: Machine) -> None:
        """Finishes it, and looks whether all is there, once, by one new device."""
        told = machine.call(*self.arguments()).json
        assert told["role"] == "core", told
        assert home_bytes(self.home) == self.before
        for text in (*_TEXTS, _UNSENT):
            assert text in machine.found(text, "-n", "9")
        status = machine.call("status", "--json").json
        assert (status["outbox"]["pending"], status["quarantined"], status["memory"]["provisional"]) == (
            0,
            0,
            0,
        )
        assert machine.call("verify", "--json").json["ok"] is True
        assert len(machine.call("devices", "--json").json["devices"]) == 4
        assert not list(machine.home.rglob("*restor*")), "nothing is left of the work"
        # What is on the relay is enough for a machine that has nothing but the kit.
        other = fresh_machine(self.folder, f"other-{self.count}")
        other.call("recovery", "restore", "--relay", self.relay.url, "--kit", str(self.kit))
        assert digest_of(other) == digest_of(machine)
        for each in (machine, other):
            shutil.rmtree(each.root)


@pytest.fixture
def recovery(vault: Vault, tmp_path: Path) -> Recovery:
    folder = tmp_path / "recovery"
    folder.mkdir()
    return Recovery.of(vault, folder)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_restore_from_a_home_may_die_at_any_commit(recovery: Recovery) -> None:
    for number in range(1, COMMITS_MAX):
        machine = recovery.fresh()
        child = recovery.children.start(
            machine, *recovery.arguments(), log=recovery.log, dies_at_commit=number
        )
        code = exit_code(child, 60)
        recovery.check(machine)
        if code != -signal.SIGKILL:
            assert code == 0, recovery.log.read_text()[-2000:]
            assert number > 10, "it has fewer commits than that: it died nowhere"
            return
    raise AssertionError(f"a restore has more than {COMMITS_MAX} commits")


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_restore_from_a_home_may_be_killed_at_any_moment(
    recovery: Recovery, record_property: Callable[[str, object], None]
) -> None:
    machine = recovery.fresh()
    started = time.monotonic()
    assert exit_code(recovery.children.start(machine, *recovery.arguments(), log=recovery.log), 60) == 0
    lifetime = time.monotonic() - started
    seed = random.SystemRandom().randrange(1, 2**32)
    record_property("seed", seed)
    drawn = random.Random(seed)
    hit = 0
    for _ in range(KILLS):
        machine = recovery.fresh()
        for _ in range(drawn.randrange(1, 4)):
            child = recovery.children.start(machine, *recovery.arguments(), log=recovery.log)
            time.sleep(drawn.uniform(0.0, lifetime))
            hit += child.is_alive()
            kill(child)
        recovery.check(machine)
    assert hit > KILLS // 3, f"only {hit} were killed at work"
    assert "Traceback" not in recovery.log.read_text()
