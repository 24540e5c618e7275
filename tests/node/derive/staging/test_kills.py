"""Whoever moves an agent through staging may die at any step: the next run goes on, and nothing goes before all has worked."""

import subprocess
import sys
import tempfile

from tests.support.workbench import quick_folder


def test_killed_at_any_step_of_staging_the_next_run_brings_the_agent_to_life() -> None:
    with tempfile.TemporaryDirectory(dir=quick_folder()) as folder:
        result = subprocess.run(
            [sys.executable, "-m", "tests.node.derive.staging.killed_staging", folder],
            capture_output=True,
            encoding="utf-8",
            timeout=110,
            check=False,
        )
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) > 40
