"""The run itself, inside one pytest: every test runs once and its lines are noted; then a forked child for each mutant takes
the mutated code into the functions that are there and runs the tests of the mutated lines until one fails.

A child costs a fork instead of an interpreter with all imports. Its code is exchanged in place (`__code__`), so it makes no
difference who has imported the function, or from where. Processes that a test starts run the code as it is: what only they run
is not mutated by this.
"""

import ast
import contextlib
import gc
import hashlib
import importlib
import json
import os
import resource
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple, TextIO

import pytest

from scripts.mutants.mutations import Mutation, mutations
from scripts.mutants.targets import PROJECT, Target

MEMORY_MAX = 6 * 1024**3
SURVIVED, FOUND, TIMEOUT, UNRUN = "survived", "found", "timeout", "no test runs it"


class Result(NamedTuple):
    """What became of a mutant. `test`: which found it. `left_out`: tests that were left out for time."""

    module: str
    function: str
    name: str
    line: int
    source: str
    verdict: str
    test: str
    left_out: int
    seconds: float

    @property
    def id(self) -> str:
        return f"{self.module}::{self.function}: {self.name}"


class Mutant(NamedTuple):
    """A mutation, or one that is made by replacing text; its place, and the tree to compile."""

    module: str
    function: str
    name: str
    lines: tuple[int, int]
    source: str
    tree: ast.Module
    mutation: Mutation | None

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.module, self.function, self.name, self.source


def mutants_of(path: Path) -> list[Mutant]:
    module = path.relative_to(PROJECT).as_posix()
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    rows = text.splitlines()
    sources = {
        name: hashlib.sha256("\n".join(rows[first - 1 : last]).encode()).hexdigest()[:12]
        for name, first, last in _spans(tree, "")
    }
    return [
        Mutant(module, one.function, one.name, one.lines, sources.get(one.function, ""), tree, one)
        for one in mutations(tree)
    ]


