"""What is asked of a ``Finder`` and what it answers: one schema for `--json`, the background service's socket, MCP and HTTP.

Requests come from other programs too: they are parsed strictly, within limits. Moments are ISO 8601 in UTC, "" if unknown.
Answers only ever gain fields.
"""

from enum import StrEnum
from typing import Annotated, Protocol

from msgspec import Meta, Struct

from crystal_core.search.by import By
from crystal_node.base.text_ids import ID_CHARS_MAX, ID_DIGITS_MIN, placed_id

QUERY_CHARS_MAX = 16 * 1024
NAME_CHARS_MAX = 1024
ID_PATTERN = r"^[0-9a-fA-F]{8,64}(@[0-9a-fA-F]{8})?$(?!\n)"
"""An id, and the place behind it. A $ alone lets a line break through at the end, in Python's reading."""
FOLDER_CHARS_MAX = 4096
HITS_MAX = 1000
OFFSET_MAX = 10_000
CANDIDATES_MAX = 200
CONTEXT_MAX = 50
"""Pieces of a conversation before a text, and behind it."""
NEAREST = "nothing matches well, these come nearest"
"""The note of an answer whose results are weak."""

_Name = Annotated[str, Meta(max_length=NAME_CHARS_MAX)]


class ResultKind(StrEnum):
    """What a text is: a piece of a conversation, something remembered, a piece of a source's document, a tool call."""

    CONVERSATION = "conversation"
    MEMORY = "memory"
    DOCUMENT = "document"
    ACTION = "action"


class StatusFilter(StrEnum):
    """What has become of a memory. Only active ones are found where nothing is said."""

    ACTIVE = "active"
    RETIRED = "retired"
    SUPERSEDED = "superseded"
    ANY = "any"


class Depth(StrEnum):
    """FAST: words and vectors. DEEP: a language model expands the query and ranks what is found; falls back to fast where none
    answers. AUTO: deep where the settings have it so, else fast."""

    AUTO = "auto"
    FAST = "fast"
    DEEP = "deep"


class SearchQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every surface may ask of a search. Filters that are empty let everything through."""

    query: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=QUERY_CHARS_MAX,
            description="What to look for, in plain words; both the words and their meaning count.",
        ),
    ]
    limit: Annotated[int, Meta(ge=1, le=HITS_MAX, description="How many results.")] = 10
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
    """A folder or a repository, or the end of one from a slash on."""
    session: Annotated[
        str, Meta(max_length=NAME_CHARS_MAX, description="Only from this session, by its id.")
    ] = ""
    role: Annotated[
        str,
        Meta(max_length=NAME_CHARS_MAX, description="Only what this role said: user, assistant or thinking."),
    ] = ""
    kind: Annotated[
        ResultKind | None,
        Meta(
            description="Only this kind of text. action: commands that agents ran and files that they changed, found only so."
        ),
    ] = None
    source: Annotated[
        str, Meta(max_length=NAME_CHARS_MAX, description="Only documents of this source, by its name.")
    ] = ""
    """Also the tool that a conversation was held with."""
    device: Annotated[
        str,
        Meta(max_length=NAME_CHARS_MAX, description="Only what this device recorded, by its name or id."),
    ] = ""
    since: Annotated[
        str,
        Meta(
            max_length=64,
            description="Only newer than this: 24h, yesterday, last week, in march, or 2026-01-31.",
        ),
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
    by: Annotated[
        By,
        Meta(description="turn finds questions with their answers, message finds single messages."),
    ] = By.TURN
    thinking: Annotated[bool, Meta(description="Also find what agents thought before they answered.")] = False


class SearchRequest(SearchQuery, frozen=True, kw_only=True, omit_defaults=True):
    """A search whole. ``category`` and ``status`` are a memory's; ``candidates`` and ``provider`` are for deep searches."""

    category: _Name = ""
    status: StatusFilter | None = None
    candidates: Annotated[int, Meta(ge=1, le=CANDIDATES_MAX)] = 40
    provider: _Name = ""
    words_only: bool = False
    """No vectors: what answers needs no model."""
    explain: bool = False
    projects: list[tuple[str, str]] | None = None
    """Only conversations of these projects, each a folder and a repository, and memories that count there. For recall."""

    @classmethod
    def of(cls, query: SearchQuery) -> "SearchRequest":
        """The request of a surface that asks for no more."""
        return cls(**{name: getattr(query, name) for name in SearchQuery.__struct_fields__})


