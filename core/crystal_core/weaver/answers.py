"""What a model answered, read with mistrust: JSON somewhere in a text, of which only what is expected is taken, within limits.

Whatever stands in an answer, no more than this can come of it: so many short texts, categories from a closed list, and prose.
No name, path, number or option is ever taken from a model.
"""

from collections.abc import Iterator
from typing import cast

import msgspec

from crystal_core.llm.answers import first_object
from crystal_core.memories import Category
from crystal_core.weaver.prose import one_line, whole
from crystal_core.weaver.quotations import Quotable, flat, honest

BATCH_TOKENS = 24_000
"""Of transcripts in one batch, where the model's context has room."""
BATCH_BYTES_MIN = 2_000
"""A batch that would be smaller, because the budget is almost used, is not begun."""
REFLECTION_TOKENS = 4_000
JOURNAL_TOKENS = 3_000
FACTS_TOKENS = 2_500
DOCUMENT_TOKENS = 4_000
ANSWER_CHARS_MAX = 64 * 1024
"""Of what a server gives for one of these, whatever it was asked for. The rest is not read."""
CALL_SECONDS_MAX = 600.0
"""One call, with its waiting and trying again."""
TRIES_MAX = 2
"""An answer that cannot be read is asked for once more."""

JOURNAL_BYTES_MAX = 24 * 1024
"""Prose of one batch."""
IDENTITY_BYTES_MAX = 5 * 1000
SOUL_BYTES_MAX = 5 * 1000
CONTEXT_BYTES_MIN = 5 * 1000
CONTEXT_BYTES_MAX = 10 * 1000
WARM_START_LINES_MAX = 49
DOCUMENT_INPUT_BYTES = 24 * 1024
"""Journals and notes that a document is written from."""

ITEMS_MAX = 20
"""Decisions, promises, concerns, missed tasks: of each, in one batch."""
ITEM_CHARS_MAX = 400
QUOTATIONS_MAX = 24
QUOTATION_CHARS_MIN = 8
QUOTATION_CHARS_MAX = 600
MEMORIES_A_DAY_MAX = 20
MEMORY_CHARS_MIN = 12
MEMORY_CHARS_MAX = 500
REFERENCES_MAX = 30
"""Lines for REFERENCE.md from one batch."""


TOPIC_CHARS_MAX = 60


class Reflection(msgspec.Struct, frozen=True):
    """What a part of the transcripts holds. ``quotations`` are exact; ``cut`` counts those that were not."""

    decided: tuple[str, ...] = ()
    promised: tuple[str, ...] = ()
    concerned: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    quotations: tuple[str, ...] = ()
    cut: int = 0


class ExtractedMemory(msgspec.Struct, frozen=True):
    """A sentence to remember."""

    text: str
    category: Category


class Facts(msgspec.Struct, frozen=True):
    """What is to be remembered and looked up."""

    memories: tuple[ExtractedMemory, ...] = ()
    references: tuple[tuple[str, str], ...] = ()
    """Topic and line."""
    cut: int = 0


class WarmStart(msgspec.Struct, frozen=True):
    """What CONTEXT.md begins with, and the prose behind it."""

    now: tuple[str, ...] = ()
    recent: tuple[str, ...] = ()
    user: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()
    next: tuple[str, ...] = ()
    background: str = ""
    cut: int = 0


def read_reflection(answer: str, quotable: Quotable) -> Reflection:
    """Raises Unreadable."""
    document = first_object(answer)
    lists = _Lists(quotable)
    quotations: list[str] = []
    for text in _texts(document.get("quotations"), QUOTATION_CHARS_MAX * 4):
        exact = quotable.exact(whole(text))
        if not exact or not QUOTATION_CHARS_MIN <= len(exact) <= QUOTATION_CHARS_MAX:
            lists.cut += not exact
        elif exact not in quotations:
            quotations.append(exact)
    return Reflection(
        lists.items(document.get("decisions")),
        lists.items(document.get("promises")),
        lists.items(document.get("concerns")),
        lists.items(document.get("missed")),
        tuple(quotations[:QUOTATIONS_MAX]),
        lists.cut,
    )


def read_facts(answer: str, quotable: Quotable) -> Facts:
    """Raises Unreadable."""
    document = first_object(answer)
    lists = _Lists(quotable)
    memories: dict[str, ExtractedMemory] = {}
    for entry in _entries(document.get("memories")):
        text = lists.sentence(entry.get("text"), MEMORY_CHARS_MAX)
        if len(text) >= MEMORY_CHARS_MIN and len(memories) < ITEMS_MAX:
            memories.setdefault(
                flat(text).casefold(), ExtractedMemory(text, _category(entry.get("category")))
            )
    references: list[tuple[str, str]] = []
    for entry in _entries(document.get("reference")):
        text = lists.item(entry.get("text"), ITEM_CHARS_MAX)
        topic = one_line(str(entry.get("topic") or ""), TOPIC_CHARS_MAX).strip("#*_` ") or "Other"
        if text and (topic, text) not in references:
            references.append((topic, text))
    return Facts(tuple(memories.values()), tuple(references[:REFERENCES_MAX]), lists.cut)


def read_warm_start(answer: str, quotable: Quotable) -> WarmStart:
    """Raises Unreadable."""
    document = first_object(answer)
    lists = _Lists(quotable)
    background = document.get("background")
    prose, cut = honest(whole(background) if isinstance(background, str) else "", quotable)
    return WarmStart(
        lists.items(document.get("now")),
        lists.items(document.get("last_48_hours")),
        lists.items(document.get("user")),
        lists.items(document.get("blocked")),
        lists.items(document.get("next")),
        prose,
        lists.cut + cut,
    )


class _Lists:
    """Lists of short texts, with only true quotations in them."""

    def __init__(self, quotable: Quotable) -> None:
        self._quotable = quotable
        self.cut = 0

    def items(self, value: object) -> tuple[str, ...]:
        found = [self.item(text, ITEM_CHARS_MAX) for text in _texts(value, ITEM_CHARS_MAX * 4)]
        return tuple(dict.fromkeys(text for text in found if text))[:ITEMS_MAX]

    def item(self, value: object, chars_max: int) -> str:
        """For a file."""
        return one_line(self.sentence(value, chars_max * 2), chars_max)

    def sentence(self, value: object, chars_max: int) -> str:
        """As plain text."""
        if not isinstance(value, str):
            return ""
        text, cut = honest(flat(whole(value[: chars_max * 4])), self._quotable)
        self.cut += cut
        return text if len(text) <= chars_max else text[: chars_max - 1].rstrip() + "…"


def _texts(value: object, chars_max: int) -> Iterator[str]:
    """The texts of a list: each a text, or an object with one."""
    for one in _list(value, ITEMS_MAX * 4):
        text = cast("dict[str, object]", one).get("text") if isinstance(one, dict) else one
        if isinstance(text, str) and text.strip():
            yield text[:chars_max]


def _entries(value: object) -> Iterator[dict[str, object]]:
    for one in _list(value, REFERENCES_MAX * 4):
        if isinstance(one, dict):
            yield cast("dict[str, object]", one)
        elif isinstance(one, str):
            yield {"text": one}


def _list(value: object, most: int) -> list[object]:
    return cast("list[object]", value)[:most] if isinstance(value, list) else []


def _category(value: object) -> Category:
    known = [category for category in Category if category == str(value).strip().lower()]
    return known[0] if known else Category.FACT
