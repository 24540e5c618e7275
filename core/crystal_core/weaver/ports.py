"""What the engine needs from the device: texts, a place for what it writes, a clock."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Protocol

from crystal_core.weaver.answers import ExtractedMemory
from crystal_core.weaver.database import WeaverDatabase
from crystal_core.weaver.records import Method
from crystal_core.weaver.sources import Said, WeaverSource


class Output(Protocol):
    """An agent's files, and its memories. Names come from ``documents`` alone."""

    def read(self, name: str) -> str | None:
        """A file as it stands, or None."""
        ...

    def write(self, name: str, text: str, method: Method, run: str) -> bool:
        """Replaces a file as a whole, if it differs. What a person changed in it is kept beside it. Returns whether it did."""
        ...

    def remember(self, run: str, number: int, memories: Sequence[ExtractedMemory], moment: int) -> int:
        """Keeps them as memories on every device, once for each run and number, however often it is called. Returns how many
        were taken: none that was forgotten before."""
        ...


Load = Callable[[Sequence[WeaverSource]], Awaitable[list[Said]]]
Heard = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Ports:
    """``heard`` is told a line for people, and how much of how much is read."""

    book: WeaverDatabase
    load: Load
    output: Output
    now_ms: Callable[[], int]
    heard: Heard


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be woven. ``sources``: all there is of the agent, in order. ``budget``: tokens. ``new_id``: of a new run."""

    agent: str
    full: bool
    since: int
    sources: Sequence[WeaverSource]
    zone: tzinfo
    budget: int
    new_id: str
