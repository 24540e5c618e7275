"""What the server of `children.py` has loaded, and what a child of it runs."""

import os
import signal
import sys

import apsw
import httpx
import onnxruntime
import watchfiles

# Loaded before a child is forked; no thread, connection or model is made by importing these.
import crystal_core.embed.builtin
import crystal_core.search.search
import crystal_node.agent.watcher
import crystal_node.capture.recorder
import crystal_node.device.enrolment
import crystal_node.sync.syncer
from crystal_node.surfaces.cli import main
from crystal_node.surfaces.cli.app import build

LOADED = (
    build(()),
    crystal_core.embed.builtin,
    crystal_core.search.search,
    crystal_node.device.enrolment,
    crystal_node.capture.recorder,
    crystal_node.sync.syncer,
    crystal_node.agent.watcher,
    httpx,
    onnxruntime,
    watchfiles,
)


def run_command(
    arguments: list[str], environment: dict[str, str], log: str, dies_at_commit: int | None
) -> None:
    """Runs `crystal` in this child, as a process of that environment, and ends it with its exit code.

    With `dies_at_commit` it kills itself just before its n-th database commit (from 1) takes effect.
    """
    os.environ.clear()
    os.environ.update(environment)
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115, PTH123  for as long as the process lives
    if dies_at_commit is not None:
        _die_at_commit(dies_at_commit)
    sys.exit(main(arguments))


def _die_at_commit(number: int) -> None:
    commits = 0

    def before_commit() -> bool:
        nonlocal commits
        commits += 1
        if commits == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return False  # SQLite: go on with the commit

    def opened(connection: apsw.Connection) -> None:
        connection.set_commit_hook(before_commit)

    apsw.connection_hooks.append(opened)
