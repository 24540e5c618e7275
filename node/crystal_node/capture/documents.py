"""Transcripts that are one document, rewritten as a whole when something is added.

There is no offset to continue from: a changed document is read again, and the marks of what was recorded tell what is new. They
are kept with the file's state, so that such a file may have ``MARKS_MAX`` messages and ``DOCUMENT_BYTES_MAX`` bytes.

What was skipped on purpose stays out by its position: in a document without times, the messages that it had then are never
recorded, however they are rewritten, and of the last of them only what was appended. A new document that begins as
another one is a fork of it: messages that stay out of the other one stay out of the fork.
"""

import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import takewhile
from pathlib import Path
from typing import Any

from msgspec import structs

from crystal_node.base.agent_names import agent_id
from crystal_node.base.project import ProjectFinder
from crystal_node.capture.adapter import CaptureCounts, Hides, TranscriptReading
from crystal_node.capture.context import MARK_BYTES, MARKS_MAX, Context, Marks, decoded
from crystal_node.capture.exclusions import ExcludingAdapter, Exclusions
from crystal_node.capture.json_values import is_object, parse_json
from crystal_node.capture.line_reader import OFFSET_MAX, FileState, open_regular, unchanged
from crystal_node.capture.messages import (
    UNKNOWN_FORM,
    LineFault,
    OperationBuilder,
    SkippedRecord,
    TranscriptMessage,
)

DOCUMENT_BYTES_MAX = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class DocumentContent:
    """A document's messages. Not ``whole``: it is being written, and its last message may be incomplete. ``written``: upper
    bound of the time of messages without one, in milliseconds; 0 if unknown."""

    outcomes: list[TranscriptMessage | SkippedRecord]
    whole: bool = True
    written: int = 0

    @property
    def spoken(self) -> list[TranscriptMessage]:
        return [one for one in self.outcomes if isinstance(one, TranscriptMessage)]

    @property
    def unknown(self) -> bool:
        """Whether nothing of it could be read: it is damaged, or half written."""
        return not self.spoken and any(
            isinstance(one, SkippedRecord) and one.damaged for one in self.outcomes
        )


class DocumentReader:
    """Reads one document. ``data``: its bytes."""

    def __init__(self, path: Path, state: FileState | None, quiet_ns: int = -1) -> None:
        """Raises OSError: it cannot be read, or is too large."""
        self._path = path
        with open_regular(path) as file:
            self._found = os.fstat(file.fileno())
            if self._found.st_size > DOCUMENT_BYTES_MAX:
                raise OSError(
                    errno.EFBIG, f"more than {DOCUMENT_BYTES_MAX >> 20} MiB in one document", str(path)
                )
            parts: list[bytes] = []
            left = DOCUMENT_BYTES_MAX
            while left > 0 and (part := file.read(left)):
                parts.append(part)
                left -= len(part)
        self.data = b"".join(parts)
        self._quiet = self._found.st_mtime_ns <= quiet_ns
        self._first = state is None
        self._state = state or FileState()
        self._context = decoded(self._state.memo)

    @property
    def moment(self) -> int:
        """When the document was last written, in milliseconds since 1970."""
        return max(self._found.st_mtime_ns // 1_000_000, 0)

    def read(
        self,
        said: DocumentContent,
        home: Path,
        agent: str,
        source: str,
        hides: Hides,
        exclusions: Exclusions,
    ) -> TranscriptReading:
        """What is new in it. Raises OSError: it has too many messages."""
        self._check(said)
        counts = CaptureCounts()
        gatherer = OperationBuilder(agent, source, ProjectFinder(home), counts, exclusions)
        again = self._state.unsure_until > 0
        known = Marks() if again else Marks(self._context.said)
        spoken = said.spoken
        held = 0 if said.whole or self._quiet else len(spoken[-1:])
        left = len(spoken) - held
        place = 0
        for one in said.outcomes:
            if isinstance(one, SkippedRecord):
                if one.damaged:
                    counts.damaged(self._path, 0, one.reason)
                else:
                    counts.skipped[one.reason] += 1
                continue
            place += 1
            if place > left:
                break
            hidden = one.hidden(hides) or (not one.dated and hides(said.written))
            hidden |= self._first and hides(one.moment)
            self._take(one, place, hidden, known, counts, gatherer)
        context = structs.replace(self._context, said=known.encoded())
        after = self._after(context, complete=not held)
        if held or said.unknown:  # unsure until all of the document was read
            after = structs.replace(after, unsure_until=self._state.unsure_until)
        return TranscriptReading(gatherer.finish(), after, counts, False, gatherer.roots)

    def begins_as(self, spoken: list[TranscriptMessage], other: list[TranscriptMessage]) -> int:
        """How many messages at the beginning of a new document without times (``spoken``) are messages of this reader's
        document (``other``) that stay out. The last of those may have been rewritten since: its former text counts, too."""
        kept_out = len(other) if self._state.unsure_until > 0 else self._context.hidden
        pairs = zip(spoken, other[:kept_out], strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0].texts == pair[1].texts, pairs))
        if same + 1 == self._context.hidden and same < len(spoken) and self._begins_as_hidden(spoken[same]):
            return same + 1
        return same

    def skip(self, said: DocumentContent) -> FileState:
        """The state after everything in the document."""
        self._check(said)
        spoken = said.spoken
        marks = Marks()
        for one in spoken:
            marks.new(one)
        undated = spoken if spoken and not any(one.dated for one in spoken) else []
        last = _text(undated[-1]) if undated else ""
        context = Context(
            said=marks.encoded(), hidden=len(undated), hidden_chars=len(last), hidden_hash=_hash(last)
        )
        unsure_until = OFFSET_MAX if said.unknown else 0
        after = self._after(context, complete=True)
        return structs.replace(after, stepped_over=bool(self.data), unsure_until=unsure_until)

    def _take(
        self,
        spoken: TranscriptMessage,
        place: int,
        hidden: bool,
        known: Marks,
        counts: CaptureCounts,
        gatherer: OperationBuilder,
    ) -> None:
        if not known.new(spoken):
            counts.skipped["said before"] += 1
            return
        rest: TranscriptMessage | None = spoken
        if not spoken.dated and place <= self._context.hidden:
            rest = self._behind_hidden(spoken) if place == self._context.hidden else None
        unsure = not spoken.dated and self._state.unsure_until > 0
        if rest is None or unsure or hidden:
            counts.skipped["private"] += 1
        elif rest.texts:
            gatherer.take(rest)

    def _behind_hidden(self, spoken: TranscriptMessage) -> TranscriptMessage | None:
        """What was appended to the last skipped message; None if that message was changed."""
        behind = _text(spoken)[self._context.hidden_chars :].strip()
        if not behind or not self._begins_as_hidden(spoken):
            return None
        role = next(iter(spoken.texts))
        return replace(spoken, texts={role: behind})

    def _begins_as_hidden(self, spoken: TranscriptMessage) -> bool:
        """Whether a message is the last skipped one, as it was then or with more behind it."""
        return _hash(_text(spoken)[: self._context.hidden_chars]) == self._context.hidden_hash

    def _check(self, said: DocumentContent) -> None:
        if len(said.outcomes) > MARKS_MAX:
            raise OSError(errno.EFBIG, f"more than {MARKS_MAX:,} messages in one document", str(self._path))

    def _after(self, context: Context, *, complete: bool) -> FileState:
        found = self._found
        # If incomplete, there is more to read once the file is quiet.
        return FileState(
            offset=found.st_size if complete else max(found.st_size - 1, 0),
            size=found.st_size,
            modified=found.st_mtime_ns,
            changed=found.st_ctime_ns,
            inode=found.st_ino,
            stepped_over=self._state.stepped_over,
            looked=self._quiet,
            memo=context.encoded(),
        )


