"""Two Cores alive at once, as real processes: a Core that is cut off, or that stands still, while another takes its place; a
home that was copied and runs twice. Afterwards there is one Core, and all have everything once.
"""

import shutil
import signal
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from tests.support.agreement import check_agreement, text_ids
from tests.support.machine import Machine, Vault, transcript
from tests.support.networks.lines import Line, lines
from tests.support.networks.weather import CALM, CUT
from tests.support.relay_process import RelayProcess
from tests.support.seeds import seed
from tests.support.watchers import until, watchers


@dataclass
class Household:
    """A vault on lines that can be cut, and what was said in it."""

    vault: Vault
    ways: dict[Path, Line]
    random: Random
    seed: int
    said: list[str] = field(default_factory=list[str])
    kept: list[str] = field(default_factory=list[str])
    gone: list[str] = field(default_factory=list[str])

    def say(self, about: str, *machines: Machine) -> None:
        """Each machine hears something, and is told to remember something."""
        for machine in machines:
            self.said.append(f"{about}: {machine.root.name} heard number {len(self.said)}.")
            self.kept.append(f"{about}: {machine.root.name} keeps number {len(self.kept)}.")
            transcript(machine, self.said[-1], name=machine.root.name)
            machine.call("capture")
            machine.call("remember", self.kept[-1])

    def forget(self, machine: Machine, text: str) -> None:
        machine.call("forget", text_ids(machine)[text])
        self.gone.append(text)

    def check(self) -> None:
        """Everything comes to rest; one leads, and all agree."""
        self.vault.settle()
        until(self._at_rest, f"seed {self.seed}: empty outboxes")
        check_agreement(
            self.vault,
            [text for text in self.said if text not in self.gone],
            remembered=[text for text in self.kept if text not in self.gone],
            forgotten=self.gone,
            about=f"seed {self.seed}",
        )
        shown = {machine.call("role", "--json").json["core"]["id"] for machine in self.vault.machines}
        assert len(shown) == 1, "they know one Core"

    def _at_rest(self) -> bool:
        """A twin whose stream begins anew takes one more round trip than others."""
        if all(outbox_empty(machine) for machine in self.vault.machines):
            return True
        self.vault.settle()
        return False


def outbox_empty(machine: Machine) -> bool:
    return bool(machine.call("status", "--json").json["outbox"]["pending"] == 0)


@pytest.fixture
def household(relay: RelayProcess, tmp_path: Path) -> Generator[Household]:
    drawn = seed()
    ways: dict[Path, Line] = {}
    with lines(relay.url, Random(drawn)) as network:

        def machine(root: Path) -> Machine:
            ways[root] = line = network.join()
            return Machine(root, {"CRYSTAL_RELAY_URL": line.url})

        vault = Vault(relay, tmp_path / "devices", machine)
        vault.add()
        vault.add()
        yield Household(vault, ways, Random(drawn), drawn)


def test_a_core_that_was_cut_off_while_another_took_its_place_goes_on_as_a_node_and_loses_nothing(
    household: Household,
) -> None:
    core, (laptop, tablet) = household.vault.core, household.vault.nodes
    household.say("Before", core, laptop, tablet)
    household.vault.settle()
    household.ways[core.root].weather = CUT
    household.say("Cut off", core)
    household.forget(core, household.said[1])
    assert core.call("sync", check=False, CRYSTAL_RELAY_TIMEOUT="1").code == 4
    promoted = laptop.call("promote", "--force", "--yes", "--json").json
    assert promoted["way"] == "forced"
    household.say("Meanwhile", core, laptop, tablet)
    household.forget(laptop, household.kept[2])
    for machine in (tablet, laptop, tablet):
        machine.call("sync")
    assert core.call("role", "--json").json["role"] == "core", "it cannot know yet"
    household.ways[core.root].weather = CALM
    household.check()
    assert [machine.call("role", "--json").json["role"] for machine in household.vault.machines] == [
        "node",
        "core",
        "node",
    ]
    told = [piece for piece in core.call("status", "--json").json["news"] if piece["event"] == "new-core"]
    leader = laptop.call("role", "--json").json["device"]
    assert leader in [piece["device"] for piece in told], "and its person is told"


@pytest.mark.slow
def test_a_core_that_stood_still_at_any_moment_while_the_lead_moved_on_wakes_up_and_harms_nothing(
    household: Household,
) -> None:
    """Stopped in the middle of whatever it does, and continued when another has led for a while; there and back."""
    core, laptop, tablet = household.vault.machines
    for number, (old, new) in enumerate([(core, laptop), (laptop, core)]):
        with watchers(*household.vault.machines) as running:
            household.say(f"Reign {number}", *household.vault.machines)
            until(lambda: old.call("role", "--json").json["role"] == "core", "who leads")  # noqa: B023
            process = running[household.vault.machines.index(old)]
            # At the next text that arrives it has something to publish; when exactly it stops is the scheduler's choice.
            transcript(tablet, said := f"Last of reign {number}.", name="last")
            household.said.append(said)
            process.send_signal(signal.SIGSTOP)
            new.call("promote", "--force", "--accept-loss", "--yes")
            household.say(f"Between {number}", *household.vault.machines)
            process.send_signal(signal.SIGCONT)
            until(lambda: old.call("role", "--json").json["role"] == "node", "that it hears of it")  # noqa: B023
        for machine in household.vault.machines:
            machine.call("capture")
    household.check()


def test_a_core_whose_home_was_copied_and_runs_twice_loses_nothing_of_either(household: Household) -> None:
    core, (laptop, tablet) = household.vault.core, household.vault.nodes
    household.say("Before", core, laptop, tablet)
    household.vault.settle()
    twin = Machine(core.root.with_name("twin"), dict(core.extra))
    shutil.copytree(core.root, twin.root, symlinks=True)
    household.vault.nodes.append(twin)
    for number in range(2):
        household.say(f"Apart {number}", core, twin, tablet)
        tablet.call("sync")
        first, second = household.random.sample((core, twin), 2)
        for machine in (first, second, first, tablet):
            machine.call("sync")
    household.check()


@pytest.mark.slow
def test_two_copies_of_a_core_that_watch_at_once_lose_nothing_of_either(household: Household) -> None:
    core, (laptop, tablet) = household.vault.core, household.vault.nodes
    household.say("Before", core, laptop, tablet)
    household.vault.settle()
    twin = Machine(core.root.with_name("twin"), dict(core.extra))
    shutil.copytree(core.root, twin.root, symlinks=True)
    household.vault.nodes.append(twin)
    with watchers(core, twin, laptop, tablet):
        for number in range(3):
            household.say(f"At once {number}", core, twin, tablet)
        for machine in household.vault.machines:
            until(lambda: outbox_empty(machine), f"an empty outbox on {machine.root.name}", 60)  # noqa: B023
    household.check()
