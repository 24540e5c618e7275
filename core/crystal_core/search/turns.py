"""Turns: a person's message with what was finally answered, and what was done between.

    a turn      a person's message and all that follows up to the next one
    answered    it ends with words of an assistant that say more than what it is about to do
    filler      an assistant's words on what it is about to do ("Let me check the notes."); they represent no turn

Turns are derived from the occurrences of one conversation (an agent's session) in order of time, so they are the same on
every device. Nothing about them is stored. Where no person speaks, each message stands alone. Thinking belongs to the turn in
which it happened, and counts neither as an answer nor as a piece of it.

A turn's bounds are found by a few index lookups, since conversations may have many thousand pieces. Conversations with pending
pieces are read from both tables.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from crystal_core.database import Database
from crystal_core.search.filters import PENDING, HitPlace

PERSON = "user"
ASSISTANT = "assistant"
THINKING = "thinking"
"""Roles of occurrences."""

MILLISECONDS_MAX = 2**62
"""Later than any moment."""
QUESTION_CHARS_MAX = 2000


class By(StrEnum):
    """What a search finds: whole turns, or single messages."""

    TURN = "turn"
    MESSAGE = "message"


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn as a hit shows it.

    `question` is the person's words, at most `QUESTION_CHARS_MAX`, "" where no person spoke. `question_id` and `answer_id` are
    the ids of the chunks in which question and last answer begin, "" where there are none. `began_at` and `ended_at` are the
    moments of its first and last piece in milliseconds since 1970; `messages` counts its pieces without thinking.
    """

    question: str
    question_id: str
    answer_id: str
    answered: bool
    began_at: int
    ended_at: int
    messages: int


@dataclass(frozen=True, slots=True)
class Span:
    """Where a turn stands in its conversation. Two pieces belong to one turn if their spans are equal.

    `beyond` is the row of the next turn's first piece, `last` the chunk of the last piece that is neither the person's nor
    thinking; 0 if there is none.
    """

    agent: str
    session: str
    beyond: int
    last: int
    alone: int = 0
    """The piece's own row where no person spoke before it."""
    pending: bool = False
    """Whether some of the conversation is pending."""
    bounds: tuple[str | None, str | None] = field(default=(None, None), compare=False)
    """Moment, row and message of a piece of the question, and moment and row of the next turn's first piece, as JSON arrays."""


@dataclass(frozen=True, slots=True)
class TurnPiece:
    """A piece of a turn. `row` as of `HitPlace`."""

    chunk: int
    row: int
    role: str
    created_at: int
    message: str
    project: str
    repository: str


_SAID = f"""
said AS NOT MATERIALIZED (
    SELECT rowid AS row, session, agent, created_at, role, chunk, message, project, repository
    FROM occurrences INDEXED BY occurrences_by_session
    UNION ALL
    SELECT rowid + {PENDING}, session, agent, created_at, role, chunk, message, project, repository
    FROM provisional_places WHERE category IS NULL AND path IS NULL),
"""  # noqa: S608 - a number of ours
_HAS_PENDING = """
SELECT DISTINCT value ->> 0, value ->> 1 FROM json_each(?) WHERE EXISTS (
    SELECT 1 FROM provisional_places INDEXED BY provisional_places_by_session
    WHERE session = value ->> 0 AND agent = value ->> 1 AND category IS NULL AND path IS NULL)
"""


def _spans_query(*, pending: bool) -> str:
    """Return the query for spans. Steps pass on moment and row, by which pieces are ordered, as an array."""
    row = "s.row" if pending else "s.rowid"
    persons = "said s" if pending else "occurrences s INDEXED BY occurrences_by_person"
    all_said = "said s" if pending else "occurrences s INDEXED BY occurrences_by_session"
    upward, downward = (
        f"ORDER BY s.created_at, {row} LIMIT 1",
        f"ORDER BY s.created_at DESC, {row} DESC LIMIT 1",
    )
    return f"""
WITH {_SAID if pending else ""}
wanted AS MATERIALIZED (
    SELECT key, value ->> 0 AS session, value ->> 1 AS agent, value ->> 2 AS at, value ->> 3 AS row FROM json_each(?)),
asked AS MATERIALIZED (
    SELECT w.*, (SELECT json_array(s.created_at, {row}, s.message) FROM {persons}
                 WHERE s.session = w.session AND s.agent = w.agent AND s.role = 'user'
                 AND (s.created_at, {row}) <= (w.at, w.row) {downward}) AS question
    FROM wanted w),
ended AS MATERIALIZED (
    SELECT a.*, (SELECT json_array(s.created_at, {row}) FROM {persons}
                 WHERE s.session = a.session AND s.agent = a.agent AND s.role = 'user'
                 AND (s.created_at, {row}) > (a.question ->> 0, a.question ->> 1)
                 AND (s.message <> a.question ->> 2 OR s.message = '' OR s.created_at <> a.question ->> 0) {upward}) AS beyond
    FROM asked a)
SELECT key, question, beyond, beyond ->> 1,
    (SELECT s.chunk FROM {all_said} WHERE s.session = e.session AND s.agent = e.agent AND s.role NOT IN ('user', 'thinking')
     AND (s.created_at, {row}) > (e.question ->> 0, e.question ->> 1)
     AND (s.created_at, {row}) < (coalesce(e.beyond ->> 0, {MILLISECONDS_MAX}), coalesce(e.beyond ->> 1, 0)) {downward})
FROM ended e
"""  # noqa: S608 - constants of ours


