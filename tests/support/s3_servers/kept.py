"""Servers as tests use them: each with a keeper (`__main__.py`), for one test or for all workers of a run."""

import contextlib
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.support.s3_servers.server import S3Server

PROJECT = Path(__file__).resolve().parents[3]
STOP_SECONDS_MAX = 20.0

# Keepers of shared servers outlive the worker that started them: the last user may be another one.
_shared_keepers: list[subprocess.Popen[str]] = []


def running_rgw() -> AbstractContextManager[S3Server]:
    """Ceph's object gateway: the reference for races, expiry and signatures. Two seconds to start."""
    return _running("rgw")


def running_swift() -> AbstractContextManager[S3Server]:
    """OpenStack Swift's s3api: independent of the others. It knows conditions, and they are not atomic."""
    return _running("swift")


def running_rclone() -> AbstractContextManager[S3Server]:
    """`rclone serve s3`: ignores conditions without a word."""
    return _running("rclone")


def running_moto(*, auth: bool = False) -> AbstractContextManager[S3Server]:
    """moto. With `auth` signatures and IAM policies count; the server's keys may then do everything.

    Pre-signed requests work without `auth` only.
    """
    return _running("moto-auth" if auth else "moto")


def shared(name: str, directory: Path, *, until_exit_of: int) -> S3Server:
    """The run's one server `name`: the first caller starts it. It ends with process `until_exit_of`.

    `directory` is common to all workers of the run. Nobody else may rely on the server's own bucket being empty.
    """
    with (directory / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        record = directory / f"{name}.json"
        if not record.exists():
            keeper = _start_keeper(name, until_exit_of)
            _shared_keepers.append(keeper)
            record.write_text(_said_by(keeper))
        return _server_of(record.read_text())


@contextlib.contextmanager
def _running(name: str) -> Generator[S3Server]:
    keeper = _start_keeper(name, os.getpid())
    try:
        yield _server_of(_said_by(keeper))
    finally:
        keeper.terminate()
        try:
            keeper.wait(STOP_SECONDS_MAX)
        finally:
            keeper.kill()


def _start_keeper(name: str, until_exit_of: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", __package__ or "", name, str(until_exit_of)],
        cwd=PROJECT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _said_by(keeper: subprocess.Popen[str]) -> str:
    assert keeper.stdout is not None
    with keeper.stdout as stdout:
        return stdout.readline()


def _server_of(said: str) -> S3Server:
    document = json.loads(said or '{"error": "the keeper ended without a word"}')
    if "missing" in document:
        pytest.skip(document["missing"])
    if "error" in document:
        raise RuntimeError(document["error"])
    return S3Server(**document)
