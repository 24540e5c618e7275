"""Port of service managers, and the call of a system command that they share."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from shutil import which
from typing import Protocol

from crystal_crypto.errors import CrystalError
from crystal_node.base.settings.user_session import Surroundings
from crystal_node.base.wording import one_line


class ServiceState(StrEnum):
    """State of the service.

    ::

        ABSENT --install--> STOPPED --start--> RUNNING --falls over too often--> FAILED
          ^-----------------uninstall-----------------------------------------------|
        UNREACHABLE: the file exists, and no manager runs that could be asked
    """

    ABSENT = "absent"
    STOPPED = "stopped"
    RUNNING = "running"
    FAILED = "failed"
    UNREACHABLE = "unreachable"


class ServiceUnavailable(CrystalError):
    """No service manager of this user runs here, or it refused."""

    exit_code = 8
    hint = "Run `crystal agent run` in a terminal, or under a supervisor of your own."


class NotInstalled(CrystalError):
    """There is no service for this home."""

    exit_code = 10
    hint = "`crystal agent install` makes one; `crystal agent run` works without."


class Manager(Protocol):
    """One service manager, and the service of one home."""

    @property
    def name(self) -> str:
        """For people: "systemd --user"."""
        ...

    @property
    def file(self) -> Path:
        """The service file."""
        ...

    def render(self) -> bytes:
        """Content of the service file."""
        ...

    def install(self) -> str:
        """Writes the file, replacing an older one, and has the service start at login. Returns what a person should know.

        Raises:
            ServiceUnavailable: nothing was written.
        """
        ...

    def start(self) -> None:
        """Raises ServiceUnavailable, NotInstalled."""
        ...

    def stop(self) -> None:
        """Stops the service and returns when it has ended. Raises ServiceUnavailable."""
        ...

    def uninstall(self) -> None:
        """Stops the service and removes everything. Works without a running manager, and when nothing is installed."""
        ...

    def state(self) -> ServiceState:
        """Does not raise if there is no manager."""
        ...


CALL_SECONDS_MAX = 60.0
SAID_CHARS_MAX = 300


@dataclass(frozen=True, slots=True)
class CallResult:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        return one_line(self.err.strip() or self.out.strip() or f"exit code {self.code}", SAID_CHARS_MAX)


def call(command: Sequence[str], surroundings: Surroundings) -> CallResult:
    """Runs a system command. Raises ServiceUnavailable if it is missing or does not end in time."""
    program = which(command[0], path=surroundings.environment.get("PATH"))
    if program is None:
        raise ServiceUnavailable(f"there is no {command[0]} on this machine")
    try:
        done = subprocess.run(
            [program, *command[1:]],
            env=dict(surroundings.environment) | {"LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=CALL_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ServiceUnavailable(
            f"{Path(program).name} did not answer within {CALL_SECONDS_MAX:.0f} seconds"
        ) from error
    return CallResult(done.returncode, done.stdout, done.stderr)


def required(command: Sequence[str], surroundings: Surroundings) -> CallResult:
    """As ``call``, for a command that must succeed. Raises ServiceUnavailable."""
    done = call(command, surroundings)
    if done.code:
        raise ServiceUnavailable(f"{' '.join(command[:3])}: {done.said}")
    return done
