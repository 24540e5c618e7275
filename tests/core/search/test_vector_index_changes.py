"""The vector index in a vault that lives: whoever writes, whatever is removed, however narrow the filter."""

import random
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from crystal_core.database import Database
from crystal_core.errors import VaultDamaged
from crystal_core.replica import Replica
from crystal_core.schema import REMOVALS_NAMED
from crystal_core.search import vector_index
from crystal_core.search.vector_index import VectorIndex
from tests.core.builders import apply, capture, content_hash, forget, new_replica
from tests.core.search.test_vector_index import clustered, fill, names, refreshed

COUNT = 12


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks so small that a few dozen windows fill several, and an index that never starts over for its holes."""
    monkeypatch.setattr(vector_index, "BLOCK", 16)
    monkeypatch.setattr(vector_index, "_HOLES_MAX", 1)


def half(vector: NDArray[np.float32]) -> bytes:
    return vector.astype("<f2").tobytes()


def found(database: Database, index: VectorIndex, query: NDArray[np.float32]) -> list[tuple[int, float]]:
    with database.snapshot():
        index.refresh(database)
        return [(one.chunk, one.similarity) for one in index.nearest(database, query, COUNT)]


def highest_similarities(database: Database, query: NDArray[np.float32]) -> list[float]:
    rows = database.rows("SELECT embedding FROM vectors")
    exact = np.frombuffer(b"".join(row[0] for row in rows), "<f2").astype(np.float32).reshape(len(rows), -1)
    similarities: list[float] = np.sort(-(exact @ query))[:COUNT].tolist()
    return [-value for value in similarities]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("seed", range(4))
def test_any_history_by_another_connection_is_followed(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "crystal.db"
    here, there = new_replica(path), new_replica(path)
    generator = random.Random(seed)
    vectors = clustered(400, seed=20 + seed)
    kept: list[str] = []
    index = VectorIndex()
    used = 0
    for _ in range(25):
        match generator.randrange(4):
            case 0 | 1:
                added = generator.randint(1, 20)
                fill(there, vectors[used : used + added], first=used)
                kept += [f"vector {number}" for number in range(used, used + added)]
                used += added
            case 2 if kept:
                # The newest among them: their rowids are given out again.
                gone = {*generator.sample(kept, min(len(kept), 4)), *kept[-generator.randint(1, 5) :]}
                apply(there, forget(*gone))
                kept = [text for text in kept if text not in gone]
            case _:
                with there.transaction() as transaction:
                    for text in generator.sample(kept, min(len(kept), 5)):
                        transaction.embed_anew(content_hash(text), [half(vectors[generator.randrange(400)])])
        query = vectors[generator.randrange(400)]
        result = found(here.database, index, query)
        assert result == found(here.database, VectorIndex(), query)
        assert index.size == len(kept)
        if kept:
            best = highest_similarities(here.database, query)
            assert [similarity for _, similarity in result] == pytest.approx(best, abs=1e-5)


def test_a_forgotten_texts_signs_leave_the_memory_of_whoever_searches(tmp_path: Path) -> None:
    path = tmp_path / "crystal.db"
    here, there = new_replica(path), new_replica(path)
    vectors = clustered(50, seed=30)
    fill(there, vectors)
    index = refreshed(VectorIndex(), here.database)
    (signs,) = here.database.rows(
        "SELECT bits FROM windows WHERE chunk = (SELECT rowid FROM chunks WHERE text = 'vector 31')"
    )[0]
    assert signs in memory(index)
    apply(there, forget("vector 31"))
    assert signs not in memory(refreshed(index, here.database))


def memory(index: VectorIndex) -> bytes:
    """The signs that an index holds, window after window."""
    return b"".join(block.words.T.tobytes() for block in index._blocks)  # pyright: ignore[reportPrivateUsage]


def test_more_removals_than_are_named_are_followed(tmp_path: Path) -> None:
    path = tmp_path / "crystal.db"
    here, there = new_replica(path), new_replica(path)
    vectors = clustered(40, seed=31)
    fill(there, vectors)
    index = refreshed(VectorIndex(), here.database)
    removals = there.database.value("SELECT removals FROM index_state")
    with there.transaction() as transaction:
        for turn in range(REMOVALS_NAMED // 40 + 1):
            for number in range(40):
                transaction.embed_anew(
                    content_hash(f"vector {number}"), [half(vectors[(number + turn) % 40])]
                )
    assert there.database.value("SELECT removals FROM index_state") - removals > REMOVALS_NAMED
    assert there.database.value("SELECT count(*) FROM removed_windows") == REMOVALS_NAMED
    for query in vectors[::7]:
        assert found(here.database, index, query) == found(here.database, VectorIndex(), query)


def test_vectors_dropped_and_made_again_with_the_same_size_are_followed() -> None:
    replica = new_replica()
    vectors = clustered(30, seed=32)
    fill(replica, vectors)
    index = refreshed(VectorIndex(), replica.database)
    with replica.transaction() as transaction:
        transaction.drop_vectors()
        for number in range(30):
            transaction.embed_anew(content_hash(f"vector {number}"), [half(vectors[29 - number])])
    assert names(replica, index, vectors[3], 1) == ["vector 26"]


def test_signs_changed_by_hand_are_noticed_and_damaged_ones_refused() -> None:
    replica = new_replica()
    fill(replica, clustered(10, seed=33))
    index = refreshed(VectorIndex(), replica.database)
    before = memory(index)
    replica.database.run("UPDATE windows SET bits = zeroblob(48) WHERE rowid = 4")
    assert memory(refreshed(index, replica.database)) != before
    replica.database.run("UPDATE windows SET bits = x'00' WHERE rowid = 4")
    with pytest.raises(VaultDamaged):
        refreshed(index, replica.database)


def test_a_filter_that_keeps_one_in_a_thousand_finds_all(large: Replica) -> None:
    index = refreshed(VectorIndex(), large.database)
    generator = np.random.default_rng(34)
    queries = clustered(10, seed=35)
    for query in queries:
        only = generator.choice(np.arange(1, 20_001), 20, replace=False)
        nearest = index.nearest(large.database, query, 20, only=only)
        assert {one.chunk for one in nearest} == set(only.tolist())


@pytest.mark.parametrize(
    ("share", "asks"), [(0.5, False), (0.1, False), (0.05, False), (0.5, True), (0.2, True)]
)
def test_recall_holds_behind_filters_of_any_width(large: Replica, share: float, asks: bool) -> None:
    """Of which all chunks are listed, or, where they are many, the nearest ones are asked about."""
    index = refreshed(VectorIndex(), large.database)
    exact = (
        np.frombuffer(
            b"".join(row[0] for row in large.database.rows("SELECT embedding FROM vectors ORDER BY rowid")),
            "<f2",
        )
        .astype(np.float32)
        .reshape(20_000, -1)
    )
    owners = np.array([row[0] for row in large.database.rows("SELECT chunk FROM windows ORDER BY rowid")])
    generator = np.random.default_rng(36)
    hits = 0
    queries = clustered(25, seed=37)
    for query in queries:
        only = np.flatnonzero(generator.random(20_001) < share)
        without = generator.choice(only, 50)
        admitted = np.isin(owners, np.setdiff1d(only, without))
        similarities = np.where(admitted, exact @ query, -2)
        best = set(owners[np.argsort(-similarities)[:10]].tolist())
        if asks:
            nearest = index.nearest(
                large.database, query, 40, without=without, admits=partial(np.isin, test_elements=only)
            )
        else:
            nearest = index.nearest(large.database, query, 40, only=only, without=without)
        assert {one.chunk for one in nearest} <= set(owners[admitted].tolist())
        hits += len(best & {one.chunk for one in nearest[:10]})
    assert hits / (10 * len(queries)) >= 0.99


def test_where_all_is_hidden_nobody_is_asked_and_nothing_found(large: Replica) -> None:
    index = refreshed(VectorIndex(), large.database)
    query, everything = clustered(1, seed=42)[0], np.arange(20_001)
    assert (
        index.nearest(
            large.database, query, 5, without=everything, admits=lambda chunks: np.ones(len(chunks), bool)
        )
        == []
    )
    assert index.nearest(large.database, query, 5, admits=lambda chunks: np.zeros(len(chunks), bool)) == []


def test_long_texts_do_not_crowd_out_the_others() -> None:
    replica = new_replica()
    near, far = clustered(1, seed=38)[0], clustered(40, seed=39)
    generator = np.random.default_rng(40)
    windows = [half(near + generator.normal(0, 0.002, len(near)).astype(np.float32)) for _ in range(400)]
    apply(replica, capture("a very long text"), vectors=lambda _: windows)
    fill(replica, far)
    index = refreshed(VectorIndex(), replica.database)
    nearest = index.nearest(replica.database, near, 20)
    assert len(nearest) == 20
    assert nearest[0].similarity > 0.99


@pytest.fixture(scope="module")
def large() -> Replica:
    """20,000 windows, one a chunk."""
    replica = new_replica()
    fill(replica, clustered(20_000, seed=41))
    return replica
