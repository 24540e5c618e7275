"""RESULTS.md: a section for each part, and each part can be measured again by itself.

All sections stem from one machine with the same versions. What another one measured is left out as soon as something is
recorded here: figures of two machines in one table say nothing.
"""

import importlib.metadata
import os
import platform
import re
import timeit
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from bench.harness import Row, Subject

RESULTS = Path(__file__).resolve().parent / "RESULTS.md"

_SHOWN_VERSIONS = (
    "apsw-sqlite3mc",
    "cryptography",
    "httpx",
    "numpy",
    "onnxruntime",
    "sqlite-vec",
    "starlette",
    "uvicorn",
    "zstandard",
)
_INTRODUCTION = (
    "# Benchmark results\n\n"
    "Written by `make bench`; medians unless a row says otherwise, each ratio measured against its baseline in the same run.\n"
    "[README.md](README.md) says how they are made.\n"
)
_SECTION = re.compile(r"^## (\w+)\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
_JUDGED = re.compile(r"^\| (.*?) \|.*\| (yes|\*\*no\*\*) \|$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Part:
    """The rows of one module, when they were measured, and how long that took.

    `load`: how many processes wanted a processor in the minute before, on average. `pace`: milliseconds of `fixed_work` before
    and after it: on a shared machine the very same work takes up to half as long again an hour later.
    """

    name: str
    rows: tuple[Row, ...]
    began: datetime
    seconds: float
    load: float
    pace: tuple[float, float]


def fixed_work() -> float:
    """Milliseconds that a work takes which is always the same: the best of five."""

    def work() -> int:
        data = bytes(range(256)) * 64
        return sum(len(set(data[at : at + 64])) for at in range(0, len(data), 8)) + len(sorted(data * 4))

    return 1000 * min(timeit.repeat(work, number=10, repeat=5)) / 10


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


def recorded(page: str, part: Part, machine: str) -> str:
    """The page with that part's section, new or in place of its former one."""
    sections = dict(_SECTION.findall(page)) if f"\n{machine}.\n" in page else {}
    sections[part.name] = (
        f"\n{table(part.rows)}\n\n{part.began:%Y-%m-%d}; took {part.seconds:.0f} s, load before it {part.load:.1f};"
        f" a fixed work took {part.pace[0]:.2f} ms before it and {part.pace[1]:.2f} ms after it.\n"
    )
    ordered = [f"## {name}\n{sections[name].rstrip()}\n" for name in sorted(sections)]
    return "\n".join([_INTRODUCTION, f"{machine}.\n", _summary("".join(ordered)), *ordered])


def _summary(sections: str) -> str:
    judged = _JUDGED.findall(sections)
    missed = [name for name, met in judged if met != "yes"]
    said = f"{len(judged) - len(missed)} of {len(judged)} targets are met."
    return "\n".join([f"{said} Missed:\n", *(f"- {name}" for name in missed), ""]) if missed else f"{said}\n"


def this_machine() -> str:
    """What a figure is measured on, in one line."""
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
