"""Whoever makes files may die at any step: the next run makes the same files as one that nobody stopped."""

import subprocess
import sys
from pathlib import Path


def test_killed_at_any_step_the_next_run_makes_what_a_whole_run_makes(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "tests.node.artefacts.killed_works", str(tmp_path)],
        capture_output=True,
        encoding="utf-8",
        timeout=110,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) > 60
