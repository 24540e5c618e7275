"""Answers of models are kept for a week, so many of them, and never past a forget."""

from pathlib import Path

import pytest

from crystal_core.deep.answers import Expansions
from crystal_core.deep.engine import Known
from crystal_node.search.finding import deep_cache
from crystal_node.search.finding.deep_cache import KEPT_MS, DeepCache, key_of

NOW = 1_800_000_000_000
KNOWN = Known(Expansions("keel hull", "What is below?", ""), {"ab" * 32: 7})
KEY = key_of("model", 1, "what is below the ship", "")


@pytest.fixture
def cache(tmp_path: Path) -> DeepCache:
    found = DeepCache(tmp_path / "search.db")
    found.put(KEY, "mark", KNOWN, NOW)
    return found


def test_what_was_put_comes_back_for_a_week(cache: DeepCache) -> None:
    assert cache.get(KEY, "mark", NOW) == KNOWN
    assert cache.get(KEY, "mark", NOW + KEPT_MS) == KNOWN
    assert cache.get(KEY, "mark", NOW + KEPT_MS + 1) == Known()
    assert cache.get(KEY, "mark", NOW - 1) == Known()


def test_adding_to_an_answer_makes_it_no_younger(cache: DeepCache) -> None:
    cache.put(KEY, "mark", Known(KNOWN.expansions, {**KNOWN.judgements, "cd" * 32: 0}), NOW + KEPT_MS)
    assert len(cache.get(KEY, "mark", NOW + KEPT_MS).judgements) == 2
    assert cache.get(KEY, "mark", NOW + KEPT_MS + 1) == Known()


def test_another_query_intent_model_or_question_has_another_answer(cache: DeepCache) -> None:
    keys = {
        KEY,
        key_of("model", 1, "what is below the ship", "for the insurance"),
        key_of("model", 1, "what is below the shi", "p"),
        key_of("other", 1, "what is below the ship", ""),
        key_of("model", 2, "what is below the ship", ""),
    }
    assert len(keys) == 5
    assert [cache.get(key, "mark", NOW) for key in keys - {KEY}] == [Known()] * 4


def test_another_mark_empties_the_file_to_the_byte(cache: DeepCache, tmp_path: Path) -> None:
    def kept() -> bytes:
        return b"".join(path.read_bytes() for path in tmp_path.iterdir())

    assert b"keel hull" in kept()
    assert not cache.follow("mark")
    assert cache.follow("another")
    assert b"keel hull" not in kept()
    assert b"ab" * 32 not in kept()
    assert cache.get(KEY, "another", NOW) == Known()
    assert not cache.follow("another")


def test_what_nobody_made_is_not_made_by_looking_for_it(tmp_path: Path) -> None:
    assert not DeepCache(tmp_path / "search.db").follow("mark")
    assert list(tmp_path.iterdir()) == []


def test_the_oldest_answers_go(cache: DeepCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deep_cache, "ANSWERS_MAX", 3)
    keys = [key_of("model", 1, f"query {number}", "") for number in range(4)]
    for number, key in enumerate(keys, 1):
        cache.put(key, "mark", KNOWN, NOW + number)
    found = [cache.get(key, "mark", NOW + 10) == KNOWN for key in [KEY, *keys]]
    assert found == [False, False, True, True, True]


def test_a_file_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "search.db").mkdir()
    cache = DeepCache(tmp_path / "search.db")
    cache.put(KEY, "mark", KNOWN, NOW)
    assert cache.get(KEY, "mark", NOW) == Known()
