"""The servers that tests start: nothing of them stays behind, one run has one of each, and a missing one says so."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.s3_servers import S3Server, running_rclone
from tests.support.s3_servers.daemons import accepts
from tests.support.s3_servers.kept import PROJECT, shared
from tests.support.s3_servers.rgw import rgw
from tests.support.s3_servers.server import ServerMissing

SECONDS_MAX = 10.0

RUN = """
import sys, time
from tests.support.s3_servers import running_rclone
with running_rclone() as server:
    print(server.endpoint, flush=True)
    time.sleep(100)
"""


def test_a_server_and_its_files_are_gone_after_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with running_rclone() as server:
        assert _serves(server)
        assert list(tmp_path.iterdir())
    assert not _serves(server)
    assert not list(tmp_path.iterdir())


def test_a_killed_run_leaves_no_server_and_no_file(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", RUN],
        cwd=PROJECT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stdout is not None
        endpoint = run.stdout.readline().strip()
        port = int(endpoint.rpartition(":")[2])
        assert accepts(port)
        run.kill()
    _until(lambda: not accepts(port) and not list(tmp_path.iterdir()))


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's help is Linux's")
def test_a_killed_keeper_takes_its_server_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = _children()
    with running_rclone() as server:
        (keeper,) = _children() - before
        os.kill(keeper, signal.SIGKILL)
        _until(lambda: not _serves(server))


def test_workers_of_one_run_share_one_server_until_the_run_ends(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "100"]) as run:
        try:
            with ThreadPoolExecutor(4) as workers:
                servers = {
                    worker.result()
                    for worker in [
                        workers.submit(shared, "rclone", tmp_path, until_exit_of=run.pid) for _ in range(4)
                    ]
                }
            (server,) = servers
            assert _serves(server)
        finally:
            run.kill()
    _until(lambda: not _serves(server))


def test_a_server_that_is_not_installed_names_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ServerMissing, match="apt install radosgw ceph-mon ceph-osd"), rgw():
        pass


def _serves(server: S3Server) -> bool:
    return accepts(int(server.endpoint.rpartition(":")[2]))


def _children() -> set[int]:
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)
