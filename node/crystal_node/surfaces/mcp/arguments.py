"""What tools are given. Each field's description is what a model reads of it; limits are part of the schema."""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from crystal_core.memories import MemoryStatus
from crystal_mirror.operations import CONFIDENCE_MAX, SOURCE_NAME_CHARS_MAX, SUPERSEDES_MAX
from crystal_node.search.finding.documents import (
    CONTEXT_MAX,
    NAME_CHARS_MAX,
    OFFSET_MAX,
    QUERY_CHARS_MAX,
    Depth,
    ResultKind,
)

HITS_MAX = 50
HITS = 8
CHARS_MIN = 100
CHARS_MAX = 20_000
CHARS = 1500
"""Characters of each text in an answer, unless another number is asked for: eight of them fit any client's limit."""
SHOWN_CHARS_MAX = 65_536
ANSWER_CHARS_MAX = 200_000
"""Characters of all texts of one answer together: texts are cut shorter for that."""
TEXT_CHARS_MAX = 64 * 1024
ID_DIGITS_MIN = 8
FORGET_DIGITS_MIN = 12
"""What is forgotten is named by more digits than what is shown: a slip of one must not hit another text."""
FORGET_MAX = 20
"""Texts that one call forgets at most."""
MEMORIES_MAX = 200
PATTERNS_MAX = 64
PATTERN_CHARS_MAX = 1000
PATH_CHARS_MAX = 4096
SYNC_SECONDS = 50
"""Clients give up on a call after a minute, many of them."""
SYNC_SECONDS_MAX = 3600
_ID = r"^[0-9a-fA-F]+$(?!\n)"
"""A $ alone lets a line break through at the end, in Python's reading."""
_AGENT = r"^([A-Za-z0-9][A-Za-z0-9._-]*)?$(?!\n)"


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
        ResultKind | None,
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
            title="8 to 64 hexadecimal digits",
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
    confidence: Annotated[
        int, Meta(ge=0, le=CONFIDENCE_MAX, description="How sure one can be of it, from 0 to 100.")
    ] = CONFIDENCE_MAX
    supersedes: Annotated[
        list[
            Annotated[
                str,
                Meta(
                    min_length=FORGET_DIGITS_MIN,
                    max_length=64,
                    pattern=_ID,
                    title="an id: 12 to 64 hexadecimal digits",
                ),
            ]
        ],
        Meta(
            max_length=SUPERSEDES_MAX,
            description="Ids of memories that it takes the place of: they are kept, and not brought up any more.",
        ),
    ] = []
    agent: Annotated[
        str,
        Meta(
            max_length=64,
            pattern=_AGENT,
            title="an agent's id: at most 64 letters, digits, dots, dashes and underscores",
            description="Whose memory it is; this device's agent if empty.",
        ),
    ] = ""


class ForgetArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of ``crystal_forget``."""

    ids: Annotated[
        list[
            Annotated[
                str,
                Meta(
                    min_length=FORGET_DIGITS_MIN,
                    max_length=64,
                    pattern=_ID,
                    title="an id: 12 to 64 hexadecimal digits",
                ),
            ]
        ],
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


class MemoriesArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of ``crystal_memories``."""

    category: Annotated[Category | None, Meta(description="Only of this kind; all if null.")] = None
    status: Annotated[
        MemoryStatus | None,
        Meta(description="active ones are brought up in searches; null lists all, with what became of them."),
    ] = MemoryStatus.ACTIVE
    limit: Annotated[int, Meta(ge=1, le=MEMORIES_MAX, description="How many, the newest first.")] = 50
    offset: Annotated[
        int, Meta(ge=0, le=OFFSET_MAX, description="How many to pass over: next_offset of the answer before.")
    ] = 0


_Pattern = Annotated[str, Meta(min_length=1, max_length=PATTERN_CHARS_MAX)]


class SourcesAddArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of ``crystal_sources_add``."""

    path: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=PATH_CHARS_MAX,
            pattern="^[/~]",
            title="an absolute path, or one that begins with ~",
            description="The absolute path of a folder, or of one file, on this machine; ~ is the person's home.",
        ),
    ]
    name: Annotated[
        str,
        Meta(
            max_length=SOURCE_NAME_CHARS_MAX,
            description="What to call it; the folder's name if empty. With the name of one that is there: other patterns.",
        ),
    ] = ""
    include: Annotated[
        list[_Pattern],
        Meta(
            max_length=PATTERNS_MAX,
            description="Read only what matches, as in an ignore file: docs/ or *.md.",
        ),
    ] = []
    exclude: Annotated[
        list[_Pattern],
        Meta(
            max_length=PATTERNS_MAX, description="Leave out what matches; ignore files are honoured anyway."
        ),
    ] = []
    confirm: Annotated[
        str,
        Meta(
            max_length=64,
            description="Empty at first: the answer says what would be read, and gives the word to send with all the same.",
        ),
    ] = ""


class SourcesSyncArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of ``crystal_sources_sync``."""

    name: Annotated[
        str, Meta(max_length=SOURCE_NAME_CHARS_MAX, description="One source; all of this device's if empty.")
    ] = ""
    seconds: Annotated[
        int,
        Meta(
            ge=1, le=SYNC_SECONDS_MAX, description="How long it may take; the next call goes on from there."
        ),
    ] = SYNC_SECONDS
