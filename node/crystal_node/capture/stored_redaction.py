"""Redaction of stored texts: applies the present rules to every text of the memory, and replaces what they blank everywhere.

    survey    reads all texts; one with a credential is to be replaced by the text that a capture would record now
    replace   puts the replacements into the outbox, some at a time: the other devices follow with their next sync

It keeps no progress, so a run that was stopped is simply run again: what was replaced is hidden here at once, and has no
credential left.

A long message is stored in pieces that overlap, and is redacted whole before it is cut. So its pieces are joined again, and
what becomes of them is, in this order:

    cut again   as a capture would cut the redacted message: reading the transcript again then brings nothing new
    in place    where that would move a text from one piece to another, or the piece also stands elsewhere, what is blanked in
                the whole message is blanked in the pieces as they are
    alone       where the pieces cannot be joined, or one of them also stands elsewhere, each is redacted by itself
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from msgspec import structs

from crystal_core.cutting.messages import join_pieces, split_message
from crystal_core.database import Database
from crystal_core.schema import HIDDEN
from crystal_mirror.operations import (
    PIECE_BYTES_MAX,
    REPLACED_MAX,
    Capture,
    Forget,
    Operation,
    Piece,
    Replace,
    Replaced,
)
from crystal_node.capture.credentials import MARK
from crystal_node.capture.redaction import redact
from crystal_node.device.device import Device
from crystal_node.device.redaction_version import note_redacted

BATCH_ROWS = 500
BATCH_BYTES = 128 * 1024
"""Total size of the new texts in one operation."""
BARE_MARK = "[redacted:text]"
MEMORIES = "memories"
SOURCES = "sources"
OPERATIONS_MAX = 4
"""Operations that are put into the outbox at once."""

Progress = Callable[[str, int, int], None]
"""Called with the name of the step, the amount done and the total."""

_PLACES = """
SELECT agent, session, message, role, project, repository, source, created_at, part, device, chunk, model
FROM occurrences WHERE {where}
UNION ALL
SELECT p.agent, p.session, p.message, p.role, p.project, p.repository, p.source, p.created_at, p.part, o.device, p.chunk,
       p.model
FROM provisional_places p JOIN provisional o ON o.number = p.number WHERE {where} AND p.category IS NULL AND p.path IS NULL
"""

_SOURCE_DEVICES = """
SELECT s.device FROM document_parts p JOIN documents d ON d.rowid = p.document JOIN sources s ON s.name = d.source
WHERE p.chunk = ?
"""
_SHOWN = f" AND chunk NOT IN (SELECT rowid FROM chunks WHERE forget_hash IN ({HIDDEN}))"  # noqa: S608 - a constant of ours

_Message = tuple[str, str, str, str]
"""Agent, session, the tool's id of the message, and role."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a piece stands."""

    agent: str
    session: str
    message: str
    role: str
    project: str
    repository: str
    source: str
    created_at: int
    part: int
    device: bytes
    chunk: int
    model: str

    @property
    def of(self) -> _Message:
        return self.agent, self.session, self.message, self.role


@dataclass(frozen=True, slots=True)
class Replacement:
    """Texts that are replaced together: keyed hashes with the new text, None where the text is removed. ``more``: pieces that a
    message has in addition now."""

    texts: tuple[tuple[bytes, str | None], ...]
    more: tuple[Capture, ...] = ()


@dataclass
class RedactionSurvey:
    """What the present rules would blank. ``kinds``: credentials by kind of rule; ``devices`` (by id) and ``tools``: texts with
    one, by who recorded them. It contains no credential."""

    read: int = 0
    found: int = 0
    kinds: Counter[str] = field(default_factory=Counter[str])
    devices: Counter[bytes] = field(default_factory=Counter[bytes])
    tools: Counter[str] = field(default_factory=Counter[str])
    replacements: list[Replacement] = field(default_factory=list[Replacement], repr=False)

    @property
    def texts(self) -> int:
        """Texts that are replaced or removed."""
        return sum(len(each.texts) for each in self.replacements)


