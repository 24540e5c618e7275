"""A device that dies in the middle of a round of files: at each step that changes a disk, a store or an outbox."""

import subprocess
import sys
from pathlib import Path

import pytest

SECONDS_MAX = 300


@pytest.mark.slow
@pytest.mark.timeout(SECONDS_MAX)
@pytest.mark.parametrize(("scenario", "steps_min"), [("fetching", 60), ("offering", 40)])
def test_a_device_killed_at_any_step_loses_nothing_and_goes_on(
    tmp_path: Path, scenario: str, steps_min: int
) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "tests.node.sync.files.killed_rounds", str(tmp_path), scenario],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    assert int(result.stdout) >= steps_min
