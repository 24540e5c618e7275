"""Conversations written out: all that was said is there, and nothing in it is obeyed by what shows it."""

from html.parser import HTMLParser

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from crystal_node.search.conversation_documents import ConversationDocument, MessageDocument
from crystal_node.surfaces.transcripts.markdown import markdown_of
from crystal_node.surfaces.transcripts.page import page_of

_OURS = {
    "html",
    "head",
    "meta",
    "title",
    "style",
    "body",
    "h1",
    "h2",
    "dl",
    "dt",
    "dd",
    "article",
    "time",
    "pre",
} | {
    "details",
    "summary",
}


def conversation(title: str = "The retry budget") -> ConversationDocument:
    return ConversationDocument(
        id="3f" * 16,
        title=title,
        agent="main",
        session="s1",
        project="example.org/me/tide",
        tool="claude-code",
        device="aa" * 16,
        device_name="laptop",
        began_at="2026-01-31T18:00:05Z",
        ended_at="2026-01-31T18:10:05Z",
        texts=2,
    )


def message(text: str, role: str = "assistant") -> MessageDocument:
    return MessageDocument(
        id="aa" * 32,
        ids=["aa" * 32],
        role=role,
        text=text,
        created_at="2026-01-31T18:00:05Z",
        provisional=False,
    )


class Elements(HTMLParser):
    """The elements of a page, the addresses in it, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ("<script>alert(1)</script>", "&lt;script>alert(1)&lt;/script>"),
        ("<!-- gone -->", "&lt;!-- gone -->"),
        ("`<b>` is bold, <b>this</b> not", "`<b>` is bold, &lt;b>this&lt;/b> not"),
        ("```html\n<b>\n```\n<b>", "```html\n<b>\n```\n&lt;b>"),
        ("~~~\n```\n<b>\n~~~\n<b>", "~~~\n```\n<b>\n~~~\n&lt;b>"),
        ("![x](https://example.org/pixel)", "[x](https://example.org/pixel)"),
        ("!![x](https://example.org/pixel)", "[x](https://example.org/pixel)"),
        (r"\<b>", r"\&lt;b>"),
        (r"\`<b>`", r"\`&lt;b>`"),
        ("a `b\nc` <b> `d", "a `b\nc` &lt;b> `d"),
        ("| `a | <b>` |", "| `a | &lt;b>` |"),
        ("- ```\n  ```\n<b>", "- ```\n```\n<b>\n```"),
        ("1. so:\n   ```c\n   vector<int>\n\tx\n   ```", "1. so:\n```c\nvector<int>\nx\n```"),
        ("```\n\u200b```\n<b>\n```", "```\n```\n&lt;b>\n```\n```"),
        ("```make\nall:\n\tcc\n```", "```make\nall:\n\tcc\n```"),
        ("a < b and 3 <4", "a < b and 3 <4"),
        ("```\nnever closed", "```\nnever closed\n```"),
        ("**bold** and a [link](https://example.org)", "**bold** and a [link](https://example.org)"),
    ],
)
def test_markdown_stays_but_for_html_and_images(said: str, written: str) -> None:
    assert f"\n\n{written}\n\n" in markdown_of(conversation(), [message(said)])


@settings(deadline=None)
@given(st.text("ab`~<>!\\\\[]()-1. \n\t|&\u200b", max_size=60))
@example("\\\\<a>")
@example("- ```\n  ```\n<a>")
@example("```\n\u200b```\n<a>\n```")
@example("~~~![x](y)|\n---\n~~~")
@example("- a\n\n  ```\n  b\n<a>")
def test_no_reader_of_markdown_finds_html_or_an_image_in_what_was_said(text: str) -> None:
    """Told by another implementation of CommonMark."""
    read = MarkdownIt("commonmark").enable("table").parse(markdown_of(conversation(text), [message(text)]))
    kinds = {token.type for block in read for token in (block, *(block.children or ()))}
    assert not kinds & {"html_block", "html_inline", "image"}


def test_thinking_is_folded_and_each_message_names_who_said_it_and_when() -> None:
    messages = [message("How many tries?", "user"), message("Hm.", "thinking"), message("Nine.")]
    text = markdown_of(conversation(), messages)
    assert "# The retry budget\n" in text
    assert "- Machine: laptop\n" in text
    assert "## user · 2026-01-31T18:00:05Z\n\nHow many tries?\n" in text
    assert "<details>\n<summary>thinking · 2026-01-31T18:00:05Z</summary>\n\nHm.\n\n</details>\n" in text
    page = page_of(conversation(), messages)
    assert page.count("<details>") == 1
    assert page.count('<article class="person">') == 1
    assert "<pre>Nine.</pre>" in page


def test_a_title_is_no_markup() -> None:
    hostile = "<img src=x> # **not** [a link](x)"
    assert "\n# \\<img src=x\\> \\# \\*\\*not\\*\\* \\[a link\\](x)\n" in "\n" + markdown_of(
        conversation(hostile), []
    )
    assert Elements(page_of(conversation(hostile), [])).names <= _OURS


def test_what_rules_know_as_a_credential_is_blanked_in_both() -> None:
    secret = "ghp_" + "a1B2" * 9
    for written in (markdown_of, page_of):
        assert secret not in written(conversation(), [message(f"the token is {secret}")])


@given(st.text("ab <>&;\"'/=`!-#x"))
def test_a_page_has_our_elements_alone_and_every_word(text: str) -> None:
    read = Elements(page_of(conversation(text), [message(text), message(text, "thinking")]))
    assert read.names <= _OURS
    assert not read.attributes & {"src", "href", "onclick", "onerror"}
    assert text in read.text
