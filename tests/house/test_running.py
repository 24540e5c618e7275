"""How the tests are run: where homes lie, which tests are run again, and what a run says of its time."""

import os
import re
from pathlib import Path

import pytest

from tests.support import durations, retried, temporary

HERE = "tests/house/test_running.py"


def test_a_listed_test_needs_a_reason_and_has_to_exist() -> None:
    name = "test_a_listed_test_needs_a_reason_and_has_to_exist"
    assert retried.listed(f"# why\n\n{HERE}::{name}: a reason: this one\n") == {
        f"{HERE}::{name}": "a reason: this one"
    }
    with pytest.raises(ValueError, match="no reason given"):
        retried.listed(f"{HERE}::{name}\n")
    for gone in (f"{HERE}::test_gone: a reason", "tests/house/test_gone.py::test_a: a reason"):
        with pytest.raises(ValueError, match="no such test"):
            retried.listed(gone)


def test_only_listed_tests_are_run_again(request: pytest.FixtureRequest) -> None:
    """Also while this one runs: nothing else gives a test a second try."""
    listed = set(retried.listed(retried.LIST.read_text(encoding="utf-8")))
    again = {
        item.nodeid.partition("[")[0] for item in request.session.items if item.get_closest_marker("flaky")
    }
    assert again <= listed
    marked = [
        path
        for path in sorted(retried.LIST.parent.rglob("*.py"))
        if re.search(r"mark\.flaky|--reruns", path.read_text(encoding="utf-8"))
    ]
    assert {path.name for path in marked} <= {"retried.py", Path(__file__).name}


def test_homes_lie_in_memory_where_there_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporary, "_MEMORY", tmp_path)
    monkeypatch.setattr(temporary, "_FREE_BYTES_MIN", 1)
    assert temporary.memory() == tmp_path
    monkeypatch.setattr(temporary, "_FREE_BYTES_MIN", 2**62)
    assert temporary.memory() is None
    monkeypatch.setattr(temporary, "_MEMORY", tmp_path / "none")
    assert temporary.memory() is None


def test_who_says_where_homes_belong_is_heeded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporary, "_MEMORY", tmp_path)
    monkeypatch.setattr(temporary, "_FREE_BYTES_MIN", 1)
    monkeypatch.setenv(temporary.VARIABLE, "/elsewhere")
    temporary.use_memory()
    assert os.environ[temporary.VARIABLE] == "/elsewhere"


@pytest.mark.disk
def test_what_is_about_disks_gets_one(tmp_path: Path) -> None:
    assert tmp_path.is_dir()
    assert not tmp_path.is_relative_to("/dev/shm")


def test_times_are_told_by_folder() -> None:
    assert durations.folder("tests/core/deep/test_a.py::test_b[c/d]") == "tests/core"
    assert durations.folder("tests/node/sync/files/test_a.py::test_b") == "tests/node/sync"
    assert durations.folder("tests/node/test_a.py::test_b") == "tests/node"
    said = durations.lines([], {"tests/core/test_a.py": 2.0, "tests/node/sync/test_b.py": 3.5})
    assert [line.split()[0] for line in said[1:3]] == ["tests/core", "tests/node/sync"]
    assert said[-1] == "longest: tests/node/sync/test_b.py 4 s, tests/core/test_a.py 2 s"
