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
from typing import Any, Protocol

import msgspec

from crystal_mirror.operations import Capture
from crystal_node.capture.line_reader import FileState

SPOTS_MAX = 20
"""Damaged lines that are remembered by place; beyond that they are only counted."""

Hides = Callable[[int], bool]
"""Whether a message of that moment (milliseconds, 0 if unknown) was private and must not be recorded."""


@dataclass(frozen=True, slots=True)
class FoundTranscript:
    """A transcript, or a place that could not be looked into (``problem`` says why)."""

    path: Path
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Spot:
    """A line that should have been read and could not be: where it begins (a byte offset), and why."""

    path: Path
    offset: int
    reason: str


@dataclass
class CaptureCounts:
    """What a pass met: messages taken, secrets redacted by kind, records and blocks skipped by reason.

    ``strange`` counts those lines that are damaged or of an unknown kind; all of them are in ``skipped``, too, and the first
    are in ``spots``.
    """

    messages: int = 0
    redacted: Counter[str] = field(default_factory=Counter[str])
    skipped: Counter[str] = field(default_factory=Counter[str])
    strange: int = 0
    spots: list[Spot] = field(default_factory=list[Spot])

    @property
    def understood(self) -> bool:
        """Whether there were words of a conversation, recorded or not."""
        return bool(self.messages or self.skipped["said before"] or self.skipped["private"])

    def strange_words(self) -> str:
        """One line for people on what could not be read, "" when there was nothing."""
        if not self.strange:
            return ""
        first = self.spots[0]
        lines = "1 line is" if self.strange == 1 else f"{self.strange:,} lines are"
        return f"{lines} of no kind that is known here: {first.path}, byte {first.offset} ({first.reason})"

    def add(self, other: "CaptureCounts") -> None:
        self.messages += other.messages
        self.redacted.update(other.redacted)
        self.skipped.update(other.skipped)
        self.strange += other.strange
        self.spots = (self.spots + other.spots)[:SPOTS_MAX]

    def damaged(self, path: Path, offset: int, reason: str) -> None:
        self.skipped[reason] += 1
        self.strange += 1
        if len(self.spots) < SPOTS_MAX:
            self.spots.append(Spot(path, offset, reason))


@dataclass
class TranscriptReading:
    """The result of one bounded pass over one file. ``more``: the pass ended at its bound, read again."""

    operations: list[Capture]
    state: FileState
    counts: CaptureCounts
    more: bool


class Adapter(Protocol):
    """One tool's transcripts."""

    name: str
    """What operations carry as their source, such as ``claude-code``."""
    title: str
    """What people call the tool."""
    repeats: bool
    """Whether the tool writes a message again, under its first time, when something of it changed."""

    @property
    def folders(self) -> list[Path]:
        """Where its transcripts appear, whether the folders exist or not; to be watched with all that is in them."""
        ...

    def discover(self) -> Iterator[FoundTranscript]:
        """All transcripts there are, in the order of their paths, and what could not be looked into."""
        ...

    def concerns(self, path: str) -> bool:
        """Whether a changed file is one of this tool's transcripts, by its name alone."""
        ...

    def agent_of(self, path: Path) -> str:
        """Whose conversations a transcript holds: an agent id, whatever the path says."""
        ...

    def former(self, path: Path) -> Path | None:
        """Where this transcript may have been before its tool moved it: what was read of it there is read."""
        ...

    def transcript(self, path: Path) -> Path:
        """The transcript that a changed file belongs to: most often the file itself."""
        ...

    def unchanged(self, path: Path, state: FileState | None, quiet_ns: int = -1) -> bool:
        """Whether there is nothing to read, by a cheap look. Raises OSError."""
        ...

    def recognises(self, record: dict[str, Any]) -> bool:
        """Whether a file that begins with this record is one of this tool's, wherever it lies."""
        ...

    def read(
        self, path: Path, state: FileState | None, *, agent: str, hides: Hides, quiet_ns: int = -1
    ) -> TranscriptReading:
        """Reads on from ``state``. In a file that has not changed since ``quiet_ns`` (its own clock, nanoseconds) a last line
        without its end is taken if it is whole. Raises OSError if the file cannot be opened or read."""
        ...

    def skip(self, path: Path) -> FileState:
        """A state behind everything that the file holds now, its last half line included. Raises OSError."""
        ...


def encode_state(state: FileState) -> bytes:
    """The state's bytes, to be kept with what was captured."""
    return msgspec.msgpack.encode(state)


def decode_state(data: bytes) -> FileState | None:
    """The state as it was kept; None if another version wrote it (the file is then read from its start again)."""
    try:
        return msgspec.msgpack.decode(data, type=FileState)
    except msgspec.MsgspecError:
        return None
