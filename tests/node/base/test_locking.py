"""Locks of the home: one at a time, across processes, gone with their holder however it dies."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from crystal_node.base.errors import HomeBusy
from crystal_node.base.locking import FileLock, is_held

_HOLDER = """
import sys, time
from pathlib import Path
from crystal_node.base.locking import FileLock
with FileLock(Path(sys.argv[1]), purpose="crystal sync"):
    print("held", flush=True)
    time.sleep(60)
"""

_WAITER = """
import sys
from pathlib import Path
from crystal_node.base.locking import FileLock
with FileLock(Path(sys.argv[1]), purpose="second", wait_seconds=20):
    print("got it")
"""


def _holder(path: Path) -> "subprocess.Popen[str]":
    process = subprocess.Popen([sys.executable, "-c", _HOLDER, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def _end(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    assert process.stdout is not None
    process.stdout.close()


def test_a_second_process_is_told_who_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "sync.lock"
    process = _holder(path)
    try:
        assert is_held(path)
        with pytest.raises(HomeBusy, match=rf"process {process.pid} \(crystal sync\)"):
            FileLock(path, purpose="me", wait_seconds=0.1).acquire()
    finally:
        _end(process)


def test_a_holder_that_is_killed_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "sync.lock"
    process = _holder(path)
    _end(process)
    assert not is_held(path)
    with FileLock(path, purpose="me"):
        assert is_held(path)
    assert not is_held(path)


def test_who_waits_gets_it_when_it_is_free(tmp_path: Path) -> None:
    path = tmp_path / "sync.lock"
    first = FileLock(path, purpose="first")
    first.acquire()
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            _WAITER,
            str(path),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    time.sleep(0.5)
    assert process.poll() is None
    first.release()
    assert process.communicate(timeout=20)[0] == "got it\n"


async def test_waiting_in_an_event_loop_can_be_cancelled_and_leaves_nothing_held(tmp_path: Path) -> None:
    path = tmp_path / "sync.lock"
    with FileLock(path, purpose="first"):
        waiting = asyncio.create_task(FileLock(path, purpose="second", wait_seconds=30).acquire_async())
        await asyncio.sleep(0.2)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert not is_held(path)


def test_a_child_process_does_not_inherit_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "sync.lock"
    lock = FileLock(path, purpose="me")
    lock.acquire()
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], close_fds=False)
    try:
        lock.release()
        deadline = time.monotonic() + 10
        while is_held(path) and time.monotonic() < deadline:
            time.sleep(0.01)  # the kernel closes inherited files a moment after it lets the parent go on
        assert not is_held(path)
        assert child.poll() is None
    finally:
        child.kill()
        child.wait(10)


def test_the_note_of_an_earlier_holder_is_not_taken_for_the_present_one(tmp_path: Path) -> None:
    path = tmp_path / "sync.lock"
    path.write_text("not a note")
    lock = FileLock(path, purpose="me")
    assert lock.holder() == "another process"
    with lock:
        assert lock.holder() == f"process {os.getpid()} (me)"


def test_taking_a_lock_again_writes_nothing(tmp_path: Path) -> None:
    """The background service takes its locks in every round, on machines whose disks should rest."""
    lock = FileLock(tmp_path / "sync.lock", purpose="crystal agent")
    with lock:
        pass
    os.utime(tmp_path / "sync.lock", ns=(1, 1))
    with lock:
        assert lock.holder() == f"process {os.getpid()} (crystal agent)"
    assert (tmp_path / "sync.lock").stat().st_mtime_ns == 1
