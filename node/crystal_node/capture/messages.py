"""Messages as transcripts have them, and the operations that are made of them: redacted, split, grouped within the limits."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from uuid import UUID

from crystal_core.cutting.messages import split_message
from crystal_core.projects import ProjectKey
from crystal_mirror.operations import MODEL_CHARS_MAX, OPERATION_BYTES_MAX, PIECES_MAX, Capture, Piece
from crystal_mirror.types import ACTION
from crystal_node.base.project import NAME_CHARS_MAX, Project, ProjectFinder
from crystal_node.capture.adapter import CaptureCounts
from crystal_node.capture.exclusions import Exclusions
from crystal_node.capture.private_words import without_private
from crystal_node.capture.redaction import redact

EARLIEST_MS = 946_684_800_000
"""Times before 2000 or after 2200 count as unknown."""
LATEST_MS = 7_258_118_400_000
ID_BYTES_MAX = 256
"""Ids of messages and sessions are UUIDs; longer ones are truncated."""
OPERATION_TEXT_BYTES = OPERATION_BYTES_MAX * 3 // 4
"""UTF-8 bytes of the pieces of one operation; the rest is for their common fields."""
PIECE_BYTES_BESIDE_TEXT = 300
"""At most, encoded: message id (``ID_BYTES_MAX``), role, moment, part."""
_ROLES_OF_MODELS = ("assistant", "thinking")


@dataclass(frozen=True, slots=True)
class TranscriptMessage:
    """One message or tool call as a transcript has it. ``texts``: cleaned texts by role, in order.

    ``message`` is the tool's own id, or one made of content and time (``derived_id``). ``moment`` is in milliseconds since
    1970, 0 if unknown; not ``dated``: it is a guess, good enough for sorting but not to tell what was private. ``begun``: a
    moment after which the message was said, 0 if unknown. ``ended``: when a tool call had its result, private if that came in a
    private span; 0 if unknown. ``model`` is the language model that answered, as the tool names it.
    """

    message: str
    session: str
    texts: dict[str, str]
    moment: int = 0
    dated: bool = True
    cwd: str = ""
    repository: str = ""
    subagent: bool = False
    ended: int = 0
    begun: int = 0
    model: str = ""

    def hidden(self, hides: Callable[[int], bool]) -> bool:
        """Whether it was said, or came to its end, in a private span."""
        return hides(self.moment if self.dated else 0) or (self.ended > 0 and hides(self.ended))


class LineFault(Enum):
    """Why a line is no record."""

    NOT_JSON = "line is not JSON"
    UNKNOWN_FORM = "record of unknown form"


@dataclass(frozen=True, slots=True)
class SkippedRecord:
    """A record without a message. ``damaged``: it should have one, or is of an unknown kind."""

    reason: str
    damaged: bool = False


UNKNOWN_TYPE = SkippedRecord("record of unknown type", damaged=True)
NO_WORDS = SkippedRecord("record without words")
"""Of an unknown kind, and its form says that nobody said anything in it."""
UNKNOWN_FORM = SkippedRecord(LineFault.UNKNOWN_FORM.value, damaged=True)


def joined(blocks: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Texts by role, from blocks of role and text in order; empty ones are left out."""
    spoken: dict[str, list[str]] = {}
    for role, text in blocks:
        if text:
            spoken.setdefault(role, []).append(text)
    return {role: "\n\n".join(texts) for role, texts in spoken.items()}


def derived_id(*parts: str) -> str:
    """An id for a message without one: a UUID (16 bytes when sent) that is the same for the same parts."""
    return str(UUID(bytes=_digest(parts)[:16]))


def said_mark(spoken: TranscriptMessage, bytes_kept: int) -> bytes:
    """A short mark of one version of one message."""
    return _digest([spoken.message, *(part for item in spoken.texts.items() for part in item)])[:bytes_kept]


