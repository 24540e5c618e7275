"""`make bench`: runs every bench/bench_*.py and writes bench/RESULTS.md.

`python -m bench.run [--quick | --record] [PART …]`: a PART is the name after `bench_`. A run of all parts records each of
them in the table as soon as it is done; one of chosen parts prints, and records with `--record`; `--quick`, whose work is too
small to judge, only prints. At the end it names what is worse by more than a tenth than the figures that were last committed.
Exit code 1 when a target is missed (not with `--quick`), 2 for a part that does not exist.
"""

import argparse
import importlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from bench.harness import Row
from bench.results import (
    RESULTS,
    Part,
    committed,
    fixed_work,
    recorded,
    table,
    this_machine,
    worse_than_before,
)

BENCH = Path(__file__).resolve().parent


def parts() -> list[str]:
    """The names of all parts, in the order in which they run."""
    return sorted(path.stem.removeprefix("bench_") for path in BENCH.glob("bench_*.py"))


def run_part(name: str, *, quick: bool) -> Part:
    """Run one part. Whatever it raises passes through: a benchmark that fails is not a figure."""
    module = importlib.import_module(f"bench.bench_{name}")
    run = cast(Callable[[bool], list[Row]], module.run)
    began, load, before = datetime.now(UTC), os.getloadavg()[0], fixed_work()
    start = time.perf_counter()
    rows = tuple(run(quick))
    return Part(name, rows, began, time.perf_counter() - start, load, (before, fixed_work()))


def record(part: Part) -> None:
    """Put it into RESULTS.md."""
    page = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else ""
    RESULTS.write_text(recorded(page, part, this_machine()), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description="Run the benchmarks.")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--quick", action="store_true", help="a few seconds a part; nothing is written")
    how.add_argument("--record", action="store_true", help="write the chosen parts into RESULTS.md, too")
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"one of: {', '.join(parts()) or 'none yet'}"
    )
    options = parser.parse_args(arguments)
    quick = bool(options.quick)
    chosen = cast(list[str], options.parts)
    unknown = sorted(set(chosen) - set(parts()))
    if unknown:
        parser.error(f"no such part: {', '.join(unknown)}")
    missed: list[str] = []
    worse: list[str] = []
    before = "" if quick else committed()
    for name in chosen or parts():
        print(f"{name} …", flush=True)
        part = run_part(name, quick=quick)
        print(table(part.rows), flush=True)
        missed += [row.name for row in part.rows if row.met is False]
        worse += worse_than_before(before, part)
        if options.record or not (quick or chosen):
            record(part)
    for line in worse:
        print(f"worse than last committed: {line}", file=sys.stderr)
    for name in missed:
        print(f"target missed: {name}", file=sys.stderr)
    return 1 if missed and not quick else 0


if __name__ == "__main__":
    sys.exit(main())
