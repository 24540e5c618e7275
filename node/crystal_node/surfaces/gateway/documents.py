"""Requests and answers of the gateway, beside the documents of ``search``. Moments are ISO 8601 in UTC.

Requests come from other programs: they are parsed strictly, within limits. Answers only ever gain fields.
"""

from enum import StrEnum
from typing import Annotated, Literal

from msgspec import Meta, Struct

from crystal_node.derive.weaving.request import WeaveMode
from crystal_node.search.conversation_documents import MESSAGES_MAX, OFFSET_MAX
from crystal_node.search.finding.documents import CONTEXT_MAX, FOLDER_CHARS_MAX, StatusFilter
from crystal_node.search.memories.documents import MEMORIES_MAX, Id, NewMemory, ProjectName

Code = Annotated[str, Meta(max_length=128)]
AgentName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$(?!\n)",
        title="an agent's id: 1 to 64 letters, digits, dots, dashes and underscores, a letter or digit first",
    ),
]


class ErrorDocument(Struct, frozen=True, kw_only=True):
    """An error, what to do about it, and a code for programs."""

    error: str
    hint: str = ""
    code: str = ""


class SessionRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The code of a link to the page; "" where the request bears the gateway's token."""

    code: Code = ""


class SessionDocument(Struct, frozen=True, kw_only=True):
    """The page's token from now on."""

    token: str


class DoneDocument(Struct, frozen=True, kw_only=True):
    """It was done."""

    done: bool = True


class ShowQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many messages around the one that is shown; or its whole turn. ``folder``: where one is working."""

    before: Annotated[int, Meta(ge=0, le=CONTEXT_MAX)] = 0
    after: Annotated[int, Meta(ge=0, le=CONTEXT_MAX)] = 0
    turn: bool = False
    folder: Annotated[str, Meta(max_length=FOLDER_CHARS_MAX)] = ""


class ConversationQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which of a conversation's messages."""

    limit: Annotated[int, Meta(ge=1, le=MESSAGES_MAX)] = 100
    offset: Annotated[int, Meta(ge=0, le=OFFSET_MAX)] = 0


class JobDocument(Struct, frozen=True, kw_only=True):
    """A job of the background service. The same fields as `crystal jobs list --json`."""

    name: str
    what: str
    every_seconds: float
    heavy: bool
    paused: bool
    running_since: str | None
    last_ended: str | None
    last_worked: str | None
    outcome: str
    failing: bool
    failures: int
    said: str | None
    next: str | None
    put_off: str | None
    waiting: bool
    """Asked for, and not begun yet."""


class JobsDocument(Struct, frozen=True, kw_only=True):
    """``running``: whether the background service runs, without which no job does."""

    running: bool
    jobs: list[JobDocument]


class MemoriesQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which memories."""

    category: Literal["", "fact", "preference", "event", "opinion", "skill"] = ""
    status: StatusFilter = StatusFilter.ACTIVE
    scope: Literal["", "project", "everywhere"] = ""
    project: ProjectName = ""
    limit: Annotated[int, Meta(ge=1, le=MEMORIES_MAX)] = 50
    offset: Annotated[int, Meta(ge=0, le=1_000_000)] = 0


class MemoryRequest(NewMemory, frozen=True, kw_only=True):
    """A memory to keep. ``keep_both``: nothing alike is looked for. ``folder``: where on this machine, "" for nowhere."""

    keep_both: bool = False
    folder: Annotated[str, Meta(max_length=FOLDER_CHARS_MAX)] = ""


class ForgetRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Texts to remove everywhere, by their ids or the first 8 digits of them, or more."""

    ids: Annotated[list[Id], Meta(min_length=1, max_length=100)]


class ForgottenDocument(Struct, frozen=True, kw_only=True):
    """``files`` hold a text and are the person's to change; ``files_made_anew`` are generated again without it."""

    forgotten: list[str]
    files: list[str]
    files_made_anew: list[str]


class ProcessAction(StrEnum):
    """The actions of `/process`."""

    DREAM_WEAVE = "dream-weave"
    BACKFILL = "backfill"


class ProcessRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Work on an agent's conversations. ``agentId`` is another spelling of ``agent_id``."""

    agent_id: AgentName | None = None
    agentId: AgentName | None = None  # noqa: N815  as it is published
    action: ProcessAction = ProcessAction.DREAM_WEAVE
    mode: WeaveMode = WeaveMode.INCREMENTAL


class ProcessDocument(Struct, frozen=True, kw_only=True):
    """The work has begun; GET /status tells how it ends."""

    status: str
    action: ProcessAction
    agent_id: str
    message: str


class ProcessStatus(Struct, frozen=True, kw_only=True):
    """``exit_code`` None: it is still running. ``text``: why it failed."""

    action: ProcessAction
    agent_id: str
    began: str
    ended: str | None
    exit_code: int | None
    text: str


class PublishedStatus(Struct, frozen=True, kw_only=True):
    """The gateway's status, in the prototype's form."""

    status: str
    role: str
    agentId: str  # noqa: N815  as it is published
    hasDatabase: bool  # noqa: N815
    lastDreamWeaver: str | None  # noqa: N815
    uptime: float
    version: str
    processes: list[ProcessStatus]
