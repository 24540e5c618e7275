"""Reading everything that was said, place by place, in the order in which the memory came to have it."""

from collections.abc import Iterator
from dataclasses import dataclass

from crystal_core.database import Database
from crystal_core.schema3 import HIDDEN


@dataclass(frozen=True, slots=True)
class SaidPiece:
    """One place of a text in a conversation. ``created_at`` in milliseconds since 1970, 0 if unknown."""

    text: str
    agent: str
    session: str
    message: str
    part: int
    role: str
    created_at: int
    project: str
    repository: str
    source: str


_COLUMNS = (
    "c.text, p.agent, p.session, p.message, p.part, p.role, p.created_at, p.project, p.repository, p.source"
)


def said_pieces(
    database: Database, *, agent: str | None = None, since_ms: int | None = None
) -> Iterator[SaidPiece]:
    """Replicated places, then this device's pending ones; not what a pending forget hides. Belongs in a snapshot."""
    condition = ""
    bindings: list[object] = []
    if agent is not None:
        condition += " AND p.agent = ?"
        bindings.append(agent)
    if since_ms is not None:
        condition += " AND p.created_at >= ?"
        bindings.append(since_ms)
    for table, only in (("occurrences", ""), ("provisional_places", " AND p.category IS NULL")):
        query = (
            f"SELECT {_COLUMNS} FROM {table} p JOIN chunks c ON c.rowid = p.chunk"  # noqa: S608 - constants of ours
            f" WHERE c.forget_hash NOT IN ({HIDDEN}){only}{condition} ORDER BY p.rowid"
        )
        for row in database.each(query, bindings):
            yield SaidPiece(*row)
