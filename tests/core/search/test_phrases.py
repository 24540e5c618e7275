"""What is said in a few words: what follows, that nothing is known, a question, a change."""

import time

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
    "I don't know.",
    "I can't find any record of that.",
    "There is nothing about that in the notes.",
    "I don't have any notes about the retry budget.",
    "I searched the repository and the notes, but I found no mention of the deadline.",
    "We did not record who decided that. Shall I ask?",
    "That is not written down anywhere. Do you want me to look in the mail?",
    "I can't see any decision about it. Do you remember when it was?",
    "Neither the README nor the docs say which port it is.",
    "Ich weiß es leider nicht.",
    "Dazu finde ich nichts in den Notizen.",
    "No encuentro nada sobre eso.",
    "Je ne trouve rien à ce sujet.",
    "見つかりませんでした。",
    "I'd only be guessing: nothing is noted about it.",
    "I looked through the last ten sessions and there is no record of it. If you tell me, I'll note it down.",
    "I looked in docs/ and in the wiki, nothing about it. Maybe Ana knows.",
    "I can't find any record of that, but Ana might know.",
    "I find no record of that, neither in the notes nor in the code.",
    "J'ai cherché dans les notes, je ne trouve rien.",
    "I don't have a note on that, sorry. Was it maybe in a meeting?",
    "I looked through the history and the README, but the retry budget isn't mentioned.",
    "I don't know who decided that.",
    "Unfortunately I have no information about the release date.",
    "I checked the changelog and the issues. There's no mention of it.",
    "I can't tell from what is recorded here. You could ask the ops team.",
    "There is no note about that, at least not in this project.",
    "I couldn't find anything on that in the memory, so I can't say.",
    "Nothing is recorded about it. Shall I search the web?",
    "I don't recall that we talked about it. Could you give me more context?",
    "That was never discussed as far as I can see; there is no record of it.",
    "We have no record of that decision, only of the question.",
    "Das weiß ich nicht, dazu steht nichts in den Notizen.",
    "No tengo constancia de eso, lo siento.",
    "Je ne sais pas. Peut-être que Paul le sait.",
    "その記録はありません。もう少し詳しく教えてください。",
    "I looked everywhere I could think of and found no trace of it.",
]
ANSWERS = [
    "There is nothing about retries in the config any more; the limit now lives in upload.py as MAX_TRIES = 9.",
    "I can't see any reason to keep it: we drop the index and rely on the primary key.",
    "I can't see any problem with it.",
    "I don't see any failures now. The fix was to close the pool before forking.",
    "I couldn't find any callers, so I removed the function.",
    "I can't find any callers of it.",
    "No record of that table is left: I dropped it in migration 42.",
    "I have no information loss here: the column is copied before it is dropped.",
    "Not documented upstream, but the flag is --no-sandbox.",
    "The log says nothing, but strace shows that it waits for port 5432.",
    "I can't say it is pretty, but the deadline is 14 May.",
    "There is no mention of it in the README, so I added one: the port is 8443.",
    "We don't find duplicates any more since ids are hashed with SHA-256.",
    "The cache was the cause. There was nothing in the logs because stderr was closed.",
    "Ich habe den Port nicht geändert, er ist weiterhin 8080.",
    "Wir haben keine Redis-Instanz mehr, die Sitzungen liegen in Postgres.",
    "No hay nada que cambiar: el límite es 20 MB.",
    "Je n'ai pas touché au schéma; la limite est de 30 jours.",
    "I don't know why it worked before, but the cause is the missing await in sync().",
    "Use Postgres: we cannot tell tenants apart in SQLite.",
    "We don't remember sessions across restarts; set SESSION_STORE=redis for that.",
    "Nothing on this port answers because the firewall drops it: open 9000.",
    "There is no index on that table.",
    "設定は見つかりませんでしたが、ポートは8080です。",
    "I found no entry for it in the lock file, which is why the build took version 2.",
    "It isn't documented, but passing --force works.",
    "We couldn't find the cause in the code. It was the DNS cache of the router.",
    "There's nothing in the queue now; the worker was restarted at noon.",
    "I don't remember the exact number, around 300 requests a minute.",
    "The tests say nothing about this, so I added one for empty lists.",
    "No notes of this exist in the wiki. The agreement with Ana was two reviewers per change.",
    "We have no decision record for it, we simply kept Flask.",
    "Ich finde den Fehler nicht im Client, er liegt im Proxy: Timeout nach 30 s.",
    "No lo encontré en los tests, está en `config/prod.toml`.",
    "Je ne vois aucun appel à cette fonction, je l'ai supprimée.",
    "Neither the client nor the server says why, the firewall log does: port 25 is blocked.",
    "I don't know of a better way. We pin the version in requirements.txt.",
    "The error is not recorded in Sentry because the SDK starts after the crash.",
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
    "text",
    [
        ("there is no " * 42)[:500],
        ("I don't know, " * 36)[:500],
        ("and so but " * 46)[:489] + " no record",
        ("neither a " * 50)[:500],
        ("no" + " " * 498),
        ("I found no " + "a, " * 163)[:500],
    ],
)
def test_short_texts_of_the_same_words_are_judged_at_once(text: str) -> None:
    began = time.perf_counter()
    for _ in range(20):
        assert answers(text) in (True, False)
    assert time.perf_counter() - began < 2


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
        "I don't know. " * 100_000,
        "I don't know" + ", and" * 100_000,
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
