"""A real relay process for tests: started on a free loopback port, waited for, stopped or killed."""

import contextlib
import json
import os
import secrets
import signal
import sqlite3
import subprocess
import time
from collections.abc import Generator, Mapping
from pathlib import Path

from tests.support import programs

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 20.0


class RelayProcess:
    """`python -m crystal_relay serve` over a directory. Use `running_relay`, or `start` again after `kill`."""

    def __init__(
        self,
        directory: Path,
        *,
        enroll_token: str | None = None,
        port: int = 0,
        options: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
        prefix: tuple[str, ...] = (),
        fresh: bool = False,
    ) -> None:
        """`prefix` comes before the command: `nsenter`, `prlimit`. `fresh`: see `tests.support.programs`."""
        self.directory = directory
        self.enroll_token = enroll_token or secrets.token_hex(32)
        self.url = ""
        self._port = port
        self._options = options
        self._environment = dict(environment or {})
        self._prefix = prefix
        self._fresh = fresh
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def errors(self) -> str:
        """What it has written on stderr, over all its starts."""
        path = self._side_file("stderr")
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self) -> None:
        """Start, and return once it accepts connections. A restart keeps the port, so that `url` stays the same."""
        assert self._process is None, "it runs already"
        ready_file = self._side_file("ready")
        ready_file.unlink(missing_ok=True)
        with self._side_file("stderr").open("ab") as errors:
            address = self.directory.absolute().as_uri()
            options = ("--port", str(self._port), "--store", address, "--ready-file", str(ready_file))
            self._process = programs.started(
                "crystal_relay",
                ("serve", *options, *self._options),
                env=os.environ
                # No proxy to wait for.
                | {"CRYSTAL_RELAY_ENROLL_TOKEN": self.enroll_token, "CRYSTAL_RELAY_DRAIN_SECONDS": "0"}
                | self._environment,
                prefix=self._prefix,
                fresh=self._fresh,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
        deadline = time.monotonic() + START_SECONDS_MAX
        while not ready_file.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"the relay did not start:\n{self.errors}")
            time.sleep(0.02)
        self.url = str(json.loads(ready_file.read_text())["url"])
        self._port = int(self.url.partition("#")[0].rpartition(":")[2])

    def stop(self) -> int:
        """Stop it orderly and return its exit code. Idempotent: 0 when it does not run."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise

    def kill(self) -> None:
        """SIGKILL. Idempotent."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "it does not run"
        return self._process

    def _side_file(self, name: str) -> Path:
        """Beside the directory, so that a look at what the relay has stored finds nothing of the test's."""
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        return self.directory.with_name(f"{self.directory.name}.{name}")


@contextlib.contextmanager
def running_relay(
    directory: Path,
    *,
    enroll_token: str | None = None,
    port: int = 0,
    options: tuple[str, ...] = (),
    environment: Mapping[str, str] | None = None,
    fresh: bool = False,
) -> Generator[RelayProcess]:
    """A relay over `directory`; it is stopped at the end, killed if it does not stop."""
    relay = RelayProcess(
        directory,
        enroll_token=enroll_token,
        port=port,
        options=options,
        environment=environment,
        fresh=fresh,
    )
    relay.start()
    try:
        yield relay
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            relay.stop()


def sweep(relay: RelayProcess) -> None:
    """A relay that runs deletes now what it was asked to."""
    address = relay.directory.absolute().as_uri()
    words = ("sweep", "--store", address)
    swept = programs.run("crystal_relay", words, env=os.environ, timeout=START_SECONDS_MAX)
    assert swept.returncode == 0, swept.stderr


def first_slot(relay: RelayProcess) -> int:
    """The number with which the log begins that the relay still has. For a vault that has had one epoch."""
    database = relay.directory.absolute() / "objects.db"
    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        (key,) = connection.execute("SELECT min(key) FROM object WHERE key LIKE 'v/%/mirror/%'").fetchone()
    return int(str(key).rpartition("/")[2])
