"""RESULTS.md: a section for each part, and each part can be measured again by itself.

All sections stem from one machine with the same versions. What another one measured is left out as soon as something is
recorded here: figures of two machines in one table say nothing.
"""

import importlib.metadata
import os
import platform
import re
import subprocess
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
_PACE = re.compile(r"a fixed work took ([0-9.]+) ms before it and ([0-9.]+) ms after it")
_TIMES = frozenset({"s", "ms", "µs"})
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


SLOWER_BY = 1.1
"""A figure that is worse than its last one by more than this factor is named."""


def worse_than_before(page: str, part: Part) -> list[str]:
    """The rows that are worse by more than a tenth than the same rows of ``page``, a line each.

    Compared are ratios to the same baseline, which a busy machine leaves alone; without one the values, times and rates at the
    pace of the fixed work of each run. Rows that are new, or whose unit changed, are no worse.
    """
    section = dict(_SECTION.findall(page)).get(part.name, "")
    paces = [float(each) for both in _PACE.findall(section) for each in both]
    before = [cells for cells in map(_cells, section.splitlines()) if len(cells) == 6]
    found: list[str] = []
    for row in part.rows:
        cells = next(
            (each for each in before if each[0] == row.name or each[0].startswith(f"{row.name} (")), None
        )
        if cells is None or not cells[1].endswith(f" {row.unit}"):
            continue
        is_rate = row.unit.endswith("/s")
        old, new = _read(cells[1]), row.value
        if row.ratio is not None and cells[3] and cells[2].startswith(f"{row.baseline}:"):
            old, new = _read(cells[3]), row.ratio
        elif paces and (is_rate or row.unit in _TIMES):
            slowed = sum(part.pace) / len(part.pace) / (sum(paces) / len(paces))
            new = new * slowed if is_rate else new / slowed
        if min(old, new) > 0 and (worse := old / new if is_rate else new / old) > SLOWER_BY:
            now = f"{_number(row.value)} {row.unit} now"
            found.append(f"{row.name}: {cells[1]} before, {now} ({worse:.2f} times as bad)")
    return found


def committed() -> str:
    """RESULTS.md as it was last committed; as it lies there where git does not know."""
    shown = subprocess.run(
        ["git", "show", f"HEAD:./{RESULTS.name}"],  # noqa: S607 - the git of whoever measures
        cwd=RESULTS.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    if shown.returncode == 0:
        return shown.stdout
    return RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else ""


def _cells(line: str) -> list[str]:
    return (
        [cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")]
        if line.startswith("| ")
        else []
    )


def _read(cell: str) -> float:
    return float(cell.partition(" ")[0].replace(",", ""))


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
