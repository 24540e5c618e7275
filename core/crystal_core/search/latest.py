"""The latest turns of a project, by time: what was last worked on there, and with which words it ended.

Read by a few index lookups, however much was said: the newest messages of each agent, and those of the project that arrived
last. A project that was left long ago, and of which old conversations arrived after newer ones, may show these instead.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from crystal_core.database import Database, Row
from crystal_core.projects import Names, ProjectKey, names_of, project_keys
from crystal_core.schema import HIDDEN
from crystal_core.search.phrases import answers
from crystal_core.search.turns import ASKERS, PERSON, UNSAID

NEWEST_OF_AGENT = 400
"""Newest messages of each agent that are looked at."""
ARRIVED_LAST = 1_000
"""Messages of a pair of folder and repository that arrived last and are looked at."""
PIECES_MAX = (80, 1_000, 20_000)
"""Last pieces of a conversation of which its last turns are made: more only where no turn of the project begins among fewer."""
SESSIONS_MAX = 20
"""Conversations among which some may be forgotten, empty or elsewhere."""


@dataclass(frozen=True, slots=True)
class Words:
    """What was said in one message: the id and the rowid of the chunk in which it begins, and its text."""

    id: str
    text: str
    chunk: int


@dataclass(frozen=True, slots=True)
class LatestTurn:
    """A turn of a project. `answer` is the last message, None if it is unanswered. `began_at`, `ended_at` in ms since 1970."""

    agent: str
    session: str
    question: Words
    answer: Words | None
    began_at: int
    ended_at: int


@dataclass(frozen=True, slots=True)
class _Piece:
    id: str
    chunk: int
    role: str
    message: str
    created_at: int
    here: bool
    """Whether it was said in one of the projects."""


def latest_turns(
    database: Database, keys: Sequence[ProjectKey], *, without: str = "", sessions: int = 3, turns: int = 2
) -> list[list[LatestTurn]]:
    """Return the last `turns` of the last `sessions` of these projects: the latest conversation first, in it the latest turn.

    `without` is the id of a session to leave out. Belongs in a snapshot.
    """
    names = names_of(keys)
    if not (names.folders or names.repositories):
        return []
    found: list[list[LatestTurn]] = []
    for session, agent in _latest_sessions(database, names, without):
        last = _last_turns(database, session, agent, names, turns)
        if last:
            found.append(last[::-1])
        if len(found) == sessions:
            break
    return found


def _latest_sessions(database: Database, names: Names, without: str) -> list[tuple[str, str]]:
    pairs = sorted({pair for pair in project_keys(database) if names.have(pair)})
    latest: dict[tuple[str, str], int] = {}
    rows: list[Row] = []
    for pair in pairs:
        rows += database.rows(_ARRIVED, (*pair, ARRIVED_LAST))
        rows += database.rows(_PENDING, pair)
    agent = database.value("SELECT min(agent) FROM occurrences") if pairs else None
    while agent is not None:
        rows += database.rows(_NEWEST, (agent, NEWEST_OF_AGENT, json.dumps(pairs)))
        agent = database.value("SELECT min(agent) FROM occurrences WHERE agent > ?", (agent,))
    for session, of_agent, at in rows:
        latest[session, of_agent] = max(int(at), latest.get((session, of_agent), 0))
    latest = {place: at for place, at in latest.items() if not without or place[0] != without}
    return sorted(latest, key=lambda place: (-latest[place], place))[:SESSIONS_MAX]


def _last_turns(database: Database, session: str, agent: str, names: Names, turns: int) -> list[LatestTurn]:
    for most in PIECES_MAX:
        pieces = _pieces(database, session, agent, names, most)
        found = _runs(pieces)[-turns:]
        if found or len(pieces) < most:
            return [_turn(database, session, agent, run) for run in found]
    return []


def _pieces(database: Database, session: str, agent: str, names: Names, most: int) -> list[_Piece]:
    rows = database.rows(_LAST, (session, agent, most, session, agent, most, most))
    return [
        _Piece(content.hex(), chunk, role, message, int(created_at), names.have((project, repository)))
        for content, chunk, role, message, created_at, project, repository in reversed(rows)
    ]


def _runs(pieces: Sequence[_Piece]) -> list[list[_Piece]]:
    """Return the pieces of each turn that begins among these and was asked and ended in the projects, in order."""
    runs: list[list[_Piece]] = []
    before = None
    for piece in pieces:
        if piece.role == PERSON and (before is None or (before.role, before.here) != (PERSON, piece.here)):
            runs.append([])
        if runs:
            runs[-1].append(piece)
        before = piece
    return [run for run in runs if run[0].here and run[-1].here]


def _turn(database: Database, session: str, agent: str, run: Sequence[_Piece]) -> LatestTurn:
    asked = [piece for piece in run if piece.role == PERSON]
    replied = [piece for piece in run if piece.role not in ASKERS]
    last = _words(database, _last_message(replied)) if replied else None
    answer = last if last is not None and answers(last.text) else None
    return LatestTurn(agent, session, _words(database, asked), answer, run[0].created_at, run[-1].created_at)


def _last_message(pieces: Sequence[_Piece]) -> Sequence[_Piece]:
    first = len(pieces) - 1
    while first and pieces[-1].message and pieces[first - 1].message == pieces[-1].message:
        first -= 1
    return pieces[first:]


def _words(database: Database, pieces: Sequence[_Piece]) -> Words:
    """Read what these pieces say: of a conversation, only its last turns are told."""
    chunks = json.dumps([piece.chunk for piece in pieces])
    texts: dict[int, str] = dict(database.rows(_TEXTS, (chunks,)))
    return Words(pieces[0].id, "\n".join(texts[piece.chunk] for piece in pieces), pieces[0].chunk)


_IS_SAID = "category IS NULL AND path IS NULL"
_ARRIVED = """
SELECT session, agent, max(created_at) FROM (
    SELECT session, agent, created_at FROM occurrences INDEXED BY occurrences_by_project
    WHERE project = ? AND repository = ? ORDER BY chunk DESC LIMIT ?) GROUP BY session, agent
