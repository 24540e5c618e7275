"""Turns: a person's message with what was finally answered, and what was done between.

    a turn      a person's message and all that follows up to the next one
    answered    it ends with words of an assistant that say more than what it is about to do
    filler      an assistant's words on what it is about to do ("Let me check the notes."); they represent no turn

Turns are derived from the occurrences of one conversation (an agent's session) in order of time, so they are the same on
every device. Nothing about them is stored. Where no person speaks, each message stands alone. Thinking and tool calls belong to
the turn in which they happened, and count neither as an answer nor as a piece of it.

A turn's bounds are found by a few index lookups in both tables of pieces, since conversations may have many thousand.
"""

import json
from collections.abc import Sequence

from msgspec import Struct

from crystal_core.database import Database
from crystal_core.search.filters import PENDING, HitPlace
from crystal_mirror.types import ACTION_ROLES

PERSON = "user"
ASSISTANT = "assistant"
THINKING = "thinking"
"""Roles of occurrences."""
THOUGHTS = (THINKING, "subagent-thinking")
UNSAID = (*THOUGHTS, *ACTION_ROLES)
"""What nobody said: thinking, and tool calls."""
ASKERS = (PERSON, "subagent-user")
"""A subagent is asked by an assistant: its role says "user" as well, and it begins no turn."""
ANSWERING_NOBODY = (*ASKERS, *UNSAID)

MILLISECONDS_MAX = 2**62
"""Later than any moment."""
QUESTION_CHARS_MAX = 2000


class Turn(Struct, frozen=True):
    """A turn as a hit shows it.

    `question` is the person's words, at most `QUESTION_CHARS_MAX`, "" where no person spoke. `question_id` and `answer_id` are
    the ids of the chunks in which question and last answer begin, "" where there are none. `began_at` and `ended_at` are the
    moments of its first and last piece in milliseconds since 1970; `messages` counts its pieces without what nobody said.
    """

    question: str
    question_id: str
    answer_id: str
    answered: bool
    began_at: int
    ended_at: int
    messages: int


class Span(Struct, frozen=True, eq=False):
    """Where a turn stands in its conversation. Two pieces belong to one turn if their spans have the same `key`.

    `beyond` is the row of the next turn's first piece, `last` the chunk of the last piece that somebody else than the person
    said; 0 if there is none.
    """

    agent: str
    session: str
    beyond: int
    last: int
    alone: int = 0
    """The piece's own row where no person spoke before it."""
    bounds: tuple[str | None, str | None] = (None, None)
    """Moment, row and message of a piece of the question, and moment and row of the next turn's first piece, as JSON arrays."""

    @property
    def key(self) -> tuple[str, str, int, int]:
        return self.agent, self.session, self.beyond, self.alone


class TurnPiece(Struct, frozen=True):
    """A piece of a turn. `row` as of `HitPlace`."""

    chunk: int
    row: int
    role: str
    created_at: int
    message: str
    project: str
    repository: str


_ROW, _PENDING_ROW = "s.rowid", f"s.rowid + {PENDING}"
_PENDING_PIECES = "provisional_places s INDEXED BY provisional_places_by_session"
_IS_SAID = "s.category IS NULL AND s.path IS NULL"


def _first(columns: str, condition: str, order: str, *, persons: bool = False) -> str:
    """Return a query for the first piece in the conversation of `w` that meets the condition, as a JSON array of columns.

    Columns name the piece's `{row}`. The condition compares `s.created_at` and `s.rowid` as a pair with columns of `w`; those
    that end in `{of}` have the row as it is in each table. SQLite looks up a pair in an index only if it is compared
    with plain columns, and many pieces may have one moment. `order` is ASC or DESC. The first of each table is found by
    itself, since a view of both would be read whole.
    """
    index, role = (
        ("occurrences_by_person", "s.role = 'user' AND") if persons else ("occurrences_by_session", "")
    )
    tables = (
        (_ROW, "_row", f"occurrences s INDEXED BY {index}", "true"),
        (_PENDING_ROW, "_pending_row", _PENDING_PIECES, _IS_SAID),
    )
    found = " UNION ALL ".join(
        f"SELECT * FROM (SELECT s.created_at AS at, {row} AS row, json_array({columns.format(row=row)}) AS piece"  # noqa: S608
        f" FROM {table} WHERE s.session = w.session AND s.agent = w.agent AND {role} {condition.format(of=of)} AND {own}"
        f" ORDER BY s.created_at {order}, s.rowid {order} LIMIT 1)"
        for row, of, table, own in tables
    )
    return f"(SELECT piece FROM ({found}) ORDER BY at {order}, row {order} LIMIT 1)"  # noqa: S608


