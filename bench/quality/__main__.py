"""`make bench-quality`: measures all ways of ranking on all sets and writes bench/QUALITY.md.

`python -m bench.quality [--record]`: `--record` makes what is measured the baseline. Exit code 1 when something is worse than the
baseline by more than the margin.
"""

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import cast

from bench.quality.measuring import measured, read_baseline, regressions, write_baseline
from bench.quality.ranking import memory_of
from bench.quality.report import QUALITY, report
from bench.quality.sets import read_sets
from crystal_core.embed.builtin import BuiltinEmbedder

NOTES_OF_TESTS = 400
"""Notes made by rule that the tests search, in place of all."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.quality", description="Measure what search finds.")
    parser.add_argument("--record", action="store_true", help="make what is measured the baseline")
    options = parser.parse_args(arguments)
    worse: list[str] = []
    with BuiltinEmbedder() as embedder:
        for size, notes in (("small", NOTES_OF_TESTS), ("full", None)):
            sets = read_sets(notes_max=notes)
            print(f"{size}: {len(sets.passages):,} passages, {len(sets.queries)} queries …", flush=True)
            with memory_of(sets, embedder) as memory:
                result = measured(sets, memory.rankings())
            if cast(bool, options.record):
                write_baseline(size, result.figures())
            worse += [f"{size}: {one}" for one in regressions(result.figures(), read_baseline(size))]
    QUALITY.write_text(report(result, embedder.identity, when=datetime.now(UTC)), encoding="utf-8")
    print(f"Written: {QUALITY.name}")
    for one in worse:
        print(f"worse than the baseline: {one}", file=sys.stderr)
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
