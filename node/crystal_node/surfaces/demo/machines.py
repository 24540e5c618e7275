"""The demo's machines: homes with the real ``crystal`` command, and a real relay, each a process of its own."""

import json
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crystal_crypto.errors import CrystalError
from crystal_node.base.errors import ExitCode
from crystal_node.base.settings import child_environment

COMMAND_SECONDS_MAX = 300.0
RELAY_START_SECONDS_MAX = 20.0
RELAY_STOP_SECONDS_MAX = 10.0
_LOOK_BYTES = 1024 * 1024


class DemoCommandFailed(CrystalError):
    """A command of the demo ended by an error: its own exit code and hint are passed on."""

    exit_code = ExitCode.UNEXPECTED
    hint = "Run `crystal demo --keep` and try that command in its home."


class DemoDevice:
    """One device: a home, and the commands that are run in it."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def run(self, *arguments: str, typed: str = "", token: str = "") -> dict[str, Any]:
        """Runs one ``crystal`` command with ``--json`` and returns its result. ``typed`` goes to standard input.

        Raises:
            CommandFailed: it did not end well, or not in time.
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
        """What a command of this home runs with."""
        variables = {
            "CRYSTAL_HOME": str(self.home),
            "CRYSTAL_KEY_STORE": "file",
            "CRYSTAL_CAPTURE_WITHOUT": "claude-code,codex,gemini-cli,openclaw",
            "CRYSTAL_DESKTOP_NOTICES": "no",
        }
        if token:
            variables["CRYSTAL_RELAY_ENROLL_TOKEN"] = token
        return child_environment(variables)


def command_of(*arguments: str) -> list[str]:
    """The real ``crystal`` command with ``--json`` behind its verbs."""
    words = next((i for i, word in enumerate(arguments) if word.startswith("-")), len(arguments))
    return [sys.executable, "-m", "crystal_node", *arguments[:words], "--json", *arguments[words:]]


class DemoRelay:
    """A relay process on a free port of the loopback, over a folder of its own. Used up once stopped."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None
        self.url = ""
        self.token = secrets.token_urlsafe(32)

    def start(self) -> None:
        """Starts it and waits until it accepts connections.

        Raises:
            CommandFailed: it does not start; most often the `relay` extra is not installed.
        """
        self._folder.mkdir(mode=0o700)
        ready = self._folder.with_suffix(".ready")
        with self._folder.with_suffix(".log").open("w") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "crystal_relay", "serve", "--port", "0"),
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
        """Ends it, by force if it does not listen. Idempotent."""
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
        """What its folder holds by now."""
        return sum(path.stat().st_size for path in self._folder.rglob("*") if path.is_file())

    def look_for(self, words: Sequence[str]) -> tuple[int, list[str]]:
        """Reads everything that the relay has stored. Returns how many bytes, and which of the words stand in it."""
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
    """The error of a command that ended by one, from what it said."""
    try:
        document: dict[str, Any] = json.loads(said[said.index("{") :])
        return DemoCommandFailed(f"`crystal {verb}`: {document['error']}", hint=str(document["hint"]))
    except (ValueError, KeyError):
        return DemoCommandFailed(f"`crystal {verb}` failed: {said.strip()[-300:]}")
