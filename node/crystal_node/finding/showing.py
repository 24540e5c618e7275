"""A text whole, where it comes from, and what stands around it: a conversation's pieces."""

from crystal_core.database import Database
from crystal_node.finding.documents import Kind, PieceDocument, ShowDocument, ShowRequest
from crystal_node.transcript import Transcript, transcript
from crystal_node.wording import iso


def shown(database: Database, request: ShowRequest) -> ShowDocument:
    """Raises Usage, NoSuchEntry, and what reading the database raises."""
    found = transcript(database, request.id, before=request.before, after=request.after)
    asked = next(piece for piece in found.pieces if piece.hit)
    category = _category(database, asked.id)
    return ShowDocument(
        id=asked.id,
        kind=Kind.CONVERSATION if found.session or category is None else Kind.MEMORY,
        agent=found.agent,
        session=found.session,
        project=found.project,
        repository=found.repository,
        source=found.source,
        path="",
        title="",
        memory=category,
        provisional=asked.provisional,
        pieces=_pieces(found),
    )


def _pieces(found: Transcript) -> list[PieceDocument]:
    return [
        PieceDocument(
            id=piece.id,
            text=piece.text,
            role=piece.role,
            agent=found.agent,
            created_at=iso(piece.created_at) or "",
            asked=piece.hit,
        )
        for piece in found.pieces
    ]


def _category(database: Database, content: str) -> str | None:
    found = database.value(
        "SELECT coalesce(m.category, (SELECT category FROM provisional_places"
        " WHERE chunk = c.rowid AND category IS NOT NULL ORDER BY number DESC LIMIT 1))"
        " FROM chunks c LEFT JOIN memories m ON m.chunk = c.rowid WHERE c.id = ?",
        (bytes.fromhex(content),),
    )
    return None if found is None else str(found)
