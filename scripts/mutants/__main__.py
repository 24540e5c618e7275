"""Runs mutants of a part of the product, and writes what became of them.

    python -m scripts.mutants mirror                       all mutants of `mirror`, in an order by chance
    python -m scripts.mutants mirror --minutes 30          as many as come in half an hour; run it again for more
    python -m scripts.mutants mirror --module streams      those of modules whose path has this word
    python -m scripts.mutants --planted                    the mutations of docs/mutations.md, each of which has to be found
    python -m scripts.mutants --report                     the share found by module, and who survived

The order is by the hash of a mutant's name: the share found of the first thousand is a fair estimate of all. What was
run stands in `.mutants/` and is not run again while its function is the same; `--again` runs the survivors alone. Exit code 1
if a planted mutation survives.
"""

import argparse
import hashlib
import json
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.mutants.planted import planted_mutants
from scripts.mutants.session import (
    FOUND,
    SURVIVED,
    TIMEOUT,
    UNRUN,
    Lines,
    Mutant,
    Result,
    Session,
    mutants_of,
)
from scripts.mutants.targets import PROJECT, TARGETS, Target

KEPT = PROJECT / ".mutants"
JUDGED = Path(__file__).with_name("judged.tsv")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.mutants")
    parser.add_argument("target", nargs="?", choices=sorted(TARGETS))
    parser.add_argument("--module", default="", help="only modules whose path has this word")
    parser.add_argument("--minutes", type=float, default=24 * 60.0)
    parser.add_argument("--seconds", type=float, default=60.0, help="of tests for one mutant, at most")
    parser.add_argument("--tests", nargs="+", default=[], help="only these tests of the target")
    parser.add_argument("--again", action="store_true", help="run the survivors again, and nothing else")
    parser.add_argument("--planted", action="store_true", help="run the planted mutations")
    parser.add_argument("--report", action="store_true", help="only report what was run")
    chosen = parser.parse_args(arguments)
    KEPT.mkdir(exist_ok=True)
    if chosen.planted:
        return _planted(chosen)
    names = [chosen.target] if chosen.target else sorted(TARGETS)
    if not chosen.report:
        for name in names:
            _run(name, chosen, chosen.minutes / len(names))
    _report(names)
    return 0


def _target(name: str, chosen: argparse.Namespace) -> Target:
    target = TARGETS[name]
    return replace(target, tests=tuple(chosen.tests)) if chosen.tests else target


def _run(name: str, chosen: argparse.Namespace, minutes: float) -> None:
    target = _target(name, chosen)
    known = {(*result[:3], result.source): result for result in _results(name)}
    left = [
        mutant
        for path in target.modules()
        if chosen.module in path.as_posix()
        for mutant in mutants_of(path)
        if ((before := known.get(mutant.key)) is None) != chosen.again
        and (before is None or before.verdict not in (FOUND, TIMEOUT))
    ]
    left.sort(key=lambda mutant: hashlib.sha256("".join(mutant.key[:3]).encode()).digest())
    if left:
        _pytest(target, left, name, KEPT / f"{name}.jsonl", chosen, minutes)


def _planted(chosen: argparse.Namespace) -> int:
    survived = 0
    results = KEPT / "-".join(("planted", *chosen.module.split("/"))).removesuffix(".py")
    results = results.with_suffix(".jsonl")
    results.unlink(missing_ok=True)
    for name in TARGETS:
        mutants = [mutant for mutant in planted_mutants(name) if chosen.module in mutant.module]
        if mutants:
            _pytest(_target(name, chosen), mutants, name, results, chosen, chosen.minutes)
    for line in results.read_text(encoding="utf-8").splitlines():
        result = Result(*json.loads(line))
        survived += result.verdict not in (FOUND, TIMEOUT)
        print(f"{result.verdict:<16} {result.name}: {result.test}")
    return 1 if survived else 0


def _pytest(
    target: Target,
    mutants: Sequence[Mutant],
    name: str,
    results: Path,
    chosen: argparse.Namespace,
    minutes: float,
) -> None:
    with os.fdopen(os.dup(2), "w") as terminal:
        lines = Lines(KEPT / f"{name}.lines.json", target)
        until = time.monotonic() + 60 * minutes
        session = Session(
            mutants,
            lines,
            results,
            terminal,
            until=until,
            seconds=chosen.seconds,
            part=bool(chosen.tests) and not chosen.planted,
        )
        files = [str(path) for path in target.test_files()]
        options = ["-q", "-n", "0", "--timeout", "0", "-p", "no:cacheprovider"]
        sys.dont_write_bytecode = False
        os.chdir(PROJECT)
        code = pytest.main([*options, *files], plugins=[session])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise SystemExit(f"the tests of {name} could not be run: {code}")


def _results(name: str) -> list[Result]:
    """The last of each mutant that the code still has."""
    path = KEPT / f"{name}.jsonl"
    if not path.exists():
        return []
    now = {mutant.key for module in TARGETS[name].modules() for mutant in mutants_of(module)}
    rows = [Result(*json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
    last = {(*row[:3], row.source): row for row in rows}
    return [row for key, row in last.items() if key in now]


def judged() -> dict[str, str]:
    """Survivors that were looked at and cannot matter, with the reason."""
    lines = JUDGED.read_text(encoding="utf-8").splitlines()
    return {name: reason for name, _, reason in (line.partition("\t") for line in lines)}


def _report(names: Sequence[str]) -> None:
    """Prints a table, and writes the survivors to a file. Cut short: tests were left out, one of which might find it."""
    reasons = judged()
    survivors: list[str] = []
    print(
        "module | mutants | run | found | judged | survived | of these cut short | share found of those that matter"
    )
    print("---|---|---|---|---|---|---|---")
    for name in names:
        results = _results(name)
        total: Counter[str] = Counter()
        by_module: defaultdict[str, list[Result]] = defaultdict(list)
        for result in results:
            by_module[result.module].append(result)
        for module in TARGETS[name].modules():
            named = module.relative_to(PROJECT).as_posix()
            rows = by_module[named]
            counts = Counter(
                "found" if row.verdict in (FOUND, TIMEOUT) else "judged" if row.id in reasons else "survived"
                for row in rows
            )
            counts["cut short"] = sum(row.left_out > 0 and row.verdict == SURVIVED for row in rows)
            counts["mutants"], counts["run"] = len(mutants_of(module)), len(rows)
            total.update(counts)
            if rows:
                print(_row(named, counts))
            survivors += [
                f"{row.module}:{row.line}\t{row.verdict}\t{row.left_out}\t{row.id}"
                for row in sorted(rows, key=lambda row: row.line)
                if row.verdict not in (FOUND, TIMEOUT) and row.id not in reasons
            ]
        print(_row(f"**{name}**", total))
    path = KEPT / "survivors.tsv"
    path.write_text("".join(f"{line}\n" for line in survivors), encoding="utf-8")
    unrun = sum(f"\t{UNRUN}\t" in line for line in survivors)
    print(
        f"{len(survivors)} survivors, {unrun} of them in lines that no test runs: {path.relative_to(PROJECT)}"
    )


def _row(name: str, counts: Counter[str]) -> str:
    matter = counts["run"] - counts["judged"]
    share = f"{100 * counts['found'] / matter:.1f} %" if matter else ""
    told = (str(counts[each]) for each in ("mutants", "run", "found", "judged", "survived", "cut short"))
    return " | ".join((name, *told, share))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
