"""Random devices that edit one file at once: the real merge, seeded. `python -m` this, `--edits 10000` runs as many edits.

Each device has a file, a record as it was last kept, and copies of the others as they reached it: late, and of any age. A run
is killed between any two of its steps. Every line that is written is another one, so that a line is lost if it stands nowhere
and nobody removed it, and is back from the dead if it stands somewhere and somebody did.
"""

import argparse
import random
import sys
from contextlib import suppress
from dataclasses import dataclass, field

from crystal_node.derive.native_memory.record import Record, absorbed, intended, observed, settled
from crystal_node.derive.native_memory.replicated_text import ReplicatedText, is_mark

DEVICES = (2, 5)


class Killed(Exception):
    """The process died."""


@dataclass
class SimulatedDevice:
    """One device. ``published``: every copy that it ever wrote, the newest last."""

    name: str
    chance: random.Random
    file: list[str] = field(default_factory=list[str])
    record: Record = field(default_factory=Record)
    published: list[ReplicatedText] = field(default_factory=list[ReplicatedText])
    reached: dict[str, int] = field(default_factory=dict[str, int])
    """How many of each other device's copies have arrived."""
    temporary: bool = False
    """Whether the file that is to replace the other one is there."""

    def run(self, others: "list[SimulatedDevice]", clock: int, *, deadly: bool) -> None:
        """One run, as ``service`` makes it."""
        record = settled(self.record, written=not self.temporary)
        record = observed(record, self.file, writer=self.name, count=clock)
        self._may_die(deadly)
        self.record = record
        self._may_die(deadly)
        copies = [
            other.published[self.reached[other.name] - 1] for other in others if self.reached.get(other.name)
        ]
        record = absorbed(record, copies).record
        lines = intended(record, lambda name: name)
        if [line.text for line in lines] != self.file:
            self.temporary = True
            self._may_die(deadly)
            self.record = Record(record.text, record.local, record.shown, writing=lines)
            self._may_die(deadly)
            self.file, self.temporary = [line.text for line in lines], False
            self._may_die(deadly)
        self.record = Record(record.text, record.local, lines)
        self._may_die(deadly)
        if not self.published or self.published[-1] != record.text:
            self.published.append(record.text)

    def _may_die(self, deadly: bool) -> None:
        if deadly and self.chance.random() < 0.04:
            raise Killed


@dataclass
class SimulatedWorld:
    """``begun``: devices had files of their own before."""

    seed: int
    edits: int
    written: set[str] = field(default_factory=set[str])
    removed: set[str] = field(default_factory=set[str])
    done: int = 0
    clock: int = 1

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.devices = [
            SimulatedDevice(f"d{number}", random.Random(self.chance.random()))
            for number in range(self.chance.randint(*DEVICES))
        ]
        common = ["# Notes", "", "- common 0", "- common 1", "- common 2", "", "## Tools in common", ""]
        for device in self.devices:
            if self.chance.random() < 0.5:
                self.written.update(line for line in common if line)
                device.file = [*common, *(self._line() for _ in range(self.chance.randint(0, 3)))]

    def run(self) -> None:
        """All edits, with runs and deliveries between them; then all devices hear everything."""
        while self.done < self.edits:
            device = self.chance.choice(self.devices)
            what = self.chance.random()
            if what < 0.4:
                self._edit(device)
            elif what < 0.7:
                self._deliver(device)
            else:
                self._run(device, deadly=True)
        for _ in range(2 * len(self.devices) + 2):
            for device in self.devices:
                device.reached = {
                    other.name: len(other.published) for other in self.devices if other is not device
                }
                self._run(device, deadly=False)

    def problems(self) -> list[str]:
        """What does not hold at the end."""
        found: list[str] = []
        files = [[line for line in device.file if not is_mark(line)] for device in self.devices]
        if any(device.file != self.devices[0].file for device in self.devices):
            found.append("the devices do not agree")
        for line in sorted(self.written - self.removed):
            counts = {file.count(line) for file in files}
            # What several devices began with may stand under two headings, if one of them was put in between.
            if 0 in counts or (counts != {1} and "common" not in line):
                found.append(f"{line!r} stands {[file.count(line) for file in files]} times")
        here = {line for file in files for line in file}
        # What another device began with, too, was not removed there; and a heading comes back with a line that was written
        # below it.
        back = [
            line for line in sorted(self.removed & here) if not line.startswith("#") and "common" not in line
        ]
        return [*found, *(f"{line!r} is back" for line in back)]

    def _line(self, text: str = "") -> str:
        line = text or f"- line {len(self.written)}"
        self.written.add(line)
        return line

    def _edit(self, device: SimulatedDevice) -> None:
        self.done += 1
        file, chance = device.file, self.chance
        at = chance.randint(0, len(file))
        kind = chance.random()
        if kind < 0.35:
            file[at:at] = [self._line() for _ in range(chance.randint(1, 3))]
        elif kind < 0.45:
            file[at:at] = ["", self._line(f"## Part {len(self.written)}"), self._line()]
        elif kind < 0.5:
            file[at:at] = [""]
        elif kind < 0.8 and file:
            self._take(file, at % len(file), 1)
            file.insert(min(at, len(file)), self._line())
        elif kind < 0.95 and file:
            self._take(file, at % len(file), chance.randint(1, 3))
        else:
            heads = [number for number, line in enumerate(file) if line.startswith("##")]
            if heads:
                first = chance.choice(heads)
                end = next((number for number in heads if number > first), len(file))
                self._take(file, first, end - first)

    def _take(self, file: list[str], at: int, count: int) -> None:
        self.removed.update(line for line in file[at : at + count] if line and not is_mark(line))
        del file[at : at + count]

    def _deliver(self, device: SimulatedDevice) -> None:
        other = self.chance.choice(self.devices)
        if other is not device and other.published:
            # File sync may show an older version again, as after a restore.
            device.reached[other.name] = self.chance.randint(1, len(other.published))

    def _run(self, device: SimulatedDevice, *, deadly: bool) -> None:
        self.clock += 1
        with suppress(Killed):
            device.run([other for other in self.devices if other is not device], self.clock, deadly=deadly)


def simulate(seed: int, edits: int) -> list[str]:
    """The problems of one world."""
    world = SimulatedWorld(seed, edits)
    world.run()
    return world.problems()


def main() -> int:
    """Runs worlds until there were so many edits. The exit code is 1 if one has a problem, which is printed with its seed."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--edits", type=int, default=10_000)
    parser.add_argument("--each", type=int, default=60, help="edits of one world")
    parser.add_argument("--seed", type=int, help="this world alone")
    wanted = parser.parse_args()
    seeds = range(-(-wanted.edits // wanted.each)) if wanted.seed is None else [wanted.seed]
    bad = 0
    for seed in seeds:
        for problem in simulate(seed, wanted.each):
            bad += 1
            sys.stdout.write(f"seed {seed}: {problem}\n")
    sys.stdout.write(f"{len(seeds) * wanted.each:,} edits in {len(seeds):,} worlds, {bad:,} problems\n")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
