"""A public set in a memory, as capture would have brought it there, and the three ways of ranking it.

    keyword   `Searcher` by words alone
    vector    the pieces by cosine, exactly and without recency: what the model's vectors are good for by themselves
    hybrid    `Searcher` as it is

A way of ranking gives the places that each hit shows, best first: by message its own, by turn all of the turn.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from bench.memories import DEVICE, INCARNATION, SECRET
from bench.quality.public.corpus import Corpus, Place, Question, Text
from crystal_core.cutting.messages import split_message
from crystal_core.embed.port import Embedder
from crystal_core.replica import Replica
from crystal_core.search.by import By
from crystal_core.search.filters import Scope
from crystal_core.search.hits import Hit, SearchResult
from crystal_core.search.search import Searcher
from crystal_core.state.mirror_log import MODEL
from crystal_mirror.operations import Capture, Operation, Piece, PutDocument, PutSource
from crystal_mirror.types import Origin

Found = list[frozenset[Place]]


@dataclass(frozen=True, slots=True)
class Answer:
    """``silent``: the search says that nothing found is likely to answer; None where nothing judges that."""

    found: Found
    silent: bool | None = None


Ranking = Callable[[Question], Answer]
MODES = ("keyword", "vector", "hybrid")
DEPTH = 20
BATCH = 200
SOURCE = "public"
DOCUMENTS_AT = 1_600_000_000_000


class PublicMemory:
    """All texts of a set, ready to be searched."""

    def __init__(self, replica: Replica, corpus: Corpus, embedder: Embedder, by: By) -> None:
        self.corpus = corpus
        self.by = by
        self.searcher = Searcher(replica.database, embedder)
        self._embedder = embedder
        self._by_session: dict[str, list[Text]] = {}
        for text in corpus.texts:
            self._by_session.setdefault(text.place[0], []).append(text)
        pieces = [(text, piece) for text in corpus.texts for piece in _pieces(text)]
        vectors = embedder.embed_windows([piece for _, piece in pieces])
        turns = _turns(corpus.texts) if by is By.TURN else {}
        self._shown = [turns.get(text.place, frozenset({text.place})) for text, _ in pieces]
        self._repositories = np.array([text.repository for text, _ in pieces])
        self._owner = np.repeat(np.arange(len(vectors)), [len(windows) for windows in vectors])
        rows = b"".join(window for windows in vectors for window in windows)
        self._windows = np.frombuffer(rows, "<f2").reshape(len(self._owner), -1).astype(np.float32)

    def rankings(self) -> dict[str, Ranking]:
        return dict(zip(MODES, (self.by_keyword, self.by_vector, self.by_both), strict=True))

    def by_keyword(self, question: Question) -> Answer:
        return self._answer(self.search(question, words_only=True))

    def by_both(self, question: Question) -> Answer:
        return self._answer(self.search(question))

    def by_vector(self, question: Question) -> Answer:
        nearest: NDArray[np.float32] = self._windows @ self._embedder.embed_query(question.text)
        best = np.full(len(self._shown), -2, np.float32)
        np.maximum.at(best, self._owner, nearest)
        if question.repository:
            best[self._repositories != question.repository] = -3
        found: dict[frozenset[Place], None] = {}
        for index in np.argsort(-best, kind="stable"):
            if best[index] < -2 or len(found) == DEPTH:
                break
            found[self._shown[int(index)]] = None
        return Answer(list(found))

    def search(self, question: Question, *, words_only: bool = False, limit: int = DEPTH) -> SearchResult:
        scope = Scope(project=question.repository or None)
        return self.searcher.search(
            question.text,
            now_ms=question.asked_at,
            limit=limit,
            scope=scope,
            words_only=words_only,
            by=self.by,
        )

    def _answer(self, result: SearchResult) -> Answer:
        return Answer(self.shown(result.hits), result.weak or not result.hits)

    def shown(self, hits: Sequence[Hit]) -> Found:
        """The places of each hit."""
        found: Found = []
        for hit in hits:
            turn = hit.turn
            first, last = (turn.began_at, turn.ended_at) if turn else (hit.created_at, hit.created_at)
            found.append(
                frozenset(
                    text.place
                    for text in self._by_session.get(hit.path or hit.session, [])
                    if hit.path or first <= text.created_at <= last
                )
            )
        return found


@contextmanager
def memory_of(corpus: Corpus, embedder: Embedder, by: By = By.TURN) -> Generator[PublicMemory]:
    """A memory that holds the set's texts, found by turn or by message."""
    pieces = list(dict.fromkeys(piece for text in corpus.texts for piece in _pieces(text)))
    vectors = dict(zip(pieces, embedder.embed_windows(pieces), strict=True))
    operations = [_operation(text) for text in corpus.texts]
    if any(isinstance(one, PutDocument) for one in operations):
        operations.insert(0, PutSource(SOURCE, "", (), (), DOCUMENTS_AT))
    replica = Replica.open(":memory:", SECRET)
    try:
        for start in range(0, len(operations), BATCH):
            with replica.transaction() as transaction:
                for number, operation in enumerate(operations[start : start + BATCH], start + 1):
                    place = Origin(DEVICE, INCARNATION, number)
                    transaction.apply(place, operation, vectors.__getitem__)
                    transaction.mark_done(place)
        with replica.transaction() as transaction:
            transaction.meta_set(MODEL, embedder.identity.encode())
        yield PublicMemory(replica, corpus, embedder, by)
    finally:
        replica.close()


def _operation(text: Text) -> Operation:
    if text.path:
        version = sha256(text.text.encode()).digest()
        return PutDocument(SOURCE, text.path, version, text.created_at, "code", 0, 1, (text.text,), ("",))
    pieces = tuple(
        Piece(piece, text.role, text.created_at, text.message, part)
        for part, piece in enumerate(_pieces(text))
    )
    return Capture("agent", text.session, "", text.repository, SOURCE, pieces)


def _pieces(text: Text) -> list[str]:
    return [text.text] if text.path else split_message(text.text)


def _turns(texts: Sequence[Text]) -> dict[Place, frozenset[Place]]:
    """Of each message the turn: what a person said, and all up to what a person says next."""
    turns: list[list[Text]] = []
    before: Text | None = None
    for text in texts:
        begins = before is None or text.session != before.session
        if begins or (text.role == "user" and before is not None and before.role != "user"):
            turns.append([])
        turns[-1].append(text)
        before = text
    found: dict[Place, frozenset[Place]] = {}
    for turn in turns:
        places = frozenset(text.place for text in turn)
        spoken = any(text.role == "user" for text in turn)
        found |= {text.place: places if spoken else frozenset({text.place}) for text in turn}
    return found