def survey(device: Device, progress: Progress | None = None) -> RedactionSurvey:
    """Read all texts, replicated and pending, and find what the present rules would blank. Changes nothing."""
    database = device.replica.database
    found = RedactionSurvey()
    alone: dict[int, _Text] = {}
    for row in _texts(database, found, progress):
        redacted = redact(row[2])
        if redacted.counts:
            alone[row[0]] = _Text(row[1], row[2], bounded(redacted.text), redacted.counts)
    _Plan(database, alone).into(found)
    return found


def replace(device: Device, found: RedactionSurvey, progress: Progress | None = None) -> None:
    """Put the replacements into the outbox, and note that everything here is redacted by the present rules.

    Raises what ``Device.accept`` raises; what was put there before stays.
    """
    done, total, secret = 0, found.texts, device.member.secret

    def named(text: str) -> bytes:
        return secret.forget_hash(sha256(text.encode()).digest())

    for operations, texts in batches(settled(found.replacements, named)):
        device.accept(operations)
        done += texts
        if progress is not None:
            progress("replacing", done, total)
    note_redacted(device.journal)


def bounded(text: str) -> str:
    """The text, truncated to one piece: a mark may take more bytes than the secret."""
    encoded = text.encode()
    return text if len(encoded) <= PIECE_BYTES_MAX else encoded[:PIECE_BYTES_MAX].decode("utf-8", "ignore")


@dataclass(frozen=True, slots=True)
class _Text:
    """A stored text with a credential, and what becomes of it by itself."""

    forget_hash: bytes
    text: str
    redacted: str
    counts: Counter[str]


@dataclass
class _Long:
    """A message of several pieces as it may be: by chunk what becomes of each, and its additional pieces."""

    becomes: dict[int, str | None]
    counts: Counter[str]
    more: tuple[Capture, ...] = ()


