"""`tests/flaky.txt`: the tests that are run once more when they fail, each with the reason. Everything else fails at once.

A line is `tests/folder/test_file.py::test_name: reason`. A line that names no test fails the run.
"""

import ast
from pathlib import Path

import pytest

_TESTS = Path(__file__).resolve().parents[1]
LIST = _TESTS / "flaky.txt"


def listed(text: str) -> dict[str, str]:
    """Reasons by test. Raises ValueError for a line without a reason or for a test that does not exist."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        test, _, reason = line.partition(": ")
        path, _, name = test.partition("::")
        if not reason.strip():
            raise ValueError(f"{test}: no reason given")
        if name not in _functions(_TESTS.parent / path):
            raise ValueError(f"{test}: no such test")
        found[test] = reason.strip()
    return found


def mark(items: list[pytest.Item]) -> None:
    """Have the listed tests run once more when they fail."""
    try:
        tests = listed(LIST.read_text(encoding="utf-8"))
    except ValueError as error:
        raise pytest.UsageError(f"{LIST.name}: {error}") from None
    for item in items:
        if item.nodeid.partition("[")[0] in tests:
            item.add_marker(pytest.mark.flaky(reruns=1, reruns_delay=1))


def _functions(path: Path) -> set[str]:
    if not path.is_file():
        return set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
