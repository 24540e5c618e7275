"""The bit scan: as good as the exact scan, and never out of step with the database."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from crystal_core.database import Database
from crystal_core.replica import Replica
from crystal_core.search.vector_index import SAMPLED, SAMPLED_MIN, VectorIndex, smallest
from crystal_mirror.operations import Capture, Piece
from tests.core.builders import apply, capture, forget, new_replica, origin

DIMENSIONS = 384


def clustered(count: int, seed: int) -> NDArray[np.float32]:
    """Unit vectors around a thousand centres of twenty directions each, as texts lie around their subjects."""
    rng = np.random.default_rng(seed)
    directions = np.random.default_rng(0).standard_normal((300, DIMENSIONS))
    picked = directions[np.random.default_rng(1).integers(0, 300, (1000, 20))].sum(axis=1)
    vectors = picked[rng.integers(0, 1000, count)] + 6.8 * rng.standard_normal((count, DIMENSIONS))
    unit: NDArray[np.float32] = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return unit


def fill(replica: Replica, vectors: NDArray[np.float32], first: int = 0) -> None:
    halves = vectors.astype("<f2")
    names = [f"vector {first + i}" for i in range(len(vectors))]
    by_name = {name: [halves[i].tobytes()] for i, name in enumerate(names)}
    batches = [names[i : i + 200] for i in range(0, len(names), 200)]
    pieces = [tuple(Piece(name, "", 0, name, 0) for name in batch) for batch in batches]
    apply(
        replica, *(Capture("", "", "", "", "", part) for part in pieces), vectors=lambda text: by_name[text]
    )


def refreshed(index: VectorIndex, database: Database) -> VectorIndex:
    with database.snapshot():
        index.refresh(database)
    return index


def names(replica: Replica, index: VectorIndex, query: NDArray[np.float32], count: int = 10) -> list[str]:
    with replica.database.snapshot():
        index.refresh(replica.database)
        found = index.nearest(replica.database, query, count)
        return [
            replica.database.value("SELECT text FROM chunks WHERE rowid = ?", (one.chunk,)) for one in found
        ]


def test_recall_against_the_exact_scan() -> None:
    replica = new_replica()
    vectors = clustered(20_000, seed=2)
    fill(replica, vectors)
    index = refreshed(VectorIndex(), replica.database)
    exact = vectors.astype("<f2").astype(np.float32)
    hits = 0
    queries = clustered(100, seed=3)
    for query in queries:
        best = {f"vector {i}" for i in np.argsort(-(exact @ query))[:10]}
        hits += len(best & set(names(replica, index, query)))
    assert hits / (10 * len(queries)) >= 0.99


def test_its_order_is_sqlite_vecs_own() -> None:
    replica = new_replica()
    fill(replica, clustered(500, seed=4))
    for query in clustered(5, seed=5):
        rows = replica.database.rows(
            "SELECT rowid FROM vectors ORDER BY vec_distance_cosine(crystal_float32(embedding), ?) LIMIT 10",
            (query.tobytes(),),
        )
        chunks = [replica.database.value("SELECT chunk FROM windows WHERE rowid = ?", row) for row in rows]
        index = refreshed(VectorIndex(), replica.database)
        assert [one.chunk for one in index.nearest(replica.database, query, 10)] == chunks


def test_it_follows_inserts_deletes_and_other_connections(tmp_path: Path) -> None:
    path = tmp_path / "crystal.db"
    replica, other = new_replica(path), new_replica(path)
    vectors = clustered(60, seed=6)
    index = VectorIndex()
    assert names(replica, index, vectors[0]) == []
    fill(replica, vectors[:20])
    assert names(replica, index, vectors[7], 1) == ["vector 7"]
    fill(other, vectors[20:40], first=20)
    assert names(replica, index, vectors[33], 1) == ["vector 33"]
    apply(other, forget("vector 33"))
    assert "vector 33" not in names(replica, index, vectors[33], 40)
    assert index.size == 39
    apply(replica, forget(*(f"vector {i}" for i in range(30, 40))))
    fill(replica, vectors[40:], first=40)
    assert names(replica, index, vectors[45], 1) == ["vector 45"]
    assert sorted(names(replica, index, vectors[0], 60)) == sorted(
        f"vector {i}" for i in range(60) if i not in range(30, 40)
    )
    with other.transaction() as transaction:
        transaction.wipe()
    assert names(replica, index, vectors[0]) == []


def test_an_index_made_over_time_is_the_index_made_at_once() -> None:
    replica = new_replica()
    vectors = clustered(3000, seed=7)
    grown = VectorIndex()
    for start in (0, 1, 2, 100, 1000, 1001):
        end = {0: 1, 1: 2, 2: 100, 100: 1000, 1000: 1001, 1001: 3000}[start]
        fill(replica, vectors[start:end], first=start)
        refreshed(grown, replica.database)
    fresh = refreshed(VectorIndex(), replica.database)
    assert grown.size == fresh.size == 3000
    for query in vectors[::500]:
        assert names(replica, grown, query) == names(replica, fresh, query)


def test_what_was_rolled_back_is_not_in_it() -> None:
    replica = new_replica()
    vectors = clustered(4, seed=8)
    fill(replica, vectors[:2])
    index = refreshed(VectorIndex(), replica.database)

    def abandoned() -> None:
        with replica.transaction() as transaction:
            halves = [vectors[2].astype("<f2").tobytes()]
            transaction.apply(origin(50), capture("abandoned"), lambda _: halves)
            raise LookupError

    with pytest.raises(LookupError):
        abandoned()
    fill(replica, vectors[3:], first=3)
    assert names(replica, index, vectors[3], 1) == ["vector 3"]
    assert index.size == 3


def test_only_and_without_apply_before_anything_is_cut_off() -> None:
    replica = new_replica()
    vectors = clustered(5000, seed=9)
    fill(replica, vectors)
    index = refreshed(VectorIndex(), replica.database)
    query = vectors[17]
    ranked = np.argsort(-(vectors @ query))
    worst = [int(i) for i in ranked[-3:]]
    rowids = {
        int(text.split()[1]): rowid for rowid, text in replica.database.rows("SELECT rowid, text FROM chunks")
    }
    only = np.array([rowids[i] for i in worst] + [10**9], np.int64)
    assert {one.chunk for one in index.nearest(replica.database, query, 10, only=only)} == set(
        only[:3].tolist()
    )
    without = np.array([rowids[17], 10**9], np.int64)
    assert rowids[17] not in {
        one.chunk for one in index.nearest(replica.database, query, 10, without=without)
    }
    nothing = index.nearest(replica.database, query, 10, only=np.empty(0, np.int64))
    assert nothing == []


@pytest.mark.parametrize("dimensions", [1, 7, 8, 63, 64, 65, 384, 1536])
def test_any_number_of_dimensions(dimensions: int) -> None:
    replica = new_replica()
    vectors = np.random.default_rng(10).standard_normal((300, dimensions)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    fill(replica, vectors)
    index = refreshed(VectorIndex(), replica.database)
    exact = vectors.astype("<f2").astype(np.float32)
    found = index.nearest(replica.database, vectors[5], 3)
    assert found[0].similarity == pytest.approx(float((exact @ vectors[5]).max()), abs=1e-5)


def test_a_chunk_counts_once_by_its_nearest_window() -> None:
    replica = new_replica()
    vectors = clustered(40, seed=11)
    halves = [vector.astype("<f2").tobytes() for vector in vectors]
    apply(replica, capture("long text"), vectors=lambda _: halves[:30])
    apply(replica, capture("short text", message="2"), vectors=lambda _: halves[30:31])
    index = refreshed(VectorIndex(), replica.database)
    found = index.nearest(replica.database, vectors[12], 10)
    assert len(found) == 2
    assert found[0].similarity == pytest.approx(1, abs=1e-2)
    assert [one.similarity for one in found] == sorted((one.similarity for one in found), reverse=True)


@pytest.mark.parametrize("count", [1, 7, 2560, SAMPLED_MIN - 2])
@pytest.mark.parametrize("size", [SAMPLED_MIN - 1, SAMPLED_MIN, 2 * SAMPLED_MIN + 5])
def test_the_smallest_distances_are_found_whatever_the_sample_says(size: int, count: int) -> None:
    """Of equal distances the last ones, as in a stable sort of all of them."""
    rng = np.random.default_rng(size + count)
    usual = rng.normal(DIMENSIONS / 2, 12, size).clip(0, DIMENSIONS).astype(np.uint16)
    near_only_sampled, far_only_sampled = usual.copy(), usual.copy()
    near_only_sampled[::SAMPLED] = 3
    far_only_sampled[::SAMPLED] = DIMENSIONS
    for distances in (usual, np.sort(usual), np.full_like(usual, 5), near_only_sampled, far_only_sampled):
        wanted = np.lexsort((-np.arange(size), distances))[:count]
        assert sorted(smallest(distances, count).tolist()) == sorted(wanted.tolist())
