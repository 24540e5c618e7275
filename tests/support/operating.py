"""`crystal-relay` as an operator runs it: a real process each time."""

import asyncio
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.support import programs

COMMAND_SECONDS_MAX = 60


@dataclass(frozen=True, slots=True)
class Said:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Its one JSON document."""
        return json.loads(self.out)

    @property
    def failure(self) -> Any:
        """Its error, with `--json`."""
        return json.loads(self.err)


def crystal_relay(*words: str, typed: str = "", environment: Mapping[str, str] | None = None) -> Said:
    """Run it to its end. `typed`: what comes on standard input."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CRYSTAL_")}
    ended = programs.run(
        "crystal_relay",
        words,
        env=inherited | dict(environment or {}),
        typed=typed,
        timeout=COMMAND_SECONDS_MAX,
    )
    return Said(ended.returncode, ended.stdout, ended.stderr)


async def run_crystal_relay(
    *words: str, typed: str = "", environment: Mapping[str, str] | None = None
) -> Said:
    """The same beside a running event loop."""
    return await asyncio.to_thread(crystal_relay, *words, typed=typed, environment=environment)
