"""Units: what is found and ranked as one. A turn with its messages, a single message, a memory, or a piece of a document.

The halves of a search find chunks. `Units` looks up where they were said, leaves out thinking and tool calls that nobody asked
for, puts the messages of one turn together, and scores each unit. A person's question that nobody answered stands behind
everything that answers.
"""

import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct
from msgspec.structs import replace

from crystal_core.database import Database
from crystal_core.schema import HIDDEN
from crystal_core.search.by import By
from crystal_core.search.dates import DateRange
from crystal_core.search.filters import CONVERSATION, MEMORY, HitPlace
from crystal_core.search.phrases import announces, answers, asks
from crystal_core.search.ranking import DAY_MILLISECONDS, Explanation, Ranking
from crystal_core.search.snippets import Snippets
from crystal_core.search.turns import (
    ANSWERING_NOBODY,
    ASKERS,
    PERSON,
    QUESTION_CHARS_MAX,
    UNSAID,
    Span,
    Turn,
    TurnPiece,
    Turns,
    is_one_message,
)

QUESTION_PIECES_MAX = 4
ANSWER_PIECES_MAX = 6
"""First pieces of a question, and last ones of an answer, that are looked at where the answer itself was not found."""
LOOKED_UP_AT_ONCE = 16
"""Turns whose bounds are looked up in one query: a page of results and a few more."""
TOLD_DAYS = 10
"""What happened on a day is spoken of up to so many days later."""


class Text(Struct, frozen=True):
    """The columns of a chunk that are shown."""

    id: str
    text: str
    provisional: bool
    category: str | None


class Candidate(Struct, frozen=True):
    """A chunk that was found, at one of its places."""

    chunk: int
    place: HitPlace
    explanation: Explanation
    text: Text


@dataclass(slots=True)
class Unit:
    """A unit and what was found of it, best first. `span` is a turn's. `idle`: a question that nobody answered. `again_at`:
    when the words that it shows were said last, 0 if that is not known."""

    members: list[Candidate]
    explanation: Explanation
    span: Span | None = None
    answered: bool = False
    idle: bool = False
    alike: list[str] = field(default_factory=list[str])
    again_at: int = 0
    shown: Candidate | None = None
    pieces: list[TurnPiece] | None = None

    @property
    def kind(self) -> str:
        return MEMORY if self.members[0].text.category is not None else self.members[0].place.kind

    @property
    def newest(self) -> int:
        return max(member.place.created_at for member in self.members)

    @property
    def holds_at(self) -> int:
        """When it was said last."""
        return max(self.newest, self.again_at)

    @property
    def similarity(self) -> float:
        return max(member.explanation.similarity for member in self.members)

    @property
    def texts(self) -> list[str]:
        return [member.text.text for member in self.members]

    @property
    def order(self) -> tuple[bool, float, int, int]:
        return self.idle, -self.explanation.score, -self.newest, self.members[0].chunk


