"""Whoever makes files may die at any step: the next run makes the same files as one that nobody stopped."""

import subprocess
import sys
import tempfile

from tests.support.workbench import quick_folder


def test_killed_at_any_step_the_next_run_makes_what_a_whole_run_makes() -> None:
    with tempfile.TemporaryDirectory(dir=quick_folder()) as folder:
        result = subprocess.run(
            [sys.executable, "-m", "tests.node.derive.artefacts.killed_catalog", folder],
            capture_output=True,
            encoding="utf-8",
            timeout=110,
            check=False,
        )
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) > 60
