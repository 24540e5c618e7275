"""What search finds is no worse than it was, beyond a margin; and a ranking that is broken is found out."""

from collections.abc import Callable
from typing import Any

import pytest

from bench.quality.judges import BEST, RANDOM, StandIn, bounds, deep_ranking
from bench.quality.measuring import (
    ALL,
    MARGIN_ALL,
    Figures,
    Measured,
    measured,
    read_baseline,
    regressions,
)
from bench.quality.ranking import Memory, Ranking
from bench.quality.sets import Query, Sets
from crystal_core.search.filters import EVERYWHERE
from crystal_core.search.hits import SearchResult
from crystal_core.search.search import Searcher

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def rankings(memory: Memory) -> dict[str, Ranking]:
    """Each answers a query once, and knows the answer from then on."""

    def knowing(ranking: Ranking) -> Ranking:
        known: dict[int, list[str]] = {}

        def ranked(query: Query) -> list[str]:
            if id(query) not in known:
                known[id(query)] = ranking(query)
            return known[id(query)]

        return ranked

    return {mode: knowing(ranking) for mode, ranking in memory.rankings().items()}


@pytest.fixture(scope="module")
def now(memory: Memory, rankings: dict[str, Ranking]) -> Measured:
    return measured(memory.sets, rankings)


def only(figures: Figures, mode: str) -> Figures:
    return {mode: figures[mode]}


def test_no_way_of_ranking_finds_less_than_it_did(now: Measured) -> None:
    assert regressions(now.figures(), read_baseline("small")) == []


def turned_round(ranking: Ranking) -> Ranking:
    return lambda query: ranking(query)[::-1]


def without_the_first(ranking: Ranking) -> Ranking:
    return lambda query: ranking(query)[1:]


@pytest.mark.parametrize("broken", [turned_round, without_the_first])
def test_a_broken_ranking_is_worse_than_the_baseline(
    memory: Memory, rankings: dict[str, Ranking], broken: Callable[[Ranking], Ranking]
) -> None:
    found = measured(memory.sets, {"hybrid": broken(rankings["hybrid"])})
    worse = regressions(found.figures(), only(read_baseline("small"), "hybrid"))
    assert any(line.startswith(f"hybrid, {ALL}: MRR@10 fell") for line in worse)


def test_a_search_that_lost_its_meaning_is_worse_than_the_baseline(
    memory: Memory, rankings: dict[str, Ranking]
) -> None:
    found = measured(memory.sets, {"hybrid": rankings["keyword"]})
    worse = regressions(found.figures(), only(read_baseline("small"), "hybrid"))
    assert any("recall@10 fell" in line for line in worse)


def test_filters_of_time_that_let_everything_through_are_found_out(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Searcher.search

    def everywhen(self: Searcher, text: str, **more: Any) -> SearchResult:
        given: dict[str, Any] = {**more, "scope": EVERYWHERE}
        return plain(self, text, **given)

    monkeypatch.setattr(Searcher, "search", everywhen)
    windows = Sets(memory.sets.passages, [query for query in memory.sets.queries if query.since_ms])
    before = {"hybrid": {"time: window": read_baseline("small")["hybrid"]["time: window"]}}
    assert regressions(measured(windows, {"hybrid": memory.by_both}).figures(), before)


def some(memory: Memory) -> Sets:
    return Sets(memory.sets.passages, memory.sets.queries[::12])


def test_a_judge_that_knows_betters_every_mean_and_dice_leave_most_of_it(memory: Memory) -> None:
    found = measured(some(memory), {"hybrid": memory.by_both, **bounds(memory)}).figures()
    means = {mode: figures[ALL]["MRR@10"] for mode, figures in found.items()}
    assert means[BEST] > means["hybrid"] + MARGIN_ALL
    assert means[RANDOM] > means["hybrid"] / 2


def test_a_model_that_answers_nonsense_leaves_what_the_fast_search_finds(memory: Memory) -> None:
    failures: list[str] = []

    def ranking(query: Query) -> list[str]:
        return deep_ranking(memory, lambda: StandIn(lambda _query, _text: -1), failures)(query)

    strong = [query for query in some(memory).queries if memory.found(query)][:6]
    for query in strong:
        assert set(ranking(query)[:3]) & set(memory.by_both(query)[:3])
    assert len(failures) == len(strong)
