"""Random worlds in which everything happens at once, and what they once found."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.mixed import MOODS, Mixed

SEEDS = 3 * len(MOODS)
SLICES = 3


def kept_seeds() -> list[int]:
    """The numbers in `mixed_seeds.txt`; what stands behind one says what it found."""
    lines = (Path(__file__).parent / "mixed_seeds.txt").read_text(encoding="utf-8").splitlines()
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


def run(seed: int) -> None:
    chaos = Mixed(seed)
    try:
        chaos.run()
    except AssertionError as error:
        raise AssertionError(f"mixed world {seed} ({chaos.mood.name}): {error}") from error


@pytest.mark.parametrize("part", range(SLICES))
def test_whatever_happens_the_promises_are_kept(part: int) -> None:
    for seed in range(part, SEEDS, SLICES):
        run(seed)


@pytest.mark.parametrize("seed", kept_seeds())
def test_mixed_worlds_that_failed_once_do_not_fail_again(seed: int) -> None:
    run(seed)


def test_the_same_seed_gives_the_same_trace_in_every_process() -> None:
    """P12. The order in which Python's sets happen to be gone through must not matter either."""
    seed = MOODS.index(next(mood for mood in MOODS if mood.name == "everything"))
    program = f"from tests.sim.mixed import Mixed; print(Mixed({seed}, steps=120).run().trace_hash)"
    hashes = {
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": number},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for number in ("1", "2")
    }
    assert len(hashes) == 1
    assert hashes == {Mixed(seed, steps=120).run().trace_hash + "\n"}
