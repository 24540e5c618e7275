"""Search as people use it: what is found, in which order, with which marks, and what is never found."""

import math

import pytest

from crystal_core.embed.builtin import BuiltinEmbedder
from crystal_core.errors import EmptyQuery
from crystal_core.replica import Replica
from crystal_core.search.filters import Scope
from crystal_core.search.hits import Freshness, Mode, SearchResult, freshness
from crystal_core.search.ranking import DEFAULT
from crystal_core.search.search import Searcher, search
from tests.core.builders import (
    DAY,
    NOW,
    OTHER_DEVICE,
    apply,
    capture,
    content_hash,
    forget,
    new_replica,
    one_window,
    origin,
    remember,
)
from tests.core.meanings import MeaningEmbedder, set_model

EMBEDDER = MeaningEmbedder()


def filled(*texts: str) -> Replica:
    replica = new_replica()
    apply(replica, *(capture(text, message=text[:40]) for text in texts), vectors=EMBEDDER.vectors)
    set_model(replica, EMBEDDER.identity)
    return replica


def run(
    replica: Replica, query: str, *, limit: int = 10, agent: str | None = None, since_ms: int | None = None
) -> SearchResult:
    scope = Scope(agent=agent, since_ms=since_ms)
    return search(replica.database, query, now_ms=NOW, embedder=EMBEDDER, limit=limit, scope=scope)


def found(result: SearchResult) -> list[str]:
    return [hit.text for hit in result.hits]


def test_words_and_meaning_find_together() -> None:
    replica = filled("the car is red", "an automobile in the garage", "soup with beans", "a bean")
    result = run(replica, "car")
    assert result.mode is Mode.HYBRID
    assert result.note == ""
    assert found(result)[:2] == ["the car is red", "an automobile in the garage"]
    first, second = result.hits[:2]
    assert first.explanation.keyword_rank == 0
    assert second.explanation.keyword_rank is None
    assert second.explanation.vector_rank in (0, 1)


def test_scores_are_the_formula_of_ranks_and_strengths() -> None:
    replica = filled(
        "the car is red", "a car, a bus, a train and a ship that we saw", "an automobile", "soup"
    )
    for hit in run(replica, "car").hits:
        parts = hit.explanation
        expected = 0.0
        if parts.keyword_rank is not None:
            expected += parts.keyword_weight * parts.keyword_strength**4
            assert 0 < parts.keyword_score < 1
            assert 0 < parts.keyword_strength <= 1
            assert parts.keyword_weight == 0.85
        expected += parts.vector_strength**4
        assert parts.fused == pytest.approx(expected)
        assert hit.score == pytest.approx((parts.fused + parts.context) * parts.recency)


def test_where_no_text_has_many_of_the_words_the_meaning_counts_for_more() -> None:
    replica = filled("the red lamp", "an automobile", "soup")
    hits = run(replica, "car with a lamp of unusual brightness").hits
    assert {hit.explanation.keyword_weight for hit in hits} == {0.85 * 1 / 4}


def test_an_old_exact_hit_stands_above_fresh_weak_ones() -> None:
    replica = new_replica()
    fresh = [capture(f"the budget of day {i} for travel and other things", message=str(i)) for i in range(60)]
    old = capture("the retry budget of the importer is eleven", created_at=NOW - 400 * DAY)
    apply(replica, *fresh, old, vectors=EMBEDDER.vectors)
    set_model(replica, EMBEDDER.identity)
    assert found(run(replica, "retry budget importer"))[0] == "the retry budget of the importer is eleven"


def test_vector_hits_are_ranked_by_distance() -> None:
    replica = filled("car car car sea", "car sea", "car sea sea sea", "sea")
    hits = sorted(run(replica, "automobile").hits, key=lambda hit: hit.explanation.vector_rank or 0)
    assert [hit.text for hit in hits] == ["car car car sea", "car sea", "car sea sea sea", "sea"]
    similarities = [hit.explanation.similarity for hit in hits]
    assert similarities == sorted(similarities, reverse=True)
    assert all(-1.001 <= similarity <= 1.001 for similarity in similarities)


def test_not_all_words_need_to_match() -> None:
    replica = filled("we moved the backups to tape", "nothing of the kind")
    result = search(replica.database, "where did the quarterly backups zzyzx go?", now_ms=NOW, embedder=None)
    assert found(result) == ["we moved the backups to tape"]


def test_a_chunk_with_several_windows_is_one_hit_by_its_best_window() -> None:
    replica = filled("soup and beans|rain and wind|an automobile", "the sea")
    result = run(replica, "vehicle", limit=5)
    assert found(result) == ["soup and beans|rain and wind|an automobile", "the sea"]
    assert result.hits[0].explanation.similarity > 0.5


