"""What tools are given. Each field's description is what a model reads of it; limits are part of the schema."""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from crystal_node.finding.documents import (
    CONTEXT_MAX,
    NAME_CHARS_MAX,
    OFFSET_MAX,
    QUERY_CHARS_MAX,
    Depth,
    Kind,
)

HITS_MAX = 50
HITS = 8
CHARS_MIN = 100
CHARS_MAX = 20_000
CHARS = 1500
"""Characters of each text in an answer, unless another number is asked for: eight of them fit any client's limit."""
SHOWN_CHARS_MAX = 65_536
TEXT_CHARS_MAX = 64 * 1024
ID_DIGITS_MIN = 8
FORGET_DIGITS_MIN = 12
"""What is forgotten is named by more digits than what is shown: a slip of one must not hit another text."""
FORGET_MAX = 20
"""Texts that one call forgets at most."""
_ID = "^[0-9a-fA-F]+$"
_AGENT = "^([A-Za-z0-9][A-Za-z0-9._-]*)?$"


class SearchArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of ``crystal_search``."""

    query: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=QUERY_CHARS_MAX,
            description="What to look for, in plain words; both the words and their meaning count.",
        ),
    ]
    limit: Annotated[int, Meta(ge=1, le=HITS_MAX, description="How many results.")] = HITS
    offset: Annotated[
        int,
        Meta(
            ge=0,
            le=OFFSET_MAX,
            description="How many results to pass over: next_offset of the answer before.",
        ),
    ] = 0
    agent: Annotated[
        str, Meta(max_length=NAME_CHARS_MAX, description="Only what this agent heard or said, by its id.")
    ] = ""
    project: Annotated[
        str, Meta(max_length=NAME_CHARS_MAX, description="Only from this project, as results name it.")
    ] = ""
    session: Annotated[
        str, Meta(max_length=NAME_CHARS_MAX, description="Only from this session, by its id.")
    ] = ""
    role: Annotated[
        str,
        Meta(max_length=NAME_CHARS_MAX, description="Only what this role said: user, assistant or thinking."),
    ] = ""
    kind: Annotated[
        Kind | None,
        Meta(description="Only pieces of conversations, only memories, or only documents of sources."),
    ] = None
    source: Annotated[
        str, Meta(max_length=NAME_CHARS_MAX, description="Only documents of this source, by its name.")
    ] = ""
    since: Annotated[
        str,
        Meta(max_length=64, description="Only newer than this: 24h, 7d, 4w, or a date such as 2026-01-31."),
    ] = ""
    until: Annotated[str, Meta(max_length=64, description="Only older than this, in the same forms.")] = ""
    depth: Annotated[
        Depth,
        Meta(
            description="deep asks a language model to expand the query and to rank: slower, finds more. auto decides."
        ),
    ] = Depth.AUTO
    intent: Annotated[
        str,
        Meta(
            max_length=2000,
            description="What the search is for, where the query is ambiguous; for deep searches.",
        ),
    ] = ""
    chars: Annotated[
        int,
        Meta(
            ge=CHARS_MIN,
            le=CHARS_MAX,
            description="Characters of each text; crystal_show gives a text whole.",
        ),
    ] = CHARS


class ShowArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of ``crystal_show``."""

    id: Annotated[
        str,
        Meta(
            min_length=ID_DIGITS_MIN,
            max_length=64,
            pattern=_ID,
            description="The id of a text, or its first 8 digits or more.",
        ),
    ]
    before: Annotated[
        int,
        Meta(ge=0, le=CONTEXT_MAX, description="How many pieces of the conversation or document before it."),
    ] = 0
    after: Annotated[int, Meta(ge=0, le=CONTEXT_MAX, description="How many pieces behind it.")] = 0
    chars: Annotated[int, Meta(ge=CHARS_MIN, le=SHOWN_CHARS_MAX, description="Characters of each piece.")] = (
        CHARS_MAX
    )


class Category(StrEnum):
    """What kind of thing is remembered."""

    FACT = "fact"
    PREFERENCE = "preference"
    EVENT = "event"
    OPINION = "opinion"
    SKILL = "skill"


class RememberArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of ``crystal_remember``."""

    text: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=TEXT_CHARS_MAX,
            description="One thing to remember, in a sentence that is understood without its context.",
        ),
    ]
    category: Annotated[Category, Meta(description="What kind of thing it is.")] = Category.FACT
    agent: Annotated[
        str,
        Meta(max_length=64, pattern=_AGENT, description="Whose memory it is; this device's agent if empty."),
    ] = ""


class ForgetArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of ``crystal_forget``."""

    ids: Annotated[
        list[Annotated[str, Meta(min_length=FORGET_DIGITS_MIN, max_length=64, pattern=_ID)]],
        Meta(
            min_length=1,
            max_length=FORGET_MAX,
            description="Ids of the texts, as results give them: the whole, or 12 digits or more.",
        ),
    ]
    confirm: Annotated[
        str,
        Meta(
            max_length=64,
            description="Empty at first: the answer says what would go, and gives the word to send here with the same ids.",
        ),
    ] = ""


class NoArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of tools that are given nothing."""
