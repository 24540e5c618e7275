"""What of a memory a search may look at."""

from dataclasses import dataclass

CONVERSATION = "conversation"
MEMORY = "memory"
DOCUMENT = "document"
ANY = "any"
STATUSES = ("active", "retired", "superseded", ANY)
KINDS = (CONVERSATION, MEMORY, DOCUMENT)


@dataclass(frozen=True, slots=True)
class Scope:
    """Filters; None lets everything through. A chunk is admitted if one of its places meets all of them.

    ``kind`` is one of ``KINDS``. ``project`` is a project's path or its repository, or the end of one from a slash on.
    ``source`` is where a text came from: the tool that a conversation was held with, or the name of a source of documents.
    ``since_ms`` and ``until_ms`` are in milliseconds since 1970, both included; what has no date meets neither.
    ``category`` and ``status`` are a memory's: of another status than active it is found only if that is asked for, or ``ANY``.
    """

    agent: str | None = None
    project: str | None = None
    session: str | None = None
    role: str | None = None
    kind: str | None = None
    source: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    category: str | None = None
    status: str | None = None


EVERYWHERE = Scope()