def test_what_is_newer_stands_above_what_is_older() -> None:
    replica = new_replica()
    for days, name in ((0, "today"), (5, "days ago"), (30, "long ago")):
        apply(
            replica, capture(f"release notes {name}", created_at=NOW - days * DAY), vectors=EMBEDDER.vectors
        )
    apply(replica, capture("release notes undated", created_at=0), vectors=EMBEDDER.vectors)
    hits = search(replica.database, "release notes", now_ms=NOW, embedder=None).hits
    assert hits[0].text == "release notes today"
    by_text = {hit.text: hit for hit in hits}
    assert by_text["release notes today"].freshness is Freshness.FRESH
    assert by_text["release notes days ago"].freshness is Freshness.RECENT
    assert by_text["release notes long ago"].freshness is Freshness.STALE
    assert by_text["release notes undated"].freshness is Freshness.STALE
    assert by_text["release notes days ago"].explanation.recency == pytest.approx(
        0.85 + 0.15 * math.exp(-0.5)
    )
    assert by_text["release notes long ago"].explanation.recency == pytest.approx(0.85 + 0.15 * math.exp(-3))
    assert by_text["release notes undated"].explanation.recency == pytest.approx(0.85)


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        (-400, Freshness.FRESH),
        (2.99, Freshness.FRESH),
        (3, Freshness.RECENT),
        (6.99, Freshness.RECENT),
        (7, Freshness.AGING),
        (13.99, Freshness.AGING),
        (14, Freshness.STALE),
    ],
)
def test_freshness_has_the_published_borders(days: float, expected: Freshness) -> None:
    assert freshness(int(NOW - days * DAY), NOW) is expected


def test_a_clock_that_is_years_off_breaks_nothing() -> None:
    assert DEFAULT.recency(NOW + 4000 * DAY, NOW) == 1
    assert DEFAULT.recency(1, NOW) == pytest.approx(0.85)
    replica = filled("from the future")
    assert len(search(replica.database, "future", now_ms=0, embedder=EMBEDDER).hits) == 1


def test_a_rare_agents_texts_are_found_behind_a_thousand_better_ones() -> None:
    replica = new_replica()
    many = [capture(f"budget budget budget {i}", agent="loud", message=str(i)) for i in range(1000)]
    apply(
        replica, *many, capture("something on the budget, said once", agent="quiet"), vectors=EMBEDDER.vectors
    )
    set_model(replica, EMBEDDER.identity)
    result = run(replica, "budget", limit=3, agent="quiet")
    assert found(result) == ["something on the budget, said once"]
    assert result.hits[0].explanation.keyword_rank == 0
    assert result.hits[0].explanation.vector_rank == 0
    assert "something on the budget, said once" not in found(run(replica, "budget", limit=3))
    assert run(replica, "budget", agent="nobody").hits == ()


def test_since_admits_by_time_inside_both_halves() -> None:
    replica = new_replica()
    old = [capture(f"budget {i}", created_at=NOW - 30 * DAY, message=str(i)) for i in range(200)]
    apply(
        replica,
        *old,
        capture("a budget of today"),
        capture("budget undated", created_at=0),
        vectors=EMBEDDER.vectors,
    )
    set_model(replica, EMBEDDER.identity)
    assert found(run(replica, "budget", since_ms=NOW - DAY)) == ["a budget of today"]


def test_both_filters_must_be_met_by_one_and_the_same_place() -> None:
    replica = new_replica()
    apply(
        replica,
        capture("shared words", agent="a", created_at=NOW - 30 * DAY, session="old"),
        capture("shared words", agent="b", created_at=NOW, session="new"),
    )
    assert found(run(replica, "shared", agent="a", since_ms=NOW - DAY)) == []
    hit = run(replica, "shared", agent="a").hits[0]
    assert (hit.agent, hit.session, hit.created_at) == ("a", "old", NOW - 30 * DAY)
    hit = run(replica, "shared").hits[0]
    assert (hit.agent, hit.session, hit.created_at) == ("b", "new", NOW)


def test_a_hit_says_all_that_is_known() -> None:
    replica = filled()
    apply(
        replica, capture("words", session="s", agent="a"), remember("words", "skill", agent="x", created_at=5)
    )
    (hit,) = run(replica, "words").hits
    assert hit.id == content_hash("words").hex()
    assert (hit.agent, hit.session, hit.role, hit.source) == ("a", "s", "user", "claude-code")
    assert (hit.project, hit.repository) == ("projects/crystal", "example.org/crystal")
    assert (hit.category, hit.provisional) == ("skill", False)


