"""A week of a Core and a laptop, whose agents run all the time, in about a minute: nights asleep, days in other networks, a
crash, a flat battery, an upgrade, tools that write and nudge. Nothing is lost, nothing doubled, one agent a home, and what
an agent takes of the machine does not grow.

Days pass on both wall clocks (so that what is done daily is done), and on no other: what is asleep is stopped (SIGSTOP), what
crashes is killed (SIGKILL). Rerun a week by its seed: `CRYSTAL_TEST_SEED=… pytest tests/system/test_a_week.py`.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from crystal_node.base.locking import is_held
from tests.node.agent.daemon.running import children
from tests.support.agreement import check_agreement, places
from tests.support.clocks import DAY, ClockedMachine
from tests.support.machine import Machine, Vault, transcript
from tests.support.networks.lines import Line, lines
from tests.support.networks.weather import CALM, CUT
from tests.support.relay_process import RelayProcess
from tests.support.seeds import seed
from tests.support.watchers import until

DAYS = 7
GROWTH_BYTES_MAX = 12 * 1024 * 1024
"""An agent's memory on an evening, beyond that of the evening of `SETTLED_DAY`."""
SETTLED_DAY = 1
"""By its evening an agent has embedded, slept, and done its daily jobs for the first time, which loads what they need."""
GROWTH_SECONDS_MAX = 60.0
"""How long a daily job may hold memory and descriptors on a slow machine."""
DESCRIPTORS_MAX = 18
"""The same of its descriptors: databases are opened when they are first needed, three files each."""
_STOP_SECONDS = 30.0
HEARD_SECONDS_MAX = 110.0
"""A request that hangs on a line that was cut is given up after its time limit, which is a long-poll's at most."""


@dataclass
class Life:
    """The two machines, their agents, and what was said on them."""

    vault: Vault
    laptop_line: Line
    random: Random
    log: Path
    agents: dict[Path, "subprocess.Popen[bytes]"] = field(
        default_factory=dict[Path, "subprocess.Popen[bytes]"]
    )
    said: list[str] = field(default_factory=list[str])

    def start(self, machine: Machine) -> None:
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "crystal_node", "agent", "run"]
            self.agents[machine.root] = subprocess.Popen(
                command, env=machine.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        until(lambda: is_held(machine.home / "state" / "watch.lock"), f"an agent on {machine.root.name}")

    def stop(self, machine: Machine) -> None:
        process = self.agents[machine.root]
        process.send_signal(signal.SIGTERM)
        assert process.wait(_STOP_SECONDS) == 0, self.log.read_text()[-3000:]

    def talk(self, machine: Machine) -> None:
        """A tool's conversation grows, and its hook nudges, once or often."""
        texts = [
            f"{machine.root.name} says number {len(self.said) + number} of the week: {self.random.random()}."
            for number in range(self.random.randrange(1, 4))
        ]
        self.said += texts
        if self.random.random() < 0.5:
            transcript(machine, *texts, name=f"{machine.root.name}-{self.random.randrange(3)}")
        else:
            _rollout(machine, *texts)
        for _ in range(self.random.choice((0, 1, 5))):
            machine.call("nudge")

    def heard(self, machine: Machine) -> bool:
        return places(machine).total() == len(self.said)


def _rollout(machine: Machine, *texts: str) -> None:
    """A conversation with Codex, which goes on."""
    folder = machine.root / ".codex" / "sessions" / "2026" / "01" / "05"
    folder.mkdir(parents=True, exist_ok=True)
    path = (
        folder
        / f"rollout-2026-01-05T09-00-00-{'0' * 7}{len(machine.root.name) % 10}-0b5e-4d0e-9a52-0f3f9f0f0a00.jsonl"
    )
    moment = "2026-01-05T09:00:00.000Z"
    lines_of = (
        []
        if path.exists()
        else [{"type": "session_meta", "payload": {"id": path.stem[-36:], "cwd": "/home/someone"}}]
    )
    lines_of += [
        {"type": "event_msg", "payload": {"type": "user_message", "message": text}} for text in texts
    ]
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps({"timestamp": moment} | line) + "\n" for line in lines_of)


@dataclass(frozen=True)
class Taken:
    """What a process takes of its machine. ``children``: without those that run the embedding model."""

    memory_bytes: int
    descriptors: int
    children: int


