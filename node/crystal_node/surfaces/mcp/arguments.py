"""Arguments of the tools. A model reads the descriptions; the limits are part of the schema."""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct, field

from crystal_core.memories import Category
from crystal_mirror.operations import SOURCE_NAME_CHARS_MAX, SUPERSEDES_MAX
from crystal_node.base.text_ids import ID_CHARS_MAX, ID_DIGITS_MIN
from crystal_node.search.conversation_documents import NAME_CHARS_MAX
from crystal_node.search.finding.documents import (
    CONTEXT_MAX,
    ID_PATTERN,
    OFFSET_MAX,
    SearchQuery,
    StatusFilter,
)
from crystal_node.search.memories.documents import MEMORIES_MAX, NewMemory
from crystal_node.surfaces.mcp.budget import TOKENS_MAX

HITS_MAX = 50
HITS = 5
SEARCH_TOKENS = 1500
OPEN_TOKENS = 3000
LIST_TOKENS = 3000
"""What an answer costs at most if the caller does not say; as `estimated_tokens` has it."""
FORGET_DIGITS_MIN = 12
"""A forget needs more digits than to open one: one wrong digit must not name another text."""
LONG_ID_PATTERN = r"^[0-9a-fA-F]{12,64}(@[0-9a-fA-F]{8})?$(?!\n)"
"""What stands in several places is forgotten in all of them."""
FORGET_MAX = 20
"""Texts that one call forgets at most."""
PATTERNS_MAX = 64
PATTERN_CHARS_MAX = 1000
PATH_CHARS_MAX = 4096
SYNC_SECONDS = 50
"""Many clients give up on a call after a minute."""
SYNC_SECONDS_MAX = 3600
_AGENT = r"^([A-Za-z0-9][A-Za-z0-9._-]*)?$(?!\n)"


LongId = Annotated[
    str,
    Meta(
        min_length=FORGET_DIGITS_MIN,
        max_length=ID_CHARS_MAX,
        pattern=LONG_ID_PATTERN,
        title="an id: 12 to 64 hexadecimal digits",
    ),
]


def _tokens(what: str) -> Meta:
    return Meta(ge=1, le=TOKENS_MAX, description=what)


class SearchArguments(SearchQuery, frozen=True, kw_only=True):
    """Of ``crystal_search``."""

    limit: Annotated[int, Meta(ge=1, le=HITS_MAX, description="How many results at most.")] = HITS
    max_tokens: Annotated[int, _tokens("What the answer may cost in tokens.")] = SEARCH_TOKENS
    nearest: Annotated[
        bool, Meta(description="Also give results that are not likely to answer the query.")
    ] = False


class Whole(StrEnum):
    """What is opened around a text."""

    TURN = "turn"
    CONVERSATION = "conversation"


class OpenArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of ``crystal_open``."""

    id: Annotated[
        str,
        Meta(
            min_length=ID_DIGITS_MIN,
            max_length=ID_CHARS_MAX,
            pattern=ID_PATTERN,
            title="8 to 64 hexadecimal digits, and perhaps @ and 8 more",
            description="The id of a text as a result has it, with its @ part if it has one; or its first 8 digits or more.",
        ),
    ]
    whole: Annotated[
        Whole,
        Meta(
            description="turn: the question with all that was answered. conversation: also what stands around that, or around "
            "a document's piece."
        ),
    ] = Whole.TURN
    before: Annotated[
        int,
        Meta(ge=0, le=CONTEXT_MAX, description="In place of the turn: so many pieces before the text."),
    ] = 0
    after: Annotated[
        int, Meta(ge=0, le=CONTEXT_MAX, description="In place of the turn: so many pieces behind the text.")
    ] = 0
    max_tokens: Annotated[int, _tokens("What the answer may cost in tokens.")] = OPEN_TOKENS


class RememberArguments(NewMemory, frozen=True, kw_only=True):
    """Of ``crystal_remember``."""

    supersedes: Annotated[
        list[LongId],
        Meta(
            max_length=SUPERSEDES_MAX,
            description="Ids of memories that it takes the place of: they are kept, and not brought up any more.",
        ),
    ] = field(default_factory=list[LongId])
    agent: Annotated[
        str,
        Meta(
            max_length=64,
            pattern=_AGENT,
            title="an agent's id: at most 64 letters, digits, dots, dashes and underscores",
            description="Whose memory it is; yours if empty.",
        ),
    ] = ""


class ForgetArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of ``crystal_forget``."""

    ids: Annotated[
        list[LongId],
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
    """Of tools without arguments."""


class MemoriesArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of ``crystal_memories``."""

    category: Annotated[Category | None, Meta(description="Only of this kind; all if null.")] = None
    status: Annotated[
        StatusFilter | None,
        Meta(description="active ones are brought up in searches; any lists all, with what became of them."),
    ] = StatusFilter.ACTIVE
    limit: Annotated[int, Meta(ge=1, le=MEMORIES_MAX, description="How many, the newest first.")] = 50
    offset: Annotated[
        int, Meta(ge=0, le=OFFSET_MAX, description="How many to pass over, as the answer before says.")
    ] = 0
    max_tokens: Annotated[int, _tokens("What the answer may cost in tokens.")] = LIST_TOKENS


_Pattern = Annotated[str, Meta(min_length=1, max_length=PATTERN_CHARS_MAX)]


class SessionsArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of ``crystal_sessions``."""

    query: Annotated[
        str, Meta(max_length=NAME_CHARS_MAX, description="Words of title, project, tool or machine.")
    ] = ""
    handoff: Annotated[
        str, Meta(max_length=NAME_CHARS_MAX, description="The id of a session to go on with here.")
    ] = ""
    max_tokens: Annotated[int, _tokens("What the answer may cost in tokens.")] = LIST_TOKENS


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
