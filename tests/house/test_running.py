"""How the tests are run: where homes lie, which tests are run again, and what a run says of its time."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import check
from tests.support import durations, temporary

_PROJECT = """
from pathlib import Path

SEEN = Path(__file__).with_name("seen")

def test_busy() -> None:
    first = not SEEN.exists()
    SEEN.touch()
    assert not first

def test_steady() -> None:
    with SEEN.with_name("steady").open("a") as file:
        file.write("run\\n")
"""


def _first_run(project: Path, tests: str) -> int:
    (project / "pytest.ini").write_text("[pytest]\n")  # or that of a folder above is taken
    (project / "test_some.py").write_text(tests)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0"], cwd=project, capture_output=True, check=False
    )
    return done.returncode


def test_what_failed_beside_others_and_passes_alone_is_named_and_does_not_fail_the_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert _first_run(tmp_path, _PROJECT) == 1
    assert check.second_look(tmp_path) == 0
    said = capfd.readouterr().out
    assert "1 passed" in said
    assert said.endswith("  UNSTEADY test_some.py::test_busy\n")
    assert (tmp_path / "steady").read_text() == "run\n", "what passed was run again"


def test_what_fails_alone_too_fails_the_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert _first_run(tmp_path, _PROJECT + "\ndef test_wrong() -> None:\n    assert False\n") == 1
    assert check.second_look(tmp_path) == 1
    assert "UNSTEADY" not in capfd.readouterr().out


def test_too_many_failures_are_not_looked_at_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    many = check.SECOND_LOOKS_MAX + 1
    once = (
        _PROJECT
        + f"""
import pytest

@pytest.mark.parametrize("number", range({many}))
def test_once(number: int, tmp_path_factory) -> None:
    first = not (seen := SEEN.with_name(f"once{{number}}")).exists()
    seen.touch()
    assert not first
"""
    )
    assert _first_run(tmp_path, once) == 1
    assert check.second_look(tmp_path) == 1
    assert f"{many + 1} tests failed" in capfd.readouterr().out


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