"""
_PENDING = f"""
SELECT session, agent, max(created_at) FROM provisional_places
WHERE {_IS_SAID} AND project = ? AND repository = ? GROUP BY session, agent
"""  # noqa: S608 - a constant of ours
_NEWEST = """
SELECT session, agent, max(created_at) FROM (
    SELECT session, agent, created_at, project, repository FROM occurrences INDEXED BY occurrences_by_agent
    WHERE agent = ? ORDER BY created_at DESC LIMIT ?)
WHERE (project, repository) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?)) GROUP BY session, agent
"""
_TEXTS = "SELECT rowid, text FROM chunks WHERE rowid IN (SELECT value FROM json_each(?))"
_COLUMNS = "chunk, rowid, role, message, created_at, project, repository"
_LAST = f"""
SELECT c.id, said.chunk, said.role, said.message, said.created_at, said.project, said.repository FROM (
    SELECT 0 AS pending, * FROM (SELECT {_COLUMNS} FROM occurrences INDEXED BY occurrences_by_session
        WHERE session = ? AND agent = ? AND role NOT IN {UNSAID} ORDER BY created_at DESC, rowid DESC LIMIT ?)
    UNION ALL
    SELECT 1, * FROM (SELECT {_COLUMNS} FROM provisional_places
        WHERE session = ? AND agent = ? AND role NOT IN {UNSAID} AND {_IS_SAID} ORDER BY created_at DESC, rowid DESC LIMIT ?)
    ) AS said JOIN chunks c ON c.rowid = said.chunk
WHERE c.forget_hash NOT IN ({HIDDEN})
ORDER BY said.created_at DESC, said.pending DESC, said.rowid DESC LIMIT ?
"""  # noqa: S608 - constants of ours
