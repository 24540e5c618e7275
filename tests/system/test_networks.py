"""Bad networks between a relay, a Core and two Nodes, all real processes: packets lost, late, doubled, out of order;
lines that are slow, cut, or carry one way only.

Each promise is checked on network namespaces, where they are permitted, and over lines that the test carries itself. What
is lost and late is drawn from a seed, which a failure names: `CRYSTAL_TEST_SEED=… pytest tests/system/test_networks.py`.
"""

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import pytest

from tests.support.agreement import check_agreement, places
from tests.support.machine import Machine, Vault, transcript
from tests.support.networks.lines import Line, Lines, lines
from tests.support.networks.namespaces import End, Network, missing, namespaces
from tests.support.networks.weather import CALM, CUT, DEAF, Weather
from tests.support.relay_process import RelayProcess, running_relay
from tests.support.seeds import seed
from tests.support.watchers import until, watchers

BAD = Weather(delay=0.02, jitter=0.04, loss=0.1, doubled=0.05)
"""Jitter of twice the delay: packets that follow each other overtake each other."""
BAD_LINES = Weather(delay=0.02, jitter=0.04, loss=0.03)
"""A tenth of the pieces would break every other request: no network does that for long."""
SLOW_BYTES_PER_SECOND = 24_000.0


@dataclass
class Household:
    """A vault, and each device's way to the relay. The tests of this page share it: it grows."""

    vault: Vault
    ways: dict[Path, End | Line]
    bad: Weather
    seed: int
    said: list[str] = field(default_factory=list[str])
    kept: list[str] = field(default_factory=list[str])
    gone: list[str] = field(default_factory=list[str])

    @property
    def core(self) -> Machine:
        return self.vault.core

    @property
    def laptop(self) -> Machine:
        return self.vault.nodes[0]

    @property
    def tablet(self) -> Machine:
        return self.vault.nodes[1]

    def weather(self, weather: Weather, *machines: Machine) -> None:
        """On these machines' lines, or on all."""
        for machine in machines or self.vault.machines:
            self.ways[machine.root].weather = weather

    def say(self, machine: Machine, *texts: str) -> None:
        """In a conversation on that machine."""
        transcript(machine, *texts, name=machine.root.name)
        self.said += texts

    def check(self) -> None:
        """In calm weather everything comes to rest, and all is there."""
        self.weather(CALM)
        self.vault.settle()
        check_agreement(
            self.vault, self.said, remembered=self.kept, forgotten=self.gone, about=f"seed {self.seed}"
        )


@pytest.fixture(scope="module", params=["namespaces", "lines"])
def household(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Household]:
    drawn = seed()
    folder = tmp_path_factory.mktemp("networks")
    if request.param == "lines":
        with running_relay(folder / "relay" / "store") as relay, lines(relay.url, Random(drawn)) as carried:
            yield _along_lines(relay, folder, carried, drawn)
        return
    if reason := missing():
        pytest.skip(reason)
    with namespaces(Random(drawn)) as network:
        host = ("--host", network.relay.address)
        relay = RelayProcess(folder / "relay" / "store", options=host, prefix=network.relay.prefix)
        relay.start()
        try:
            yield _apart(relay, folder, network, drawn)
        finally:
            relay.stop()


def _apart(relay: RelayProcess, folder: Path, network: Network, drawn: int) -> Household:
    ways: dict[Path, End | Line] = {}

    def machine(root: Path) -> Machine:
        ways[root] = end = network.join()
        return Machine(root, {"CRYSTAL_RELAY_ALLOW_HTTP": "yes"}, end.prefix)

    return _household(Vault(relay, folder / "devices", machine), ways, BAD, drawn)


def _along_lines(relay: RelayProcess, folder: Path, carried: Lines, drawn: int) -> Household:
    ways: dict[Path, End | Line] = {}

    def machine(root: Path) -> Machine:
        ways[root] = line = carried.join()
        return Machine(root, {"CRYSTAL_RELAY_URL": line.url})

    return _household(Vault(relay, folder / "devices", machine), ways, BAD_LINES, drawn)


