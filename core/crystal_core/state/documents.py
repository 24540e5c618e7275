"""Effect of operations on sources and their documents, the same on every device.

    PutSource      sets the source, owned by the device that put it; its documents stay
    DropSource     removes the source and its documents
    PutDocument    no effect if another device owns the source or the operation does not follow (below);
                   else sets each piece at its place, except those whose text is suppressed
    DropDocument   no effect if another device owns the source; else removes the document

An operation with piece 0 (or of a document without pieces) begins a version, replacing any other. One with later pieces
follows if the document has the same version and total and all pieces before its first have arrived. The last piece removes
all places beyond it. So a document consists of the beginning of the newest version and, until that is complete, the rest of
the previous one.

A chunk is removed with the last place that refers to it, without being suppressed.
"""

import json
from typing import NamedTuple

from crystal_core.database import Database
from crystal_core.schema import WHOLE
from crystal_core.state.chunks import ChunkRows
from crystal_core.state.digests import (
    DOCUMENT_PARTS,
    DOCUMENTS,
    SOURCES,
    Digests,
    document_part_row,
    document_row,
    source_row,
)
from crystal_mirror.operations import DropDocument, DropSource, PutDocument, PutSource
from crystal_mirror.ports import Vectors
from crystal_mirror.types import Origin


class _Document(NamedTuple):
    """A row of `documents`."""

    rowid: int
    source: str
    path: str
    version: bytes
    kind: str
    modified_at: int
    total: int
    came: int


_COLUMNS = "rowid, source, path, version, kind, modified_at, total, came"


def put_source(database: Database, digests: Digests, origin: Origin, operation: PutSource) -> None:
    _remove_source_row(database, digests, operation.name)  # §11.4-6
    include, exclude = operation.include, operation.exclude
    database.run(
        "INSERT INTO sources (name, device, root, include, exclude, at) VALUES (?, ?, ?, ?, ?, ?)",
        (
            operation.name,
            origin.device,
            operation.root,
            json.dumps(include),
            json.dumps(exclude),
            operation.at,
        ),
    )
    digests[SOURCES].add(
        source_row(operation.name, origin.device, operation.root, include, exclude, operation.at)
    )


def drop_source(database: Database, digests: Digests, chunks: ChunkRows, operation: DropSource) -> None:
    _remove_source_row(database, digests, operation.name)  # §11.4-6
    for row in database.rows(
        f"SELECT {_COLUMNS} FROM documents WHERE source = ?",  # noqa: S608 - constants of ours
        (operation.name,),
    ):
        _remove(database, digests, chunks, _Document(*row))


def put_document(
    database: Database,
    digests: Digests,
    chunks: ChunkRows,
    origin: Origin,
    operation: PutDocument,
    vectors: Vectors,
) -> None:
    if not _belongs_to(database, operation.source, origin.device):  # §11.4-7
        return
    document = _find(database, operation.source, operation.path)
    end = operation.first + len(operation.texts)
    came = end
    if operation.first:
        if document is None or operation.first > document.came:  # §11.4-8
            return
        if (operation.version, operation.total) != (document.version, document.total):  # §11.4-8
            return
        came = max(end, document.came)  # §11.4-8
    document = _write(database, digests, document, operation, came)
    beyond = WHOLE if end == operation.total else end  # §11.4-9
    old = _take_out(database, digests, document, "part >= ? AND part < ?", (operation.first, beyond))
    part_digest = digests[DOCUMENT_PARTS]
    for part, (text, title) in enumerate(
        zip(operation.texts, operation.titles, strict=True), start=operation.first
    ):
        taken = chunks.take(text, vectors)  # §11.4-9
        if taken is None:
            continue
        content, chunk = taken
        database.run(
            "INSERT INTO document_parts (document, part, chunk, title) VALUES (?, ?, ?, ?)",
            (document.rowid, part, chunk, title),
        )
        part_digest.add(document_part_row(document.source, document.path, part, content, title))
    chunks.release(old)


def drop_document(
    database: Database, digests: Digests, chunks: ChunkRows, origin: Origin, operation: DropDocument
) -> None:
    document = _find(database, operation.source, operation.path)
    if document is not None and _belongs_to(database, operation.source, origin.device):  # §11.4-7
        _remove(database, digests, chunks, document)


