"""How long the tests of a run took, by folder and by file; the next run begins with the files that took longest."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

import pytest

_KEPT = "crystal/seconds"
_FILES_SHOWN = 10


def of_last_run(config: pytest.Config) -> dict[str, float]:
    """Seconds by file. Workers have them from the process that started them, so that all sort in the same way."""
    handed: dict[str, float] | None = getattr(config, "workerinput", {}).get(_KEPT)
    if handed is not None:
        return handed
    cache = getattr(config, "cache", None)
    kept = cache.get(_KEPT, None) if cache is not None else None
    return kept if isinstance(kept, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def hand_on(config: pytest.Config, workerinput: dict[str, object]) -> None:
    """To a worker that is about to start."""
    workerinput[_KEPT] = of_last_run(config)


def by_file(reports: Iterable[object]) -> dict[str, float]:
    """Seconds of preparing, running and clearing away."""
    seconds: dict[str, float] = defaultdict(float)
    for report in reports:
        if isinstance(report, pytest.TestReport):
            seconds[report.nodeid.partition("::")[0]] += report.duration
    return seconds


def keep(config: pytest.Config, seconds: dict[str, float]) -> None:
    """For the next run's order. Files that did not run, or not as a whole, keep their figures."""
    chosen = config.option.keyword or config.option.markexpr or any("::" in name for name in config.args)
    cache = getattr(config, "cache", None)
    if cache is not None and seconds and not chosen:
        cache.set(_KEPT, of_last_run(config) | {path: round(took, 1) for path, took in seconds.items()})


def lines(reports: list[object], seconds: dict[str, float]) -> list[str]:
    """Of the end of a run: each folder with its tests and seconds, and the files that took longest."""
    tests = Counter(
        folder(report.nodeid)
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
    )
    folders: dict[str, float] = defaultdict(float)
    for path, took in seconds.items():
        folders[folder(path)] += took
    total = sum(seconds.values())
    longest = sorted(seconds.items(), key=lambda item: -item[1])[:_FILES_SHOWN]
    return [
        f"{'folder':<28}{'tests':>7}{'seconds':>9}",
        *(f"{name:<28}{tests[name]:>7}{folders[name]:>9.1f}" for name in sorted(folders)),
        f"{'all workers together':<28}{tests.total():>7}{total:>9.1f}",
        "longest: " + ", ".join(f"{path} {took:.0f} s" for path, took in longest),
    ]


def folder(nodeid: str) -> str:
    """`tests/core`; of the node, which is the largest, its folders one by one: `tests/node/sync`."""
    parts = PurePosixPath(nodeid.partition("::")[0]).parts[:-1]
    return str(Path(*parts[: 3 if parts[1:2] == ("node",) else 2])) if parts else "."
