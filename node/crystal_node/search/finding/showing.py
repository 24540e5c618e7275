"""A text whole, where it comes from, and what stands around it: pieces of its conversation, or of its document."""

from crystal_core.database import Database
from crystal_core.documents import DocumentPiece, document_pieces
from crystal_core.filters import Filters
from crystal_core.scope import DOCUMENT
from crystal_node.base.lookup import StoredText, find_shown_text
from crystal_node.base.wording import iso
from crystal_node.search.conversation import Transcript, transcript
from crystal_node.search.finding.documents import PieceDocument, ResultKind, ShowDocument, ShowRequest


def shown(database: Database, request: ShowRequest) -> ShowDocument:
    """Raises Usage, NoSuchEntry, and what reading the database raises."""
    with database.snapshot():
        found = find_shown_text(database, request.id)
        place = Filters(database).places([found.chunk]).get(found.chunk)
        if place is not None and place.kind == DOCUMENT:
            return _of_document(database, found, request)
        return _of_conversation(database, found, request)


def _of_conversation(database: Database, found: StoredText, request: ShowRequest) -> ShowDocument:
    """Of a memory, too, which stands alone."""
    said = transcript(database, found.id.hex(), before=request.before, after=request.after)
    asked = next(piece for piece in said.pieces if piece.hit)
    category = _category(database, found)
    return ShowDocument(
        id=asked.id,
        kind=ResultKind.CONVERSATION if said.session or category is None else ResultKind.MEMORY,
        agent=said.agent,
        session=said.session,
        project=said.project,
        repository=said.repository,
        source=said.source,
        path="",
        title="",
        memory=category,
        provisional=asked.provisional,
        pieces=_pieces(said),
    )


def _pieces(said: Transcript) -> list[PieceDocument]:
    return [
        PieceDocument(
            id=piece.id,
            text=piece.text,
            role=piece.role,
            agent=said.agent,
            created_at=iso(piece.created_at) or "",
            asked=piece.hit,
        )
        for piece in said.pieces
    ]


def _of_document(database: Database, found: StoredText, request: ShowRequest) -> ShowDocument:
    created_at, source, path, part, title = database.rows(
        "SELECT created_at, source, path, part, title FROM document_places WHERE chunk = ?"
        " ORDER BY created_at DESC, source, path, part LIMIT 1",
        (found.chunk,),
    )[0]
    first = max(part - request.before, 0)
    pieces = [
        piece
        for piece in document_pieces(
            database, source, path, first=first, limit=part - first + 1 + request.after
        )
        if piece.part <= part + request.after
    ]
    moment = iso(created_at) or ""
    return ShowDocument(
        id=found.id.hex(),
        kind=ResultKind.DOCUMENT,
        agent="",
        session="",
        project="",
        repository="",
        source=source,
        path=path,
        title=title,
        memory=_category(database, found),
        provisional=bool(database.value("SELECT provisional FROM chunks WHERE rowid = ?", (found.chunk,))),
        pieces=[_piece(piece, moment, asked=piece.part == part) for piece in pieces],
    )


def _piece(piece: DocumentPiece, moment: str, *, asked: bool) -> PieceDocument:
    return PieceDocument(
        id=piece.id.hex(), text=piece.text, role="", agent="", created_at=moment, asked=asked
    )


def _category(database: Database, found: StoredText) -> str | None:
    category = database.value("SELECT category FROM memory_states WHERE chunk = ? LIMIT 1", (found.chunk,))
    return None if category is None else str(category)
