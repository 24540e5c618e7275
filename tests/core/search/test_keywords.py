"""The keyword half: any input is a query, and ranking stays bounded without losing what was asked for."""

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crystal_core.database import Database
from crystal_core.replica import Replica
from crystal_core.search import bm25, keywords
from crystal_core.search.keywords import Restriction, best_matches, terms
from crystal_core.search.search import search
from tests.core.builders import NOW, apply, capture, forget, new_replica

letters = st.one_of(
    # Latin, Greek, Cyrillic, Hebrew, Arabic; without the sign that composed text (NFC) writes as another one
    st.characters(max_codepoint=0x6FF, categories=["L", "N"], exclude_characters="\u0374"),
    st.characters(min_codepoint=0x3041, max_codepoint=0x9FA5, categories=["L"]),  # Kana, Han
)


@pytest.fixture(scope="module")
def replica() -> Replica:
    replica = new_replica()
    apply(
        replica,
        capture("NEAR the AND gate OR the NOT gate", message="1"),
        capture('she said "never again" twice', message="2"),
        capture("import os.path; os.path.join(a, b)", message="3"),
        capture("Zürich, naïve, ÅNGSTRÖM", message="4"),
        capture("日本語のテキスト", message="5"),
    )
    return replica


def texts(replica: Replica, query: str) -> list[str]:
    return [hit.text for hit in search(replica.database, query, now_ms=NOW, embedder=None).hits]


def texts_by_rowid(replica: Replica) -> dict[int, str]:
    return dict[int, str](replica.database.rows("SELECT rowid, text FROM chunks"))


@settings(max_examples=400, deadline=None)
@given(st.text(min_size=1, max_size=60))
@example('"')
@example('""')
@example('"unclosed phrase')
@example("NEAR(a b, 3)")
@example("text : a* ^b - c + d {e} (f")
@example("AND OR NOT")
@example("a\0b")
@example("\ud800 lone surrogate")
@example("' ; DROP TABLE chunks; --")
@example("*")
@example("a" * 10_000)
@example("word " * 5_000)
def test_nothing_that_is_typed_raises(replica: Replica, query: str) -> None:
    if query.strip():
        search(replica.database, query, now_ms=NOW, embedder=None)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.text(letters, min_size=1, max_size=12))
def test_every_word_of_letters_and_digits_is_found_again(word: str) -> None:
    replica = new_replica()
    apply(replica, capture(f"before {word} after"))
    assert len(best_matches(replica.database, word, 5)) == 1


def test_fts_syntax_has_no_meaning() -> None:
    assert terms("NEAR(a b) NOT c*") == ['"NEAR a"', '"b"', '"c"', '"NEAR"']
    assert all(
        term.startswith('"') and term.endswith('"') and '"' not in term[1:-1] for term in terms('x" OR "y')
    )


def test_phrases_between_quotes_are_phrases(replica: Replica) -> None:
    assert texts(replica, '"never again"') == ['she said "never again" twice']
    assert texts(replica, '"again never"') == []


def test_words_with_punctuation_are_found_as_a_phrase_and_by_parts(replica: Replica) -> None:
    assert texts(replica, "os.path") == ["import os.path; os.path.join(a, b)"]
    assert texts(replica, "path.unlikely") == ["import os.path; os.path.join(a, b)"]
    assert texts(replica, "snake_path") == ["import os.path; os.path.join(a, b)"]


def test_accents_and_case_do_not_matter(replica: Replica) -> None:
    for query in ("zurich", "ZÜRICH", "naive", "angstrom", "Zu\u0308rich"):
        assert texts(replica, query) == ["Zürich, naïve, ÅNGSTRÖM"], query


def test_function_words_are_left_out_as_long_as_others_remain() -> None:
    assert terms("what is the plan") == ['"plan"']
    assert terms("the who") == ['"the"', '"who"']
    assert terms("... !?") == []


def test_terms_are_counted_once_and_limited() -> None:
    assert terms("plan Plan PLAN") == ['"plan"']
    assert len(terms(" ".join(f"w{i}" for i in range(1000)))) == keywords.TERMS_MAX


