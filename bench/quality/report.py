"""bench/QUALITY.md: the figures as tables, with machine and versions."""

from datetime import datetime
from pathlib import Path

from bench.quality.measuring import ALL, Measured
from bench.quality.metrics import NAMES
from bench.results import this_machine

QUALITY = Path(__file__).resolve().parent.parent / "QUALITY.md"


def report(result: Measured, asked: Measured | None, model: str, *, when: datetime) -> str:
    """The whole page. ``asked``: what a language model made of some of the queries."""
    sets = result.sets
    by_model = ""
    if asked is not None:
        by_model = (
            f"## With a language model\n\n{len(asked.sets.queries)} of the queries.\n\n{_whole(asked)}\n\n"
        )
    return (
        "# What search finds\n\n"
        "Written by `make bench-quality`. [README.md](README.md#quality) says what the sets are and what the ways of ranking"
        " mean. In brackets: 95 % confidence, by resampling the queries.\n\n"
        f"{len(sets.passages):,} passages, {len(sets.queries)} queries; vectors by `{model}`."
        f" {this_machine()}; {when:%Y-%m-%d}.\n\n"
        f"## All sets\n\n{_whole(result)}\n\n{by_model}## Each set\n\nrecall@10 and MRR@10.\n\n{_by_set(result)}\n"
    )


def _whole(result: Measured) -> str:
    lines = [f"| | {' | '.join(NAMES)} |", f"|---|{'---:|' * len(NAMES)}"]
    for mode in result.by_mode:
        cells: list[str] = []
        for metric in NAMES:
            found = result.mean(mode, ALL, metric)
            cells.append(f"{found.value:.3f} ({found.low:.2f} to {found.high:.2f})")
        lines.append(f"| {mode} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _by_set(result: Measured) -> str:
    modes = list(result.by_mode)
    lines = [f"| | queries | {' | '.join(modes)} |", f"|---|---:|{'---:|' * len(modes)}"]
    for name in result.sets.names:
        count = sum(query.set == name for query in result.sets.queries)
        cells: list[str] = []
        for mode in modes:
            recall, mrr = (result.mean(mode, name, metric).value for metric in ("recall@10", "MRR@10"))
            cells.append(f"{recall:.2f}, {mrr:.2f}")
        lines.append(f"| {name} | {count} | {' | '.join(cells)} |")
    return "\n".join(lines)
