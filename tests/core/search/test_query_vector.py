"""The query's vector is made while the words are looked up, where nothing has to be loaded or asked for it."""

import gc
import threading
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from crystal_core.database import Database
from crystal_core.embed.port import EmbeddingError
from crystal_core.replica import Replica
from crystal_core.search.filters import Scope
from crystal_core.search.hits import Mode
from crystal_core.search.query_vector import QueryVectors
from crystal_core.search.search import Searcher
from tests.core.builders import DAY, NOW, apply, capture, new_replica
from tests.core.meanings import MeaningEmbedder, set_model

SECONDS_MAX = 10.0
TEXTS = ("the car is red", "an automobile in the garage", "soup with beans", "a bean")


class Watched(MeaningEmbedder):
    """Says where it was asked. With `until`, its answer waits for that."""

    def __init__(self, database: Database, *, loaded: bool = True, in_process: bool = True) -> None:
        super().__init__()
        self.loaded = loaded
        self.in_process = in_process
        self.until: threading.Event | None = None
        self.fails = False
        self.asked: list[tuple[str, bool]] = []
        self._database = database

    def embed_query(self, text: str) -> NDArray[np.float32]:
        here = threading.current_thread() is threading.main_thread()
        # A database belongs to one thread at a time.
        self.asked.append(("here" if here else "beside", here and self._database.in_transaction()))
        if self.until is not None and not self.until.wait(SECONDS_MAX):
            raise AssertionError("the words wait for the vector")
        if self.fails:
            raise EmbeddingError("the model is not at home")
        return super().embed_query(text)


@pytest.fixture(name="replica")
def _replica() -> Replica:
    replica = new_replica()
    apply(
        replica,
        *(capture(text, message=text, created_at=NOW - DAY) for text in TEXTS),
        vectors=MeaningEmbedder().vectors,
    )
    set_model(replica, MeaningEmbedder().identity)
    return replica


def test_words_are_looked_up_while_a_loaded_model_is_at_work(replica: Replica) -> None:
    embedder = Watched(replica.database)
    embedder.until = looked_up = threading.Event()

    def trace(_: object, statement: str, __: object) -> bool:
        if "chunks_fts MATCH" in statement:
            looked_up.set()
        return True

    replica.database.connection.exec_trace = trace
    result = Searcher(replica.database, embedder).search("car", now_ms=NOW)
    assert result.mode is Mode.HYBRID
    assert [hit.text for hit in result.hits][:2] == list(TEXTS[:2])
    assert embedder.asked == [("beside", False)]


@pytest.mark.parametrize(("loaded", "in_process"), [(False, True), (True, False)])
def test_no_snapshot_is_held_while_a_model_is_loaded_or_a_server_answers(
    replica: Replica, loaded: bool, in_process: bool
) -> None:
    embedder = Watched(replica.database, loaded=loaded, in_process=in_process)
    assert Searcher(replica.database, embedder).search("car", now_ms=NOW).mode is Mode.HYBRID
    assert embedder.asked == [("here", False)]


@pytest.mark.parametrize("fails", [False, True])
def test_no_snapshot_is_held_while_a_query_with_dates_waits_for_its_vector(
    replica: Replica, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    embedder = Watched(replica.database)
    embedder.fails = fails
    begin, waited = QueryVectors.begin, list[bool]()

    def watched(vectors: QueryVectors, query: str) -> Callable[[], NDArray[np.float32]]:
        wait = begin(vectors, query)

        def waits() -> NDArray[np.float32]:
            waited.append(replica.database.in_transaction())
            return wait()

        return waits

    monkeypatch.setattr(QueryVectors, "begin", watched)
    searcher = Searcher(replica.database, embedder)
    for query in ("what did I say yesterday about beans", "beans"):
        found = searcher.search(query, now_ms=NOW)
        assert found.hits
        assert found.mode is (Mode.KEYWORD if fails else Mode.HYBRID)
        assert found.note == ("the query could not be embedded: the model is not at home" if fails else "")
    assert waited == [False, True]
    assert embedder.asked == [("beside", False)] * 2


@pytest.mark.parametrize("scope", [Scope(), Scope(role="user"), Scope(since_ms=NOW - 2 * DAY)])
@pytest.mark.parametrize("query", ["car", "what did I say yesterday about beans", "soup"])
def test_the_same_is_found_whichever_way_the_vector_is_made(
    replica: Replica, query: str, scope: Scope
) -> None:
    found = [
        Searcher(replica.database, Watched(replica.database, loaded=loaded)).search(
            query, now_ms=NOW, scope=scope
        )
        for loaded in (False, True)
    ]
    assert found[0] == found[1]
    assert found[0].hits


def test_a_vector_that_fails_leaves_the_words_and_the_next_search_asks_again(replica: Replica) -> None:
    embedder = Watched(replica.database)
    searcher = Searcher(replica.database, embedder)
    embedder.fails = True
    failed = searcher.search("car", now_ms=NOW)
    assert failed.mode is Mode.KEYWORD
    assert failed.note == "the query could not be embedded: the model is not at home"
    assert [hit.text for hit in failed.hits] == [TEXTS[0]]
    alone = searcher.search("car", now_ms=NOW, words_only=True)
    assert failed.hits == alone.hits
    embedder.fails = False
    assert searcher.search("car", now_ms=NOW).mode is Mode.HYBRID
    assert [where for where, _ in embedder.asked] == ["beside", "beside"]


def test_a_searcher_has_one_thread_which_ends_with_it(replica: Replica) -> None:
    before = set(threading.enumerate())
    searcher = Searcher(replica.database, Watched(replica.database))
    for query in ("car", "bean", "soup"):
        searcher.search(query, now_ms=NOW)
    (waiting,) = set(threading.enumerate()) - before
    del searcher
    gc.collect()
    waiting.join(SECONDS_MAX)
    assert not waiting.is_alive()
