"""The steps of the Containerfile, taken by hand: the relay from the built wheel, as the image's user, on a read-only root."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0, reason="only root can give a process another user and mounts of its own"
    ),
]


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("image")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)],
        cwd=PROJECT / "relay",
        check=True,
        capture_output=True,
        timeout=100,
    )
    (wheel,) = folder.glob("*.whl")
    state = folder / "state"
    state.mkdir(mode=0o700)
    here = (sys.executable, "-m", "tests.support.image_rehearsal")
    done = subprocess.run(
        ["unshare", "--mount", "--net", "--ipc", *here, str(wheel), str(state)],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


def test_the_wheel_alone_holds_the_whole_relay(rehearsed: dict[str, Any]) -> None:
    assert rehearsed["package"].startswith("/opt/crystal-relay/lib/")


def test_it_runs_as_the_images_user_without_any_right(rehearsed: dict[str, Any]) -> None:
    assert rehearsed["uid"] == "65532"
    assert rehearsed["capabilities"] == "0" * 16


def test_it_is_healthy_and_serves_with_nothing_writable_but_its_volume(rehearsed: dict[str, Any]) -> None:
    assert rehearsed["healthy"] is True
    assert rehearsed["round"] == "same"
    assert rehearsed["written"]


def test_the_health_check_notices_that_it_is_gone(rehearsed: dict[str, Any]) -> None:
    assert rehearsed["healthy_when_stopped"] != 0


def test_it_stops_in_order_when_it_is_told_to(rehearsed: dict[str, Any]) -> None:
    assert rehearsed["exit"] == 0