class TurnDocument(Struct, frozen=True, kw_only=True):
    """The turn that a result stands for: what a person asked and everything up to their next message.

    ``question`` is the person's words, at most 2,000 characters; ``question_id`` and ``answer_id`` are the texts where question
    and last answer begin, "" where there are none. ``messages`` counts its pieces without thinking."""

    question: str
    question_id: str
    answer_id: str
    answered: bool
    began_at: str
    ended_at: str
    messages: int


class ResultDocument(Struct, frozen=True, kw_only=True):
    """One text that was found. ``marks`` are the highlights: start and end of each within ``snippet``, in characters.

    By turn, the text is the passage of the answer that fits best, and ``turn`` says what it answers. ``relevance``, between 0
    and 1: how likely it is that the result answers the query. ``alike`` are the ids of texts that are almost the same and were
    left out for this one. ``weak``: it is not likely to answer, by its relevance. ``memory`` is the category if the text is a
    memory. ``title``: of its conversation, at most 80 characters, "" where no person spoke; of a document's piece, the heading
    that it stands under. ``device`` and ``device_name``: the id and the name of the device that recorded it. ``place``: if
    the text is in several places, the digits that name this one behind the id (``ID@PLACE``); else "". ``explain``: how
    the score came about, if it was asked for. ``again_at``: when the same words were said last, "" if never later.
    """

    id: str
    text: str
    snippet: str
    marks: list[tuple[int, int]]
    score: float
    kind: ResultKind
    agent: str
    session: str
    role: str
    created_at: str
    project: str
    repository: str
    source: str
    freshness: str
    path: str = ""
    title: str = ""
    memory: str | None = None
    provisional: bool = False
    device: str = ""
    device_name: str = ""
    alike: list[str] = []
    weak: bool = False
    relevance: float = 0.0
    turn: TurnDocument | None = None
    place: str = ""
    again_at: str = ""
    explain: dict[str, float | int | str | None] | None = None

    @property
    def placed_id(self) -> str:
        """The id as people and agents read it."""
        return placed_id(self.id, self.place)


class SearchDocument(Struct, frozen=True, kw_only=True):
    """What a search gave. ``mode`` is "hybrid" or "keyword", ``depth`` what was really done, ``note`` why it was less than
    could be ("" if it was not). ``weak``: the first three results are weak, or there are none. ``more``: there are further
    results from ``offset`` + ``limit`` on."""

    query: str
    mode: str
    depth: Depth
    note: str
    more: bool
    weak: bool = False
    results: list[ResultDocument]
    took_ms: float
    explain: dict[str, str | int | float | list[str]] | None = None


class ShowRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A text by its id (or the first 8 digits of it, or more) and the place behind it, with what stands around it.

    ``turn``: with the whole turn of it, in place of so many pieces before and after; a memory and a piece of a document have
    none, and stand alone. ``folder``: where one is working; of a text of several projects, its project's is shown."""

    id: Annotated[str, Meta(min_length=ID_DIGITS_MIN, max_length=ID_CHARS_MAX)]
    before: Annotated[int, Meta(ge=0, le=CONTEXT_MAX)] = 0
    after: Annotated[int, Meta(ge=0, le=CONTEXT_MAX)] = 0
    turn: bool = False
    folder: Annotated[str, Meta(max_length=FOLDER_CHARS_MAX)] = ""


class PieceDocument(Struct, frozen=True, kw_only=True):
    """A piece of a conversation or of a document. ``asked``: it is the one that was asked for. ``place``: as a result's.
    ``model``: the language model that said it, "" if unknown."""

    id: str
    text: str
    role: str
    agent: str
    created_at: str
    asked: bool = False
    place: str = ""
    model: str = ""

    @property
    def placed_id(self) -> str:
        """The id as people and agents read it."""
        return placed_id(self.id, self.place)


class ShowDocument(Struct, frozen=True, kw_only=True):
    """A text whole, where it comes from, and its surroundings in order; ``pieces`` has at least the text itself. ``title``: of
    its conversation, or the heading of a document's piece. ``device`` and ``device_name``: the id and the name of the device
    that recorded it; ``before`` and ``after`` count what follows."""

    id: str
    kind: ResultKind
    agent: str
    session: str
    project: str
    repository: str
    source: str
    path: str
    title: str
    memory: str | None
    provisional: bool
    device: str = ""
    device_name: str = ""
    before: int = 0
    after: int = 0
    pieces: list[PieceDocument]


class MemorySearch(Protocol):
    """The port of searching and reading: a ``Finder`` on this device's disk, or the background service's."""

    def search(self, request: SearchRequest) -> SearchDocument:
        """Raises UsageError (a filter that cannot be used), EmptyQuery, VaultDataError."""
        ...

    def show(self, request: ShowRequest) -> ShowDocument:
        """Raises UsageError, NoSuchEntry, VaultDataError."""
        ...
