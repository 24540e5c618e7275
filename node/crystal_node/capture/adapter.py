"""The port of capture: one adapter for each tool whose transcripts are read.

What an adapter must hold:

- It only reads, and only files below the root it was given; it never follows a link out of it.
- ``read`` does a bounded amount of work in bounded memory, whatever the file holds, and never raises on content. What it
  cannot use is counted by reason; it is never dropped silently.
- The state it returns covers exactly what its operations cover. The caller commits both in one transaction, so a crash
  repeats a pass or does not, and a message is neither lost nor doubled.
- Reading again from the start is safe: messages carry the source's own ids, and equal text is one chunk.
- Text is cleaned of the tool's own mark-up and redacted before it leaves the adapter.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec

from crystal_mirror.operations import Capture
from crystal_node.capture.follow import FileState

Hides = Callable[[int], bool]
"""Whether a message of that moment (milliseconds, 0 if unknown) was private and must not be recorded."""


@dataclass(frozen=True, slots=True)
class Found:
    """A transcript, or a place that could not be looked into (``problem`` says why)."""

    path: Path
    problem: str | None = None


@dataclass
class Counts:
    """What a pass met: messages taken, secrets redacted by kind, records skipped by reason."""

    messages: int = 0
    redacted: Counter[str] = field(default_factory=Counter[str])
    skipped: Counter[str] = field(default_factory=Counter[str])

    def add(self, other: "Counts") -> None:
        self.messages += other.messages
        self.redacted.update(other.redacted)
        self.skipped.update(other.skipped)


@dataclass
class Reading:
    """The result of one bounded pass over one file. ``more``: the pass ended at its bound, read again."""

    operations: list[Capture]
    state: FileState
    counts: Counts
    more: bool


class Adapter(Protocol):
    """One tool's transcripts."""

    name: str
    """What operations carry as their source, such as ``claude-code``."""

    def discover(self) -> Iterator[Found]:
        """All transcripts there are, oldest path order, and what could not be looked into."""
        ...

    def concerns(self, path: str) -> bool:
        """Whether a changed file is one of this tool's transcripts, by its name alone."""
        ...

    def read(self, path: Path, state: FileState | None, *, agent: str, hides: Hides) -> Reading:
        """Reads on from ``state``. Raises OSError if the file cannot be opened or read."""
        ...

    def skip(self, path: Path) -> FileState:
        """A state behind everything that the file holds now, its last half line included. Raises OSError."""
        ...


def encode_state(state: FileState) -> bytes:
    return msgspec.msgpack.encode(state)


def decode_state(data: bytes) -> FileState | None:
    """The state as it was kept; None if another version wrote it (the file is then read from its start again)."""
    try:
        return msgspec.msgpack.decode(data, type=FileState)
    except msgspec.MsgspecError:
        return None
