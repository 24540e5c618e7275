"""`make sim`: many random worlds, or one again; then every crash point, and every old mistake.

python -m tests.sim --seeds 1000     seeds from 0 on, in two processes; says how far it is
python -m tests.sim --seed 42        one world, with its trace; --members, --mixed, --damaged: of these kinds

Of each seed there are four worlds: one with a membership that stays as it is, one in which it changes all the time, one in
which everything happens, and one in which disks fail.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.sim import (
    damage_mistakes,
    measure,
    members_mistakes,
    members_script,
    mixed_mistakes,
    mixed_plots,
    mixed_script,
)
from tests.sim.chaos import MOODS, Chaos
from tests.sim.damaged import Damaged
from tests.sim.members_chaos import MembersChaos
from tests.sim.mistakes import MISTAKES
from tests.sim.mixed import Mixed
from tests.sim.script import SCRIPTS, Stage, count_points
from tests.sim.test_members_mistakes import run as run_members
from tests.sim.test_mistakes import play, runs

PROCESSES = 2
PROGRESS_EVERY = 100
KINDS: dict[str, type[Chaos]] = {"chaos": Chaos, "members": MembersChaos, "mixed": Mixed, "damaged": Damaged}
Outcome = tuple[str, Counter[str], str]
"""What was run, what happened in it, and how it failed ("" if it did not)."""


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def tried(what: str, act: Callable[[], object]) -> Outcome:
    """Runs it, and says what was counted by it."""
    measure.TOTALS.clear()
    failure = ""
    try:
        act()
    except AssertionError as error:
        failure = str(error)
    return what, Counter(measure.TOTALS), failure


def one_world(job: tuple[str, int]) -> Outcome:
    kind, seed = job
    chaos = KINDS[kind](seed)
    return tried(f"{kind} world {seed} ({chaos.mood.name})", chaos.run)


def one_point(job: tuple[str, str, int, bool]) -> Outcome:
    kind, name, point, patient = job

    def act() -> None:
        measure.TOTALS["crash points covered"] += 1
        match kind:
            case "members":
                members_script.play(name, point)
            case "mixed":
                mixed_script.play(name, point)
            case _:
                Stage(name, point, patient=patient).play(SCRIPTS[name])

    return tried(f"{name}, killed at point {point}{'' if patient else ', and it stays down'}", act)


def one_mistake(job: tuple[str, str]) -> Outcome:
    kind, name = job

    def act() -> None:
        if not is_found(kind, name):
            raise AssertionError("missed")
        measure.TOTALS["mistakes caught"] += 1

    return tried(f"mistake: {name}", act)


def is_found(kind: str, name: str) -> bool:
    """Whatever a mistake makes the code do, it was seen."""
    match kind:
        case "members":
            tries: Iterator[Callable[[], object]] = iter(
                [lambda: run_members(members_mistakes.FOUND_BY[name])]
            )
            mistake = members_mistakes.MISTAKES[name]
        case "mixed":
            tries = iter([lambda: mixed_plots.run(mixed_mistakes.FOUND_BY[name])])
            mistake = mixed_mistakes.MISTAKES[name]
        case "damaged":
            tries = iter([lambda: mixed_plots.run(damage_mistakes.FOUND_BY[name])])
            mistake = damage_mistakes.MISTAKES[name]
        case _:
            tries = (partial(play, each) for each in runs(name))
            mistake = MISTAKES[name]
    for act in tries:
        try:
            with mistake():
                act()
        except Exception:  # noqa: BLE001 - see above
            return True
    return False


def show(seed: int, kind: str) -> int:
    chaos = KINDS[kind](seed)
    failure = ""
    try:
        chaos.run()
    except AssertionError as error:
        failure = str(error)
    world = chaos.world
    say("\n".join(world.trace))
    say(f"{kind} world {seed} ({chaos.mood.name}), trace {world.trace_hash}: {failure or world.summary()}")
    return 1 if failure else 0


def all_points() -> Iterator[tuple[str, str, int, bool]]:
    for name in SCRIPTS:
        points = range(1, count_points(name) + 1)
        yield from (("chaos", name, point, patient) for point in points for patient in (True, False))
    for name in members_script.SCRIPTS:
        yield from (
            ("members", name, point, True) for point in range(1, members_script.count_points(name) + 1)
        )
    for name in mixed_script.SCRIPTS:
        yield from (("mixed", name, point, True) for point in range(1, mixed_script.count_points(name) + 1))


def all_mistakes() -> Iterator[tuple[str, str]]:
    yield from (("chaos", name) for name in MISTAKES if name != "two pollers at once")
    yield from (("members", name) for name in members_mistakes.MISTAKES)
    yield from (("mixed", name) for name in mixed_mistakes.MISTAKES)
    yield from (("damaged", name) for name in damage_mistakes.MISTAKES)


def show_many(seeds: int) -> int:
    worlds: Sequence[tuple[str, int]] = [(kind, seed) for seed in range(seeds) for kind in KINDS]
    points, mistakes = list(all_points()), list(all_mistakes())
    total = len(worlds) + len(points) + len(mistakes)
    totals: Counter[str] = Counter()
    failures = done = 0
    with ProcessPoolExecutor(PROCESSES) as pool:
        for outcomes in (
            pool.map(one_world, worlds, chunksize=len(MOODS)),
            pool.map(one_point, points, chunksize=16),
            pool.map(one_mistake, mistakes),
        ):
            for what, counts, failure in outcomes:
                totals += counts
                done += 1
                if failure:
                    failures += 1
                    say(f"{what}: {failure}")
                if done % PROGRESS_EVERY == 0:
                    sys.stderr.write(f"{done:,} of {total:,} runs, {failures} broken promises\n")
    for line in measure.lines(totals):
        say(line)
    say(f"{failures} broken promises" if failures else "Every promise was kept.")
    return 1 if failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description="The simulated world.")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--seed", type=int, help="run this one world and print its trace")
    which.add_argument("--seeds", type=int, default=200, help="how many worlds (default: %(default)s)")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--members", action="store_true", help="with --seed: a restless membership")
    kind.add_argument("--mixed", action="store_true", help="with --seed: the world in which all happens")
    kind.add_argument("--damaged", action="store_true", help="with --seed: a world in which disks fail")
    given = parser.parse_args()
    if given.seed is None:
        return show_many(given.seeds)
    return show(given.seed, next((kind for kind in KINDS if getattr(given, kind, False)), "chaos"))


if __name__ == "__main__":
    sys.exit(main())
