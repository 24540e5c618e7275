"""Ports of the engine to the device: sources, output, clock."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Protocol

from crystal_core.weaver.answers import ExtractedMemory
from crystal_core.weaver.database import WeaverDatabase
from crystal_core.weaver.records import Method
from crystal_core.weaver.sources import Said, WeaverSource


class Output(Protocol):
    """An agent's files and memories. Names come from ``documents`` only."""

    def read(self, name: str) -> str | None:
        """Return a file's current text, or None."""
        ...

    def write(self, name: str, text: str, method: Method, run: str) -> bool:
        """Replace a file if it differs, keeping a person's changes beside it. Returns whether it differed."""
        ...

    def remember(self, run: str, number: int, memories: Sequence[ExtractedMemory], moment: int) -> int:
        """Store memories on every device, once per run and number however often it is called.

        Returns how many were accepted; forgotten ones are not.
        """
        ...


Load = Callable[[Sequence[WeaverSource]], Awaitable[list[Said]]]
Heard = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Ports:
    """``heard`` is called with a progress line for people, and the amount read of the total."""

    database: WeaverDatabase
    load: Load
    output: Output
    now_ms: Callable[[], int]
    heard: Heard


@dataclass(frozen=True, slots=True)
class Plan:
    """What to weave. ``sources``: all of the agent's, in order. ``budget``: tokens. ``new_id``: id of a new run."""

    agent: str
    full: bool
    since: int
    sources: Sequence[WeaverSource]
    zone: tzinfo
    budget: int
    new_id: str
