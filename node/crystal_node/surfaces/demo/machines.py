"""The demo's machines: homes, a relay, pairings and background services, all as real processes.

The background services read no tool of this machine, only the drop folder of their home.
"""

import json
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from crystal_core.sqlite_file import open_read_only
from crystal_crypto.errors import CrystalError
from crystal_node.base.errors import ExitCode
from crystal_node.base.locking import is_held
from crystal_node.base.settings import child_environment
from crystal_node.base.settings.options import DROP_FOLDER_NAME
from crystal_node.capture.drop import DropFolder
from crystal_node.capture.tools import TOOLS

COMMAND_SECONDS_MAX = 300.0
RELAY_START_SECONDS_MAX = 20.0
RELAY_STOP_SECONDS_MAX = 10.0
_LOOK_BYTES = 1024 * 1024


class DemoCommandFailed(CrystalError):
    """A command of the demo failed. The message and the hint are its own."""

    exit_code = ExitCode.UNEXPECTED
    hint = "Run `crystal demo --keep` and try that command in its home."


class DemoDevice:
    """One device: a home, and the commands that run in it."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def run(self, *arguments: str, typed: str = "", token: str = "") -> dict[str, Any]:
        """Run one ``crystal`` command with ``--json`` and return its result. ``typed`` goes to standard input.

        Raises:
            DemoCommandFailed: it failed, or took too long.
        """
        verb = arguments[0]
        try:
            result = subprocess.run(
                command_of(*arguments),
                env=self.environment(token),
                input=typed + "\n",
                capture_output=True,
                encoding="utf-8",
                timeout=COMMAND_SECONDS_MAX,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise DemoCommandFailed(
                f"`crystal {verb}` did not end within {COMMAND_SECONDS_MAX:.0f} s"
            ) from error
        if result.returncode:
            raise failure(verb, result.stderr)
        document: dict[str, Any] = json.loads(result.stdout)
        return document

    def environment(self, token: str = "") -> dict[str, str]:
        """The environment of commands in this home."""
        variables = {
            "CRYSTAL_HOME": str(self.home),
            "CRYSTAL_KEY_STORE": "file",
            "CRYSTAL_CAPTURE_WITHOUT": ",".join(name for name in TOOLS if name != DropFolder.name),
            "CRYSTAL_DESKTOP_NOTICES": "no",
        }
        if token:
            variables["CRYSTAL_RELAY_ENROLL_TOKEN"] = token
        return child_environment(variables)


def command_of(*arguments: str) -> list[str]:
    """The real ``crystal`` command, with ``--json`` after its verbs."""
    words = next((i for i, word in enumerate(arguments) if word.startswith("-")), len(arguments))
    return [sys.executable, "-P", "-m", "crystal_node", *arguments[:words], "--json", *arguments[words:]]


class DemoRelay:
    """A relay process on a free loopback port, with a folder of its own. Not reusable once stopped."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None
        self.url = ""
        self.token = secrets.token_urlsafe(32)

    def start(self) -> None:
        """Start it and wait until it accepts connections.

        Raises:
            DemoCommandFailed: it does not start; most often the `relay` extra is not installed.
        """
        self._folder.mkdir(mode=0o700)
        ready = self._folder.with_suffix(".ready")
        with self._folder.with_suffix(".log").open("w") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "crystal_relay", "serve", "--port", "0"),
                    *("--store", self._folder.as_uri(), "--ready-file", str(ready)),
                ],
                env=child_environment({"CRYSTAL_RELAY_ENROLL_TOKEN": self.token}),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                text=True,
            )
        deadline = time.monotonic() + RELAY_START_SECONDS_MAX
        while not ready.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise DemoCommandFailed(
                    f"the relay did not start: {self._folder.with_suffix('.log').read_text()[-300:].strip()}",
                    hint="Is the relay installed? pip install 'memory-crystal[relay]'",
                )
            time.sleep(0.02)
        self.url = str(json.loads(ready.read_text())["url"])

    def stop(self) -> None:
        """End it, by force if necessary. Idempotent."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(RELAY_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    @property
    def pid(self) -> int:
        """Its process id, while it runs."""
        if self._process is None:
            raise RuntimeError("the relay does not run")
        return self._process.pid

    def stored_bytes(self) -> int:
        """The size of its folder now."""
        return sum(path.stat().st_size for path in self._folder.rglob("*") if path.is_file())

    def look_for(self, words: Sequence[str]) -> tuple[int, list[str]]:
        """Search everything that the relay has stored for words. Returns the bytes read and the words found."""
        needles = [word.encode() for word in words]
        longest = max(map(len, needles), default=0)
        found: set[bytes] = set()
        looked = 0
        for path in self._folder.rglob("*"):
            if not path.is_file():
                continue
            with path.open("rb") as file:
                before = b""
                while block := file.read(_LOOK_BYTES):
                    looked += len(block)
                    found.update(needle for needle in needles if needle in before + block)
                    before = block[-longest:]
        return looked, sorted(needle.decode() for needle in found)


def failure(verb: str, said: str) -> DemoCommandFailed:
    """The error of a command, from its standard error."""
    try:
        document: dict[str, Any] = json.loads(said[said.index("{") :])
        return DemoCommandFailed(f"`crystal {verb}`: {document['error']}", hint=str(document["hint"]))
    except (ValueError, KeyError):
        return DemoCommandFailed(f"`crystal {verb}` failed: {said.strip()[-300:]}")


PAIR_SECONDS_MAX = 60.0


class _PairProcess:
    """A ``crystal pair`` process, whose standard output has a line of JSON for each event."""

    def __init__(self, device: DemoDevice, *arguments: str) -> None:
        self._process = subprocess.Popen(
            command_of(*arguments),
            env=device.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        # A process that says nothing must not hold the demo up for ever.
        self._watch = threading.Timer(PAIR_SECONDS_MAX, self._process.kill)
        self._watch.start()

    def type(self, line: str) -> None:
        assert self._process.stdin is not None, "it was opened with a pipe"
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def until(self, event: str) -> dict[str, Any]:
        """The next event of that name. Raises DemoCommandFailed if the process ends first."""
        assert self._process.stdout is not None, "it was opened with a pipe"
        for line in self._process.stdout:
            said: dict[str, Any] = json.loads(line)
            if said["event"] == event:
                return said
        _, complaint = self._process.communicate()
        raise (
            failure("pair", complaint)
            if complaint.strip()
            else DemoCommandFailed("`crystal pair` just ended")
        )

    def end(self) -> None:
        self._watch.cancel()
        if self._process.poll() is None:
            self._process.terminate()
        self._process.communicate()

    def finish(self) -> None:
        """Wait for its end. Raises DemoCommandFailed if it failed."""
        _, complaint = self._process.communicate()
        if self._process.returncode:
            raise failure("pair", complaint)


def pair(inviter: DemoDevice, newcomer: DemoDevice, name: str) -> str:
    """Pair two devices by an invite. Returns the digits that were typed.

    Raises:
        DemoCommandFailed: a command failed, or took too long.
    """
    with _talk(inviter, "pair") as here:
        code = str(here.until("invite")["code"])
        with _talk(newcomer, "pair", "--code", "-", "--name", name, "--yes") as there:
            there.type(code)
            digits = str(there.until("digits")["digits"])
            here.until("digits-wanted")
            here.type(digits)
            there.until("joined")
            here.until("paired")
            there.finish()
        here.finish()
    return digits


@contextmanager
def _talk(device: DemoDevice, *arguments: str) -> Generator[_PairProcess]:
    talk = _PairProcess(device, *arguments)
    try:
        yield talk
    finally:
        talk.end()


START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 15.0
FOUND_SECONDS_MAX = 30.0
_POLL_SECONDS = 0.02
_BUSY_MS = 10_000


@contextmanager
def agents(*devices: DemoDevice) -> Generator[None]:
    """Run background services meanwhile. Raises DemoCommandFailed if one does not start or end well."""
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
    """Write a message of another program's conversation into the drop folder."""
    folder = device.home / DROP_FOLDER_NAME / agent
    folder.mkdir(parents=True, exist_ok=True)
    line = json.dumps({"role": "user", "text": text})
    ready = folder / "conversation.new"
    ready.write_text(line + "\n", encoding="utf-8")
    ready.replace(folder / "conversation.jsonl")


def until_found(device: DemoDevice, text: str) -> float:
    """Wait until the memory of that device has the message. Returns the seconds. Raises DemoCommandFailed."""
    began = time.monotonic()
    while not _holds(device.home / "memory" / "crystal.db", text):
        if time.monotonic() - began > FOUND_SECONDS_MAX:
            raise DemoCommandFailed(f"after {FOUND_SECONDS_MAX:.0f} s it is not there")
        time.sleep(_POLL_SECONDS)
    return time.monotonic() - began


def _holds(database: Path, text: str) -> bool:
    connection = open_read_only(database, busy_milliseconds=_BUSY_MS)
    try:
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
