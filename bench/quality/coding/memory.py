"""The conversations in a memory, as capture would have brought them there, and the ways of searching them.

    keyword   `Searcher` by words alone
    vector    the pieces by cosine, exactly and without recency: what the model's vectors are good for by themselves
    hybrid    `Searcher` as it is

Each is asked in the question's project, as recall asks, or everywhere with the project named in the question; by turn or by
message.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.memories import INCARNATION, SECRET
from bench.quality.coding.conversations import Corpus, Message, Place, Session
from bench.quality.coding.episodes import Kind
from bench.quality.coding.questions import Question
from bench.quality.sets import NOW
from crystal_core.cutting.messages import split_message
from crystal_core.embed.port import Embedder
from crystal_core.replica import Replica
from crystal_core.search.by import By
from crystal_core.search.filters import EVERYWHERE, Scope
from crystal_core.search.hits import Hit, SearchResult
from crystal_core.search.search import Searcher
from crystal_core.state.mirror_log import MODEL
from crystal_mirror.operations import Capture, Piece
from crystal_mirror.types import Origin

DEPTH = 10
SESSIONS_TOGETHER = 20
_DEVICES = (b"coding-laptop", b"coding-desktop", b"coding-server")


@dataclass(frozen=True, slots=True)
class Shown:
    """What one hit shows: the message of its passage, and the places that belong to it (by turn all of the turn)."""

    passage: Place
    places: frozenset[Place]
    project: str
    empty: bool
    """Whether it only asks, and answers nothing."""


@dataclass(frozen=True, slots=True)
class Found:
    """The hits, best first. ``weak``: the search itself says that nothing fits; None where it never says so."""

    hits: Sequence[Shown]
    weak: bool | None


Ranking = Callable[[Question], Found]


class CodingMemory:
    """All conversations, ready to be searched."""

    def __init__(self, replica: Replica, corpus: Corpus, embedder: Embedder) -> None:
        self.corpus = corpus
        self.searcher = Searcher(replica.database, embedder)
        self._embedder = embedder
        self._sessions = {session.id: session for session in corpus.sessions}
        self._by_moment = {
            (session.id, message.created_at): message
            for session in corpus.sessions
            for message in session.messages
        }
        self._turns = {
            place: turn for session in corpus.sessions for turn in _turns(session) for place in turn
        }
        pieces = [
            (session, message, piece)
            for session in corpus.sessions
            for message in session.messages
            if message.role != "thinking"
            for piece in split_message(message.text)
        ]
        vectors = embedder.embed_windows([piece for _, _, piece in pieces])
        self._pieces = [(session, message) for session, message, _ in pieces]
        self._projects = np.array([session.project.name for session, _, _ in pieces])
        self._owner = np.repeat(np.arange(len(vectors)), [len(windows) for windows in vectors])
        rows = b"".join(window for windows in vectors for window in windows)
        self._windows = np.frombuffer(rows, "<f2").reshape(len(self._owner), -1).astype(np.float32)

    def rankings(self, by: By, *, scoped: bool) -> dict[str, Ranking]:
        """By name of the way of ranking."""
        return {
            "keyword": lambda question: self.found(question, by, scoped=scoped, words_only=True),
            "vector": lambda question: self.nearest(question, by, scoped=scoped),
            "hybrid": lambda question: self.found(question, by, scoped=scoped),
        }

    def found(self, question: Question, by: By, *, scoped: bool, words_only: bool = False) -> Found:
        result = self.search(question, by, scoped=scoped, words_only=words_only)
        return Found([self._shown(hit) for hit in result.hits], result.weak or not result.hits)

    def search(
        self, question: Question, by: By, *, scoped: bool, words_only: bool = False, limit: int = DEPTH
    ) -> SearchResult:
        project = question.project
        scope = Scope(projects=((project.path, project.repository),)) if scoped else EVERYWHERE
        return self.searcher.search(
            question.text if scoped else question.named,
            now_ms=NOW,
            limit=limit,
            scope=scope,
            words_only=words_only,
            by=by,
        )

    def nearest(self, question: Question, by: By, *, scoped: bool) -> Found:
        query = self._embedder.embed_query(question.text if scoped else question.named)
        nearest: NDArray[np.float32] = self._windows @ query
        best = np.full(len(self._pieces), -2, np.float32)
        np.maximum.at(best, self._owner, nearest)
        if scoped:
            best[self._projects != question.project.name] = -3
        found: dict[frozenset[Place], Shown] = {}
        for index in np.argsort(-best, kind="stable"):
            if best[index] < -2 or len(found) == DEPTH:
                break
            session, message = self._pieces[int(index)]
            place = (session.id, message.id)
            places = self._turns[place] if by is By.TURN else frozenset({place})
            found.setdefault(places, self._of(session, place, places))
        return Found(list(found.values()), None)

    def message(self, place: Place) -> Message:
        """Raises StopIteration if there is no such place."""
        return next(one for one in self._sessions[place[0]].messages if one.id == place[1])

    def _shown(self, hit: Hit) -> Shown:
        session = self._sessions[hit.session]
        place = (session.id, self._by_moment[session.id, hit.created_at].id)
        if hit.turn is None:
            return self._of(session, place, frozenset({place}))
        within = (
            message
            for message in session.messages
            if hit.turn.began_at <= message.created_at <= hit.turn.ended_at
        )
        return self._of(session, place, frozenset((session.id, message.id) for message in within))

    def _of(self, session: Session, passage: Place, places: frozenset[Place]) -> Shown:
        kinds = {message.kind for message in session.messages if (session.id, message.id) in places}
        asks = bool(kinds & {Kind.QUESTION, Kind.NOTHING})
        return Shown(passage, places, session.project.name, asks and not kinds & {Kind.ANSWER, Kind.ORDER})


@contextmanager
def memory_of(corpus: Corpus, embedder: Embedder, path: Path | str = ":memory:") -> Generator[CodingMemory]:
    """A memory that holds the conversations."""
    texts = list(
        dict.fromkeys(
            piece
            for session in corpus.sessions
            for message in session.messages
            for piece in split_message(message.text)
        )
    )
    vectors = dict(zip(texts, embedder.embed_windows(texts), strict=True))
    replica = Replica.open(path, SECRET)
    try:
        for start in range(0, len(corpus.sessions), SESSIONS_TOGETHER):
            with replica.transaction() as transaction:
                for number, session in enumerate(
                    corpus.sessions[start : start + SESSIONS_TOGETHER], start + 1
                ):
                    place = Origin(_DEVICES[session.device], INCARNATION, number)
                    transaction.apply(place, _capture(session), vectors.__getitem__)
                    transaction.mark_done(place)
        with replica.transaction() as transaction:
            transaction.meta_set(MODEL, embedder.identity.encode())
        yield CodingMemory(replica, corpus, embedder)
    finally:
        replica.close()


def _capture(session: Session) -> Capture:
    pieces = tuple(
        Piece(piece, message.role, message.created_at, message.id, part)
        for message in session.messages
        for part, piece in enumerate(split_message(message.text))
    )
    project = session.project
    return Capture(session.agent, session.id, project.path, project.repository, session.source, pieces)


def _turns(session: Session) -> list[frozenset[Place]]:
    """What a person said, and all up to what a person says next."""
    turns: list[list[Place]] = []
    before = ""
    for message in session.messages:
        if not turns or (message.role == "user" and before != "user"):
            turns.append([])
        turns[-1].append((session.id, message.id))
        before = message.role
    return [frozenset(turn) for turn in turns]