def _pieces_query(*, pending: bool) -> str:
    """Return the query for the pieces of turns, by their bounds."""
    row = "s.row" if pending else "s.rowid"
    table = "said s" if pending else "occurrences s INDEXED BY occurrences_by_session"
    return f"""
WITH {_SAID if pending else ""}
wanted AS MATERIALIZED (
    SELECT key, value ->> 0 AS session, value ->> 1 AS agent, value ->> '$[2][0]' AS at, value ->> '$[2][1]' AS row,
        value ->> '$[2][2]' AS message, value ->> '$[3][0]' AS end_at, value ->> '$[3][1]' AS end_row FROM json_each(?))
SELECT w.key, s.chunk, {row} AS place, s.role, s.created_at, s.message, s.project, s.repository
FROM wanted w CROSS JOIN {table} ON s.session = w.session AND s.agent = w.agent
    AND s.created_at BETWEEN w.at AND coalesce(w.end_at, {MILLISECONDS_MAX})
WHERE (s.created_at > w.at OR {row} >= w.row OR (s.role = 'user' AND s.message = w.message AND s.message <> ''))
    AND (w.end_at IS NULL OR (s.created_at, {row}) < (w.end_at, w.end_row))
ORDER BY w.key, s.created_at, place
"""  # noqa: S608 - constants of ours


class Turns:
    """The turns of one snapshot of the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def spans(self, places: Sequence[HitPlace]) -> list[Span]:
        """Return the turn of each of these places of conversations."""
        sessions = list({(place.session, place.agent) for place in places})
        pending = set(self._database.rows(_HAS_PENDING, (json.dumps(sessions),)))
        found: dict[int, Span] = {}
        for waiting in (False, True):
            asked = {
                number: [place.session, place.agent, place.created_at, place.row]
                for number, place in enumerate(places)
                if ((place.session, place.agent) in pending) is waiting
            }
            if not asked:
                continue
            rows = self._database.rows(_SPANS[waiting], (json.dumps(asked),))
            for key, question, end, beyond, last in rows:
                place = places[int(key)]
                found[int(key)] = Span(
                    place.agent,
                    place.session,
                    int(beyond or 0),
                    int(last or 0),
                    place.row if question is None else 0,
                    waiting,
                    (question, end),
                )
        return [found[number] for number in range(len(places))]

    def pieces(self, spans: Sequence[Span]) -> list[list[TurnPiece]]:
        """Return the pieces of each of these turns, in order; none where a message stands alone."""
        found: list[list[TurnPiece]] = [[] for _ in spans]
        for waiting in (False, True):
            asked = {
                number: [span.session, span.agent, *(json.loads(bound or "null") for bound in span.bounds)]
                for number, span in enumerate(spans)
                if span.pending is waiting and not span.alone
            }
            if asked:
                for key, *piece in self._database.rows(_PIECES[waiting], (json.dumps(asked),)):
                    found[int(key)].append(TurnPiece(*piece))
        return found


def is_one_message(one: TurnPiece, other: TurnPiece) -> bool:
    """Whether they are pieces of one message. Some tools use an id for several messages."""
    return (
        one.role == other.role
        and bool(one.message)
        and one.message == other.message
        and one.created_at == other.created_at
    )


_SPANS = {waiting: _spans_query(pending=waiting) for waiting in (False, True)}
_PIECES = {waiting: _pieces_query(pending=waiting) for waiting in (False, True)}
