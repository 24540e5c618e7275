"""What is said in a few words: what follows, that nothing is known, a question, a change."""

import pytest

from crystal_core.search.phrases import (
    announces,
    answers,
    asks,
    asks_for_now,
    asks_what_holds,
    tells_change,
    tells_news,
)

QUERY_CHARS = 16 * 1024
"""As long as a query may be."""
ANNOUNCEMENTS = [
    "Let me check the code and the notes.",
    "Okay, let me look at that.",
    "I'll look into it.",
    "I’m going to run the tests first.",
    "There are 72 places that mention it, I'll go through them.",
    "One moment.",
    "Here is what I do:",
    "Ich schaue in die Notizen.",
    "Voy a revisar el código.",
    "Je vais regarder.",
    "確認します。",
]
IGNORANCE = [
    "I don't know. The last sessions say nothing about this.",
    "I can't find anything about the slow query in this project.",
    "Hm, I can’t answer that: neither the commits nor the docs say anything.",
    "There's nothing about it in the code or in the notes; I'd rather not guess.",
    "I have no record of that.",
    "Ich finde dazu nichts.",
    "No encuentro nada.",
    "Je ne trouve rien.",
    "記録はありません。",
]
ANSWERS = [
    "We retry three times, with jitter.",
    "Yes: port 5433. Let me know if it works.",
    "I'll keep the retry budget at 3, as decided: more would hide outages.",
    "No, we left Postgres for SQLite in May.",
    "Done.",
    "It does not need a lock, since one process writes.",
    "Wir nehmen Postgres.",
    "I don't know why it was chosen, but " + "the notes say a lot about it, and here is all of it. " * 10,
]


@pytest.mark.parametrize("text", ANNOUNCEMENTS)
def test_what_only_announces_answers_nothing(text: str) -> None:
    assert announces(text) and not answers(text)


@pytest.mark.parametrize("text", IGNORANCE)
def test_who_knows_nothing_answers_nothing(text: str) -> None:
    assert not answers(text)


@pytest.mark.parametrize("text", ANSWERS)
def test_everything_else_answers(text: str) -> None:
    assert answers(text) and not announces(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("what did we decide", True),
        ("so, how do we deploy", True),
        ("Small question: which metric does it look at?\n\n(asking for Bram)", True),
        ("welche Datenbank nehmen wir", True),
        ("¿qué base de datos usamos?", True),
        ("The login page is broken", False),
        ("remember: the port is 5433", False),
        ("", False),
    ],
)
def test_questions_are_told_from_statements(text: str, expected: bool) -> None:
    assert asks(text) is expected


@pytest.mark.parametrize(
    ("query", "now", "holds"),
    [
        ("what is the retry budget", False, True),
        ("what's our current database", True, True),
        ("which port do we use today", True, True),
        ("what is the deadline of the first sprint", False, True),
        ("what was the retry budget", False, False),
        ("when did we first decide", False, False),
        ("how do I deploy", False, False),
        ("retry budget", False, False),
    ],
)
def test_queries_for_what_holds(query: str, now: bool, holds: bool) -> None:
    assert (asks_for_now(query), asks_what_holds(query)) == (now, holds)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("We use SQLite now instead of Postgres.", True),
        ("The port changed to 9090.", True),
        ("ab jetzt nehmen wir SQLite", True),
        ("We use SQLite.", False),
        ("an exchange of letters", False),
    ],
)
def test_changes_are_heard(text: str, expected: bool) -> None:
    assert tells_change(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Coverage has recently improved to 78 %.", True),
        ("The quota is 1,200 calls now.", True),
        ("As of May the deadline is the 5th.", True),
        ("We switched to SQLite.", True),
        ("The quota is 1,000 calls.", False),
        ("I would like to know about quotas.", False),
        ("It is new to me.", False),
    ],
)
def test_news_are_heard(text: str, expected: bool) -> None:
    assert tells_news(text) is expected


@pytest.mark.parametrize(
    "text",
    [
        "let me " * 50_000,
        ", " * 50_000,
        " " * 100_000 + "x",
        "?" * 100_000,
        "no " * 100_000,
        "neither " * 100_000,
        "not " * 100_000,
    ],
)
def test_long_texts_take_no_longer_than_their_length(text: str) -> None:
    """Each is judged by a bounded part of it; else this would take hours."""
    assert not announces(text)
    assert answers(text)
    assert asks_for_now(text[:QUERY_CHARS]) is False
    assert isinstance(
        asks(text) or tells_change(text) or tells_news(text) or asks_what_holds(text[:QUERY_CHARS]), bool
    )
