"""The linters and the tests, side by side: what `make lint`, `make check` and `make test` run.

    python -m scripts.check lint              all linters
    python -m scripts.check quick             the linters but for pyright, and the quick tests
    python -m scripts.check all [PYTEST…]     the same linters and all tests; with arguments for pytest those tests alone

The linters run one after the other beside the tests, and say at the end what they found and how long they took. Few tests that
failed run once more when all else has ended, each file in a process that has the machine to itself: what fails there fails the
run, and what passes there is named (decision 0072). Exit code 1 if anything failed.
"""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent

LINTERS: dict[str, tuple[str, ...]] = {
    "ruff check": (str(BIN / "ruff"), "check", "."),
    "ruff format": (str(BIN / "ruff"), "format", "--check", "."),
    "import rules": (str(BIN / "lint-imports"),),
    "house rules": (sys.executable, "-m", "scripts.check_house_rules"),
    "mypy": (str(BIN / "mypy"),),
    "pyright": (str(BIN / "pyright"), "--warnings"),
}
PYRIGHT = "pyright"
"""Needs Node.js, and remembers nothing from run to run: it takes as long each time."""
_BESIDE_TESTS = [name for name in LINTERS if name != PYRIGHT]

QUICK = ("-m", "quick")

SECOND_LOOKS_MAX = 12
"""More failed tests than this are no matter of a busy machine."""
_SOME_FAILED = 1
"""pytest's exit code for it: not that it was stopped, nor that it went wrong itself."""
_FAILED = Path(".pytest_cache/v/cache/lastfailed")


@dataclass(frozen=True, slots=True)
class Linted:
    """What a linter said."""

    name: str
    code: int
    output: str
    seconds: float

    def __str__(self) -> str:
        verdict = "clean" if self.code == 0 else "FAILED"
        return f"{self.name:<14}{verdict:<8}{self.seconds:6.1f} s"


def main(arguments: Sequence[str]) -> int:
    match list(arguments):
        case ["lint"]:
            return _report(linted(list(LINTERS)))
        case ["quick", *more]:
            return _beside(_BESIDE_TESTS, (*QUICK, *more))
        case ["all"]:
            return _beside(_BESIDE_TESTS, ())
        case ["all", *chosen]:
            return _tests(chosen)
        case _:
            print(__doc__, file=sys.stderr)
            return 2


def linted(names: Sequence[str]) -> list[Linted]:
    """Run these linters one after the other."""
    return [_run(name) for name in names]


def _beside(linters: Sequence[str], chosen: Sequence[str]) -> int:
    with ThreadPoolExecutor(1) as pool:
        found: Future[list[Linted]] = pool.submit(linted, linters)
        (PROJECT / _FAILED).unlink(missing_ok=True)  # what is written there now is of this run
        code = _tests(chosen)
        reports = found.result()
    if code == _SOME_FAILED:
        code = second_look(PROJECT)
    return max(code, _report(reports))


def second_look(project: Path) -> int:
    """Run what failed in the last run once more, by itself. Returns 0 if all of it passed, else pytest's exit code."""
    failed: list[str] = sorted(json.loads((project / _FAILED).read_text("utf-8")))
    if len(failed) > SECOND_LOOKS_MAX:
        print(f"\n{len(failed)} tests failed: too many for a second look (at most {SECOND_LOOKS_MAX}).")
        return _SOME_FAILED
    print(f"\nA second look at {len(failed)} failed, with nothing beside them:", flush=True)
    files = sorted({test.partition("::")[0] for test in failed})
    codes = [
        _tests(["-n", "0", *(test for test in failed if test.partition("::")[0] == file)], project=project)
        for file in files
    ]
    if not any(codes):
        print("\nFailed beside others, passed alone: look at what these wait for.")
        print(*(f"  UNSTEADY {test}" for test in failed), sep="\n")
    return max(codes)


def _tests(chosen: Sequence[str], *, project: Path = PROJECT) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *chosen], cwd=project, check=False).returncode


def _run(name: str) -> Linted:
    began = time.monotonic()
    done = subprocess.run(
        LINTERS[name],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
    )
    return Linted(name, done.returncode, done.stdout, time.monotonic() - began)


def _report(found: Sequence[Linted]) -> int:
    for one in found:
        if one.code != 0:
            print(f"\n{one.name}:\n{one.output}")
    print()
    for one in found:
        print(one)
    return 1 if any(one.code for one in found) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