def _bound(name: str, at: str, row: str) -> str:
    """Return the columns of a place in a conversation, by which pieces of both tables are compared."""
    return f"{at} AS {name}_at, {row} AS {name}_row, {row} - {PENDING} AS {name}_pending_row"


_QUESTION = _first(
    "s.created_at, {row}, s.message",
    "(s.created_at, s.rowid) <= (w.found_at, w.found{of})",
    "DESC",
    persons=True,
)
_BEYOND = _first(
    "s.created_at, {row}",
    "(s.created_at, s.rowid) > (w.asked_at, w.asked{of})"
    " AND (s.message <> w.question ->> 2 OR s.message = '' OR s.created_at <> w.asked_at)",
    "ASC",
    persons=True,
)
_LAST = _first(
    "s.chunk",
    "(s.created_at, s.rowid) < (w.ended_at, w.ended{of}) AND (s.created_at, s.rowid) > (w.asked_at, w.asked{of})"
    f" AND s.role NOT IN {ANSWERING_NOBODY}",
    "DESC",
)
SPANS = f"""
WITH wanted AS MATERIALIZED (
    SELECT key, value ->> 0 AS session, value ->> 1 AS agent, {_bound("found", "value ->> 2", "(value ->> 3)")}
    FROM json_each(?)),
asked AS MATERIALIZED (SELECT w.*, {_QUESTION} AS question FROM wanted w),
begun AS MATERIALIZED (SELECT *, {_bound("asked", "question ->> 0", "(question ->> 1)")} FROM asked),
followed AS MATERIALIZED (SELECT w.*, {_BEYOND} AS beyond FROM begun w),
ended AS MATERIALIZED (
    SELECT *, {_bound("ended", f"coalesce(beyond ->> 0, {MILLISECONDS_MAX})", "coalesce(beyond ->> 1, 0)")} FROM followed)
SELECT key, question, beyond, beyond ->> 1, {_LAST} ->> 0 FROM ended w
"""  # noqa: S608 - constants of ours
"""Steps pass on moment and row, by which pieces are ordered, as an array."""


def _pieces_of(row: str, table: str, own: str) -> str:
    return f"""
SELECT w.key AS key, s.chunk, {row} AS place, s.role, s.created_at AS at, s.message, s.project, s.repository
FROM wanted w CROSS JOIN {table} ON s.session = w.session AND s.agent = w.agent
    AND s.created_at BETWEEN w.at AND coalesce(w.end_at, {MILLISECONDS_MAX})
WHERE (s.created_at > w.at OR {row} >= w.row OR (s.role = 'user' AND s.message = w.message AND s.message <> ''))
    AND (w.end_at IS NULL OR (s.created_at, {row}) < (w.end_at, w.end_row)) AND {own}
"""  # noqa: S608 - constants of ours


_PIECES = f"""
WITH wanted AS MATERIALIZED (
    SELECT key, value ->> 0 AS session, value ->> 1 AS agent, value ->> '$[2][0]' AS at, value ->> '$[2][1]' AS row,
        value ->> '$[2][2]' AS message, value ->> '$[3][0]' AS end_at, value ->> '$[3][1]' AS end_row FROM json_each(?))
{_pieces_of(_ROW, "occurrences s INDEXED BY occurrences_by_session", "true")}
UNION ALL {_pieces_of(_PENDING_ROW, _PENDING_PIECES, _IS_SAID)}
ORDER BY key, at, place
"""  # noqa: S608 - constants of ours
"""The pieces of turns, by their bounds."""


class Turns:
    """The turns of one snapshot of the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def spans(self, places: Sequence[HitPlace]) -> list[Span]:
        """Return the turn of each of these places of conversations."""
        asked = [[place.session, place.agent, place.created_at, place.row] for place in places]
        found: dict[int, Span] = {}
        for key, question, end, beyond, last in self._database.rows(SPANS, (json.dumps(asked),)):
            place = places[int(key)]
            alone = place.row if question is None else 0
            found[int(key)] = Span(
                place.agent, place.session, int(beyond or 0), int(last or 0), alone, (question, end)
            )
        return [found[number] for number in range(len(places))]

    def pieces(self, spans: Sequence[Span]) -> list[list[TurnPiece]]:
        """Return the pieces of each of these turns, in order; none where a message stands alone."""
        found: list[list[TurnPiece]] = [[] for _ in spans]
        asked = {
            number: [span.session, span.agent, *(json.loads(bound or "null") for bound in span.bounds)]
            for number, span in enumerate(spans)
            if not span.alone
        }
        for key, *piece in self._database.rows(_PIECES, (json.dumps(asked),)) if asked else ():
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
