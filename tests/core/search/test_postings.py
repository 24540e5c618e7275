"""Ranking by NumPy: FTS5's own ranks, whoever writes and whatever is removed meanwhile."""

import random
from pathlib import Path
from typing import Any

import pytest

from crystal_core.database import Database
from crystal_core.replica import Replica
from crystal_core.search import bm25, keywords, postings
from crystal_core.search.keywords import Match, Restriction, best_matches
from crystal_core.search.search import search
from tests.core.builders import NOW, apply, capture, forget, new_replica

LIMIT = 20
WORDS = [f"word{number}" for number in range(40)]
ODD = "+rowid IN (SELECT rowid FROM chunks WHERE rowid % 2)"
RESTRICTIONS = (
    keywords.EVERYTHING,
    Restriction(ODD),
    Restriction("+rowid IN (SELECT rowid FROM chunks WHERE rowid % ? = 0)", (15,)),
    Restriction(ODD, admits=lambda chunks: chunks % 2 == 1),
    Restriction(ODD, narrow=True),
    Restriction("+rowid IN (SELECT rowid FROM chunks WHERE rowid % ? = 0)", (5,), narrow=True),
)


@pytest.fixture(autouse=True)
def _small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds of ranking so low that a few hundred chunks exceed them."""
    for name, bound in {"RANKED_MAX": 220, "RARE_MAX": 60, "FEW_MAX": 4}.items():
        monkeypatch.setattr(keywords, name, bound)
    monkeypatch.setattr(postings, "_LOOKED_AT", 2)


def said(generator: random.Random) -> str:
    """Some words of 40, the first ones in nearly every text; some texts are long."""
    count = generator.choice((3, 10, 40, 300))
    return " ".join(WORDS[min(int(generator.expovariate(0.15)), 39)] for _ in range(count))


def filled(path: Path | str, generator: random.Random, count: int = 400) -> Replica:
    replica = new_replica(path)
    apply(replica, *(capture(f"n{number} {said(generator)}", message=str(number)) for number in range(count)))
    return replica


def by_fts5(
    database: Database, query: str, restriction: Restriction, patch: pytest.MonkeyPatch
) -> list[Match]:
    with patch.context() as patched:
        patched.setattr(postings, "at_hand", lambda: False)
        return best_matches(database, query, LIMIT, restriction)


def same(ours: list[Match], theirs: list[Match]) -> None:
    assert [one.chunk for one in ours] == [one.chunk for one in theirs]
    assert [one.bm25 for one in ours] == pytest.approx([one.bm25 for one in theirs], rel=1e-12)


@pytest.mark.parametrize("restriction", RESTRICTIONS)
@pytest.mark.parametrize("indexed", [False, True])
def test_ranks_are_those_of_fts5(
    monkeypatch: pytest.MonkeyPatch, restriction: Restriction, indexed: bool
) -> None:
    if indexed:
        monkeypatch.setattr(keywords, "LISTED_FOR_ONE_INDEXED", 0)
    generator = random.Random(7)
    database = filled(":memory:", generator).database
    assert postings.at_hand()
    for _ in range(60):
        query = " ".join(generator.choices([*WORDS, "nowhere", "word0.word1"], k=generator.randint(1, 6)))
        ours = best_matches(database, query, LIMIT, restriction)
        same(ours, by_fts5(database, query, restriction, monkeypatch))


def test_a_word_that_stands_very_often_in_a_text_is_counted_as_often_as_it_says() -> None:
    replica = new_replica()
    words = " ".join(["word0 word1 word2"] * 2)
    apply(
        replica,
        *(capture(f"{words} n{number}", message=str(number)) for number in range(400)),
        capture(" ".join(["word0"] * 5000 + ["word1 word2"]), message="most"),
    )
    database = replica.database
    bm25.prepare(database)
    found = postings.matching(database, "chunks_fts", '"word0" AND "word1" AND "word2"', newest=3, each=True)
    times = [counted.tolist() for counted in postings.of_each(found, 3)]
    assert times == [[2, 2, bm25.TIMES_MAX], [2, 2, 1], [2, 2, 1]]


@pytest.mark.parametrize("seed", range(3))
def test_what_another_process_removes_and_adds_is_followed(tmp_path: Path, seed: int) -> None:
    generator = random.Random(seed)
    path = tmp_path / "crystal.db"
    writer, reader = filled(path, generator), new_replica(path)
    queries = ["word3", "word0 word1", "word5 word9 word12", "word2 word30"]
    before = {query: best_matches(reader.database, query, 400) for query in queries}
    assert all(before.values())
    for step in range(6):
        # The newest are among them: their rowids are given out again, to texts of other lengths.
        newest = writer.database.rows("SELECT text FROM chunks ORDER BY rowid DESC LIMIT 3")
        others = writer.database.rows("SELECT text FROM chunks ORDER BY random() LIMIT 5")
        gone = {row[0] for row in (*newest, *others)}
        apply(writer, forget(*gone))
        for query in queries:
            rows = reader.database.rows("SELECT rowid FROM chunks")
            assert {one.chunk for one in best_matches(reader.database, query, 400)} <= {
                row[0] for row in rows
            }
        apply(writer, *(capture(said(generator), message=f"{step}.{number}") for number in range(8)))
        with Database.open(path) as anew:
            for query in queries:
                assert best_matches(reader.database, query, 400) == best_matches(anew, query, 400)


def test_a_forgotten_text_is_found_by_no_process_that_ranked_it_before(tmp_path: Path) -> None:
    path = tmp_path / "crystal.db"
    writer, reader = filled(path, random.Random(1)), new_replica(path)
    secret = "the quarry lies under word0"
    apply(writer, capture(secret, message="secret"))
    assert secret in {hit.text for hit in search(reader.database, "quarry", now_ms=NOW, embedder=None).hits}
    assert postings.lengths(reader.database).totals(reader.database, '"quarry"')[0] == 401
    apply(writer, forget(secret))
    assert not search(reader.database, "quarry", now_ms=NOW, embedder=None).hits
    assert secret not in {
        hit.text for hit in search(reader.database, "quarry word0", now_ms=NOW, embedder=None).hits
    }


def test_lengths_are_read_of_what_is_asked_for(tmp_path: Path) -> None:
    """SQLite writes them in one to three bytes."""
    replica = new_replica(tmp_path / "crystal.db")
    sizes = [1, 127, 128, 300, 16_383, 16_384, 20_000]
    apply(
        replica,
        *(capture(" ".join([f"w{size}"] * size), message=str(size)) for size in sizes),
    )
    import numpy as np

    database = replica.database
    rows = dict[str, int](
        database.rows("SELECT substr(text, 1, instr(text || ' ', ' ') - 1), rowid FROM chunks")
    )
    asked = np.array([rows[f"w{size}"] for size in sizes])
    with database.snapshot():
        lengths = postings.lengths(database)
        assert lengths.of(database, asked[3:4]).tolist() == [300]
        assert lengths.of(database, asked).tolist() == sizes


@pytest.mark.parametrize("condition", ["", ODD])
@pytest.mark.parametrize("most", [1, 30, 10_000])
def test_the_newest_are_the_same_in_whichever_direction_the_index_is_read(condition: str, most: int) -> None:
    database = filled(":memory:", random.Random(9)).database
    bm25.prepare(database)
    for expression in ('"word0" AND "word1"', '"word2 word0"', '"word39" AND "nowhere"'):
        for each in (False, True):
            found = [
                postings.matching(
                    database,
                    "chunks_fts",
                    expression,
                    condition,
                    newest=most,
                    expected=expected,
                    each=each,
                )
                for expected in (most, most - 1)
            ]
            rows = database.rows(
                "SELECT rowid FROM (SELECT rowid FROM chunks_fts WHERE chunks_fts MATCH ?"  # noqa: S608
                f" {'AND ' if condition else ''}{condition} ORDER BY rowid DESC LIMIT ?) ORDER BY rowid",
                (expression, most),
            )
            assert found[0].chunks.tolist() == found[1].chunks.tolist() == [row[0] for row in rows]
            assert found[0].times.tolist() == found[1].times.tolist()


@pytest.mark.parametrize(("footers", "read_to_the_end"), [(60, True), (90, False)])
def test_words_that_always_stand_together_are_read_to_the_end_only_if_they_are_rare(
    monkeypatch: pytest.MonkeyPatch, footers: int, read_to_the_end: bool
) -> None:
    """As if they were independent, fewer than ten of 300 chunks would hold all three; 20 are ranked."""
    monkeypatch.setattr(keywords, "RANKED_MAX", 40)
    monkeypatch.setattr(keywords, "RARE_MAX", 8)
    replica, footer = new_replica(), "generated with claude code"
    texts = (f"n{number} {footer if number < footers else 'by hand'}" for number in range(300))
    apply(replica, *(capture(text, message=text) for text in texts))
    database, listed = replica.database, list[str]()

    def trace(_: object, statement: str, bindings: Any) -> bool:
        if "group_concat" in statement and " AND " in str((bindings or ("",))[0]):
            listed.append(statement)
        return True

    expected = by_fts5(database, footer, keywords.EVERYTHING, monkeypatch)
    database.connection.exec_trace = trace
    same(best_matches(database, footer, LIMIT), expected)
    assert [" DESC" not in statement for statement in listed] == [read_to_the_end]


@pytest.mark.parametrize(
    ("query", "readings"),
    [
        ("word3.word20", ['"word3 word20"']),
        ("word3.word22 word12.word4 word38", ['"word3 word22"']),
        # One of them is too common to be listed by itself.
        ("word3.word21 word12", ['"word3 word21"', '"word3 word21" AND "word12"']),
    ],
)
def test_a_rare_phrase_is_read_in_the_index_once_and_again_only_beside_a_word_that_is_not_listed(
    monkeypatch: pytest.MonkeyPatch, query: str, readings: list[str]
) -> None:
    database, other = (filled(":memory:", random.Random(11)).database for _ in range(2))
    expected = by_fts5(other, query, keywords.EVERYTHING, monkeypatch)
    phrase, read = readings[0], list[str]()

    def trace(_: object, statement: str, bindings: Any) -> bool:
        # The totals of all chunks come with any one row, once for each state of the memory.
        if "MATCH" in statement and "crystal_totals" not in statement:
            read.extend(value for value in bindings if phrase in str(value))
        return True

    database.connection.exec_trace = trace
    same(best_matches(database, query, LIMIT), expected)
    assert read == readings
