"""Disks that fail under real processes: a flush that fails is never followed by an acknowledgement, at a device or at the
relay, and a disk that is full loses nothing.

The flushes and writes of a command are counted through: the first fails and all after it, then the second, and so on. After
each death of a disk the power fails too, so that nothing but what was flushed is left to show whether a promise was true.
"""

from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from tests.support.agreement import check_agreement, places
from tests.support.failing_disk import FailingDisk, Fails, compiled_shim
from tests.support.machine import Machine, Outcome, Vault, transcript
from tests.support.relay_process import RelayProcess
from tests.support.seeds import seed

pytestmark = pytest.mark.disk

CALLS_MAX = 60


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = compiled_shim(tmp_path_factory.mktemp("shim"))
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.fixture
def disk_of(shim: Path, tmp_path: Path) -> Callable[[Machine], FailingDisk]:
    """Puts a machine's home on a disk that fails. Its processes notice; calls in the test's own do not."""

    def put(machine: Machine) -> FailingDisk:
        disk = FailingDisk(tmp_path / "disks" / machine.root.name, shim, machine.home)
        machine.extra |= disk.environment
        return disk

    return put


def _each_flush(
    disk: FailingDisk, command: Callable[[int], Outcome], look: Callable[[int, Outcome], None], numbers: range
) -> None:
    """Runs the command with ever later flushes failing, and loses the power each time, until none fails any more."""
    for number in numbers:
        disk.fail(Fails.FLUSH, after=number)
        outcome = command(number)
        failed = disk.failed
        disk.mend()
        disk.lose_power()
        _check_named(outcome)
        look(number, outcome)
        if not failed:
            assert number > numbers.step, "some failed before"
            return
    raise AssertionError(f"more than {CALLS_MAX} flushes")


def _check_named(outcome: Outcome) -> None:
    if outcome.code != 0:
        assert (outcome.code, outcome.error["exit_code"]) == (8, 8), outcome
        assert outcome.error["hint"]


def test_a_memory_is_acknowledged_only_when_a_power_failure_would_leave_it(
    vault: Vault, disk_of: Callable[[Machine], FailingDisk]
) -> None:
    node = vault.add()
    disk = disk_of(node)
    kept: list[str] = []

    def remember(number: int) -> Outcome:
        return node.run("remember", "--json", f"Remembered with {number} flushes.", check=False)

    def look(number: int, outcome: Outcome) -> None:
        if outcome.code == 0:
            kept.append(f"Remembered with {number} flushes.")

    _each_flush(disk, remember, look, range(CALLS_MAX))
    vault.settle()
    check_agreement(vault, (), remembered=kept)


def test_messages_are_acknowledged_only_when_a_power_failure_would_leave_them_and_none_doubles(
    vault: Vault, disk_of: Callable[[Machine], FailingDisk]
) -> None:
    node = vault.add()
    disk = disk_of(node)
    said: list[str] = []

    def capture(number: int) -> Outcome:
        said.append(f"Said with {number} flushes.")
        transcript(node, said[-1], name="flushes")
        return node.run("capture", "--json", check=False)

    def look(number: int, outcome: Outcome) -> None:
        if outcome.code == 0:
            assert node.call("capture", "--json").json["messages"] == 0, "it is known what was captured"

    _each_flush(disk, capture, look, range(CALLS_MAX))
    vault.settle()
    check_agreement(vault, said)


@pytest.mark.slow
@pytest.mark.parametrize("who", ["core", "node"])
def test_a_sync_whose_disk_fails_says_so_and_the_next_one_makes_it_good(
    vault: Vault, disk_of: Callable[[Machine], FailingDisk], who: str
) -> None:
    """Of its flushes every fifth is the first to fail; which of the five, the seed says."""
    drawn = seed()
    node = vault.add()
    machine, other = (vault.core, node) if who == "core" else (node, vault.core)
    disk = disk_of(machine)
    said: list[str] = []

    def sync(number: int) -> Outcome:
        for speaker in vault.machines:
            said.append(f"Said by {speaker.root.name} before sync {number}.")
            transcript(speaker, said[-1], name=speaker.root.name)
            speaker.call("capture")
        other.call("sync")
        disk.flush_all()
        return machine.run("sync", "--json", check=False)

    def look(number: int, outcome: Outcome) -> None:
        """Nobody was told of more than this device still has: the other one takes what there is, and both go on."""
        other.call("sync")

    _each_flush(disk, sync, look, range(drawn % 5, CALLS_MAX, 5))
    vault.settle()
    check_agreement(vault, said, about=f"seed {drawn}")


@pytest.fixture
def flushing_relay(shim: Path, tmp_path: Path) -> Generator[tuple[RelayProcess, FailingDisk]]:
    """A relay on a disk that fails."""
    store = tmp_path / "relay" / "store"
    store.mkdir(parents=True)
    disk = FailingDisk(tmp_path / "disks" / "relay", shim, store)
    relay = RelayProcess(store, environment=disk.environment)
    relay.start()
    try:
        yield relay, disk
    finally:
        relay.kill()


@pytest.mark.slow
def test_the_relay_acknowledges_only_what_a_power_failure_would_leave(
    flushing_relay: tuple[RelayProcess, FailingDisk], tmp_path: Path
) -> None:
    relay, disk = flushing_relay
    vault = Vault(relay, tmp_path / "devices")
    node = vault.add()
    said: list[str] = []
    deaths = 0
    for number in range(CALLS_MAX):
        said.append(f"Sent with {number} flushes at the relay.")
        transcript(node, said[-1], name="flushes")
        node.call("capture")
        disk.fail(Fails.FLUSH, after=number)
        outcome = node.call("sync", "--json", check=False)
        failed = disk.failed
        relay.kill()
        disk.mend()
        disk.lose_power()
        relay.start()
        assert outcome.code in (0, 4, 8), outcome
        assert outcome.code == 0 or "the relay's d" in outcome.error["error"], (
            "its disk or database, not the network"
        )
        # What was acknowledged has left the laptop for good: if the relay lost it, the Core never has it.
        sent = node.call("status", "--json").json["outbox"]["unsent"] == 0
        assert sent or outcome.code != 0
        vault.core.call("sync")
        assert not sent or places(vault.core).total() == len(said), (
            f"acknowledged with {number} flushes, and lost"
        )
        if not failed:
            break
        deaths += 1
    assert deaths >= 2
    vault.settle()
    check_agreement(vault, said)


@pytest.mark.slow
@pytest.mark.parametrize("who", ["core", "node"])
def test_a_disk_that_is_full_at_any_write_is_named_and_loses_nothing(
    vault: Vault, disk_of: Callable[[Machine], FailingDisk], who: str
) -> None:
    """Full from the first write on, from the second, the fourth, the eighth; as anybody, not only as root."""
    node = vault.add()
    machine, other = (vault.core, node) if who == "core" else (node, vault.core)
    disk = disk_of(machine)
    said: list[str] = []
    full = 0
    for power in range(0, 9, 2):
        for command in ("capture", "sync"):
            for speaker in vault.machines:
                said.append(f"Said by {speaker.root.name} with room for {2**power} writes in a {command}.")
                transcript(speaker, said[-1], name=speaker.root.name)
            other.call("capture")
            other.call("sync")
            disk.fail(Fails.WRITE, after=2**power - 1)
            outcome = machine.run(command, "--json", check=False)
            full += disk.failed > 0
            disk.mend()
            _check_named(outcome)
    assert full >= 6
    for speaker in vault.machines:
        speaker.call("capture")
    vault.settle()
    check_agreement(vault, said)