class OperationBuilder:
    """Builds operations from messages: one session and project each, within the limits, in the order of the transcript."""

    def __init__(
        self, agent: str, source: str, places: ProjectFinder, counts: CaptureCounts, exclusions: Exclusions
    ) -> None:
        self._agent, self._source, self._places, self._counts = agent, source, places, counts
        self._exclusions = exclusions
        self._done: list[Capture] = []
        self.roots: dict[ProjectKey, str] = {}
        """Of the folders and repositories of all messages, the folder that the repository is in, where it is another one."""
        self._common: tuple[str, Project] = "", Project("", "")
        self._pieces: list[Piece] = []
        self._bytes = 0

    def take(self, spoken: TranscriptMessage) -> None:
        """Adds a message, or what of it its person does not keep out (``exclusions``)."""
        place = self._places.of(spoken.cwd)
        if not place.repository and spoken.repository:
            place = Project(place.project, spoken.repository[:NAME_CHARS_MAX])
        moment = spoken.moment if spoken.dated else 0
        if self._exclusions.hides(spoken.cwd, place.repository, moment, spoken.begun):
            self._counts.skipped["excluded project"] += 1
            return
        texts = {
            role: without_private(text) if role == "user" else text for role, text in spoken.texts.items()
        }
        if not any(texts.values()):
            self._counts.skipped["private"] += 1
            return
        if ACTION in texts:
            self._counts.actions += 1
        else:
            self._counts.messages += 1
        if place.root not in ("", place.project):
            self.roots[place.project, place.repository] = place.root
        session, message, model = bounded(spoken.session), bounded(spoken.message), model_name(spoken.model)
        part = 0
        for role, text in texts.items():
            redacted = redact(text)
            if redacted.counts:
                self._counts.redacted.update(redacted.counts)
            marked = f"subagent-{role}" if spoken.subagent else role
            for piece in split_message(redacted.text):
                named = model if role in _ROLES_OF_MODELS else ""
                self._add(session, place, Piece(piece, marked, spoken.moment, message, part, named))
                part += 1

    def finish(self) -> list[Capture]:
        """The operations of all messages."""
        self._flush()
        return self._done

    def _add(self, session: str, place: Project, piece: Piece) -> None:
        size = len(piece.text.encode()) + PIECE_BYTES_BESIDE_TEXT + len(piece.model.encode())
        full = len(self._pieces) >= PIECES_MAX or self._bytes + size > OPERATION_TEXT_BYTES
        if full or (session, place) != self._common:
            self._flush()
        self._common = session, place
        self._pieces.append(piece)
        self._bytes += size

    def _flush(self) -> None:
        if not self._pieces:
            return
        session, (project, repository, _) = self._common
        self._done.append(
            Capture(self._agent, session, project, repository, self._source, tuple(self._pieces))
        )
        self._pieces, self._bytes = [], 0


def milliseconds(timestamp: str | None) -> int:
    """Milliseconds since 1970 of an ISO 8601 time, in UTC if it names no zone; 0 if it is none or out of range."""
    try:
        moment = datetime.fromisoformat(timestamp or "")
        value = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        return 0
    return value if EARLIEST_MS <= value <= LATEST_MS else 0


def moment_of(value: object) -> int:
    """Milliseconds since 1970 of an ISO 8601 text or a number of seconds or milliseconds; 0 if it is none or out of range."""
    if isinstance(value, str):
        return milliseconds(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    for scaled in (value, value * 1000):
        if EARLIEST_MS <= scaled <= LATEST_MS:
            return int(scaled)
    return 0


def bounded(name: str | None, limit: int = ID_BYTES_MAX) -> str:
    """A name, truncated to ``limit`` bytes of UTF-8; "" for none."""
    encoded = (name or "").encode()
    return encoded[:limit].decode("utf-8", "ignore")


def model_name(name: str) -> str:
    """A model's name as an operation may have it."""
    return "".join(each for each in name if each.isprintable())[:MODEL_CHARS_MAX].strip()


def plain(text: str) -> str:
    """A text without NULs and surrounding white space."""
    return text.replace("\0", "").strip()


def _digest(parts: Sequence[str]) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode("utf-8", "replace")
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.digest()
