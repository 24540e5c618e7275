"""Reading one part of a transcript: the request and the result, which also pass between two processes (``read_ahead``)."""

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import structs

from crystal_mirror.operations import Capture
from crystal_node.capture.adapter import Adapter, CaptureCounts, Hides, Spot, TranscriptReading
from crystal_node.capture.exclusions import Exclusion
from crystal_node.capture.line_reader import FileState
from crystal_node.device.privacy import Privacy


class ReadRequest(msgspec.Struct, frozen=True):
    """Asks for a part of one transcript: which adapter reads it, for which agent, from which state on, and what is private.

    ``tool``: the adapter's name. ``path``: in the file system's encoding. ``quiet_ns``: see ``Adapter.read``. ``begin``, in
    milliseconds since 1970, or 0: nothing from before is recorded of a file that is read again after something in it was
    skipped, or that was found or became readable only later.
    """

    tool: str
    path: bytes
    state: FileState | None
    agent: str
    quiet_ns: int
    privacy: Privacy
    begin: int

    def after(self, reading: TranscriptReading) -> "ReadRequest":
        """The request for the part that follows a reading with ``more``."""
        return structs.replace(self, state=kept_state(reading))


class _Counts(msgspec.Struct, frozen=True):
    messages: int
    actions: int
    redacted: dict[str, int]
    skipped: dict[str, int]
    strange: int
    spots: list[tuple[bytes, int, str]]


class ReadPart(msgspec.Struct, frozen=True):
    """A reading in the form in which it passes between processes. ``excluded``: the exclusions under which it was read."""

    operations: list[Capture]
    state: FileState
    counts: _Counts
    more: bool
    roots: list[tuple[str, str, str]]
    again: bool
    excluded: tuple[Exclusion, ...]

    @classmethod
    def of(cls, reading: TranscriptReading, excluded: tuple[Exclusion, ...]) -> "ReadPart":
        counts = reading.counts
        spots = [(os.fsencode(spot.path), spot.offset, spot.reason) for spot in counts.spots]
        return cls(
            reading.operations,
            reading.state,
            _Counts(
                counts.messages,
                counts.actions,
                dict(counts.redacted),
                dict(counts.skipped),
                counts.strange,
                spots,
            ),
            reading.more,
            [(*key, root) for key, root in reading.roots.items()],
            reading.again,
            excluded,
        )

    def reading(self) -> TranscriptReading:
        counts = CaptureCounts(self.counts.messages, self.counts.actions, strange=self.counts.strange)
        counts.redacted.update(self.counts.redacted)
        counts.skipped.update(self.counts.skipped)
        counts.spots += [
            Spot(Path(os.fsdecode(path)), offset, reason) for path, offset, reason in self.counts.spots
        ]
        roots = {(project, repository): root for project, repository, root in self.roots}
        return TranscriptReading(self.operations, self.state, counts, self.more, roots, again=self.again)


def read_part(adapter: Adapter, request: ReadRequest) -> TranscriptReading:
    """Reads the part that is asked for, without private messages. Raises OSError: the file cannot be read."""
    path, state, privacy = Path(os.fsdecode(request.path)), request.state, request.privacy
    hidden: Hides = privacy.hides
    if adapter.repeats and state is not None and state.stepped_over:
        hidden = privacy.or_version(hidden, path)
    elif state is None and not adapter.folders:
        hidden = privacy.or_since(hidden, path)
    if state.unsure_until if state is not None else not adapter.folders:
        hidden = _from(request.begin, hidden)

    def read(hides: Callable[[int], bool]) -> TranscriptReading:
        return adapter.read(path, state, agent=request.agent, hides=hides, quiet_ns=request.quiet_ns)

    reading = read(hidden)
    if request.begin and reading.again and state is not None and state.stepped_over:
        hidden = _from(request.begin, hidden)
        reading = read(hidden)
    if privacy.on and not _written_before(reading.state, privacy):
        reading = read(lambda moment: moment <= 0 or hidden(moment))
    return reading


def kept_state(reading: TranscriptReading) -> FileState:
    """The state to store. While there is more to read, an unchanged file must not count as done: the process may be killed
    before the next part."""
    return structs.replace(reading.state, size=-1, modified=-1) if reading.more else reading.state


def _from(begin: int, hides: Hides) -> Hides:
    """``hides`` after a person had decided to record nothing from before ``begin``."""
    return lambda moment: 0 < moment < begin or hides(moment)


def _written_before(state: FileState, privacy: Privacy) -> bool:
    """Whether, by the file's own times, everything read was in it before private mode was turned on: then messages without a
    time are not private either."""
    since = privacy.since or 0
    return max(state.modified, state.changed) < since * 1_000_000 and state.offset <= state.size
