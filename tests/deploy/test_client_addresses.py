"""Behind Caddy the relay still knows who is who: a device's own address counts, and no device can claim another."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, int]]:
    mapped = [] if os.geteuid() == 0 else ["--map-root-user"]
    here = (
        sys.executable,
        "-m",
        "tests.support.address_rehearsal",
        str(tmp_path_factory.mktemp("addresses")),
    )
    done = subprocess.run(
        ["unshare", "--net", *mapped, *here],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    if "unshare failed" in done.stderr:
        pytest.skip("this system lets nobody have a network of their own")
    assert done.returncode == 0, done.stderr
    said: dict[str, dict[str, int]] = json.loads(done.stdout.splitlines()[-1])
    return said


def test_an_address_that_keeps_failing_is_held_off(answers: dict[str, dict[str, int]]) -> None:
    assert answers["hasty"]["401"] >= 90
    assert answers["hasty"]["429"] >= 100


def test_others_behind_the_same_proxy_are_not_held_off_with_it(answers: dict[str, dict[str, int]]) -> None:
    assert answers["calm"] == {"401": 5}


def test_a_forged_address_does_not_get_past_the_limit(answers: dict[str, dict[str, int]]) -> None:
    assert answers["forging"]["429"] >= 100
