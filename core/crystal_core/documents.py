"""Queries over sources and documents; this device's pending operations count."""

import json
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from crystal_core.database import Database
from crystal_core.schema import WHOLE


class Source(Struct, frozen=True):
    """A collection of documents. ``device``: its owner; ``pending``: known to this device only, so far."""

    name: str
    device: bytes
    root: str
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    at: int
    pending: bool


class Document(Struct, frozen=True):
    """A document: ``came`` of ``total`` pieces of this ``version`` (a SHA-256) have arrived."""

    source: str
    path: str
    version: bytes
    kind: str
    modified_at: int
    total: int
    came: int
    pending: bool

    @property
    def complete(self) -> bool:
        return self.came == self.total


class DocumentPiece(Struct, frozen=True):
    """The text at one place of a document. A place whose text was forgotten is left out."""

    chunk: int
    id: bytes
    part: int
    title: str
    text: str


def sources(database: Database) -> list[Source]:
    """Return all sources, by name."""
    found = {
        name: Source(name, device, root, tuple(json.loads(include)), tuple(json.loads(exclude)), at, False)
        for name, device, root, include, exclude, at in database.rows(
            "SELECT name, device, root, include, exclude, at FROM sources"
        )
    }
    for name, gone, device, root, include, exclude, at in database.rows(
        "SELECT s.name, s.gone, p.device, s.root, s.include, s.exclude, s.at"
        " FROM provisional_sources s JOIN provisional p ON p.number = s.number ORDER BY s.number"
    ):
        if gone:
            found.pop(name, None)
        else:
            found[name] = Source(
                name, device, root, tuple(json.loads(include)), tuple(json.loads(exclude)), at, True
            )
    return [found[name] for name in sorted(found)]


def documents(database: Database, source: str) -> list[Document]:
    """Return all documents of a source, by path."""
    found = {
        path: Document(name, path, version, kind, modified_at, total, came, False)
        for name, path, version, kind, modified_at, total, came in database.rows(
            "SELECT source, path, version, kind, modified_at, total, came FROM documents WHERE source = ?",
            (source,),
        )
    }
    for path, gone, version, kind, modified_at, total, first, beyond in database.rows(
        "SELECT path, gone, version, kind, modified_at, total, first, beyond FROM provisional_documents"
        " WHERE source = ? ORDER BY number",
        (source,),
    ):
        came = total if beyond == WHOLE else beyond
        before = found.get(path)
        if gone and not path:
            found.clear()
        elif gone:
            found.pop(path, None)
        elif first == 0:
            found[path] = Document(source, path, version, kind, modified_at, total, came, True)
        elif before is not None and before.version == version and first <= before.came:
            found[path] = replace(before, came=max(came, before.came), pending=True)
    return [found[path] for path in sorted(found)]


def document(database: Database, source: str, path: str) -> Document | None:
    """Return one document. Use `documents` for many."""
    return next((each for each in documents(database, source) if each.path == path), None)


def document_pieces(
    database: Database, source: str, path: str, *, first: int = 0, limit: int = 256
) -> list[DocumentPiece]:
    """Return the document's pieces from that place on, in order."""
    rows = database.rows(
        "SELECT p.chunk, c.id, p.part, p.title, c.text FROM document_places p JOIN chunks c ON c.rowid = p.chunk"
        " WHERE p.source = ? AND p.path = ? AND p.part >= ? ORDER BY p.part LIMIT ?",
        (source, path, first, limit),
    )
    return [DocumentPiece(*row) for row in rows]


def titles(database: Database, source: str) -> list[tuple[str, str]]:
    """Return the titles of the source's passages, each with its document's path."""
    rows = database.rows(
        "SELECT DISTINCT path, title FROM document_places WHERE source = ? AND title <> ''", (source,)
    )
    return [(path, title) for path, title in rows]


def documents_of(database: Database, chunks: Sequence[int]) -> list[tuple[str, str]]:
    """Return source and path of the documents that contain any of these chunks."""
    rows = database.rows(
        "SELECT DISTINCT source, path FROM document_places WHERE chunk IN (SELECT value FROM json_each(?))"
        " ORDER BY source, path",
        (json.dumps(list(chunks)),),
    )
    return [(source, path) for source, path in rows]


def count_pieces(database: Database, source: str) -> int:
    """Count the places of the source's documents that hold a text."""
    return int(database.value("SELECT count(*) FROM document_places WHERE source = ?", (source,)))
