"""Parsing of a model's answers, and the Dream Weaver's limits.

An answer is untrusted: JSON somewhere in a text, from which only short texts, categories from a closed list and prose are
taken, cut to the limits below. No name, path, number or option is ever taken from a model.
"""

from collections.abc import Iterator
from typing import cast

import msgspec

from crystal_core.llm.answers import first_object
from crystal_core.memories import Category
from crystal_core.weaver.prose import one_line, whole
from crystal_core.weaver.quotations import Quotable, flat, honest

BATCH_TOKENS = 24_000
"""Transcripts of one batch, if the model's context allows."""
BATCH_BYTES_MIN = 2_000
"""Smallest batch to begin when the budget is almost used."""
REFLECTION_TOKENS = 4_000
JOURNAL_TOKENS = 3_000
FACTS_TOKENS = 2_500
DOCUMENT_TOKENS = 4_000
ANSWER_CHARS_MAX = 64 * 1024
"""Longest part of an answer that is read, whatever was requested."""
CALL_SECONDS_MAX = 600.0
"""Time limit of one call with its retries."""
TRIES_MAX = 2
"""Requests for an answer until it can be read."""

JOURNAL_BYTES_MAX = 24 * 1024
"""Prose of one batch."""
IDENTITY_BYTES_MAX = 5 * 1000
SOUL_BYTES_MAX = 5 * 1000
CONTEXT_BYTES_MIN = 5 * 1000
CONTEXT_BYTES_MAX = 10 * 1000
WARM_START_LINES_MAX = 49
DOCUMENT_INPUT_BYTES = 24 * 1024
"""Journals and notes that a page is written from."""

ITEMS_MAX = 20
"""Decisions, promises, concerns and missed tasks in one batch, of each."""
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
    """Contents of a part of the transcripts. ``quotations`` are exact; ``cut`` counts those that were not."""

    decided: tuple[str, ...] = ()
    promised: tuple[str, ...] = ()
    concerned: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    quotations: tuple[str, ...] = ()
    cut: int = 0


class ExtractedMemory(msgspec.Struct, frozen=True):
    """A sentence to remember. ``scope``: the project that it is for, "" for everywhere."""

    text: str
    category: Category
    scope: str = ""


class Facts(msgspec.Struct, frozen=True):
    """Memories and references of a batch."""

    memories: tuple[ExtractedMemory, ...] = ()
    references: tuple[tuple[str, str], ...] = ()
    """Topic and line."""
    cut: int = 0


class WarmStart(msgspec.Struct, frozen=True):
    """The beginning of CONTEXT.md, and the prose that follows it."""

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
    """Reader of lists of short texts, without invented quotations."""

    def __init__(self, quotable: Quotable) -> None:
        self._quotable = quotable
        self.cut = 0

    def items(self, value: object) -> tuple[str, ...]:
        found = [self.item(text, ITEM_CHARS_MAX) for text in _texts(value, ITEM_CHARS_MAX * 4)]
        return tuple(dict.fromkeys(text for text in found if text))[:ITEMS_MAX]

    def item(self, value: object, chars_max: int) -> str:
        """Return an item on one line, safe for a file."""
        return one_line(self.sentence(value, chars_max * 2), chars_max)

    def sentence(self, value: object, chars_max: int) -> str:
        """Return a sentence as plain text."""
        if not isinstance(value, str):
            return ""
        text, cut = honest(flat(whole(value[: chars_max * 4])), self._quotable)
        self.cut += cut
        return text if len(text) <= chars_max else text[: chars_max - 1].rstrip() + "…"


def _texts(value: object, chars_max: int) -> Iterator[str]:
    """Iterate over the texts of a list whose items are texts or objects with one."""
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
