"""Of values that are asked for, the latest holds: a later turn that tells a newer state stands before the best one."""

from collections.abc import Iterator

import pytest

from crystal_core.embed.builtin import BuiltinEmbedder
from crystal_core.search.search import Searcher
from crystal_mirror.operations import Capture, Piece
from tests.core.builders import DAY, NOW, apply, new_replica
from tests.core.meanings import set_model

OLDER = "The test coverage of the API integration module is 65 percent after the first run of the suite."
NEWER = "Coverage of the API integration recently improved to 78 percent, error paths included."
OTHER = "The docs of the API integration module are built by a script that runs each night."
ABOUT_OTHER = "We recently moved to a bigger flat, and the cat likes the balcony of it."


@pytest.fixture(scope="module")
def embedder() -> Iterator[BuiltinEmbedder]:
    with BuiltinEmbedder() as built_in:
        yield built_in


def said(number: int, text: str) -> Capture:
    """A statement and what was answered to it, on a day of its own."""
    begun = NOW - (60 - number) * DAY
    pieces = (
        Piece(text, "user", begun, f"{number}-asked", 0),
        Piece("That is noted for the next report.", "assistant", begun + 1000, f"{number}-answered", 0),
    )
    return Capture("agent", f"session-{number}", "work/api", "", "claude-code", pieces)


def found(embedder: BuiltinEmbedder, query: str, *texts: str) -> list[str]:
    """The questions of the turns found, best first, of texts that were said in this order."""
    replica = new_replica()
    windows: dict[str, list[bytes]] = {}

    def vectors(text: str) -> list[bytes]:
        if text not in windows:
            windows[text] = embedder.embed_windows([text])[0]
        return windows[text]

    for number, text in enumerate(texts):
        apply(replica, said(number, text), vectors=vectors)
    set_model(replica, embedder.identity)
    hits = Searcher(replica.database, embedder).search(query, now_ms=NOW).hits
    return [hit.turn.question for hit in hits if hit.turn is not None]


def test_what_a_person_tells_as_new_stands_before_what_was(embedder: BuiltinEmbedder) -> None:
    query = "What is the test coverage percentage of the API integration module?"
    assert found(embedder, query, OLDER, OTHER, NEWER)[:2] == [NEWER, OLDER]


def test_what_was_told_earlier_does_not(embedder: BuiltinEmbedder) -> None:
    query = "What is the test coverage percentage of the API integration module?"
    assert found(embedder, query, NEWER, OTHER, OLDER)[0] == OLDER


def test_who_asks_for_the_past_is_not_given_the_latest_first(embedder: BuiltinEmbedder) -> None:
    query = "What was the test coverage percentage of the API integration module originally?"
    assert found(embedder, query, OLDER, OTHER, NEWER)[0] == OLDER


def test_what_is_later_and_tells_nothing_new_stays_behind(embedder: BuiltinEmbedder) -> None:
    query = "What is the test coverage percentage of the API integration module?"
    assert found(embedder, query, OLDER, OTHER)[0] == OLDER


def test_news_about_something_else_stays_behind(embedder: BuiltinEmbedder) -> None:
    query = "What is the test coverage percentage of the API integration module?"
    assert found(embedder, query, OLDER, ABOUT_OTHER)[0] == OLDER
