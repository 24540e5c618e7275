"""The port of capture: one adapter for each tool whose transcripts are read.

What an adapter must guarantee:

- It only reads, and only files below the root it was given, or in folders that the tool's own list there names; it never
  follows a link out of them.
- ``read`` does bounded work in bounded memory, whatever the file holds, and never raises on content. What it cannot use is
  counted by reason, never dropped silently.
- The state it returns covers exactly what its operations cover. The caller commits both in one transaction, so that no crash
  loses or doubles a message.
- Reading again from the start is safe: messages carry the source's own ids, and equal text is one chunk.
- Text is cleaned of the tool's mark-up and redacted before it leaves the adapter.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec

from crystal_core.projects import ProjectKey
from crystal_crypto.errors import UNDECODABLE
from crystal_mirror.operations import Capture
from crystal_node.base.decoding import from_msgpack
from crystal_node.base.settings.options import ActionDetail
from crystal_node.capture.line_reader import FileState
from crystal_node.device.repositories import Roots

SPOTS_MAX = 20
"""How many damaged lines are kept with their position; more are only counted."""

Hides = Callable[[int], bool]
"""Whether a message of that time (milliseconds, 0 if unknown) was private and must not be recorded."""


@dataclass(frozen=True, slots=True)
class FoundTranscript:
    """A transcript, or a folder that could not be read, or a file that is ``refused`` (``problem`` says why)."""

    path: Path
    problem: str | None = None
    refused: bool = False

    @property
    def is_unread_folder(self) -> bool:
        return self.problem is not None and not self.refused


@dataclass(frozen=True, slots=True)
class Spot:
    """A line that could not be read: the byte offset at which it begins, and why."""

    path: Path
    offset: int
    reason: str


@dataclass
class CaptureCounts:
    """Counts of a pass: messages and tool calls recorded, secrets redacted by kind, records and blocks skipped by reason.

    ``strange`` counts lines that are damaged or of an unknown kind; they are in ``skipped``, too, and the first in ``spots``.
    """

    messages: int = 0
    actions: int = 0
    redacted: Counter[str] = field(default_factory=Counter[str])
    skipped: Counter[str] = field(default_factory=Counter[str])
    strange: int = 0
    spots: list[Spot] = field(default_factory=list[Spot])

    @property
    def understood(self) -> bool:
        """Whether there were messages, recorded or not."""
        return bool(self.messages or self.actions) or any(
            self.skipped[why] for why in ("said before", "private", "excluded project")
        )

    def strange_words(self) -> str:
        """One line for people on what could not be read, "" when there was nothing."""
        if not self.strange:
            return ""
        first = self.spots[0]
        lines = "1 line is" if self.strange == 1 else f"{self.strange:,} lines are"
        return f"{lines} of no kind that is known here: {first.path}, byte {first.offset} ({first.reason})"

    def add(self, other: "CaptureCounts") -> None:
        self.messages += other.messages
        self.actions += other.actions
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
    """The result of one bounded pass over one file. ``more``: the pass ended at its bound; read again. ``roots``: the folders
    of the operations' repositories (``device.repositories.Roots``). ``again``: messages in it may have been read or
    skipped before."""

    operations: list[Capture]
    state: FileState
    counts: CaptureCounts
    more: bool
    roots: Roots = field(default_factory=dict[ProjectKey, str])
    again: bool = True


class Adapter(Protocol):
    """One tool's transcripts."""

    name: str
    """The source that operations carry, such as ``claude-code``."""
    title: str
    """What people call the tool."""
    root: Path
    """The tool's own folder. It is on this machine if this is there."""
    repeats: bool
    """Whether the tool writes a changed message again, under its first time."""
    crystal_home: Path | None
    """The home whose exclusions hold (``exclusions``); None: there are none."""
    actions: ActionDetail
    """How much of tool calls is recorded."""

    @property
    def folders(self) -> list[Path]:
        """Folders to watch for its transcripts, with everything below them, whether they exist or not."""
        ...

    def discover(self) -> Iterator[FoundTranscript]:
        """All transcripts in the order of their paths, and folders that could not be read."""
        ...

    def concerns(self, path: str) -> bool:
        """Whether a changed file is one of this tool's transcripts, by its name alone."""
        ...

    def agent_of(self, path: Path) -> str:
        """The agent whose conversations a transcript holds: a valid agent id for any path."""
        ...

    def former(self, path: Path) -> Path | None:
        """The path that this transcript may have had before its tool moved it, and under which it may have been read."""
        ...

    def transcript(self, path: Path) -> Path:
        """The transcript that a changed file belongs to, usually the file itself."""
        ...

    def unchanged(self, path: Path, state: FileState | None, quiet_ns: int = -1) -> bool:
        """Whether there is nothing to read, by a cheap check. Raises OSError."""
        ...

    def recognises(self, record: dict[str, Any]) -> bool:
        """Whether a file is one of this tool's, wherever it is, by its first record. Of a document, ``record`` is the document;
        of a database, the columns of its tables by their names."""
        ...

    def read(
        self, path: Path, state: FileState | None, *, agent: str, hides: Hides, quiet_ns: int = -1
    ) -> TranscriptReading:
        """Reads on from ``state``. If the file has not changed since ``quiet_ns`` (nanoseconds by its own clock), a last line
        without newline is read if it is whole. Raises OSError if the file cannot be opened or read."""
        ...

    def skip(self, path: Path) -> FileState:
        """A state after everything in the file, an incomplete last line included. Raises OSError."""
        ...


def encode_state(state: FileState) -> bytes:
    """The state as bytes, to be kept with what was captured."""
    return msgspec.msgpack.encode(state)


def decode_state(data: bytes) -> FileState | None:
    """The state from its bytes; None if another version wrote them (the file is then read from its start)."""
    try:
        return from_msgpack(data, FileState)
    except UNDECODABLE:
        return None
