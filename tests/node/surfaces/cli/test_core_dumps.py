"""A process that crashes with keys in memory leaves no core file."""

import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from crystal_node.base.locking import is_held
from tests.node.device.test_keys import until
from tests.support.machine import Machine, Vault

_PATTERN = Path("/proc/sys/kernel/core_pattern")

_CRASH = """
import os, sys
from crystal_node.surfaces.cli import main
from crystal_node.device.device import opened
from crystal_node.base.settings import resolve
if sys.argv[1] == "crystal":
    assert main(["status"]) == 0
with opened(resolve()) as device:
    print("identity", len(device.identity.to_bytes()), flush=True)
    os.abort()
"""


def _allow_cores() -> None:
    most = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (most, most))


def _crash(machine: Machine, folder: Path, kind: str) -> list[Path]:
    """The core files that a crash leaves, in a process that could leave one."""
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", _CRASH, kind],
        env=machine.environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=_allow_cores,
    )
    assert done.returncode == -signal.SIGABRT, done.stderr
    assert "identity 93" in done.stdout, "it had its keys in memory"
    return list(folder.glob("core*"))


@pytest.fixture
def cores_are_files() -> None:
    if not _PATTERN.exists() or _PATTERN.read_text().strip() != "core":
        pytest.skip("this system does not leave core files in the working directory")
    if not resource.getrlimit(resource.RLIMIT_CORE)[1]:
        pytest.skip("this process may not leave core files, for good")


@pytest.mark.usefixtures("cores_are_files")
def test_a_crash_with_keys_in_memory_leaves_no_core(vault: Vault, tmp_path: Path) -> None:
    without = _crash(vault.core, tmp_path / "without", "bare")
    assert without, "the same crash leaves a core where nothing forbids it"
    for core in without:
        core.unlink()
    assert _crash(vault.core, tmp_path / "with", "crystal") == []


def test_a_running_watcher_can_leave_no_core_and_cannot_allow_itself_one(
    vault: Vault, tmp_path: Path
) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "crystal_node", "sync", "--watch"],
        env=vault.core.environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=_allow_cores,  # noqa: PLW1509  it makes two calls of the system and takes no lock
    )
    try:
        until(lambda: is_held(vault.core.home / "state" / "watch.lock"))
        assert resource.prlimit(process.pid, resource.RLIMIT_CORE) == (0, 0)
        process.send_signal(signal.SIGABRT)
        assert process.wait(30) == -signal.SIGABRT
    finally:
        process.kill()
        process.wait()
    assert list(folder.glob("core*")) == []