class Units:
    """Makes the units of one search, in one snapshot."""

    def __init__(
        self,
        database: Database,
        ranking: Ranking,
        *,
        by: By,
        unwanted: Container[str],
        now_ms: int,
        dates: Sequence[DateRange],
    ) -> None:
        """`unwanted`: roles whose places are left out."""
        self._database = database
        self._ranking = ranking
        self._by = by
        self._unwanted = unwanted
        self._now_ms = now_ms
        self._dates = dates
        self._turns = Turns(database)
        self._seen: set[object] = set()
        self._texts: dict[int, Text] = {}

    def candidates(
        self,
        found: Mapping[int, Explanation],
        places: Mapping[int, Sequence[HitPlace]],
        texts: Mapping[int, Text],
    ) -> list[Candidate]:
        """Return what was found at each place where it counts."""
        most = None if self._by is By.TURN else 1
        return [
            Candidate(chunk, place, found[chunk], texts[chunk])
            for chunk, all_places in places.items()
            for place in [one for one in all_places if one.role not in self._unwanted][:most]
        ]

    def units(self, candidates: Sequence[Candidate]) -> Iterator[list[Unit]]:
        """Iterate over the units of these candidates that were not returned before, best first, some at a time.

        Most of what is found is never shown, and a turn's bounds cost as much to look up as all else about it. A candidate that
        is alone in its conversation has its score without them: they are looked up when its place in the order is reached.
        """
        told: dict[tuple[str, str], list[Candidate]] = {}
        single: dict[object, list[Candidate]] = {}
        for one in candidates:
            if one.place.kind == CONVERSATION and self._by is By.TURN:
                told.setdefault((one.place.agent, one.place.session), []).append(one)
            else:
                single.setdefault(one.chunk, []).append(one)
        several = [one for members in told.values() if len(members) > 1 for one in members]
        ready = [self._unit(members, None, {}) for members in self._fresh(single).values()]
        ready += self._turns_of(several)
        alone = [self._unit(members, None, {}) for members in told.values() if len(members) == 1]
        idle = [unit for unit in ready if unit.idle]
        waiting = sorted([*(unit for unit in ready if not unit.idle), *alone], key=lambda unit: unit.order)
        unknown = {id(unit) for unit in alone}
        for start in range(0, len(waiting), LOOKED_UP_AT_ONCE):
            some = waiting[start : start + LOOKED_UP_AT_ONCE]
            looked_up = self._turns_of([unit.members[0] for unit in some if id(unit) in unknown])
            idle += [unit for unit in looked_up if unit.idle]
            known = [unit for unit in some if id(unit) not in unknown]
            found = [*known, *(unit for unit in looked_up if not unit.idle)]
            yield sorted(found, key=lambda unit: unit.order)
        yield sorted(idle, key=lambda unit: unit.order)

    def _fresh(self, by_key: Mapping[object, list[Candidate]]) -> dict[object, list[Candidate]]:
        """Return what was not returned before, and note it."""
        fresh = {key: members for key, members in by_key.items() if key not in self._seen}
        self._seen.update(fresh)
        return fresh

    def _turns_of(self, said: Sequence[Candidate]) -> list[Unit]:
        """Return the turns of these candidates that were not returned before."""
        if not said:
            return []
        by_turn: dict[object, list[Candidate]] = {}
        span_of: dict[object, Span] = {}
        for one, span in zip(said, self._turns.spans([one.place for one in said]), strict=True):
            by_turn.setdefault(span.key, []).append(one)
            span_of[span.key] = span
        fresh = self._fresh(by_turn)
        last = self._last_words([span_of[key] for key in fresh])
        return [self._unit(members, span_of[key], last) for key, members in fresh.items()]

    def _unit(self, members: list[Candidate], span: Span | None, last: Mapping[int, str]) -> Unit:
        ranking = self._ranking
        answered = span is not None and answers(last.get(span.last, ""))
        members.sort(key=lambda one: -one.explanation.fused)
        best = members[0].explanation
        context = 0.0
        if span is not None and len(members) > 1:
            asked = [one.explanation.fused for one in members if one.place.role == PERSON]
            replied = [
                one.explanation.fused
                for one in members
                if one.place.role not in ASKERS and not _is_filler(one, span)
            ]
            question, answer = max(asked, default=0.0), max(replied, default=0.0)
            if asked or replied:
                context = max(question, answer) + ranking.other_share * min(question, answer) - best.fused
        if self._dates and any(self._is_of_date(one.place.created_at) for one in members):
            context += ranking.date_lift
        newest = max(one.place.created_at for one in members)
        explanation = replace(best, context=context, recency=ranking.recency(newest, self._now_ms))
        idle = span is not None and not answered and not _states(members, span)
        return Unit(members, explanation, span, answered, idle)

    def _is_of_date(self, created_at: int) -> bool:
        late = TOLD_DAYS * DAY_MILLISECONDS
        return any(span.start_ms <= created_at < span.end_ms + late for span in self._dates)

    def _last_words(self, spans: Iterable[Span]) -> dict[int, str]:
        """Return the texts with which turns end."""
        wanted = json.dumps([span.last for span in spans if span.last])
        query = (
            f"SELECT rowid, text FROM chunks WHERE forget_hash NOT IN ({HIDDEN})"  # noqa: S608 - a constant of ours
            " AND rowid IN (SELECT value FROM json_each(?))"
        )
        return {int(chunk): text for chunk, text in self._database.rows(query, (wanted,))}

    def prepare(self, units: Sequence[Unit]) -> None:
        """Read together what showing these units takes."""
        waiting = [unit for unit in units if unit.span is not None and unit.pieces is None]
        spans = [unit.span for unit in waiting if unit.span is not None]
        chunks: list[int] = []
        for unit, all_pieces in zip(waiting, self._turns.pieces(spans), strict=True):
            unit.pieces = all_pieces
            pieces = _within(unit, all_pieces)
            replied = [piece for piece in pieces if piece.role not in ANSWERING_NOBODY]
            if unit.answered:
                wanted = replied[-1:] if _replies(unit) else [*replied[:1], *replied[-ANSWER_PIECES_MAX:]]
                chunks += [piece.chunk for piece in wanted]
            chunks += [piece.chunk for piece in pieces if piece.role == PERSON][:QUESTION_PIECES_MAX]
        members = {one.chunk: one.text for unit in waiting for one in unit.members}
        self._texts |= members
        unread = [chunk for chunk in dict.fromkeys(chunks) if chunk not in self._texts]
        if unread:
            self._texts |= read_texts(self._database, unread, None)

    def show(self, unit: Unit, snippets: Snippets) -> Candidate:
        """Return the passage that represents the unit; of a turn, the one of its answer that fits best."""
        if unit.shown is None:
            unit.shown = self._shown(unit, snippets)
        return unit.shown

    def _shown(self, unit: Unit, snippets: Snippets) -> Candidate:
        replied = _replies(unit)
        if replied or unit.span is None or not unit.answered:
            return (replied or unit.members)[0]
        if unit.pieces is None:
            self.prepare([unit])
        first = unit.members[0]
        telling = [
            piece
            for piece in _within(unit, unit.pieces or ())
            if piece.role not in ANSWERING_NOBODY
            and piece.chunk in self._texts
            and (piece.chunk == unit.span.last or not announces(self._texts[piece.chunk].text))
        ]
        if not telling:
            return first
        # Of equal ones the first: an answer begins with what it comes down to.
        best = max(telling, key=lambda piece: snippets.coverage(self._texts[piece.chunk].text))
        place = replace(first.place, role=best.role, created_at=best.created_at, row=best.row)
        return Candidate(best.chunk, place, first.explanation, self._texts[best.chunk])

    def asked(self, unit: Unit) -> str:
        """Return the person's words of a turn; of anything else its text."""
        turn = self.turn(unit)
        return unit.members[0].text.text if turn is None else turn.question

    def turn(self, unit: Unit) -> Turn | None:
        """Return the turn that a unit stands for; None if it is none."""
        if unit.span is None:
            return None
        if unit.pieces is None:
            self.prepare([unit])
        pieces = [piece for piece in _within(unit, unit.pieces or ()) if piece.role not in UNSAID]
        asked = [piece for piece in pieces if piece.role == PERSON]
        found = {one.chunk for one in unit.members}
        question = next((piece for piece in asked if piece.chunk in found), asked[0] if asked else None)
        ending = next((piece for piece in reversed(pieces) if piece.role != PERSON), None)
        answer = None
        if unit.answered and ending is not None:
            answer = next(piece for piece in pieces if piece is ending or is_one_message(piece, ending))
        words = self._texts.get(question.chunk) if question is not None else None
        told = self._texts.get(answer.chunk) if answer is not None else None
        return Turn(
            question="" if words is None else words.text[:QUESTION_CHARS_MAX],
            question_id="" if words is None else words.id,
            answer_id="" if told is None else told.id,
            answered=unit.answered,
            began_at=pieces[0].created_at if pieces else unit.members[0].place.created_at,
            ended_at=pieces[-1].created_at if pieces else unit.members[0].place.created_at,
            messages=len(pieces),
        )


