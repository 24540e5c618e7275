"""`python -m tests.fuzz [NAME…] [--inputs N] [--seconds S] [--jobs J]`: fuzzes targets until so many inputs each are over.

A NAME is a target (``crypto.entry``) or a folder (``crypto``); without one all are fuzzed. While it runs, standard error shows
how far each is, at which rate, and when it will end. At the end of each a line says its inputs, rate, time and end; a fault's
trace and input follow it, and the exit code is 1. Corpora and faults are kept in ``.fuzz/``.
"""

import argparse
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path

from tests.fuzz.run import Fuzzed, fuzz
from tests.fuzz.target import FOLDERS, Target, all_targets

INPUTS = 1_000_000
KEPT = Path(__file__).resolve().parents[2] / ".fuzz"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description="Fuzz the parsers of foreign bytes."
    )
    parser.add_argument("names", nargs="*", help="targets or folders; all without one")
    parser.add_argument(
        "--inputs", type=int, default=INPUTS, help="inputs for each target (default: %(default)s)"
    )
    parser.add_argument(
        "--seconds", type=int, default=0, help="seconds for each target at most (default: no limit)"
    )
    parser.add_argument("--jobs", type=int, default=1, help="targets at once (default: %(default)s)")
    given = parser.parse_args()
    chosen = _chosen(given.names)
    if not chosen:
        parser.error(f"no target is called {' or '.join(given.names)}; folders are {', '.join(FOLDERS)}")
    os.nice(10)
    began = time.monotonic()
    groups = [list(group) for _, group in groupby(chosen, _folder)]

    def fuzzed(group: list[Target]) -> list[Fuzzed]:
        return _fuzzed(group, given.inputs, given.seconds)

    with ThreadPoolExecutor(given.jobs) as pool:
        found = [one for done in pool.map(fuzzed, groups) for one in done]
    total = sum(one.inputs for one in found)
    faults = [one.name for one in found if one.fault]
    print(f"{len(found)} parsers, {total:,} inputs, {time.monotonic() - began:,.0f} s: {len(faults)} faults")
    return 1 if faults else 0


def _folder(target: Target) -> str:
    return target.name.partition(".")[0]


def _chosen(names: list[str]) -> list[Target]:
    targets = all_targets()
    return [target for target in targets if not names or target.name in names or _folder(target) in names]


def _fuzzed(targets: list[Target], inputs: int, seconds: int) -> list[Fuzzed]:
    def progress(name: str, made: int, rate: int) -> None:
        left = f", {(inputs - made) // rate:,} s left" if inputs and rate else ""
        print(f"  {name}: {made:,} inputs, {rate:,} a second{left}", file=sys.stderr, flush=True)

    found: list[Fuzzed] = []
    for one in fuzz(targets, inputs=inputs, seconds=seconds, folder=KEPT, seed=0, progress=progress):
        print(one, flush=True)
        if one.fault:
            print(one.fault, flush=True)
        found.append(one)
    return found


if __name__ == "__main__":
    sys.exit(main())
