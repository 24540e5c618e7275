"""The demo's agents: `crystal agent run` on two devices, which record, sync and do what the other asks by themselves.

They read no tool of this machine: only the drop folder in each home.
"""

import json
import subprocess
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import apsw

from crystal_node.base.locking import is_held
from crystal_node.base.settings.sections import DROP_FOLDER_NAME
from crystal_node.surfaces.demo.machines import DemoCommandFailed, DemoDevice, command_of, failure

START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 15.0
FOUND_SECONDS_MAX = 30.0
_POLL_SECONDS = 0.02
_BUSY_MS = 10_000


@contextmanager
def agents(*devices: DemoDevice) -> Generator[None]:
    """While they run. Raises CommandFailed when one does not start, or does not end well."""
    with ExitStack() as running:
        for device in devices:
            running.enter_context(_agent(device))
        for device in devices:
            _until_held(device.home / "state" / "watch.lock")
        yield


@contextmanager
def _agent(device: DemoDevice) -> Generator[None]:
    said = device.home.with_suffix(".agent.log")
    with said.open("w") as log:
        process = subprocess.Popen(
            command_of("agent", "run"),
            env=device.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            code = process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
    if code:
        raise failure("agent run", said.read_text())


def say(device: DemoDevice, agent: str, text: str) -> None:
    """A message of another program's conversation, put where the device's agent looks."""
    folder = device.home / DROP_FOLDER_NAME / agent
    folder.mkdir(parents=True, exist_ok=True)
    line = json.dumps({"role": "user", "text": text})
    ready = folder / "conversation.new"
    ready.write_text(line + "\n", encoding="utf-8")
    ready.replace(folder / "conversation.jsonl")


def until_found(device: DemoDevice, text: str) -> float:
    """Seconds until the text stands in the memory of that device. Raises CommandFailed."""
    began = time.monotonic()
    while not _holds(device.home / "memory" / "crystal.db", text):
        if time.monotonic() - began > FOUND_SECONDS_MAX:
            raise DemoCommandFailed(f"after {FOUND_SECONDS_MAX:.0f} s it is not there")
        time.sleep(_POLL_SECONDS)
    return time.monotonic() - began


def _holds(database: Path, text: str) -> bool:
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        connection.set_busy_timeout(_BUSY_MS)
        rows = connection.execute("SELECT 1 FROM chunks WHERE text = ? AND provisional = 0", (text,))
        return rows.fetchone() is not None
    finally:
        connection.close()


def _until_held(lock: Path) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while not is_held(lock):
        if time.monotonic() > deadline:
            raise DemoCommandFailed(f"an agent did not start within {START_SECONDS_MAX:.0f} s")
        time.sleep(_POLL_SECONDS)
