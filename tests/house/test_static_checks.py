"""The sources are clean for the static checkers that `make lint` runs (pyright apart, which needs node)."""

import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["ruff", "check", "."], id="ruff-check"),
        pytest.param(["ruff", "format", "--check", "."], id="ruff-format"),
        pytest.param(["mypy"], id="mypy", marks=[pytest.mark.slow, pytest.mark.timeout(280)]),
    ],
)
def test_the_sources_are_clean(command: list[str]) -> None:
    result = subprocess.run(
        [str(BIN / command[0]), *command[1:]],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=270,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
