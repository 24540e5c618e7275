"""Snippets: the passage that answers a query, with the words marked that made it match."""

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crystal_core.database import Database
from crystal_core.search.snippets import SNIPPET_CHARS, Snippet, Snippets
from crystal_core.sqlite_file import MEMORY

FILLER = "Nothing of interest stands in this sentence, which is only here to fill the page. " * 12


@pytest.fixture(scope="module")
def database() -> Database:
    return Database.open(MEMORY)


def marked(snippet: Snippet) -> list[str]:
    return [snippet.text[start:end] for start, end in snippet.marks]


def test_inflected_forms_are_marked_as_the_index_sees_them(database: Database) -> None:
    snippet = Snippets(database, "running migrations").snippet(
        "He runs a migration; they RUN migrations, not ruins."
    )
    assert marked(snippet) == ["runs", "migration", "RUN", "migrations"]
    assert snippet.coverage == 1


def test_accents_and_other_scripts_are_marked_at_the_right_characters(database: Database) -> None:
    snippet = Snippets(database, "zurich 日本語 смысл").snippet("🎉 Über Zürich, 日本語 and смысл 🎉")
    assert marked(snippet) == ["Zürich", "日本語", "смысл"]


def test_a_phrase_is_marked_where_its_words_follow_each_other(database: Database) -> None:
    snippets = Snippets(database, '"retry budget"')
    assert marked(snippets.snippet("A budget to retry is no retry budget.")) == ["retry budget"]
    assert snippets.snippet("only a budget").coverage == 0.5


def test_function_words_are_not_marked_while_others_remain(database: Database) -> None:
    assert marked(Snippets(database, "what is the port").snippet("the port is what it is")) == ["port"]


def test_the_passage_is_the_one_with_most_of_the_words(database: Database) -> None:
    text = f"The budget. {FILLER} The retry budget of the importer is eleven. {FILLER} A budget, a budget."
    snippet = Snippets(database, "importer retry budget").snippet(text)
    assert "The retry budget of the importer is eleven." in snippet.text
    assert snippet.text.startswith("…")
    assert snippet.text.endswith("…")
    assert marked(snippet) == ["retry", "budget", "importer"]


def test_without_its_words_the_passage_begins_where_the_meaning_is(database: Database) -> None:
    text = f"{FILLER}The pump hums.{FILLER}"
    snippets = Snippets(database, "noise")
    assert snippets.snippet(text).text.startswith("Nothing of interest")
    found = snippets.snippet(text, 0.5)
    assert "The pump hums." in found.text
    assert found.marks == ()
    assert found.coverage == 0


def test_a_text_that_fits_is_shown_whole_on_one_line(database: Database) -> None:
    snippet = Snippets(database, "line").snippet("  first line\n\n\tsecond   line \n")
    assert snippet.text == "first line second line"
    assert marked(snippet) == ["line", "line"]


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=900), st.text(min_size=1, max_size=40), st.floats(0, 1))
@example("a" * 5000, "a", 0.5)
@example("\0\0 b \0", "b", 0.0)
@example("👩‍👩‍👧 " * 200, "👩", 1.0)
@example(" \n" * 600, "x", 0.3)
def test_whatever_stands_in_text_and_query_the_marks_lie_within_the_snippet(
    database: Database, text: str, query: str, depth: float
) -> None:
    snippet = Snippets(database, query).snippet(text, depth)
    flat = re.sub(r"\s+", " ", text).strip()
    assert snippet.text.strip("…") in flat or not snippet.text.strip("… ")
    assert len(snippet.text) <= SNIPPET_CHARS + 2
    assert 0 <= snippet.coverage <= 1
    place = 0
    for start, end in snippet.marks:
        assert place <= start < end <= len(snippet.text)
        place = end


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.from_regex(r"[a-zA-Zà-öø-ž0-9]{1,9}", fullmatch=True), min_size=1, max_size=300),
    st.integers(0),
)
def test_a_word_of_the_text_is_marked_in_its_snippet(
    database: Database, words: list[str], chosen: int
) -> None:
    word = words[chosen % len(words)]
    snippet = Snippets(database, word).snippet(" ".join(words))
    assert word in marked(snippet)
    assert snippet.coverage == 1
