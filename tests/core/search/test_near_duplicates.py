"""Texts that are almost the same stand behind one; texts that say two things do not."""

import re
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crystal_core.replica import Replica
from crystal_core.search import near_duplicates
from crystal_core.search.near_duplicates import Alike, words_of
from crystal_core.search.search import Searcher
from tests.core.builders import NOW, apply, capture, content_hash, new_replica, remember

LONG = (
    "The importer reads a file from the queue, checks its header, and writes what it found to the table of readings;"
    " when a row cannot be read it is put aside with the reason, and the person who looks after the pumps is told of"
    " it in the next summary, which goes out in the morning before the first shift begins its round through the hall."
    " Nobody has to do anything by hand for that, unless the reason is one that was never seen before."
)


def like(first: str, second: str, kinds: tuple[str, str] = ("conversation", "conversation")) -> bool:
    alike = Alike()
    assert alike.first_like(1, kinds[0], first) is None
    return alike.first_like(2, kinds[1], second) == 1


def test_case_punctuation_and_spaces_make_no_difference() -> None:
    assert like("The port is 8080.", "the  port is: 8080")


def test_a_long_text_with_one_word_more_is_almost_the_same() -> None:
    assert like(LONG, LONG + " Indeed.")
    assert like(f"> {LONG}", LONG)


def test_other_numbers_say_another_thing() -> None:
    assert not like(f"{LONG} Port 8080.", f"{LONG} Port 8081.")
    assert not like("The port is 8080.", "The port is 8081.")


def test_short_texts_that_differ_in_a_word_say_two_things() -> None:
    assert not like("the release is ready", "the release is not ready")


def test_a_memory_does_not_stand_behind_a_conversation_nor_the_other_way_round() -> None:
    assert not like(LONG, LONG.upper(), ("conversation", "memory"))
    assert not like(LONG, LONG.upper(), ("memory", "conversation"))


def test_texts_without_words_are_alike_only_if_they_are_equal() -> None:
    assert not like("!!!", "???")


def families(random: Random, count: int) -> list[str]:
    """Long texts that have most of their words in common; some are near duplicates of an earlier one."""
    words = [f"word{chr(97 + number % 26)}{chr(97 + number // 26)}" for number in range(600)]
    common = random.choices(words, k=120)
    texts: list[str] = []
    for _ in range(count):
        if texts and random.random() < 0.3:
            told = random.choice(texts).split()
            told[random.randrange(len(told))] = random.choice(words)
        else:
            told = [*common, *random.choices(words, k=40)]
            told[random.randrange(len(told))] = random.choice(words)
        texts.append(" ".join(told))
    return texts


@pytest.mark.parametrize("seed", range(2))
def test_the_bound_finds_what_comparing_with_all_finds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = families(Random(seed), 200)
    bounded = Alike()
    found = [bounded.first_like(number, "conversation", text) for number, text in enumerate(texts)]
    monkeypatch.setattr(near_duplicates, "COMPARED_MAX", len(texts))
    unbounded = Alike()
    expected = [unbounded.first_like(number, "conversation", text) for number, text in enumerate(texts)]
    assert sum(one is not None for one in expected) > 25
    assert found == expected


def test_many_texts_that_are_somewhat_alike_are_compared_with_few(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0
    apart = near_duplicates._apart  # pyright: ignore[reportPrivateUsage]  how often it is asked is counted

    def counted(one: Any, other: Any) -> bool:
        nonlocal compared
        compared += 1
        return apart(one, other)

    monkeypatch.setattr(near_duplicates, "_apart", counted)
    texts = families(Random(5), 400)
    alike = Alike()
    for number, text in enumerate(texts):
        alike.first_like(number, "conversation", text)
    assert compared <= near_duplicates.COMPARED_MAX * len(texts)


def filled(*texts: str) -> Replica:
    replica = new_replica()
    apply(
        replica,
        *(capture(text, message=str(number), created_at=NOW - number) for number, text in enumerate(texts)),
    )
    return replica


@given(st.text(max_size=80))
@example("Die Straße\u2019s “Größe” — 8½ m²,\u3000東京。\ud800 İ\x1c_")
def test_words_are_runs_of_letters_digits_and_underscores_in_any_script(text: str) -> None:
    words, numbers = words_of(text)
    assert words == re.findall(r"\w+", text.casefold())
    assert list(numbers) == sorted(re.findall(r"\w*\d\w*", text.casefold()))


def test_a_search_shows_one_of_them_and_names_the_others() -> None:
    copies = [LONG, LONG.upper(), LONG + " Indeed."]
    replica = filled(*copies, "the importer is green")
    hits = Searcher(replica.database).search("importer queue", now_ms=NOW, limit=10).hits
    assert len(hits) == 2
    best = hits[0]
    assert best.text in copies
    assert {best.id, *best.alike} == {content_hash(text).hex() for text in copies}
    assert hits[1].alike == ()


def test_a_memory_with_the_words_of_a_conversation_is_shown_beside_it() -> None:
    replica = filled(LONG)
    apply(replica, remember(LONG.upper()))
    hits = Searcher(replica.database).search("importer queue", now_ms=NOW, limit=10).hits
    assert [hit.category for hit in hits if hit.category] == ["fact"]
    assert len(hits) == 2


def test_copies_do_not_push_other_texts_from_the_page() -> None:
    copies = [f"{LONG}{'!' * number}" for number in range(60)]
    replica = filled(*copies, "the importer has a queue of its own")
    hits = Searcher(replica.database).search("importer queue", now_ms=NOW, limit=2).hits
    assert len(hits) == 2