class _Plan:
    """Which text becomes which."""

    def __init__(self, database: Database, alone: dict[int, _Text]) -> None:
        self._database = database
        self._alone = alone
        self._places: dict[int, list[_Place]] = {}
        self._ways: dict[_Message, list[_Long]] = {}
        """What may become of each long message, the best first."""
        for chunk in alone:
            for place in self._of_chunk(chunk):
                if place.of not in self._ways:
                    pieces = self._of_message(place.of)
                    if len(pieces) > 1:
                        self._ways[place.of] = self._redacted(pieces)
        while self._drop_conflicts():
            pass
        self._long = {message: ways[0] for message, ways in self._ways.items() if ways}

    def into(self, found: RedactionSurvey) -> None:
        done: set[int] = set()
        for long in self._long.values():
            changed = {chunk: text for chunk, text in long.becomes.items() if text != self._text(chunk)}
            if changed:
                found.kinds += long.counts
                texts = [(self._hash(chunk), text) for chunk, text in changed.items() if chunk not in done]
                found.replacements.append(Replacement(tuple(texts), long.more))
            self._count(found, [chunk for chunk in changed if chunk in self._alone and chunk not in done])
            done |= long.becomes.keys()
        for chunk, text in self._alone.items():
            if chunk not in done:
                found.kinds += text.counts
                found.replacements.append(Replacement(((text.forget_hash, text.redacted),)))
                self._count(found, [chunk])

    def _count(self, found: RedactionSurvey, chunks: list[int]) -> None:
        """Each text once for each device and tool that has it."""
        found.found += len(chunks)
        for chunk in chunks:
            places = self._of_chunk(chunk)
            devices, tools = {place.device for place in places}, {place.source for place in places}
            for query, tool in (
                ("SELECT device FROM memory_states WHERE chunk = ?", MEMORIES),
                (_SOURCE_DEVICES, SOURCES),
            ):
                owners = {owner for (owner,) in self._database.rows(query, (chunk,))}
                devices |= owners
                tools |= {tool} if owners else set()
            found.devices.update(devices)
            found.tools.update(tools)

    def _drop_conflicts(self) -> bool:
        """Drop ways by which one text would become two, or one that is removed. Returns whether there were any."""
        coming = {text.redacted for text in self._alone.values()}
        going = {text.text for text in self._alone.values()}
        for ways in self._ways.values():
            for chunk, text in ways[0].becomes.items() if ways else ():
                if text != self._text(chunk):
                    going.add(self._text(chunk))
        dropped = False
        for ways in self._ways.values():
            if ways and any(
                self._disagrees(chunk, text, going, coming) for chunk, text in ways[0].becomes.items()
            ):
                del ways[0]
                dropped = True
        return dropped

    def _disagrees(self, chunk: int, text: str | None, going: set[str], coming: set[str]) -> bool:
        """Whether that chunk becomes another text than this one in any of its places, or this one goes, or another text becomes
        the one that it has."""
        before = self._text(chunk)
        alone = self._alone[chunk].redacted if chunk in self._alone else before
        if text != before and (text in going or before in coming):
            return True
        for place in self._of_chunk(chunk):
            ways = self._ways.get(place.of)
            if (ways[0].becomes.get(chunk, alone) if ways else alone) != text:
                return True
        elsewhere = (
            "SELECT EXISTS (SELECT 1 FROM memory_states WHERE chunk = ?1)"
            " OR EXISTS (SELECT 1 FROM document_parts WHERE chunk = ?1)"
            " OR EXISTS (SELECT 1 FROM provisional_places WHERE chunk = ?1 AND path IS NOT NULL)"
        )
        return text != alone and bool(self._database.value(elsewhere, (chunk,)))

    def _redacted(self, places: list[_Place]) -> list[_Long]:
        """The ways of a message with its credentials blanked; none if its pieces are not those of one message."""
        first, last = places[0], places[-1]
        before = [self._text(place.chunk) for place in places]
        text = join_pieces(before)
        if text is None or [place.part for place in places] != [first.part + n for n in range(len(places))]:
            return []
        redacted = redact(text)
        pieces = split_message(redacted.text)
        ways: list[_Long] = []
        if len(pieces) == len(places) or not self._goes_on(last):
            more = [
                Capture(
                    *(last.agent, last.session, last.project, last.repository, last.source),
                    (
                        Piece(
                            piece,
                            last.role,
                            last.created_at,
                            last.message,
                            first.part + number,
                            last.model,
                        ),
                    ),
                )
                for number, piece in enumerate(pieces)
                if number >= len(places)
            ]
            fewer: list[str | None] = [*pieces, *([None] * (len(places) - len(pieces)))]
            becomes = _becoming(places, fewer)
            if becomes is not None:
                ways.append(_Long(becomes, redacted.counts, tuple(more)))
        becomes = _becoming(places, in_place(text, redacted.text, before))
        if becomes is not None:
            ways.append(_Long(becomes, redacted.counts))
        return ways

    def _goes_on(self, last: _Place) -> bool:
        """Whether the message has pieces behind this one, by another role."""
        where = "session = ?1 AND message = ?2 AND agent = ?3 AND part > ?4"
        return bool(
            self._database.rows(
                _PLACES.format(where=where), (last.session, last.message, last.agent, last.part)
            )
        )

    def _of_chunk(self, chunk: int) -> list[_Place]:
        if chunk not in self._places:
            rows = self._database.rows(_PLACES.format(where="chunk = ?1"), (chunk,))
            self._places[chunk] = [_Place(*row) for row in rows]
        return self._places[chunk]

    def _of_message(self, message: _Message) -> list[_Place]:
        """The pieces of a message that are shown, in order, each once."""
        where = f"agent = ?1 AND session = ?2 AND message = ?3 AND role = ?4{_SHOWN}"
        rows = self._database.rows(_PLACES.format(where=where), message)
        places = {(place.part, place.chunk): place for place in (_Place(*row) for row in rows)}
        return [places[key] for key in sorted(places)]

    def _text(self, chunk: int) -> str:
        if chunk in self._alone:
            return self._alone[chunk].text
        return str(self._database.value("SELECT text FROM chunks WHERE rowid = ?", (chunk,)))

    def _hash(self, chunk: int) -> bytes:
        return bytes(self._database.value("SELECT forget_hash FROM chunks WHERE rowid = ?", (chunk,)))


