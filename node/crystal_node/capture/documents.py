"""Transcripts that are one document, written anew as a whole when something is added.

There is no offset to read on from: the document is read again when it changed, and the marks of what was recorded tell what
is new. They are kept with the file's state, so such a file may have ``MESSAGES_MAX`` messages and ``DOCUMENT_BYTES_MAX`` bytes.

What was stepped over on purpose stays out by its place: of a document without times, messages that stood before its end then
are not taken any more, however they are rewritten, and of the last of them only what was written behind it.
"""

import errno
import os
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import structs

from crystal_node.capture.adapter import Counts, Hides, Reading
from crystal_node.capture.follow import FileState, open_regular
from crystal_node.capture.gathering import Gatherer, Spoken, said_mark
from crystal_node.capture.project import Places
from crystal_node.capture.words import Silent

DOCUMENT_BYTES_MAX = 16 * 1024 * 1024
MESSAGES_MAX = 8192
MARK_BYTES = 8


class Memo(msgspec.Struct, array_like=True, omit_defaults=True):
    """``said``: marks of what was recorded or stepped over. ``hidden``: so many messages without a time were stepped over, the
    last of which had ``hidden_chars`` characters with the hash ``hidden_hash``."""

    said: bytes = b""
    hidden: int = 0
    hidden_chars: int = 0
    hidden_hash: bytes = b""


@dataclass(frozen=True, slots=True)
class Said:
    """What a document says. Not ``whole``: it is being written, and its last message may not be complete. ``written``: when
    messages without a time were written at the latest, in milliseconds; 0 if unknown."""

    outcomes: list[Spoken | Silent]
    whole: bool = True
    written: int = 0

    @property
    def spoken(self) -> list[Spoken]:
        return [one for one in self.outcomes if isinstance(one, Spoken)]


class DocumentReader:
    """One document as it is now. ``data``: its bytes."""

    def __init__(self, path: Path, state: FileState | None, quiet_ns: int = -1) -> None:
        """Raises OSError: it cannot be read, or is larger than such a document may be."""
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
        self._state = state or FileState()
        self._memo = _decoded(self._state.memo)

    @property
    def moment(self) -> int:
        """When the document was last written, in milliseconds since 1970."""
        return max(self._found.st_mtime_ns // 1_000_000, 0)

    def read(self, said: Said, home: Path, agent: str, source: str, hides: Hides) -> Reading:
        """What is new. Raises OSError: more messages than such a document may have."""
        self._check(said)
        counts = Counts()
        gatherer = Gatherer(agent, source, Places(home), counts)
        known = _marks(self._memo.said)
        spoken = said.spoken
        held = 0 if said.whole or self._quiet else len(spoken[-1:])
        left = len(spoken) - held
        place = 0
        for one in said.outcomes:
            if isinstance(one, Silent):
                if one.damaged:
                    counts.damaged(self._path, 0, one.reason)
                else:
                    counts.skipped[one.reason] += 1
                continue
            place += 1
            if place > left:
                break
            hidden = hides(one.moment if one.dated else said.written)
            self._take(one, place, hidden, known, counts, gatherer)
        memo = structs.replace(self._memo, said=b"".join(known))
        return Reading(gatherer.finish(), self._after(memo, complete=not held), counts, more=False)

    def skip(self, said: Said) -> FileState:
        """The state behind everything that the document holds."""
        self._check(said)
        spoken = said.spoken
        marks = b"".join(dict.fromkeys(said_mark(one, MARK_BYTES) for one in spoken))
        undated = spoken if spoken and not any(one.dated for one in spoken) else []
        last = _text(undated[-1]) if undated else ""
        memo = Memo(marks, len(undated), len(last), _hash(last))
        return structs.replace(self._after(memo, complete=True), stepped_over=bool(self.data))

    def _take(
        self,
        spoken: Spoken,
        place: int,
        hidden: bool,
        known: dict[bytes, None],
        counts: Counts,
        gatherer: Gatherer,
    ) -> None:
        mark = said_mark(spoken, MARK_BYTES)
        if mark in known:
            return
        known[mark] = None
        rest: Spoken | None = spoken
        if not spoken.dated and place <= self._memo.hidden:
            rest = self._behind_hidden(spoken) if place == self._memo.hidden else None
        unsure = not spoken.dated and self._state.unsure_until > 0
        if rest is None or unsure or hidden:
            counts.skipped["private"] += 1
        elif rest.texts:
            gatherer.take(rest)

    def _behind_hidden(self, spoken: Spoken) -> Spoken | None:
        """What was written behind the last message that was stepped over; None if it was changed itself."""
        text, count = _text(spoken), self._memo.hidden_chars
        behind = text[count:].strip()
        if not behind or _hash(text[:count]) != self._memo.hidden_hash:
            return None
        role = next(iter(spoken.texts))
        return replace(spoken, texts={role: behind})

    def _check(self, said: Said) -> None:
        if len(said.outcomes) > MESSAGES_MAX:
            raise OSError(
                errno.EFBIG, f"more than {MESSAGES_MAX:,} messages in one document", str(self._path)
            )

    def _after(self, memo: Memo, *, complete: bool) -> FileState:
        found = self._found
        # Not the whole of it: there is more to be read when it has been quiet.
        return FileState(
            offset=found.st_size if complete else max(found.st_size - 1, 0),
            size=found.st_size,
            modified=found.st_mtime_ns,
            changed=found.st_ctime_ns,
            inode=found.st_ino,
            stepped_over=self._state.stepped_over,
            looked=self._quiet,
            unsure_until=self._state.unsure_until,
            memo=msgspec.msgpack.encode(memo),
        )


def _text(spoken: Spoken) -> str:
    return next(iter(spoken.texts.values()), "")


def _hash(text: str) -> bytes:
    return sha256(text.encode("utf-8", "replace")).digest()[:MARK_BYTES]


def _marks(said: bytes) -> dict[bytes, None]:
    return dict.fromkeys(said[at : at + MARK_BYTES] for at in range(0, len(said), MARK_BYTES))


def _decoded(memo: bytes) -> Memo:
    try:
        return msgspec.msgpack.decode(memo, type=Memo) if memo else Memo()
    except msgspec.MsgspecError:
        return Memo()
