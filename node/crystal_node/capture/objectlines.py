"""Adapters whose lines are JSON objects that are read one field at a time, forgivingly."""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

from crystal_node.capture.context import Context
from crystal_node.capture.json_values import is_object, parse_json
from crystal_node.capture.line_adapter import LineAdapter, LinePosition
from crystal_node.capture.messages import TranscriptMessage
from crystal_node.capture.records import EARLIEST_MS, LATEST_MS, LineFault, milliseconds
from crystal_node.capture.words import SkippedRecord

UNKNOWN_TYPE = SkippedRecord("record of unknown type", damaged=True)
UNKNOWN_FORM = SkippedRecord(LineFault.UNKNOWN_FORM.value, damaged=True)


class ObjectLines(LineAdapter):
    """See the module."""

    @abstractmethod
    def of_record(
        self, record: dict[str, Any], context: Context, at: LinePosition
    ) -> Iterator[TranscriptMessage | SkippedRecord]:
        """What one record says. Changes ``context`` for the records behind it. Never raises."""

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


def moment_of(value: object) -> int:
    """Milliseconds since 1970 of an ISO 8601 text, or of a number of seconds or milliseconds; 0 if it is none or absurd."""
    if isinstance(value, str):
        return milliseconds(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    for scaled in (value, value * 1000):
        if EARLIEST_MS <= scaled <= LATEST_MS:
            return int(scaled)
    return 0


def plain(text: str) -> str:
    """A text without what no text can hold, and without white space around it."""
    return text.replace("\0", "").strip()
