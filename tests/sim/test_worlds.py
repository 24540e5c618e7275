"""Random worlds. Each prints its seed when it fails; seeds that ever failed stand in `seeds.txt` and are always run."""

from pathlib import Path

import pytest

from tests.sim.chaos import MOODS, Chaos

SEEDS = 12 * len(MOODS)
"""Worlds in one `make test`; `make sim SEEDS=…` runs more."""
SLICES = 6


def kept_seeds() -> list[int]:
    """The numbers in `seeds.txt`; what stands behind one says what it found."""
    lines = (Path(__file__).parent / "seeds.txt").read_text(encoding="utf-8").splitlines()
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


def run(seed: int) -> None:
    try:
        Chaos(seed).run()
    except AssertionError as error:
        raise AssertionError(f"world {seed} (make sim SEED={seed}): {error}") from error


@pytest.mark.parametrize("part", range(SLICES))
def test_random_worlds_keep_the_promises(part: int) -> None:
    for seed in range(part, SEEDS, SLICES):
        run(seed)


@pytest.mark.parametrize("seed", kept_seeds())
def test_worlds_that_failed_once_do_not_fail_again(seed: int) -> None:
    run(seed)


@pytest.mark.parametrize("seed", range(len(MOODS)))
def test_the_same_seed_gives_the_same_run(seed: int) -> None:
    first, second = Chaos(seed, steps=120).run(), Chaos(seed, steps=120).run()
    assert first.trace == second.trace
    assert len(first.trace) > 120
    assert first.summary() == second.summary()


def test_different_seeds_give_different_runs() -> None:
    assert Chaos(0, steps=50).run().trace != Chaos(len(MOODS), steps=50).run().trace
