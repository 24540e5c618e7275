"""Fuzzing: starts the process of a folder's targets, follows what libFuzzer says, and tells how each of them ended."""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from tests.fuzz.target import Target

PROJECT = Path(__file__).resolve().parents[2]
MEMORY_MIB_MAX = 1536
"""Of the whole process, in which libraries take up to 300."""
HANG_SECONDS_MAX = 60
"""By the clock, for one input; processor time is limited in ``target.py``."""
_PULSE = re.compile(r"^#(?P<inputs>\d+)\s+\w+\s.*exec/s: (?P<rate>\d+)")
_DONE = re.compile(r"^Done (?P<inputs>\d+) runs in (?P<seconds>\d+) second")
_FAULT = re.compile(
    r"^( *=== Uncaught Python exception: ===|==\d+== ?ERROR|.*libFuzzer: (timeout|out-of-memory))"
)
_ARTEFACT = re.compile(r"Test unit written to (?P<path>\S+)")
_ENDED = re.compile(r"^=== (?P<name>[a-z]+\.[a-z0-9_]+) (?P<code>-?\d+)$")

Progress = Callable[[str, int, int], None]
"""Is told name, inputs and inputs a second, about each time that the inputs have doubled."""


@dataclass(frozen=True, slots=True)
class Fuzzed:
    """How a target ended. `fault`: what libFuzzer said from the fault on, with the input; "" if there was none."""

    name: str
    inputs: int
    seconds: int
    fault: str

    def __str__(self) -> str:
        rate = self.inputs // max(self.seconds, 1)
        end = "FAULT" if self.fault else "done"
        return f"{self.name:<26}{self.inputs:>12,} inputs  {rate:>8,} a second  {self.seconds:>6,} s  {end}"


def fuzz(
    targets: Sequence[Target],
    *,
    inputs: int = 0,
    seconds: int = 0,
    folder: Path | None = None,
    seed: int = 0,
    progress: Progress = lambda name, inputs, rate: None,
) -> Iterator[Fuzzed]:
    """Fuzzes targets of one folder of the product, each until so many inputs (0: no limit) or seconds (0: no limit) are
    over, or until a fault. Yields each as it ends.

    `folder` keeps the inputs that reached something new, for the next time, and those that are faults; without it they are
    given up at the end.
    """
    with tempfile.TemporaryDirectory() as passing:
        place = folder or Path(passing)
        asked = [(target.name, _options(target, place, inputs, seconds, seed)) for target in targets]
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.child", json.dumps(asked)],
            cwd=PROJECT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
        )
        assert process.stdout is not None
        with process:
            try:
                yield from _followed([target.name for target in targets], process.stdout, progress)
            finally:
                process.kill()


def _options(target: Target, place: Path, inputs: int, seconds: int, seed: int) -> list[str]:
    corpus, faults = place / target.name, place / "faults"
    for each in (corpus, faults):
        each.mkdir(parents=True, exist_ok=True)
    for data in target.seeds():
        assert len(data) <= target.bytes_max, f"{target.name}: a seed of {len(data)} bytes"
        (corpus / sha256(data).hexdigest()[:40]).write_bytes(data)
    options = {
        "runs": inputs or -1,
        "max_total_time": seconds,
        "max_len": target.bytes_max,
        "timeout": HANG_SECONDS_MAX,
        "rss_limit_mb": MEMORY_MIB_MAX,
        "seed": seed,
        "artifact_prefix": f"{faults}/{target.name}-",
    }
    return [*(f"-{name}={value}" for name, value in options.items()), str(corpus)]


def _followed(names: Sequence[str], lines: Iterable[str], progress: Progress) -> Iterator[Fuzzed]:
    waiting = list(names)
    made = took = 0
    said: list[str] = []
    fault: list[str] = []
    for line in lines:
        said = [*said[-19:], line]
        if fault or _FAULT.match(line):
            fault.append(line)
        if (pulse := _PULSE.match(line)) is not None:
            made = int(pulse["inputs"])
            progress(waiting[0], made, int(pulse["rate"]))
        if (done := _DONE.match(line)) is not None:
            made, took = int(done["inputs"]), int(done["seconds"])
        if (written := _ARTEFACT.search(line)) is not None:
            fault.append(f"input: {Path(written['path']).read_bytes()[:2000]!r}\n")
        if (ended := _ENDED.match(line)) is not None:
            assert ended["name"] == waiting.pop(0)
            if ended["code"] != "0" and not fault:
                fault = said
            yield Fuzzed(ended["name"], made, took, "".join(fault))
            made, took, said, fault = 0, 0, [], []
    for name in waiting:
        yield Fuzzed(name, 0, 0, "its process ended before\n" + "".join(said))
