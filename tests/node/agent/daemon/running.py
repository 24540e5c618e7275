"""Agents of tests, as processes of their own: started, waited for, asked, and ended whatever happens."""

import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from crystal_node.base.locking import is_held
from tests.support.machine import Machine
from tests.support.watchers import until

END_SECONDS_MAX = 30.0


@contextmanager
def agent(machine: Machine, *options: str, **variables: str) -> Generator["subprocess.Popen[str]"]:
    """`crystal agent run`, at work when this begins."""
    process = machine.start("agent", "run", *options, **variables)
    try:
        until(lambda: process.poll() is not None or is_running(machine, process), "an agent that runs")
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@contextmanager
def agent_without_notes(machine: Machine) -> Generator["subprocess.Popen[str]"]:
    """The same, where jobs.db cannot be used: only the lock tells that it is at work."""
    process = machine.start("agent", "run")
    try:
        until(lambda: is_held(machine.home / "state" / "watch.lock"), "an agent that runs")
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def is_running(machine: Machine, process: "subprocess.Popen[str]") -> bool:
    """Whether this process is the home's agent, and has begun its timetable."""
    found = machine.call("agent", "status", "--json").json
    return bool(found["running"]) and found["pid"] == process.pid and found["started_at"] is not None


def ended(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    """How it ended, and all that it said."""
    out, err = process.communicate(timeout=END_SECONDS_MAX)
    return process.returncode, out, err


def descriptors(pid: int) -> int:
    """Number of its open files. Of a process with keys, only root may count them."""
    try:
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))
    except PermissionError:
        pytest.skip("only root sees the open files of a process with keys")


def children(pid: int) -> list[int]:
    """The running processes that any of its threads started, except those of the embedding model."""
    every: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        every += [int(word) for word in (task / "children").read_text().split()]
    return [each for each in every if not _is_embedder(each)]


def embedders(pid: int) -> list[int]:
    """Its children that run the embedding model."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [number for task in tasks for number in map(int, task.read_text().split()) if _is_embedder(number)]


def _is_embedder(pid: int) -> bool:
    """False for a zombie, which has no command."""
    return b"crystal_core.embed.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