class WholeFileAdapter(ExcludingAdapter, ABC):
    """An adapter of files that are read as a whole whenever they change.

    A message that changes under its id is recorded as its next version.
    """

    name: str
    repeats = True

    @abstractmethod
    def content(self, path: Path, reader: DocumentReader) -> DocumentContent:
        """The messages of a file, in order. Never raises."""

    def read(
        self, path: Path, state: FileState | None, *, agent: str, hides: Hides, quiet_ns: int = -1
    ) -> TranscriptReading:
        reader = DocumentReader(path, state, quiet_ns)
        return reader.read(self.content(path, reader), self._home, agent, self.name, hides, self.exclusions())

    def skip(self, path: Path) -> FileState:
        reader = DocumentReader(path, None)
        return reader.skip(self.content(path, reader))

    def unchanged(self, path: Path, state: FileState | None, quiet_ns: int = -1) -> bool:
        return unchanged(path, state, quiet_ns)

    def agent_of(self, path: Path) -> str:
        return agent_id(self.name, self.name)

    def former(self, path: Path) -> Path | None:
        return None

    def transcript(self, path: Path) -> Path:
        return path


class DocumentAdapter(WholeFileAdapter, ABC):
    """An adapter of files that hold one conversation each, as one JSON object."""

    @abstractmethod
    def said(
        self, document: dict[str, Any], path: Path, written: int
    ) -> Iterator[TranscriptMessage | SkippedRecord]:
        """The messages of a document, in order. ``written``: when its file was last written (milliseconds). Never raises."""

    def content(self, path: Path, reader: DocumentReader) -> DocumentContent:
        try:
            document = parse_json(reader.data)
        except ValueError:
            return DocumentContent([SkippedRecord(LineFault.NOT_JSON.value, damaged=True)], whole=False)
        if not is_object(document):
            return DocumentContent([UNKNOWN_FORM])
        return DocumentContent(list(self.said(document, path, reader.moment)), written=reader.moment)


class UndatedAdapter(DocumentAdapter, ABC):
    """An adapter of documents whose messages have no times. Their tool copies them when it forks a conversation."""

    repeats = False  # a changed message is another one, and messages that stay out are known by their places

    def copied(self, path: Path, others: Iterable[tuple[Path, FileState]]) -> FileState | None:
        """The state from which to read a new document that begins with messages that stay out of others; None if it has none.

        ``others``: documents with their states; one that cannot be read is passed over. Raises OSError: the new document cannot
        be read.
        """
        reader = DocumentReader(path, None)
        spoken = self.content(path, reader).spoken
        hidden = 0
        for other, state in others:
            with suppress(OSError):
                its = DocumentReader(other, state)
                hidden = max(hidden, its.begins_as(spoken, self.content(other, its).spoken))
        return reader.skip(DocumentContent([*spoken[:hidden]])) if hidden else None


def _text(spoken: TranscriptMessage) -> str:
    return next(iter(spoken.texts.values()), "")


def _hash(text: str) -> bytes:
    return sha256(text.encode("utf-8", "replace")).digest()[:MARK_BYTES]