def _taken(process: "subprocess.Popen[bytes]") -> Taken:
    here = Path("/proc", str(process.pid))
    pages = int((here / "statm").read_text().split()[1])
    return Taken(pages * 4096, len(list((here / "fd").iterdir())), len(children(process.pid)))


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="what a process takes is read from /proc")
def test_a_week_of_sleep_trains_crashes_and_an_upgrade_loses_nothing_and_nothing_grows(
    relay: RelayProcess, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    drawn = seed()
    record_property("seed", drawn)
    with lines(relay.url, Random(drawn)) as network:
        ways: dict[Path, Line] = {}

        def machine(root: Path) -> ClockedMachine:
            ways[root] = network.join()
            made = ClockedMachine(root)
            made.extra["CRYSTAL_RELAY_URL"] = ways[root].url
            return made

        vault = Vault(relay, tmp_path / "devices", machine)
        laptop = vault.add()
        life = Life(vault, ways[laptop.root], Random(drawn), tmp_path / "agents.log")
        try:
            _live(life, vault.core, laptop)
        except BaseException as error:
            said = life.log.read_text()[-4000:] if life.log.exists() else ""
            error.add_note(f"seed {drawn}; the agents said: {said}")
            raise
        finally:
            for process in life.agents.values():
                process.kill()
                process.wait()
    assert "Traceback" not in life.log.read_text(), life.log.read_text()[-4000:]
    check_agreement(vault, life.said, about=f"seed {drawn}")


def _live(life: Life, core: Machine, laptop: Machine) -> None:
    for machine in (core, laptop):
        life.start(machine)
    first: dict[Path, Taken] = {}
    for day in range(DAYS):
        _morning(life, core, laptop, day)
        until(lambda: life.heard(core) and life.heard(laptop), f"all of day {day} on both", HEARD_SECONDS_MAX)
        for machine in (core, laptop):
            process, name = life.agents[machine.root], machine.root.name
            assert process.poll() is None, f"day {day}: the agent of {name} has ended"
            until(lambda: _taken(process).children == 0, f"day {day}: {name} without children")  # noqa: B023
            if day <= SETTLED_DAY:
                first[machine.root] = _taken(process)
                continue
            most = first[machine.root]
            until(  # a daily job may be at work
                lambda: _taken(process).memory_bytes - most.memory_bytes < GROWTH_BYTES_MAX,  # noqa: B023
                f"day {day}: {name} back to the {most.memory_bytes:,} bytes of day {SETTLED_DAY}",
                GROWTH_SECONDS_MAX,
            )
            until(
                lambda: _taken(process).descriptors - most.descriptors <= DESCRIPTORS_MAX,  # noqa: B023
                f"day {day}: {name} back to the {most.descriptors} descriptors of day {SETTLED_DAY}",
                GROWTH_SECONDS_MAX,
            )
        _night(life, core, laptop)
    for machine in (core, laptop):
        life.stop(machine)
    for machine in (core, laptop):
        machine.call("capture")  # what was said in the last night
    until(lambda: _agree(life.vault), "the same memory on both")


def _agree(vault: Vault) -> bool:
    """A file that an agent has just written is left for a later round: one time round may not be enough."""
    vault.settle()
    return len(vault.digests()) == 1


def _morning(life: Life, core: Machine, laptop: Machine, day: int) -> None:
    """What this day brings, while both talk."""
    life.talk(laptop)
    match day:
        case 1:  # on a train: recorded there, sent when there is a network again
            life.laptop_line.weather = CUT
            for _ in range(3):
                life.talk(laptop)
                life.talk(core)
            until(
                lambda: laptop.call("status", "--json").json["memory"]["provisional"] > 0,
                "recorded on the train",
            )
            life.laptop_line.weather = CALM
            laptop.call("nudge")
        case 2:  # it crashes while it works, and the service manager starts it again
            life.talk(laptop)
            life.agents[laptop.root].kill()
            life.agents[laptop.root].wait()
            life.talk(laptop)
            life.start(laptop)
        case 3:  # somebody starts a second one: it says who is there, and ends
            for machine in (core, laptop):
                refused = machine.run("agent", "run", check=False)
                assert (refused.code, str(life.agents[machine.root].pid) in refused.err) == (9, True), (
                    refused.err
                )
        case 4:  # the Core's power fails
            life.talk(core)
            life.agents[core.root].kill()
            life.agents[core.root].wait()
            life.talk(laptop)
            life.start(core)
        case 5:  # an upgrade: both are stopped and started
            life.talk(laptop)
            for machine in (laptop, core):
                life.stop(machine)
                life.talk(machine)
                life.start(machine)
        case _:
            life.talk(core)
    life.talk(core)


def _night(life: Life, core: Machine, laptop: Machine) -> None:
    """The laptop sleeps with its last words unsent, the Core hears nothing of it; the clocks go on by a day."""
    life.talk(laptop)
    life.agents[laptop.root].send_signal(signal.SIGSTOP)
    life.talk(core)
    for machine in (core, laptop):
        assert isinstance(machine, ClockedMachine)
        machine.clock.set(machine.clock.offset + DAY)
    life.agents[laptop.root].send_signal(signal.SIGCONT)
