"""Calls a command of the system: by a list of words, with a time limit, and with what it said when it failed."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which

from crystal_node.agent.service.manager import ServiceUnavailable
from crystal_node.base.settings.user_session import Surroundings
from crystal_node.base.wording import one_line

CALL_SECONDS_MAX = 60.0
SAID_CHARS_MAX = 300


@dataclass(frozen=True, slots=True)
class Called:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        return one_line(self.err.strip() or self.out.strip() or f"exit code {self.code}", SAID_CHARS_MAX)


def call(command: Sequence[str], surroundings: Surroundings) -> Called:
    """Runs it to its end. Raises ServiceUnavailable if it is not here, or does not end."""
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
    return Called(done.returncode, done.stdout, done.stderr)


def required(command: Sequence[str], surroundings: Surroundings) -> Called:
    """The same, for a call that must succeed. Raises ServiceUnavailable."""
    done = call(command, surroundings)
    if done.code:
        raise ServiceUnavailable(f"{' '.join(command[:3])}: {done.said}")
    return done
