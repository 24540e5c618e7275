"""bench/QUALITY.md: the figures as tables, with machine and versions."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import fmean

from bench.quality.foreign import Among
from bench.quality.goals import FOREIGN_FALL_MAX, reached
from bench.quality.halves import COMPARED, HALVES, HYBRID, Difference, differences, paired
from bench.quality.measuring import ALL, Measured
from bench.quality.metrics import NAMES, Mean
from bench.results import this_machine

QUALITY = Path(__file__).resolve().parent.parent / "QUALITY.md"
_OF_A_CLASS = (
    "recall@10 and MRR@10 of each class, and hybrid less its better half, **bold** where it falls short."
)


@dataclass(frozen=True, slots=True)
class Results:
    """Everything that a run measured.

    ``asked``: what a language model made of some of our queries. ``foreign``: the same questions among foreign texts.
    """

    model: str
    passages: int
    own: Measured
    asked: Measured | None = None
    others: Sequence[Measured] = ()
    foreign: Sequence[Among] = ()

    @property
    def all(self) -> list[Measured]:
        return [self.own, *self.others]


def report(results: Results, *, when: datetime) -> str:
    """The whole page."""
    own = results.own
    by_model = ""
    if results.asked is not None:
        by_model = f"### With a language model\n\n{len(results.asked.kinds)} of the queries.\n\n{_whole(results.asked)}\n\n"
    return (
        "# What search finds\n\n"
        "Written by `make bench-quality`. [README.md](README.md#quality) says what the sets are and what the ways of ranking"
        " mean. In brackets: 95 % confidence, by resampling the queries.\n\n"
        f"Vectors by `{results.model}`. {this_machine()}; {when:%Y-%m-%d}.\n\n"
        f"## Hybrid and its better half\n\n{_verdict(results)}\n\n"
        f"## Goals\n\n{_goals(results)}\n\n"
        f"## Our own sets\n\n{results.passages:,} passages, {len(own.kinds)} queries.\n\n{_whole(own)}\n\n{by_model}"
        f"{_OF_A_CLASS}\n\n{_by_class(own)}\n"
        + "".join(f"\n## {one.name}\n\n{_section(one)}\n" for one in results.others)
        + (f"\n## Among foreign texts\n\n{_among(results.foreign)}\n" if results.foreign else "")
    )


def _verdict(results: Results) -> str:
    """All questions of each collection, and then whatever falls short."""
    lines = ["| | questions | better half | recall@10 | MRR@10 |", "|---|---:|---|---:|---:|"]
    for one in results.all:
        of_all = [found for found in differences(one) if found.kind == ALL]
        halves = " / ".join(dict.fromkeys(found.half for found in of_all))
        cells = " | ".join(_difference(found) for found in of_all)
        lines.append(f"| {one.name} | {of_all[0].questions} | {halves} | {cells} |")
    short = [found for one in results.all for found in differences(one) if found.falls_short]
    shown = "\n".join(f"- {one}" for one in short) or "Nowhere does it fall short."
    return "\n".join(lines) + (f"\n\nIt falls short here:\n\n{shown}" if short else f"\n\n{shown}")


def _goals(results: Results) -> str:
    lines = ["| | goal | hybrid | |", "|---|---:|---:|---|"]
    for name, goal, found in reached(results.all):
        sign = "≤" if goal.at_most else "≥"
        met = "reached" if goal.met(found) else "not reached"
        lines.append(f"| {name}: {goal.metric} | {sign} {goal.value:.2f} | {_mean(found)} | {met} |")
    return "\n".join(lines)


def _among(found: Sequence[Among]) -> str:
    intro = (
        f"recall@10 without and with {found[0].count:,} foreign texts, all of them searched. What hybrid loses should be less"
        f" than {FOREIGN_FALL_MAX}."
    )
    lines = [
        "| | questions | keyword | vector | hybrid | hybrid, difference |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for one in found:
        pairs = {
            mode: [some.values(mode, ALL, COMPARED[0]) for some in (one.alone, one.among)]
            for mode in (*HALVES, HYBRID)
        }
        cells = [f"{fmean(before):.3f} → {fmean(after):.3f}" for before, after in pairs.values()]
        before, after = pairs[HYBRID]
        value, low, high = paired(after, before)
        cells.append(f"{value:+.3f} ({low:+.3f} to {high:+.3f})")
        lines.append(f"| {one.name} | {len(before)} | {' | '.join(cells)} |")
    return intro + "\n\n" + "\n".join(lines)


def _section(result: Measured) -> str:
    return f"{len(result.kinds)} questions.\n\n{_whole(result)}\n\n{_OF_A_CLASS}\n\n{_by_class(result)}"


def _whole(result: Measured) -> str:
    metrics = [*(name for name in NAMES if name in result.metrics)]
    metrics += [name for name in result.metrics if name not in NAMES]
    lines = [f"| | {' | '.join(metrics)} |", f"|---|{'---:|' * len(metrics)}"]
    for mode in result.by_mode:
        cells = [_mean(result.mean(mode, ALL, metric)) for metric in metrics]
        lines.append(f"| {mode} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _by_class(result: Measured) -> str:
    modes = list(result.by_mode)
    compared = {(one.kind, one.metric): one for one in differences(result)}
    heads = [*modes, *(f"{HYBRID} − better half, {metric}" for metric in COMPARED)]
    lines = [f"| | questions | {' | '.join(heads)} |", f"|---|---:|{'---:|' * len(heads)}"]
    for name in result.names if len(result.names) > 1 else [ALL]:
        cells: list[str] = []
        for mode in modes:
            means = [result.mean(mode, name, metric) for metric in COMPARED]
            cells.append(", ".join("" if mean is None else f"{mean.value:.2f}" for mean in means).strip(", "))
        for metric in COMPARED:
            found = compared.get((name, metric))
            cells.append("" if found is None else _difference(found))
        count = sum(name in (ALL, kind) for kind in result.kinds)
        lines.append(f"| {name.replace('_', ' ')} | {count} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _mean(found: Mean | None) -> str:
    return "" if found is None else f"{found.value:.3f} ({found.low:.2f} to {found.high:.2f})"


def _difference(found: Difference) -> str:
    shown = f"{found.value:+.3f} ({found.low:+.2f} to {found.high:+.2f})"
    return f"**{shown}**" if found.falls_short else shown
