"""Clocks that are years off, that differ, and that jump: under commands, under watchers, under the relay. Nothing is lost,
nothing is deleted early, and order comes from the log."""

import signal
from collections.abc import Generator
from pathlib import Path
from random import Random

import pytest

from tests.support.agreement import check_agreement, places, settle_until
from tests.support.clocks import DAY, YEAR, Clock, ClockedMachine
from tests.support.machine import Machine, Vault, transcript
from tests.support.networks.lines import lines
from tests.support.relay_process import RelayProcess, first_slot, sweep
from tests.support.seeds import seed
from tests.support.watchers import until, watchers

BYTES_A_MESSAGE = 1_200
"""A vector of 768 bytes, which do not compress, and some for a short text."""
_WORDS = "The harbour pilot boards at the second buoy."


def _clock(machine: Machine) -> Clock:
    assert isinstance(machine, ClockedMachine)
    return machine.clock


def _say(machine: Machine, text: str) -> str:
    transcript(machine, text, name=machine.root.name)
    machine.call("capture")
    return text


def _note(machine: Machine) -> Path:
    path = machine.home / "notes" / "note.txt"
    path.parent.mkdir(exist_ok=True)
    return path


@pytest.fixture
def clocked(tmp_path: Path) -> Generator[Vault]:
    """A Core and a Node with clocks of their own, at a relay that has one too."""
    clock = Clock(tmp_path / "relay-clock")
    relay = RelayProcess(tmp_path / "relay" / "store", environment=clock.environment)
    relay.start()
    try:
        vault = Vault(relay, tmp_path / "devices", ClockedMachine)
        _clock(vault.core).set(40 * YEAR)
        vault.add()
        yield vault
    finally:
        relay.stop()


def test_what_comes_later_in_the_log_counts_whatever_the_clocks_say(clocked: Vault) -> None:
    """Remembered forty years from now, forgotten thirty years ago, remembered again six years earlier: the last one counts."""
    core, laptop = clocked.core, clocked.nodes[0]
    _clock(laptop).set(-30 * YEAR)
    core.run("remember", _WORDS)
    clocked.settle()
    (hit,) = laptop.call("search", "--json", "harbour pilot").json["results"]
    assert int(hit["created_at"][:4]) >= 2060, "the process had the Core's clock"
    laptop.call("forget", hit["id"])
    clocked.settle()
    check_agreement(clocked, (), forgotten=[_WORDS])
    _clock(core).set(-36 * YEAR)
    core.call("remember", _WORDS)
    clocked.settle()
    check_agreement(clocked, (), remembered=[_WORDS])


def test_clocks_that_jump_between_any_two_commands_lose_nothing_and_delete_nothing(
    clocked: Vault, tmp_path: Path
) -> None:
    drawn = seed()
    random = Random(drawn)
    clocks = [_clock(machine) for machine in clocked.machines]
    relay_offset = tmp_path / "relay-clock" / "offset"
    said: list[str] = []
    for number in range(4):
        for clock in clocks:
            clock.set(random.randrange(-40, 60) * YEAR + random.randrange(YEAR))
        relay_offset.write_text(str(random.randrange(-20, 40) * YEAR))
        for machine in clocked.machines:
            said.append(f"Watch {number}: all quiet, says {machine.root.name}.")
            transcript(machine, said[-1], name=machine.root.name)
            machine.call("capture")
        clocked.nodes[0].call("sync")
        clocked.core.call("sync")
    clocked.settle()
    check_agreement(clocked, said, about=f"seed {drawn}")
    late = clocked.add()
    late.call("sync")
    check_agreement(clocked, said, about=f"seed {drawn}, and a newcomer")


