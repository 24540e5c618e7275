"""Lists of conversations: requests and answers, in one form for every surface.

Requests come from other programs too: they are parsed strictly, within limits. Moments are ISO 8601 in UTC, "" if unknown; days
are in this machine's time zone, such as 2026-01-31. Answers only ever gain fields.
"""

from typing import Annotated, Protocol

from msgspec import Meta, Struct

NAME_CHARS_MAX = 1024
CONVERSATIONS_MAX = 200
"""In one answer."""
MESSAGES_MAX = 200
"""Of a conversation, in one answer."""
OFFSET_MAX = 10_000_000
VALUES_MAX = 500
"""Of each list of values to filter by."""
CONVERSATION_DIGITS = 32
"""Of a conversation's id."""

Name = Annotated[str, Meta(max_length=NAME_CHARS_MAX)]
Day = Annotated[
    str, Meta(pattern=r"^([0-9]{4}-[0-9]{2}-[0-9]{2})?$(?!\n)", title="a day, such as 2026-01-31")
]
ConversationId = Annotated[str, Meta(pattern=rf"^[0-9a-f]{{{CONVERSATION_DIGITS}}}$(?!\n)")]


class ConversationFilter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which conversations; an empty field lets all through. ``project``, ``tool``, ``agent`` as answers name them; ``device``:
    its id; ``session``: the beginning of a conversation's id, or of its tool's own. ``since`` and ``until``: something was said
    between these days, both included."""

    project: Name = ""
    device: Name = ""
    tool: Name = ""
    agent: Name = ""
    session: Name = ""
    since: Day = ""
    until: Day = ""


class ConversationsRequest(ConversationFilter, frozen=True, kw_only=True, omit_defaults=True):
    """Some of them, the latest first."""

    limit: Annotated[int, Meta(ge=1, le=CONVERSATIONS_MAX)] = 50
    offset: Annotated[int, Meta(ge=0, le=OFFSET_MAX)] = 0


class ConversationRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """So many messages of one conversation from ``offset`` on."""

    id: ConversationId
    limit: Annotated[int, Meta(ge=1, le=MESSAGES_MAX)] = 100
    offset: Annotated[int, Meta(ge=0, le=OFFSET_MAX)] = 0


class ConversationDocument(Struct, frozen=True, kw_only=True):
    """A conversation. ``title``: the first sentence of the person's first question, "" if there is none; ``project``: its
    repository, or its folder if it has none, "" if it has no project; ``tool``: which one it was held with; ``device`` and
    ``device_name``: which one recorded it; ``texts``: how many pieces of text it has here."""

    id: str
    title: str
    agent: str
    session: str
    project: str
    tool: str
    device: str
    device_name: str
    began_at: str
    ended_at: str
    texts: int


class ConversationsDocument(Struct, frozen=True, kw_only=True):
    """``total``: how many there are with these filters."""

    conversations: list[ConversationDocument]
    total: int


class ValueCount(Struct, frozen=True, kw_only=True):
    """A value to filter by, what it is called, and how many conversations have it."""

    value: str
    name: str
    conversations: int


class DayCount(Struct, frozen=True, kw_only=True):
    """A day on which something was said: in how many conversations, and how many pieces of text."""

    day: str
    conversations: int
    texts: int


class ActivityDocument(Struct, frozen=True, kw_only=True):
    """What conversations can be filtered by, the most frequent first: each list counts those that the other filters let
    through. ``days``: the days with something said, the earliest first, whatever days are asked for."""

    total: int
    projects: list[ValueCount]
    devices: list[ValueCount]
    tools: list[ValueCount]
    agents: list[ValueCount]
    days: list[DayCount]


class MessageDocument(Struct, frozen=True, kw_only=True):
    """A message, whole: a long one is stored in overlapping pieces, which are joined again. ``id``: of its first piece,
    as ``crystal show`` takes it; ``ids``: of all of them; ``model``: the language model that said it, "" if unknown."""

    id: str
    ids: list[str]
    role: str
    text: str
    created_at: str
    provisional: bool
    model: str = ""


class ConversationTextDocument(Struct, frozen=True, kw_only=True):
    """A conversation's messages from ``offset`` on; ``total``: how many messages it has."""

    conversation: ConversationDocument
    messages: list[MessageDocument]
    offset: int
    total: int


class Conversations(Protocol):
    """The port of listing and reading conversations: a ``Finder`` on this device's disk, or the background service's."""

    def conversations(self, request: ConversationsRequest) -> ConversationsDocument:
        """Some of them, the latest first. Raises VaultDataError."""
        ...

    def activity(self, request: ConversationFilter) -> ActivityDocument:
        """What they can be filtered by, and when something was said. Raises VaultDataError."""
        ...

    def conversation(self, request: ConversationRequest) -> ConversationTextDocument:
        """Messages of one. Raises NoSuchEntry, VaultDataError."""
        ...