def remove_from(database: Database, digests: Digests, chunk: int, content: bytes) -> None:
    """Remove the chunk from every place in documents."""
    for source, path, part, title in database.rows(
        "SELECT d.source, d.path, p.part, p.title FROM document_parts p JOIN documents d ON d.rowid = p.document"
        " WHERE p.chunk = ?",
        (chunk,),
    ):
        digests[DOCUMENT_PARTS].remove(document_part_row(source, path, part, content, title))
    database.run("DELETE FROM document_parts WHERE chunk = ?", (chunk,))


def move(database: Database, digests: Digests, old: tuple[int, bytes], new: tuple[int, bytes]) -> None:
    """Replace a chunk by another one everywhere in documents. Both: rowid and content hash."""
    digest = digests[DOCUMENT_PARTS]
    for source, path, part, title in database.rows(
        "SELECT d.source, d.path, p.part, p.title FROM document_parts p JOIN documents d ON d.rowid = p.document"
        " WHERE p.chunk = ?",
        (old[0],),
    ):
        digest.remove(document_part_row(source, path, part, old[1], title))
        digest.add(document_part_row(source, path, part, new[1], title))
    database.run("UPDATE document_parts SET chunk = ? WHERE chunk = ?", (new[0], old[0]))


def _remove(database: Database, digests: Digests, chunks: ChunkRows, document: _Document) -> None:
    old = _take_out(database, digests, document, "true", ())
    digests[DOCUMENTS].remove(document_row(*document[1:]))
    database.run("DELETE FROM documents WHERE rowid = ?", (document.rowid,))
    chunks.release(old)
    chunks.deleted = True


def _remove_source_row(database: Database, digests: Digests, name: str) -> None:
    for known, device, root, include, exclude, at in database.rows(
        "DELETE FROM sources WHERE name = ? RETURNING name, device, root, include, exclude, at", (name,)
    ):
        digests[SOURCES].remove(source_row(known, device, root, json.loads(include), json.loads(exclude), at))


def _write(
    database: Database, digests: Digests, before: _Document | None, operation: PutDocument, came: int
) -> _Document:
    values = (operation.version, operation.kind, operation.modified_at, operation.total, came)
    if before is None:
        rowid = database.rows(
            "INSERT INTO documents (source, path, version, kind, modified_at, total, came) VALUES (?, ?, ?, ?, ?, ?, ?)"
            " RETURNING rowid",
            (operation.source, operation.path, *values),
        )[0][0]
    else:
        rowid = before.rowid
        digests[DOCUMENTS].remove(document_row(*before[1:]))
        database.run(
            "UPDATE documents SET version = ?, kind = ?, modified_at = ?, total = ?, came = ? WHERE rowid = ?",
            (*values, rowid),
        )
    document = _Document(rowid, operation.source, operation.path, *values)
    digests[DOCUMENTS].add(document_row(*document[1:]))
    return document


def _take_out(
    database: Database, digests: Digests, document: _Document, condition: str, bindings: tuple[int, ...]
) -> list[int]:
    """Remove places of a document and return the chunks that were there, each once."""
    where = f"document = ? AND {condition}"
    rows = database.rows(
        "SELECT p.part, c.id, p.title, p.chunk FROM document_parts p JOIN chunks c ON c.rowid = p.chunk"  # noqa: S608 - ours
        f" WHERE {where} ORDER BY p.part",
        (document.rowid, *bindings),
    )
    for part, content, title, _ in rows:
        digests[DOCUMENT_PARTS].remove(
            document_part_row(document.source, document.path, part, content, title)
        )
    database.run(f"DELETE FROM document_parts WHERE {where}", (document.rowid, *bindings))  # noqa: S608 - the same
    return list(dict.fromkeys(row[3] for row in rows))


def _belongs_to(database: Database, source: str, device: bytes) -> bool:
    return bool(database.rows("SELECT 1 FROM sources WHERE name = ? AND device = ?", (source, device)))


def _find(database: Database, source: str, path: str) -> _Document | None:
    row = database.row(
        f"SELECT {_COLUMNS} FROM documents WHERE source = ? AND path = ?",  # noqa: S608 - constants of ours
        (source, path),
    )
    return None if row is None else _Document(*row)