def test_a_memory_without_a_conversation_is_found_and_filtered() -> None:
    replica = filled()
    apply(replica, remember("prefers green tea", "preference", agent="a", created_at=NOW - DAY))
    (hit,) = run(replica, "tea").hits
    assert (hit.category, hit.agent, hit.session, hit.created_at) == ("preference", "a", "", NOW - DAY)
    assert found(run(replica, "tea", agent="a", since_ms=NOW - 2 * DAY)) == ["prefers green tea"]
    assert found(run(replica, "tea", agent="b")) == []


def test_the_forgotten_are_not_found_by_word_or_meaning() -> None:
    replica = filled("my automobile is a secret", "the sea")
    searcher = Searcher(replica.database, EMBEDDER)
    assert "my automobile is a secret" in [hit.text for hit in searcher.search("car secret", now_ms=NOW).hits]
    replica.index_provisional(origin(7), forget("my automobile is a secret"))
    assert [hit.text for hit in searcher.search("car secret", now_ms=NOW).hits] == ["the sea"]
    apply(replica, forget("my automobile is a secret"), device=OTHER_DEVICE)
    replica.drop_provisional(origin(7))
    assert [hit.text for hit in searcher.search("car secret", now_ms=NOW).hits] == ["the sea"]


def test_without_a_model_words_are_searched_and_the_result_says_so() -> None:
    replica = filled("the car is red", "an automobile")
    result = search(replica.database, "car", now_ms=NOW, embedder=None)
    assert (result.mode, found(result)) == (Mode.KEYWORD, ["the car is red"])
    assert "no embedding model" in result.note


def test_with_another_model_words_are_searched_and_the_result_names_both() -> None:
    replica = filled("the car is red", "an automobile")
    for other in (MeaningEmbedder("meanings/2/96"), MeaningEmbedder(EMBEDDER.identity, 48)):
        result = search(replica.database, "car", now_ms=NOW, embedder=other)
        assert (result.mode, found(result)) == (Mode.KEYWORD, ["the car is red"])
        assert EMBEDDER.identity in result.note
        assert other.identity in result.note


def test_a_model_that_fails_costs_the_meaning_and_not_the_search() -> None:
    replica = filled("the car is red", "an automobile")
    broken = MeaningEmbedder(broken=True)
    result = search(replica.database, "car", now_ms=NOW, embedder=broken)
    assert (result.mode, found(result)) == (Mode.KEYWORD, ["the car is red"])
    assert "not at home" in result.note


def test_a_memory_without_vectors_is_searched_by_words() -> None:
    replica = new_replica()
    apply(replica, capture("plain words"), vectors=lambda _: [])
    result = run(replica, "words")
    assert (result.mode, found(result)) == (Mode.KEYWORD, ["plain words"])
    assert "no vectors yet" in result.note
    assert new_replica().database.check() == []
    assert run(new_replica(), "anything").hits == ()


@pytest.mark.parametrize("query", ["", "   ", "\t\n\u2003"])
def test_an_empty_query_is_a_mistake_that_is_named(query: str) -> None:
    with pytest.raises(EmptyQuery) as caught:
        run(filled("a"), query)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("limit", [0, -1, 1001])
def test_limits_are_limited(limit: int) -> None:
    with pytest.raises(ValueError, match="hits"):
        run(filled("a"), "a", limit=limit)


def test_the_limit_is_kept() -> None:
    replica = filled(*(f"note number {i}" for i in range(200)))
    assert len(run(replica, "note", limit=7).hits) == 7
    assert len(run(replica, "note", limit=150).hits) == 150


def test_search_does_not_look_into_an_open_transaction() -> None:
    replica = filled("a")
    with replica.transaction(), pytest.raises(RuntimeError):
        run(replica, "a")


def test_a_word_in_most_chunks_finds_as_well() -> None:
    replica = new_replica()
    pieces = [capture(f"common text {i}", message=str(i)) for i in range(300)]
    apply(replica, *pieces, vectors=one_window)
    assert len(search(replica.database, "common", now_ms=NOW, embedder=None, limit=50).hits) == 50


def test_the_built_in_model_finds_what_no_word_says() -> None:
    with BuiltinEmbedder() as embedder:
        replica = new_replica()
        texts = [
            "The cat slept on the warm windowsill.",
            "Invoices are due within thirty days.",
            "We climbed to the summit.",
        ]
        vectors = dict(zip(texts, embedder.embed_windows(texts), strict=True))
        apply(replica, *(capture(text, message=text) for text in texts), vectors=lambda text: vectors[text])
        set_model(replica, embedder.identity)
        result = search(replica.database, "payment deadline", now_ms=NOW, embedder=embedder)
    assert result.mode is Mode.HYBRID
    assert result.hits[0].text == "Invoices are due within thirty days."
    assert result.hits[0].explanation.keyword_rank is None
