"""The gateway and queries that nobody means well, or by mistake: each is answered or refused, and harms nothing."""

import pytest

from tests.support.bad_queries import BLANK, CHARS_MAX, ENORMOUS, ODD, PASTED
from tests.support.gateway import Gateway

_REFUSED = 400


@pytest.mark.parametrize("query", BLANK)
def test_a_blank_query_is_refused(gateway: Gateway, query: str) -> None:
    answer = gateway.ask("POST", "/api/search", {"query": query})
    assert answer.status_code == _REFUSED
    assert "query" in answer.json()["error"]


def test_an_enormous_query_is_refused_with_what_a_query_may_have(gateway: Gateway) -> None:
    answer = gateway.ask("POST", "/api/search", {"query": ENORMOUS})
    assert answer.status_code == _REFUSED
    assert f"{CHARS_MAX:,}" in answer.json()["error"]
    assert len(answer.content) < 1000, "what was sent is not sent back"


@pytest.mark.parametrize("name", ODD)
def test_whatever_is_asked_is_answered(gateway: Gateway, name: str) -> None:
    answer = gateway.post("/api/search", {"query": ODD[name]})
    assert answer["query"] == ODD[name]
    assert isinstance(answer["results"], list)


@pytest.mark.parametrize(
    "body",
    [
        b'{"query": "\\ud800"}',
        b'{"query": "\xff\xfe"}',
        b'{"query": "a\x00b"}',
        b'{"query": ["crane"]}',
        b'{"query": {"$ne": ""}}',
        b'{"query": null}',
        b"crane",
        bytes(range(256)),
    ],
)
def test_what_is_no_text_is_refused(gateway: Gateway, body: bytes) -> None:
    answer = gateway.ask_raw("/api/search", body)
    assert answer.status_code == _REFUSED
    assert answer.json()["error"]


@pytest.mark.parametrize("name", PASTED)
def test_something_pasted_finds_what_speaks_of_the_same(gateway: Gateway, name: str) -> None:
    results = gateway.post("/api/search", {"query": PASTED[name]})["results"]
    assert any("harbour crane" in hit["text"] for hit in results)


@pytest.mark.parametrize(
    ("filters", "told"),
    [
        ({"since": "2026-02-30"}, "2026-02-30"),
        ({"until": "31.06.2026"}, "31.06.2026"),
        ({"since": "someday"}, "someday"),
        ({"since": "last week", "until": "2 months ago"}, "last week"),
        ({"category": "nonsense"}, "nonsense"),
        ({"provider": "nonsense"}, "nonsense"),
    ],
)
def test_a_filter_that_cannot_be_used_is_told(gateway: Gateway, filters: dict[str, str], told: str) -> None:
    answer = gateway.ask("POST", "/api/search", {"query": "crane", **filters})
    assert answer.status_code == _REFUSED
    assert told in answer.json()["error"]


def test_times_are_understood_in_words(gateway: Gateway) -> None:
    def found(**filters: str) -> int:
        return len(gateway.post("/api/search", {"query": "harbour crane", **filters})["results"])

    assert found(since="January 2026", until="in january 2026") == found()
    assert found(until="2025") == 0
    assert found(since="February 2026") == 0


def test_an_unknown_project_is_told_with_the_nearest_names(gateway: Gateway) -> None:
    answer = gateway.post("/api/search", {"query": "crane", "project": "wrok"})
    assert answer["results"] == []
    assert "'wrok'" in answer["note"]
    assert "someone/work'" in answer["note"]