def in_place(text: str, redacted: str, pieces: list[str]) -> list[str]:
    """The pieces of ``text``, overlapping and in order, with the same parts blanked as in ``redacted``."""
    kept = MARK.split(redacted)
    marks = MARK.findall(redacted)
    spans: list[tuple[int, int, str]] = []
    at = len(kept[0])
    for mark, after in zip(marks, kept[1:], strict=True):
        # What follows a mark stands in both. Found too early, it leaves nothing in clear that is not in `redacted` as well.
        start = text.find(after, at) if after else (len(text) if mark is marks[-1] else at)
        if start >= 0:
            spans.append((at, start, mark))
            at = start + len(after)
    done: list[str] = []
    at = 0
    for piece in pieces:
        at = text.find(piece, at)
        cut, whole = at, ""
        for start, end, mark in spans:
            if start < at + len(piece) and end > at:
                whole += text[cut : max(start, cut)] + mark
                cut = end
        done.append(whole + text[cut : at + len(piece)])
    return done


def _becoming(places: list[_Place], pieces: Sequence[str | None]) -> dict[int, str | None] | None:
    """What becomes of each chunk; None if one would become two."""
    becomes: dict[int, str | None] = {}
    for place, piece in zip(places, pieces, strict=False):
        if becomes.setdefault(place.chunk, piece) != piece:
            return None
    return becomes


def _texts(
    database: Database, found: RedactionSurvey, progress: Progress | None
) -> Iterator[tuple[int, bytes, str]]:
    """All texts that no pending operation hides: rowid, keyed hash, text. In short reads, so that writers need not wait."""
    total = int(database.value("SELECT count(*) FROM chunks") or 0)
    last = 0
    while rows := database.rows(
        f"SELECT rowid, forget_hash, text FROM chunks WHERE rowid > ? AND forget_hash NOT IN ({HIDDEN})"  # noqa: S608
        " ORDER BY rowid LIMIT ?",
        (last, BATCH_ROWS),
    ):
        for rowid, forget_hash, text in rows:
            found.read += 1
            yield int(rowid), bytes(forget_hash), str(text)
        last = rows[-1][0]
        if progress is not None:
            progress("reading", min(found.read, total), total)
    if progress is not None and found.read < total:  # what is hidden was not read
        progress("reading", total, total)


def settled(replacements: list[Replacement], named: Callable[[str], bytes]) -> list[Replacement]:
    """The replacements with what becomes of a text in the end: none leads to a text that is replaced as well.

    Such a text may not stand any more once it was replaced itself, and the places that should have it would be lost. ``named``:
    the keyed hash of a text. What would lead to a text that falls away, or in a circle, becomes a bare mark.
    """
    becomes: dict[bytes, str | None] = {}
    for each in replacements:
        for target, text in each.texts:
            becomes.setdefault(target, text)

    def last(text: str) -> str:
        met: set[bytes] = set()
        while (target := named(text)) in becomes:
            after = becomes[target]
            if after is None or target in met:
                return BARE_MARK
            met.add(target)
            text = after
        return text

    return [
        Replacement(
            tuple((target, None if text is None else last(text)) for target, text in each.texts),
            tuple(
                structs.replace(
                    capture,
                    pieces=tuple(structs.replace(piece, text=last(piece.text)) for piece in capture.pieces),
                )
                for capture in each.more
            ),
        )
        for each in replacements
    ]


def batches(replacements: list[Replacement]) -> Iterator[tuple[list[Operation], int]]:
    """Operations that belong together in the outbox, and how many texts they replace."""
    waiting: list[Operation] = []
    replaced: list[Replaced] = []
    size = texts = 0
    for each in replacements:
        pairs = [Replaced(target, text) for target, text in each.texts if text is not None]
        gone = [target for target, text in each.texts if text is None]
        for pair in pairs:
            size += len(pair.text.encode())
            if replaced and (len(replaced) >= REPLACED_MAX or size > BATCH_BYTES):
                waiting.append(Replace(tuple(replaced)))
                replaced, size = [], len(pair.text.encode())
            replaced.append(pair)
        if gone or each.more:
            waiting += [Replace(tuple(replaced))] if replaced else []
            waiting += [Forget(tuple(gone))] if gone else []
            waiting += each.more
            replaced, size = [], 0
        texts += len(each.texts)
        if len(waiting) >= OPERATIONS_MAX:
            waiting += [Replace(tuple(replaced))] if replaced else []
            yield waiting, texts
            waiting, replaced, size, texts = [], [], 0, 0
    waiting += [Replace(tuple(replaced))] if replaced else []
    if waiting:
        yield waiting, texts
