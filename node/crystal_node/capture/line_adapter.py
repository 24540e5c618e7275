"""Adapters for transcripts with one record a line.

A tool's own adapter says where its files are and what one line means. Here is the rest: reading on, private spans, damage,
repeated messages, and the last line of a session that was never ended.

Such a line has no newline because the tool crashed, the power failed, or it writes it later. It is taken when the file has
not changed for ``QUIET_MS`` and it parses as a whole record. If its newline comes later, it stands alone on an empty line; if
the tool starts again and writes right behind it, reading goes on with that record. A torn line stays where it is, and what
is written behind it is found on the same line (``json_values.records_within``).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import structs

from crystal_node.base.project import ProjectFinder
from crystal_node.capture.adapter import CaptureCounts, Hides, TranscriptReading
from crystal_node.capture.context import Context, Marks, decoded
from crystal_node.capture.exclusions import ExcludingAdapter
from crystal_node.capture.json_values import is_object, parse_json, records_within
from crystal_node.capture.line_reader import FileState, LineReader, unchanged
from crystal_node.capture.messages import (
    UNKNOWN_FORM,
    LineFault,
    OperationBuilder,
    SkippedRecord,
    TranscriptMessage,
)

QUIET_MS = 10 * 60 * 1000
"""A file that has not changed for so long counts as quiet: it is not being written."""


@dataclass(frozen=True, slots=True)
class LinePosition:
    """A line's position: its file and byte offset."""

    path: Path
    offset: int


class LineAdapter(ExcludingAdapter, ABC):
    """An adapter of files of lines. ``repeats``: the tool writes a message again when something else than its words changed."""

    name: str
    root: Path
    repeats = False

    @abstractmethod
    def said(
        self, line: bytes, context: Context, at: LinePosition
    ) -> Iterator[TranscriptMessage | SkippedRecord]:
        """The messages of one line; nothing for an empty one. Updates ``context`` for later lines. Never raises.

        A line that is no JSON is ``SkippedRecord(Damage.NOT_JSON.value, damaged=True)`` alone.
        """

    def read(
        self, path: Path, state: FileState | None, *, agent: str, hides: Hides, quiet_ns: int = -1
    ) -> TranscriptReading:
        counts = CaptureCounts()
        gatherer = OperationBuilder(agent, self.name, ProjectFinder(self._home), counts, self.exclusions())
        with LineReader(path, state, quiet_ns) as reader:
            if reader.restarted:
                counts.skipped["file replaced, read again"] += 1
            before = decoded(reader.memo)
            # For a file that is read from its start only the marks of what was recorded are kept.
            context = Context(said=before.said) if reader.from_start else before
            one_pass = LinePass(self, path, context, hides, reader.unsure_until, counts, gatherer)
            for line in reader.lines():
                one_pass.take(line.data, line.start)
            if reader.unended is not None and reader.unended.data is not None:
                if one_pass.take_whole(reader.unended.data, reader.unended.start):
                    reader.take_unended()
                else:
                    counts.skipped["last line torn"] += 1
            one_pass.remember()
            reader.memo = context.encoded()
            return TranscriptReading(
                gatherer.finish(),
                reader.state(),
                counts,
                reader.more,
                gatherer.roots,
                again=reader.restarted,
            )

    def transcript(self, path: Path) -> Path:
        return path

    def unchanged(self, path: Path, state: FileState | None, quiet_ns: int = -1) -> bool:
        return unchanged(path, state, quiet_ns)

    def skip(self, path: Path) -> FileState:
        with LineReader(path, None) as reader:
            context = Context()
            first = reader.first_line()
            if first is not None:
                for _ in self.said(first, context, LinePosition(path, 0)):
                    pass
                context.pending = context.unsettled = context.calls = ()  # skipped, like everything else
            return structs.replace(reader.skip_to_end(), memo=context.encoded())


class LinePass:
    """State of one pass over one file or database.

    ``unsure_until``: messages without a time before this offset are left out, because they may have been skipped on purpose.
    """

    def __init__(
        self,
        adapter: LineAdapter,
        path: Path,
        context: Context,
        hides: Hides,
        unsure_until: int,
        counts: CaptureCounts,
        gatherer: OperationBuilder,
    ) -> None:
        self._adapter, self._path, self._context = adapter, path, context
        self._hides, self._unsure_until = hides, unsure_until
        self._counts, self._gatherer = counts, gatherer
        self._marks = Marks(context.said) if adapter.repeats else None

    def take(self, line: bytes | None, start: int) -> None:
        """Takes one line; None for one over the limit."""
        if line is None:
            self._counts.damaged(self._path, start, "line too long")
            return
        outcomes = self._outcomes(line, start)
        if any(_is_damage(outcome) for outcome in outcomes):
            inside = records_within(line)
            if inside:
                self._counts.skipped["records on one line"] += 1
                outcomes = [one for at, part in inside for one in self._outcomes(part, start + at)]
        for outcome in outcomes:
            self._outcome(outcome, start)

    def take_whole(self, line: bytes, start: int) -> bool:
        """Takes the last line without newline if it is whole. Returns whether it was."""
        before = structs.replace(self._context)
        outcomes = self._outcomes(line, start)
        if not outcomes or any(isinstance(one, SkippedRecord) and one.damaged for one in outcomes):
            _restore(self._context, before)
            return not line.strip()
        for outcome in outcomes:
            self._outcome(outcome, start)
        return True

    def remember(self) -> None:
        """Keeps the marks of what was recorded in the context."""
        if self._marks is not None:
            self._context.said = self._marks.encoded()

    def _outcomes(self, line: bytes, start: int) -> list[TranscriptMessage | SkippedRecord]:
        return list(self._adapter.said(line, self._context, LinePosition(self._path, start)))

    def _outcome(self, outcome: TranscriptMessage | SkippedRecord, start: int) -> None:
        if isinstance(outcome, SkippedRecord):
            if outcome.damaged:
                self._counts.damaged(self._path, start, outcome.reason)
            else:
                self._counts.skipped[outcome.reason] += 1
            return
        undated = not outcome.dated or outcome.moment == 0
        if outcome.hidden(self._hides) or (undated and start < self._unsure_until):
            self._counts.skipped["private"] += 1
        elif self._marks is not None and not self._marks.new(outcome):
            self._counts.skipped["said before"] += 1
        elif outcome.texts:
            self._gatherer.take(outcome)


def _is_damage(outcome: TranscriptMessage | SkippedRecord) -> bool:
    return isinstance(outcome, SkippedRecord) and outcome.reason == LineFault.NOT_JSON.value


def _restore(context: Context, before: Context) -> None:
    for name in Context.__struct_fields__:
        setattr(context, name, getattr(before, name))


class ObjectLines(LineAdapter):
    """An adapter whose lines are JSON objects, read one field at a time, forgivingly."""

    @abstractmethod
    def of_record(
        self, record: dict[str, Any], context: Context, at: LinePosition
    ) -> Iterator[TranscriptMessage | SkippedRecord]:
        """The messages of one record. Updates ``context`` for later records. Never raises."""

    def said(
        self, line: bytes, context: Context, at: LinePosition
    ) -> Iterator[TranscriptMessage | SkippedRecord]:
        if not line.strip():
            return
        try:
            record = parse_json(line)
        except ValueError:
            yield SkippedRecord(LineFault.NOT_JSON.value, damaged=True)
            return
        if is_object(record):
            yield from self.of_record(record, context, at)
        else:
            yield UNKNOWN_FORM
