"""Requests and answers about memories: one schema for `--json` and for programs.

Moments are ISO 8601 in UTC, "" if unknown. Answers only ever gain fields.
"""

from enum import StrEnum
from typing import Annotated, Literal

from msgspec import Meta, Struct

from crystal_core.memories import Category, MemoryScope
from crystal_mirror.operations import CONFIDENCE_MAX, NAME_CHARS_MAX, SUPERSEDES_MAX
from crystal_node.base.text_ids import ID_CHARS_MAX, ID_DIGITS_MIN
from crystal_node.search.finding.documents import ID_PATTERN

TEXT_CHARS_MAX = 64 * 1024
MEMORIES_MAX = 200
"""In one page of a program's list."""

Id = Annotated[
    str,
    Meta(
        min_length=ID_DIGITS_MIN,
        max_length=ID_CHARS_MAX,
        pattern=ID_PATTERN,
        title="an id: 8 to 64 hexadecimal digits",
    ),
]
Confidence = Annotated[
    int, Meta(ge=0, le=CONFIDENCE_MAX, description="How sure one can be of it, from 0 to 100.")
]


Scope = Annotated[
    MemoryScope | None,
    Meta(
        description="Where it is brought up: in one project, or everywhere. If left out: a preference everywhere, anything else"
        " in the project that it is made in."
    ),
]
ProjectName = Annotated[
    str,
    Meta(
        max_length=NAME_CHARS_MAX,
        description="The project that it is for, by its repository or folder; the one it is made in if empty.",
    ),
]


class NewMemory(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A memory to keep, as every surface takes it. ``supersedes``: ids of memories whose place it takes."""

    text: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=TEXT_CHARS_MAX,
            description="One thing to remember, in a sentence that is understood without its context.",
        ),
    ]
    category: Annotated[Category, Meta(description="What kind of thing it is.")] = Category.FACT
    confidence: Confidence = CONFIDENCE_MAX
    supersedes: Annotated[list[Id], Meta(max_length=SUPERSEDES_MAX)] = []
    scope: Scope = None
    project: ProjectName = ""


class MemoryEdit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change of a memory; what is left out stays as it is."""

    text: Annotated[str, Meta(min_length=1, max_length=TEXT_CHARS_MAX)] | None = None
    category: Category | None = None
    confidence: Confidence | None = None
    status: Literal["active", "retired"] | None = None
    scope: Scope = None
    project: ProjectName = ""


class WhenAlike(StrEnum):
    """What to do with a text when a memory says almost the same."""

    MERGE = "merge"
    """One memory remains: the new words take the place of the old."""
    KEEP_BOTH = "keep-both"


class Likeness(StrEnum):
    """In what one text is like another."""

    WORDS = "words"
    """The same words, but for case, spaces, punctuation and the few that an overlap leaves out."""
    MEANING = "meaning"
    """Their vectors."""


class MemoryDocument(Struct, frozen=True, kw_only=True):
    """A memory. ``status`` is active, retired or superseded; ``superseded_by`` the id of the memory that took its place, "" if
    none did or it was forgotten; ``provisional``: only this device knows of it, or of its last change, yet. ``scope`` is
    project or everywhere; ``project`` the name of that project, "" for everywhere."""

    id: str
    text: str
    category: str
    confidence: int
    status: str
    agent: str
    device: str
    created_at: str
    changed_at: str
    superseded_by: str
    provisional: bool
    scope: str
    project: str


class MemoriesDocument(Struct, frozen=True, kw_only=True):
    """A page of them, the newest first. ``more``: there are further ones behind these."""

    memories: list[MemoryDocument]
    total: int
    more: bool


class MemoryEventDocument(Struct, frozen=True, kw_only=True):
    """One thing that was done: ``what`` is remembered, amended or superseded; what follows is as it was from then on."""

    id: str
    what: str
    at: str
    agent: str
    device: str
    text: str
    category: str
    confidence: int
    status: str
    provisional: bool
    scope: str
    project: str


class HistoryDocument(Struct, frozen=True, kw_only=True):
    """All that was done to a memory, to those whose place it took, and to those that took its own; by moment."""

    id: str
    events: list[MemoryEventDocument]


class AlikeDocument(Struct, frozen=True, kw_only=True):
    """A memory that says almost the same. ``score`` from 0 to 1; 1 is the same words."""

    id: str
    text: str
    by: Likeness
    score: float


class RememberedDocument(Struct, frozen=True, kw_only=True):
    """What became of a text. ``merged``: a memory of the same words was there, and is the one that is kept. ``supersedes``: the
    memories whose place it took. ``alike``: those that say almost the same and stay beside it. ``redacted``: credentials in it
    that were blanked out. ``scope`` and ``project`` as of a memory."""

    id: str
    category: str
    confidence: int
    agent: str
    merged: bool
    supersedes: list[str]
    alike: list[AlikeDocument]
    redacted: int
    scope: str
    project: str