@pytest.mark.slow
def test_a_clock_that_jumps_ten_years_deletes_nothing_that_a_reader_who_is_away_still_needs(
    clocked: Vault, tmp_path: Path
) -> None:
    """For the Core and for the relay the laptop has been away for ten years: who comes back has all and has lost nothing."""
    core, laptop = clocked.core, clocked.nodes[0]
    tablet = clocked.add()
    said = [_say(laptop, "Before it went away."), _say(core, "Read by nobody yet.")]
    _note(core).write_text("first")
    clocked.settle()
    core.call("snapshot")
    said += [_say(laptop, "Said on the way, and not sent."), _say(core, "Said after the snapshot.")]
    _note(laptop).write_text("changed on the way")
    for machine in (tablet, core, tablet):
        machine.call("sync")
    _clock(core).set(50 * YEAR)
    (tmp_path / "relay-clock" / "offset").write_text(str(10 * YEAR))
    for number in range(3):
        said.append(_say(core, f"Ten years later, {number}."))
        core.call("sync")
        tablet.call("sync")
        sweep(clocked.relay)
    core.call("snapshot")
    core.call("prune", "--now", "--yes")
    sweep(clocked.relay)
    assert first_slot(clocked.relay) > 0, "the log's beginning is gone, which the laptop had not read"
    _clock(core).set(40 * YEAR)
    settle_until(clocked, lambda: _note(tablet).read_text() == "changed on the way", "the file")
    check_agreement(clocked, said)
    late = clocked.add()
    settle_until(clocked, lambda: _note(late).exists(), "the file on a newcomer")
    check_agreement(clocked, said)


@pytest.mark.slow
def test_a_clock_that_jumps_under_watchers_stops_none_of_them(clocked: Vault) -> None:
    core, laptop = clocked.core, clocked.nodes[0]
    said: list[str] = []
    with watchers(core, laptop):
        for offset in (10 * YEAR, -50 * YEAR, 7 * DAY):
            for machine in (core, laptop):
                _clock(machine).set(offset)
            said.append(f"The log after the jump of {offset // DAY} days.")
            transcript(laptop, said[-1], name="jumps")
            until(lambda: places(core).total() == len(said), f"the text after {offset // DAY} days")
    clocked.settle()
    check_agreement(clocked, said)


@pytest.mark.slow
def test_a_laptop_that_sleeps_for_a_week_catches_up_by_itself_and_reads_little(
    relay: RelayProcess, tmp_path: Path
) -> None:
    """Its processes stand still, its clock jumps when it wakes, and the others have said hundreds of things."""
    drawn = seed()
    with lines(relay.url, Random(drawn)) as network:
        line = network.join()
        vault = Vault(relay, tmp_path / "devices")
        tablet = vault.add()
        laptop = ClockedMachine(vault.folder / "laptop")
        laptop.root.mkdir()
        laptop.call("pair", "--code", "-", "--relay", line.url, typed=vault.code() + "\n")
        vault.nodes.append(laptop)
        said = ["Before the laptop's lid was closed."]
        transcript(laptop, *said, name="before")
        laptop.call("capture")
        with watchers(laptop) as (watcher,):
            until(lambda: _unsent(laptop) == 0, "the first text sent")
            vault.core.call("sync")
            watcher.send_signal(signal.SIGSTOP)
            laptop.clock.set(7 * DAY)
            for day in range(7):
                for machine in (vault.core, tablet):
                    fresh = [
                        f"Day {day}, message {number}, from {machine.root.name}." for number in range(30)
                    ]
                    said += fresh
                    transcript(machine, *fresh, name=f"day-{day}-{machine.root.name}")
                    machine.call("capture")
                tablet.call("sync")
                vault.core.call("sync")
            before = (line.requests, line.bytes_down)
            watcher.send_signal(signal.SIGCONT)
            until(lambda: places(laptop).total() == len(said), f"seed {drawn}: the week on the laptop")
            requests, bytes_down = line.requests - before[0], line.bytes_down - before[1]
            said.append("Said when the lid was open again.")
            transcript(laptop, said[-1], name="lid")
            until(lambda: _unsent(laptop) == 0 and said[-1] in laptop.found("lid open again"), "what is new")
        vault.settle()
        check_agreement(vault, said, about=f"seed {drawn}")
    assert requests < 40, "some for each round, none for each message"
    assert bytes_down < BYTES_A_MESSAGE * len(said)


def _unsent(machine: Machine) -> int:
    return int(machine.call("status", "--json").json["outbox"]["unsent"])
