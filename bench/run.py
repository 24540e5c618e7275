"""`make bench`: runs every bench/bench_*.py and writes bench/RESULTS.md.

`python -m bench.run [--quick] [PART …]`: a PART is the name after `bench_`. The table is written only by a
full run of all parts; `--quick` and chosen parts only print. Exit code 1 when a target is missed (not with
`--quick`, whose work is too small to judge), 2 for a part that does not exist.
"""

import argparse
import importlib
import importlib.metadata
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from bench.harness import Row, Subject

BENCH = Path(__file__).resolve().parent
RESULTS = BENCH / "RESULTS.md"

_SHOWN_VERSIONS = (
    "apsw",
    "cryptography",
    "httpx",
    "numpy",
    "onnxruntime",
    "sqlite-vec",
    "starlette",
    "uvicorn",
    "zstandard",
)


@dataclass(frozen=True, slots=True)
class Part:
    """The rows of one module and how long it took, in seconds."""

    name: str
    rows: tuple[Row, ...]
    seconds: float


def parts() -> list[str]:
    """The names of all parts, in the order in which they run."""
    return sorted(path.stem.removeprefix("bench_") for path in BENCH.glob("bench_*.py"))


def run_part(name: str, *, quick: bool) -> Part:
    """Run one part. Whatever it raises passes through: a benchmark that fails is not a figure."""
    module = importlib.import_module(f"bench.bench_{name}")
    run = cast(Callable[[bool], list[Row]], module.run)
    start = time.perf_counter()
    rows = tuple(run(quick))
    return Part(name, rows, time.perf_counter() - start)


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    lines = ["| what | value | baseline | ratio | target | met |", "|---|---:|---:|---:|---:|---|"]
    for row in rows:
        baseline = (
            f"{row.baseline}: {_number(row.baseline_value)} {row.unit}"
            if row.baseline_value is not None
            else ""
        )
        ratio = _number(row.ratio) if row.ratio is not None else ""
        target = ""
        if row.target is not None:
            unit = f" {row.unit}" if row.target.subject is Subject.VALUE else " ×"
            target = f"{row.target.bound.value} {_number(row.target.limit)}{unit}"
        met = "" if row.met is None else "yes" if row.met else "**no**"
        name = f"{row.name} ({row.note})" if row.note else row.name
        lines.append(
            f"| {name} | {_number(row.value)} {row.unit} | {baseline} | {ratio} | {target} | {met} |"
        )
    return "\n".join(lines)


def report(results: Sequence[Part], *, when: datetime) -> str:
    """The whole of RESULTS.md."""
    sections = "\n\n".join(
        f"## {part.name}\n\n{table(part.rows)}\n\nTook {part.seconds:.0f} s." for part in results
    )
    return (
        "# Benchmark results\n\n"
        "Written by `make bench`; medians, each ratio measured against its baseline in the same run. "
        "[README.md](README.md) says how they are made.\n\n"
        f"{machine()}; {when:%Y-%m-%d}.\n\n{sections}\n"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description="Run the benchmarks.")
    parser.add_argument("--quick", action="store_true", help="a few seconds a part; nothing is written")
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"one of: {', '.join(parts()) or 'none yet'}"
    )
    options = parser.parse_args(arguments)
    quick = bool(options.quick)
    chosen = cast(list[str], options.parts)
    unknown = sorted(set(chosen) - set(parts()))
    if unknown:
        parser.error(f"no such part: {', '.join(unknown)}")
    results: list[Part] = []
    for name in chosen or parts():
        print(f"{name} …", flush=True)
        part = run_part(name, quick=quick)
        results.append(part)
        print(table(part.rows), flush=True)
    if not quick and not chosen:
        RESULTS.write_text(report(results, when=datetime.now(UTC)), encoding="utf-8")
        print(f"Written: {RESULTS.relative_to(BENCH.parent)}")
    missed = [row.name for part in results for row in part.rows if row.met is False]
    for name in missed:
        print(f"target missed: {name}", file=sys.stderr)
    return 1 if missed and not quick else 0


def machine() -> str:
    """What a figure was measured on."""
    versions = [f"Python {platform.python_version()}"]
    for name in _SHOWN_VERSIONS:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"{name} not installed")
    return f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}; {', '.join(versions)}"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(main())
