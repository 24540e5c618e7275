"""Adapters whose lines are JSON objects that are read one field at a time, forgivingly."""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

from crystal_node.capture.context import Context
from crystal_node.capture.json_values import is_object, parse_json
from crystal_node.capture.line_adapter import LineAdapter, LinePosition
from crystal_node.capture.messages import (
    UNKNOWN_FORM,
    LineFault,
    SkippedRecord,
    TranscriptMessage,
)


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