def _household(vault: Vault, ways: dict[Path, End | Line], bad: Weather, drawn: int) -> Household:
    vault.add()
    vault.add()
    return Household(vault, ways, bad, drawn)


@pytest.fixture
def in_lines(household: Household) -> Household:
    """Over connections alone."""
    if isinstance(household.ways[household.core.root], End):
        pytest.skip("a connection comes about only when both ways carry")
    return household


@pytest.mark.slow
def test_packets_lost_late_doubled_and_out_of_order_lose_nothing_and_double_nothing(
    household: Household,
) -> None:
    core, laptop, tablet = household.core, household.laptop, household.tablet
    household.weather(household.bad)
    household.weather(replace(household.bad, delay=0.2), laptop)
    with watchers(*household.vault.machines):
        before = len(household.said)
        for number in range(6):
            machine = household.vault.machines[number % 3]
            household.say(machine, f"Entry {number} in the storm's log, by {machine.root.name}.")
        core.call("remember", "The storm lamp hangs in the chart room.")
        household.kept.append("The storm lamp hangs in the chart room.")
        made = tablet.call("remember", "--json", "The chart room's door code is 4417.").json["id"]
        until(
            lambda: "The storm lamp hangs in the chart room." in laptop.found("storm lamp chart room"),
            f"seed {household.seed}: a memory on the laptop",
        )
        tablet.call("forget", made)
        household.gone.append("The chart room's door code is 4417.")
        for machine in household.vault.machines:
            until(
                lambda machine=machine: sum(places(machine).values()) == before + 6,  # type: ignore[misc]
                f"seed {household.seed}: all places on {machine.root.name}",
            )
    household.check()


def test_a_device_that_is_cut_off_works_on_and_both_sides_meet_without_loss(household: Household) -> None:
    core, laptop, tablet = household.core, household.laptop, household.tablet
    household.weather(CUT, laptop)
    said = [f"Said by {machine.root.name} while the line was cut." for machine in household.vault.machines]
    for machine, text in zip(household.vault.machines, said, strict=True):
        household.say(machine, text)
        machine.call("capture")
    assert said[1] in laptop.found("line was cut"), "what is recorded here is found here"
    outcome = laptop.call("sync", "--json", check=False, CRYSTAL_RELAY_TIMEOUT="1")
    assert (outcome.code, outcome.error["exit_code"]) == (4, 4)
    for machine in (tablet, core, tablet):
        machine.call("sync")
    found = tablet.found("line was cut", "-n", "20")
    assert (said[0] in found, said[1] in found, said[2] in found) == (True, False, True)
    household.check()


def test_a_device_that_is_heard_and_hears_nothing_sends_again_and_counts_once(in_lines: Household) -> None:
    laptop = in_lines.laptop
    in_lines.say(laptop, "Sent again and again over a line that carries one way.")
    laptop.call("capture")
    in_lines.weather(DEAF, laptop)
    assert laptop.call("sync", check=False, CRYSTAL_RELAY_TIMEOUT="1").code == 4
    in_lines.check()


def test_over_a_slow_line_a_large_sync_takes_its_time_and_is_not_given_up(household: Household) -> None:
    laptop = household.laptop
    noise = Random(household.seed)
    household.say(laptop, *(f"Sounding {number}: {noise.randbytes(600).hex()}" for number in range(60)))
    laptop.call("capture")
    household.weather(Weather(delay=0.02, bytes_per_second=SLOW_BYTES_PER_SECOND), laptop)
    outcome = laptop.call("sync", "--json", CRYSTAL_RELAY_TIMEOUT="3")
    assert outcome.json["pushed_bytes"] > SLOW_BYTES_PER_SECOND
    household.check()
