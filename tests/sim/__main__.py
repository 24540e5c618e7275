"""`make sim`: many random worlds, or one again; then every crash point both ways, and every old mistake.

python -m tests.sim --seeds 1000     seeds from 0 on, half of them in each of two processes
python -m tests.sim --seed 42        one world, with its trace; --members: one with a restless membership

Of each seed there are two worlds: one with a membership that stays as it is, one in which it changes all the time.
"""

import argparse
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.sim import members_mistakes, members_script, test_members_mistakes
from tests.sim.chaos import MOODS, Chaos
from tests.sim.members_chaos import MembersChaos
from tests.sim.mistakes import MISTAKES
from tests.sim.script import SCRIPTS, Stage, count_points
from tests.sim.test_mistakes import play, runs

PROCESSES = 2
Outcome = tuple[str, Counter[str], str]
"""What was run, what happened in it, and how it failed ("" if it did not)."""


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def one_world(seed: int, kind: type[Chaos] = Chaos) -> Outcome:
    chaos = kind(seed)
    failure = ""
    try:
        chaos.run()
    except AssertionError as error:
        failure = str(error)
    world = chaos.world
    counts = world.summary().faults or Counter[str]()
    counts.update(steps=world.steps, checks=world.checks.count, operations=len(world.accepted), worlds=1)
    return f"{chaos.kind} world {seed} ({chaos.mood.name})", counts, failure


def one_members_world(seed: int) -> Outcome:
    return one_world(seed, MembersChaos)


def one_members_point(job: tuple[str, int]) -> Outcome:
    name, point = job
    failure = ""
    try:
        members_script.play(name, point)
    except AssertionError as error:
        failure = str(error)
    return f"{name}, killed at point {point}", Counter({"crash points": 1}), failure


def one_members_mistake(name: str) -> Outcome:
    try:
        with members_mistakes.MISTAKES[name]():
            test_members_mistakes.run(members_mistakes.FOUND_BY[name])
    except Exception:  # noqa: BLE001 - whatever a mistake makes the code do, it was seen
        return name, Counter({"mistakes found": 1}), ""
    return name, Counter(), "missed"


def one_point(job: tuple[str, int, bool]) -> Outcome:
    name, point, patient = job
    stage = Stage(name, point, patient=patient)
    failure = ""
    try:
        stage.play(SCRIPTS[name])
    except AssertionError as error:
        failure = str(error)
    counts = Counter({"crash": stage.world.crasher.kills, "crash points": 1, "steps": stage.world.steps})
    return f"{name}, killed at point {point}, {'patient' if patient else 'down'}", counts, failure


def one_mistake(name: str) -> Outcome:
    for run in runs(name):
        try:
            with MISTAKES[name]():
                play(run)
        except Exception:  # noqa: BLE001 - whatever a mistake makes the code do, it was seen
            return name, Counter({"mistakes found": 1}), ""
    return name, Counter(), "missed"


def show(seed: int, kind: type[Chaos]) -> int:
    chaos = kind(seed)
    try:
        chaos.run()
    except AssertionError as error:
        say("\n".join(chaos.world.trace))
        say(f"world {seed} ({chaos.mood.name}) broke a promise: {error}")
        return 1
    say("\n".join(chaos.world.trace))
    say(f"world {seed} ({chaos.mood.name}): {chaos.world.summary()}")
    return 0


def show_many(seeds: int) -> int:
    points = {name: count_points(name) for name in SCRIPTS}
    jobs = [(n, p, patient) for n in SCRIPTS for p in range(1, points[n] + 1) for patient in (True, False)]
    acts = [
        (name, point)
        for name in members_script.SCRIPTS
        for point in range(1, members_script.count_points(name) + 1)
    ]
    totals: Counter[str] = Counter()
    failures = 0
    with ProcessPoolExecutor(PROCESSES) as pool:
        for outcomes in (
            pool.map(one_world, range(seeds), chunksize=len(MOODS)),
            pool.map(one_point, jobs, chunksize=16),
            pool.map(one_mistake, [name for name in MISTAKES if name != "two pollers at once"]),
            pool.map(one_members_world, range(seeds), chunksize=len(MOODS)),
            pool.map(one_members_point, acts, chunksize=16),
            pool.map(one_members_mistake, members_mistakes.MISTAKES),
        ):
            for what, counts, failure in outcomes:
                totals += counts
                if failure:
                    failures += 1
                    say(f"{what}: {failure}")
    for name, count in sorted(totals.items()):
        say(f"{count:>10,}  {name}")
    say(f"{failures} broken promises" if failures else "Every promise was kept.")
    return 1 if failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description="The simulated world.")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--seed", type=int, help="run this one world and print its trace")
    which.add_argument("--seeds", type=int, default=200, help="how many worlds (default: %(default)s)")
    parser.add_argument(
        "--members", action="store_true", help="with --seed: the world with a restless membership"
    )
    given = parser.parse_args()
    return (
        show(given.seed, MembersChaos if given.members else Chaos)
        if given.seed is not None
        else show_many(given.seeds)
    )


if __name__ == "__main__":
    sys.exit(main())
