"""What of a memory a search may look at."""

from dataclasses import dataclass

KINDS = ("conversation", "memory", "document")


@dataclass(frozen=True, slots=True)
class Scope:
    """Filters; None lets everything through. A chunk is admitted if one of its places meets all of them.

    ``kind`` is one of ``KINDS``; ``source`` the name of a source of documents; ``since_ms`` and ``until_ms`` in milliseconds
    since 1970, both included.
    """

    agent: str | None = None
    project: str | None = None
    session: str | None = None
    role: str | None = None
    kind: str | None = None
    source: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None


EVERYWHERE = Scope()