def test_of_too_many_words_the_longest_are_searched() -> None:
    assert terms(" ".join([*(f"w{i}" for i in range(40)), "extraordinary"]))[0] == '"extraordinary"'


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds of ranking so low that a few hundred chunks exceed them."""
    monkeypatch.setattr(keywords, "RANKED_MAX", 100)
    monkeypatch.setattr(keywords, "RARE_MAX", 25)


def large() -> Replica:
    replica = new_replica()
    everyday = [
        capture(f"common often {'even' if i % 2 else 'odd'} n{i}", message=str(i)) for i in range(400)
    ]
    rare = [capture(f"rare words {i}", message=f"r{i}") for i in range(20)]
    both = [
        capture("a common rare meeting", message="both"),
        capture("often common even common", message="often"),
    ]
    apply(replica, *everyday, *rare, *both)
    return replica


@pytest.mark.usefixtures("small_bounds")
def test_rare_words_are_ranked_in_full_and_common_ones_do_not_drown_them() -> None:
    replica = large()
    found = best_matches(replica.database, "common rare", 50)
    by_rowid = texts_by_rowid(replica)
    assert sum("rare" in by_rowid[match.chunk] for match in found) == 21
    assert all("rare" in by_rowid[match.chunk] for match in found[:21])
    assert [match.bm25 for match in found] == sorted((match.bm25 for match in found), reverse=True)


@pytest.mark.usefixtures("small_bounds")
def test_words_that_are_all_common_find_the_newest_and_what_holds_all() -> None:
    replica = large()
    by_rowid = texts_by_rowid(replica)
    found = best_matches(replica.database, "common often even", 10)
    assert len(found) == 10
    assert by_rowid[found[0].chunk] == "often common even common"
    assert all("even" in by_rowid[match.chunk] for match in found)
    alone = best_matches(replica.database, "common", 10)
    assert len(alone) == 10


@pytest.mark.usefixtures("small_bounds")
def test_words_in_no_chunk_do_not_keep_common_ones_from_being_found() -> None:
    replica = large()
    assert len(best_matches(replica.database, "common nonexistent", 10)) == 10
    assert len(best_matches(replica.database, "nonexistent", 10)) == 0
    assert (
        len(best_matches(replica.database, " ".join([*(f"no{i}" for i in range(9)), "common", "often"]), 10))
        == 10
    )


@pytest.mark.usefixtures("small_bounds")
def test_a_narrow_restriction_is_searched_by_all_words() -> None:
    replica = large()
    rare = replica.database.value("SELECT min(rowid) FROM chunks WHERE text LIKE 'rare%'")
    few = Restriction(
        "+rowid IN (SELECT rowid FROM chunks WHERE rowid <= 3 OR rowid = ?)", (rare,), narrow=True
    )
    found = best_matches(replica.database, "common rare", 10, few)
    assert sorted(match.chunk for match in found) == [1, 2, 3, rare]


@pytest.mark.usefixtures("small_bounds")
def test_a_wide_restriction_applies_before_anything_is_cut_off() -> None:
    replica = large()
    older = Restriction("+rowid IN (SELECT rowid FROM chunks WHERE rowid <= 200)", (), narrow=False)
    found = best_matches(replica.database, "common", 20, older)
    assert len(found) == 20
    assert all(match.chunk <= 200 for match in found)


def test_scores_between_nought_and_one_keep_their_order(replica: Replica) -> None:
    found = best_matches(replica.database, "the gate import never", 10)
    assert [match.bm25 for match in found] == sorted((match.bm25 for match in found), reverse=True)
    assert all(0 <= match.normalised < 1 for match in found)


@pytest.mark.usefixtures("small_bounds")
def test_ranking_with_given_weights_is_fts5s_own() -> None:
    replica = large()
    database = replica.database
    bm25.prepare(database)
    total = database.value("SELECT count(*) FROM chunks")
    terms_of = ('"often"', '"rare words"', '"meeting"')
    held = "SELECT count(*) FROM chunks_fts WHERE chunks_fts MATCH ?"
    weights = [bm25.weight(database.value(held, (term,)), total) for term in terms_of]
    query = f"SELECT bm25(chunks_fts), {bm25.rank_expression('chunks_fts', weights)} FROM chunks_fts WHERE chunks_fts MATCH ?"  # noqa: S608
    rows = database.rows(query, (" OR ".join(terms_of),))
    assert len(rows) > 400
    assert [ours for _, ours in rows] == pytest.approx([theirs for theirs, _ in rows])


@pytest.mark.usefixtures("small_bounds")
def test_among_the_holders_of_a_rare_word_common_ones_decide() -> None:
    replica = large()
    by_rowid = texts_by_rowid(replica)
    found = best_matches(replica.database, "rare even", 5)
    assert "rare" in by_rowid[found[0].chunk]
    apply(replica, capture("rare even text", message="x"))
    found = best_matches(replica.database, "rare even", 5)
    assert texts_by_rowid(replica)[found[0].chunk] == "rare even text"


@pytest.mark.usefixtures("small_bounds")
def test_counts_that_are_kept_hold_for_one_state_only(tmp_path: Path) -> None:
    path = tmp_path / "crystal.db"
    replica = new_replica(path)
    apply(replica, *(capture(f"common often n{i}", message=str(i)) for i in range(150)))
    with Database.open(path) as other:
        assert len(best_matches(other, "common often", 5)) == 5
        assert best_matches(other, "zebra", 5) == []
        apply(replica, capture("a zebra, often", message="zebra"))
        found = best_matches(other, "common zebra", 5)
        assert texts_by_rowid(replica)[found[0].chunk] == "a zebra, often"
        apply(replica, forget("a zebra, often"))
        assert best_matches(other, "zebra", 5) == []
        assert len(best_matches(other, "common zebra", 5)) == 5


@pytest.mark.usefixtures("small_bounds")
def test_what_a_search_writes_aside_is_no_change_of_the_memory() -> None:
    replica = large()
    before = replica.database.version()
    assert best_matches(replica.database, "meeting", 5)
    assert replica.database.version() == before


@pytest.mark.usefixtures("small_bounds")
def test_one_holder_of_a_rare_word_does_not_end_the_search() -> None:
    replica = large()
    by_rowid = texts_by_rowid(replica)
    found = best_matches(replica.database, "meeting odd", 10)
    assert by_rowid[found[0].chunk] == "a common rare meeting"
    assert len(found) == 10
    assert all("odd" in by_rowid[match.chunk] for match in found[1:])


def test_a_phrase_of_function_words_is_searched_only_between_quotes() -> None:
    assert terms("conversions to/from text") == ['"conversions"', '"text"']
    assert terms('"to from" text') == ['"to from"', '"text"']


@pytest.mark.usefixtures("small_bounds")
def test_a_search_leaves_no_table_behind() -> None:
    replica = large()
    few = Restriction("+rowid IN (SELECT rowid FROM chunks WHERE rowid <= 3)", (), narrow=True)
    for _ in range(2):
        with replica.database.snapshot():
            assert best_matches(replica.database, "common rare", 10)
            assert best_matches(replica.database, "common rare", 10, few)
            # These two are looks at the index, and hold nothing themselves.
            left = replica.database.rows("SELECT name FROM temp.sqlite_schema")
            assert left == [("words",), ("instances",)]