def _spans(node: ast.AST, inside: str) -> Iterator[tuple[str, int, int]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield f"{inside}{child.name}", child.lineno, child.end_lineno or child.lineno
            yield from _spans(child, f"{inside}{child.name}.")
        else:
            yield from _spans(child, inside)


class Lines:
    """Which lines of the mutated modules a test runs, by its node id; kept in a file for the next run."""

    def __init__(self, kept: Path, target: Target) -> None:
        self._kept = kept
        self._product = hashlib.sha256(b"".join(path.read_bytes() for path in target.modules())).hexdigest()
        self._wanted = {str(path): path.relative_to(PROJECT).as_posix() for path in target.modules()}
        self.seconds: dict[str, float] = {}
        self._lines: dict[str, dict[str, list[int]]] = {}
        self._hashes: dict[str, str] = {}
        self._counts: dict[int, int] = {}
        if kept.exists():
            before = json.loads(kept.read_text(encoding="utf-8"))
            if before["product"] == self._product:
                self.seconds, self._lines, self._hashes = before["seconds"], before["lines"], before["hashes"]

    def knows(self, item: pytest.Item) -> bool:
        return self._hashes.get(item.nodeid) == _hash(item.path)

    def record(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        here: defaultdict[int, set[int]] = defaultdict(set)
        places: dict[int, CodeType] = {}  # by id: a code's own hash is made from all that it holds, each time
        wanted = self._wanted

        def line(frame: FrameType, event: str, _argument: object) -> Any:
            if event == "line":
                here[id(frame.f_code)].add(frame.f_lineno)
            return line

        def call(frame: FrameType, _event: str, _argument: object) -> Any:
            code = frame.f_code
            if code.co_filename not in wanted:
                return None
            places[id(code)] = code
            if len(here[id(code)]) >= self._count(code):
                return None  # all its lines were seen: it runs at full speed from here on
            return line

        began = time.perf_counter()
        threading.settrace(call)
        sys.settrace(call)
        try:
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=nextitem)
        finally:
            sys.settrace(None)
            threading.settrace(None)
        self.seconds[item.nodeid] = time.perf_counter() - began
        seen: defaultdict[str, set[int]] = defaultdict(set)
        for number, lines in here.items():
            if lines:
                seen[wanted[places[number].co_filename]] |= lines
        self._lines[item.nodeid] = {module: sorted(lines) for module, lines in seen.items()}
        self._hashes[item.nodeid] = _hash(item.path)

    def forget(self, item: pytest.Item) -> None:
        for each in (self.seconds, self._lines, self._hashes):
            each.pop(item.nodeid, None)

    def width(self, name: str, module: str) -> int:
        """How many lines of the module a test runs."""
        return len(self._lines[name].get(module, ()))

    def _count(self, code: CodeType) -> int:
        """How many of its lines can be run."""
        if id(code) not in self._counts:
            begin = code.co_firstlineno
            self._counts[id(code)] = len(
                {line for *_, line in code.co_lines() if line is not None and line != begin}
            )
        return self._counts[id(code)]

    def write(self) -> None:
        state = {
            "product": self._product,
            "seconds": self.seconds,
            "lines": self._lines,
            "hashes": self._hashes,
        }
        beside = self._kept.with_suffix(".new")
        beside.write_text(json.dumps(state), encoding="utf-8")
        beside.replace(self._kept)

    def tests_of(self, items: Sequence[pytest.Item]) -> dict[tuple[str, int], list[pytest.Item]]:
        found: defaultdict[tuple[str, int], list[pytest.Item]] = defaultdict(list)
        for item in items:
            for module, lines in self._lines.get(item.nodeid, {}).items():
                for number in lines:
                    found[module, number].append(item)
        return found


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Session:
    """The plugin. `results`: a file to which each is added. `until`: by `time.monotonic`. `seconds`: of the tests of a mutant,
    as they took in the first run, those run that fit in here; the rest are left out and counted. `part`: these
    are not all tests, so that only what they find is kept."""

    def __init__(
        self,
        mutants: Sequence[Mutant],
        lines: Lines,
        results: Path,
        terminal: TextIO,
        *,
        until: float,
        seconds: float,
        part: bool,
    ) -> None:
        self._mutants = mutants
        self._lines = lines
        self._results = results
        self._until = until
        self._seconds = seconds
        self._part = part
        self._terminal = terminal
        self._failed = ""
        self._living: dict[str, list[FunctionType]] = {}
        self._finders: defaultdict[str, Counter[str]] = defaultdict(Counter)

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed = self._failed or report.nodeid

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        import hypothesis  # not before pytest has made ready to rewrite its assertions

        hypothesis.settings.register_profile("mutants", deadline=None, database=None, derandomize=True)
        hypothesis.settings.load_profile("mutants")
        items = list(session.items)
        self._first_run(items)
        by_line = self._lines.tests_of(items)
        for module in sorted({mutant.module for mutant in self._mutants}):
            # One that is only imported inside functions would come into a child as it is on the disk.
            importlib.import_module(".".join(Path(module).with_suffix("").parts[1:]))
        self._living = functions()
        gc.freeze()  # or each child's collector would touch, and so copy, all memory of this process
        began = time.monotonic()
        done = found = 0
        with self._results.open("a", encoding="utf-8") as results:
            for mutant in self._mutants:
                if time.monotonic() > self._until:
                    break
                result = self._try(mutant, by_line)
                was_found = result.verdict in (FOUND, TIMEOUT)
                if was_found or not self._part:  # what some of the tests do not find has not survived all
                    results.write(json.dumps(result) + "\n")
                    results.flush()
                done += 1
                found += was_found
                self._tell(done, found, began)
        self._terminal.write("\n")
        return True

    def _first_run(self, items: Sequence[pytest.Item]) -> None:
        left = [item for item in items if not self._lines.knows(item)]
        for number, item in enumerate(left, 1):
            if number % 20 == 0 or number == len(left):
                self._lines.write()
                self._terminal.write(f"\rfirst run: {number} of {len(left)} tests ")
                self._terminal.flush()
            self._lines.record(item, left[number] if number < len(left) else None)
            if self._failed:
                # On a loaded machine it may just have been late. It finds nothing in this run, and runs first in the next.
                self._terminal.write(f"\nleft out, it fails without any mutation: {self._failed}\n")
                self._lines.forget(item)
                self._failed = ""
        if left:
            self._lines.write()
            self._terminal.write("\n")

    def _tell(self, done: int, found: int, began: float) -> None:
        took = time.monotonic() - began
        left = len(self._mutants) - done
        end = min(time.time() + left * took / done, time.time() + max(0.0, self._until - time.monotonic()))
        self._terminal.write(
            f"\r{done} of {len(self._mutants)} mutants, {found} found ({100 * found / done:.1f} %), "
            f"{done / took:.2f}/s, end {time.strftime('%H:%M', time.localtime(end))}   "
        )
        self._terminal.flush()

    def _try(self, mutant: Mutant, by_line: dict[tuple[str, int], list[pytest.Item]]) -> Result:
        first, last = mutant.lines
        tests: dict[str, pytest.Item] = {}
        for number in range(first, last + 1):
            tests.update((item.nodeid, item) for item in by_line.get((mutant.module, number), ()))
        finders = self._finders[mutant.module]

        def promise(name: str) -> float:
            """Tests that have found others in this module, or run much of it, come first; then the quick ones."""
            width = self._lines.width(name, mutant.module)
            return self._lines.seconds[name] / (width**2 * (1 + 10 * finders[name]))

        order = sorted(tests, key=promise)
        chosen: list[pytest.Item] = []
        nominal = 0.0
        for name in order:
            nominal += self._lines.seconds[name]
            if chosen and nominal > self._seconds:
                break
            chosen.append(tests[name])
        began = time.monotonic()
        verdict, test = self._run(mutant, chosen) if chosen else (UNRUN, "")
        if test:
            finders[test] += 1
        seconds = round(time.monotonic() - began, 2)
        left_out = len(order) - len(chosen)
        return Result(
            mutant.module,
            mutant.function,
            mutant.name,
            first,
            mutant.source,
            verdict,
            test,
            left_out,
            seconds,
        )

    def _run(self, mutant: Mutant, tests: Sequence[pytest.Item]) -> tuple[str, str]:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            self._in_child(mutant, tests, writer)
        os.close(writer)
        with os.fdopen(reader, encoding="utf-8") as pipe:
            told = pipe.read().splitlines()
        _, status = os.waitpid(child, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what its tests have left running
        if not os.WIFEXITED(status):
            return TIMEOUT, told[-1] if told else ""
        return (FOUND, told[-1]) if os.WEXITSTATUS(status) == 1 else (SURVIVED, "")

    def _in_child(self, mutant: Mutant, tests: Sequence[pytest.Item], writer: int) -> None:
        """Ends with 0 if all tests passed, with 1 if one failed, by SIGALRM if one took far too long. Tells which it runs."""
        code = 1
        try:
            os.setpgid(0, 0)
            null = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(null, number)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
            if mutant.mutation is not None:
                mutant.mutation.make()
            path = str(PROJECT / mutant.module)
            exchange(path, mutant.tree, self._living[path])
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            for number, item in enumerate(tests):
                os.write(writer, f"{item.nodeid}\n".encode())
                signal.alarm(int(15 + 6 * self._lines.seconds[item.nodeid]))
                following = tests[number + 1] if number + 1 < len(tests) else None
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if self._failed:
                    break
            else:
                code = 0
        finally:
            os._exit(code)


def functions() -> dict[str, list[FunctionType]]:
    """All functions that live in this process, by the file of their code."""
    living: defaultdict[str, list[FunctionType]] = defaultdict(list)
    for each in gc.get_objects():
        if isinstance(each, FunctionType):
            living[each.__code__.co_filename].append(each)
    return living


def exchange(path: str, tree: ast.Module, living: Sequence[FunctionType]) -> None:
    """Gives each of these functions, which are of that file, the code that the tree has for it."""
    fresh = _codes(compile(tree, path, "exec", dont_inherit=True))
    places: defaultdict[str, set[int]] = defaultdict(set)
    for function in living:
        places[function.__code__.co_qualname].add(function.__code__.co_firstlineno)
    by_place = {
        (qualified, line): code
        for qualified, lines in places.items()
        for line, code in zip(sorted(lines), fresh.get(qualified, ()), strict=False)
    }
    for function in living:
        code = by_place.get((function.__code__.co_qualname, function.__code__.co_firstlineno))
        if code is not None and len(function.__code__.co_freevars) == len(code.co_freevars):
            function.__code__ = code


def _codes(code: CodeType) -> dict[str, list[CodeType]]:
    """The code of all functions, by qualified name, in the order of their lines."""
    found: defaultdict[str, list[CodeType]] = defaultdict(list)

    def walk(outer: CodeType) -> None:
        for constant in outer.co_consts:
            if isinstance(constant, CodeType):
                found[constant.co_qualname].append(constant)
                walk(constant)

    walk(code)
    for same in found.values():
        same.sort(key=lambda each: each.co_firstlineno)
    return found