def read_texts(database: Database, chunks: Iterable[int], memories: str | None) -> dict[int, Text]:
    """Return the texts of chunks, with the categories of those that are memories by that view; forgotten ones are left out."""
    category = f"(SELECT category FROM {memories} WHERE chunk = chunks.rowid LIMIT 1)" if memories else "NULL"  # noqa: S608
    query = (
        f"SELECT rowid, id, text, provisional, {category}"  # noqa: S608 - constants of ours
        f" FROM chunks WHERE rowid IN (SELECT value FROM json_each(?)) AND forget_hash NOT IN ({HIDDEN})"
    )
    return {
        int(chunk): Text(content.hex(), text, bool(provisional), category)
        for chunk, content, text, provisional, category in database.rows(query, (json.dumps(list(chunks)),))
    }


def _states(members: Sequence[Candidate], span: Span) -> bool:
    """Whether something of an unanswered turn stands for itself: a person's words that ask nothing, an assistant's message
    before the last one, or what was said where no person spoke."""
    return bool(span.alone) or any(
        not asks(one.text.text)
        if one.place.role == PERSON
        else one.place.role not in ANSWERING_NOBODY
        and one.chunk != span.last
        and not announces(one.text.text)
        for one in members
    )


def _within(unit: Unit, pieces: Sequence[TurnPiece]) -> list[TurnPiece]:
    """Return the pieces of the projects where something was found: a conversation may move on to one that is not searched."""
    where = {(one.place.project, one.place.repository) for one in unit.members}
    return [piece for piece in pieces if (piece.project, piece.repository) in where]


def _replies(unit: Unit) -> list[Candidate]:
    """What was found of a turn's answer, best first."""
    if unit.span is None:
        return []
    return [one for one in unit.members if one.place.role not in ASKERS and not _is_filler(one, unit.span)]


def _is_filler(one: Candidate, span: Span | None) -> bool:
    return span is not None and one.chunk != span.last and announces(one.text.text)
