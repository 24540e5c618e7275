"""The state digest over the replicated tables: canonical rows, running sums, and recomputation.

A row's canonical bytes are its fields in a fixed order, each preceded by its length (4 bytes, big-endian); numbers are
8 bytes, big-endian. They name chunks by content, never by rowid, so equal states have equal digests regardless of the order
of rows in the file.

The running sums are in `digests` and commit with the rows. Each transaction reads them again, because another process may
have changed them.
"""

import json
import struct
from collections.abc import Iterator, Sequence

from crystal_core.database import Database
from crystal_core.state.vectors import float16_vectors
from crystal_crypto.digest import TableDigest
from crystal_mirror.operations import CONFIDENCE_MAX
from crystal_mirror.types import HASH_BYTES, Origin, StateDigest, TableSum

CHUNKS = "chunks"
OCCURRENCES = "occurrences"
MEMORIES = "memories"
SUPPRESSED = "suppressed"
ACKS = "acks"
FILES = "files"
CONDEMNED = "condemned"
MEMORY_CHANGES = "memory_changes"
SOURCES = "sources"
DOCUMENTS = "documents"
DOCUMENT_PARTS = "document_parts"
PROJECT_LINKS = "project_links"

TABLES = (
    ACKS,
    CHUNKS,
    CONDEMNED,
    DOCUMENT_PARTS,
    DOCUMENTS,
    FILES,
    MEMORIES,
    MEMORY_CHANGES,
    OCCURRENCES,
    PROJECT_LINKS,
    SOURCES,
    SUPPRESSED,
)

_NUMBER_BYTES = 8
_LENGTH = struct.Struct(">I")
_NUMBER = struct.Struct(">IQ")
"""A number preceded by its length."""
_CONTIGUOUS = b"contiguous"
_SPARSE = b"sparse"


def fields(*values: bytes | str | int) -> bytes:
    """Return fields as canonical bytes. Concatenations are canonical too."""
    parts: list[bytes] = []
    for value in values:
        if type(value) is bytes:
            data = value
        elif type(value) is str:
            data = value.encode()
        else:
            data = int(value).to_bytes(_NUMBER_BYTES, "big")
        parts.append(_LENGTH.pack(len(data)))  # §11.6-2
        parts.append(data)
    return b"".join(parts)


def chunk_row(content: bytes, windows: Sequence[bytes]) -> bytes:
    """Canonical bytes of a chunk. `windows`: float16 bytes of its vectors, in order."""
    return fields(content, *windows)


def place(agent: str, session: str, project: str, repository: str, source: str, device: bytes) -> bytes:
    """Canonical bytes of the fields that all pieces of one capture share."""
    return fields(agent, session, project, repository, source, device)


def occurrence_row(
    shared: bytes, content: bytes, message: str, part: int, role: str, created_at: int, model: str = ""
) -> bytes:
    named = (model,) if model else ()  # §11.6-2
    return shared + fields(content, message, part, role, created_at, *named)


def chunk_rows(contents: Sequence[bytes], windows: Sequence[int], vectors: bytes) -> Iterator[bytes]:
    """`chunk_row` of many chunks whose vectors are in one block."""
    size = len(vectors) // (sum(windows) or 1)
    before, length = _LENGTH.pack(HASH_BYTES), _LENGTH.pack(size)
    at = 0
    for content, count in zip(contents, windows, strict=True):
        if count == 1:
            yield b"".join((before, content, length, vectors[at : at + size]))
        else:
            end = at + count * size
            yield chunk_row(content, [vectors[i : i + size] for i in range(at, end, size or 1)])
        at += count * size


def occurrence_rows(
    shared: Sequence[bytes],
    contents: Sequence[bytes],
    messages: Sequence[str],
    parts: Sequence[int],
    roles: Sequence[str],
    moments: Sequence[int],
    models: Sequence[str],
) -> Iterator[bytes]:
    """`occurrence_row` of many occurrences, given as columns."""
    before, pack_length, pack_number = _LENGTH.pack(HASH_BYTES), _LENGTH.pack, _NUMBER.pack
    role_fields = {role: fields(role) for role in set(roles)}
    model_fields = {model: fields(model) if model else b"" for model in set(models)}
    for place_fields, content, message, part, role, moment, model in zip(
        shared, contents, messages, parts, roles, moments, models, strict=True
    ):
        encoded = message.encode()
        yield b"".join(
            (
                place_fields,
                before,
                content,
                pack_length(len(encoded)),
                encoded,
                pack_number(_NUMBER_BYTES, part),
                role_fields[role],
                pack_number(_NUMBER_BYTES, moment),
                model_fields[model],
            )
        )


def memory_row(
    content: bytes,
    category: str,
    agent: str,
    created_at: int,
    device: bytes,
    confidence: int = CONFIDENCE_MAX,
    status: str = "active",
    superseded_by: bytes = b"",
    changed_at: int | None = None,
    scope: str = "",
) -> bytes:
    """Canonical bytes of a memory. The last five fields are omitted while it is for everywhere and unchanged since it was
    remembered, else the scope alone if it is empty."""
    row = fields(content, category, agent, created_at, device)
    later = (confidence, status, superseded_by, created_at if changed_at is None else changed_at)
    if not scope and later == (CONFIDENCE_MAX, "active", b"", created_at):  # §11.6-2
        return row
    return row + fields(*later, *_scope(scope))


def memory_change_row(
    content: bytes,
    number: int,
    kind: str,
    category: str,
    confidence: int,
    status: str,
    superseded_by: bytes,
    agent: str,
    at: int,
    device: bytes,
    scope: str = "",
) -> bytes:
    """Canonical bytes of a memory before a change. The scope is omitted if it is empty."""
    row = fields(content, number, kind, category, confidence, status, superseded_by, agent, at, device)
    return row + fields(*_scope(scope))  # §11.6-2


def _scope(scope: str) -> tuple[str, ...]:
    return (scope,) if scope else ()


def source_row(
    name: str, device: bytes, root: str, include: Sequence[str], exclude: Sequence[str], at: int
) -> bytes:
    return fields(name, device, root, fields(*include), fields(*exclude), at)


def document_row(
    source: str, path: str, version: bytes, kind: str, modified_at: int, total: int, came: int
) -> bytes:
    return fields(source, path, version, kind, modified_at, total, came)


def document_part_row(source: str, path: str, part: int, content: bytes, title: str) -> bytes:
    return fields(source, path, part, content, title)


def project_link_row(
    folder: str, repository: str, other_folder: str, other_repository: str, device: bytes, at: int
) -> bytes:
    return fields(folder, repository, other_folder, other_repository, device, at)


def suppressed_row(forget_hash: bytes) -> bytes:
    return fields(forget_hash)


def ack_row(device: bytes, incarnation: bytes, sequence: int, *, sparse: bool) -> bytes:
    return fields(_SPARSE if sparse else _CONTIGUOUS, device, incarnation, sequence)


def file_row(
    path: str, version: Origin, executable: bool, modified_at: int, gone: bool, parts: bytes
) -> bytes:
    """Canonical bytes of a file. `parts` are packed, see `state.files`."""
    return fields(path, *version, executable, modified_at, gone, parts)


def condemned_row(name: bytes) -> bytes:
    return fields(name)


class Digests:
    """The running sums within one transaction."""

    def __init__(self, database: Database, state_key: bytes) -> None:
        self._database = database
        kept = {
            name: (total, count)
            for name, total, count in database.rows("SELECT name, sum, count FROM digests")
        }
        self.tables: dict[str, TableDigest] = {}
        for name in TABLES:
            total, count = kept.get(name, (b"", 0))
            self.tables[name] = TableDigest(state_key, name, int.from_bytes(total, "big"), count)
        self._saved = self.sums()

    def __getitem__(self, name: str) -> TableDigest:
        return self.tables[name]

    def sums(self) -> tuple[TableSum, ...]:
        return tuple(TableSum(name, table.sum_bytes, table.count) for name, table in self.tables.items())

    def clear(self) -> None:
        """Reset to the digest of no rows."""
        for table in self.tables.values():
            table.sum = table.count = 0

    def save(self) -> None:
        """Write changed sums. Call right before the commit."""
        sums = self.sums()
        self._database.run_many(
            "INSERT INTO digests (name, sum, count) VALUES (?, ?, ?)"
            " ON CONFLICT (name) DO UPDATE SET sum = excluded.sum, count = excluded.count",
            [
                (now.name, now.sum, now.count)
                for now, before in zip(sums, self._saved, strict=True)
                if now != before
            ],
        )
        self._saved = sums


def current(database: Database, state_key: bytes) -> StateDigest:
    """Return the digest as last committed."""
    return StateDigest.of(Digests(database, state_key).sums())


def recomputed(database: Database, state_key: bytes) -> StateDigest:
    """Recompute the digest from the rows. Reads everything; about 20 µs per row."""
    tables: list[TableSum] = []
    for name, rows in (
        (CHUNKS, _chunk_rows(database)),
        (OCCURRENCES, _occurrence_rows(database)),
        (MEMORIES, _memory_rows(database)),
        (SUPPRESSED, _suppressed_rows(database)),
        (ACKS, _ack_rows(database)),
        (FILES, _file_rows(database)),
        (CONDEMNED, _condemned_rows(database)),
        (MEMORY_CHANGES, _memory_change_rows(database)),
        (SOURCES, _source_rows(database)),
        (DOCUMENTS, _document_rows(database)),
        (DOCUMENT_PARTS, _document_part_rows(database)),
        (PROJECT_LINKS, _project_link_rows(database)),
    ):
        digest = TableDigest(state_key, name)
        for row in rows:
            digest.add(row)
        tables.append(TableSum(name, digest.sum_bytes, digest.count))
    return StateDigest.of(tables)


def _chunk_rows(database: Database) -> Iterator[bytes]:
    for rowid, content in database.each("SELECT rowid, id FROM chunks WHERE provisional = 0"):
        yield chunk_row(content, float16_vectors(database, rowid))


def _occurrence_rows(database: Database) -> Iterator[bytes]:
    for content, *shared, message, part, role, created_at, model in database.each(
        "SELECT c.id, o.agent, o.session, o.project, o.repository, o.source, o.device,"
        " o.message, o.part, o.role, o.created_at, o.model"
        " FROM occurrences o JOIN chunks c ON c.rowid = o.chunk"
    ):
        yield occurrence_row(place(*shared), content, message, part, role, created_at, model)


def _memory_rows(database: Database) -> Iterator[bytes]:
    for row in database.each(
        "SELECT c.id, m.category, m.agent, m.created_at, m.device, m.confidence, m.status, m.superseded_by, m.changed_at,"
        " m.scope FROM memories m JOIN chunks c ON c.rowid = m.chunk"
    ):
        yield memory_row(*row)


def _memory_change_rows(database: Database) -> Iterator[bytes]:
    for row in database.each(
        "SELECT c.id, m.number, m.kind, m.category, m.confidence, m.status, m.superseded_by, m.agent, m.at, m.device,"
        " m.scope FROM memory_changes m JOIN chunks c ON c.rowid = m.chunk"
    ):
        yield memory_change_row(*row)


def _source_rows(database: Database) -> Iterator[bytes]:
    for name, device, root, include, exclude, at in database.each(
        "SELECT name, device, root, include, exclude, at FROM sources"
    ):
        yield source_row(name, device, root, json.loads(include), json.loads(exclude), at)


def _document_rows(database: Database) -> Iterator[bytes]:
    for row in database.each("SELECT source, path, version, kind, modified_at, total, came FROM documents"):
        yield document_row(*row)


def _document_part_rows(database: Database) -> Iterator[bytes]:
    for row in database.each(
        "SELECT d.source, d.path, p.part, c.id, p.title FROM document_parts p"
        " JOIN documents d ON d.rowid = p.document JOIN chunks c ON c.rowid = p.chunk"
    ):
        yield document_part_row(*row)


def _project_link_rows(database: Database) -> Iterator[bytes]:
    for row in database.each(
        "SELECT folder, repository, other_folder, other_repository, device, at FROM project_links"
    ):
        yield project_link_row(*row)


def _suppressed_rows(database: Database) -> Iterator[bytes]:
    for (forget_hash,) in database.each("SELECT forget_hash FROM suppressed"):
        yield suppressed_row(forget_hash)


def _ack_rows(database: Database) -> Iterator[bytes]:
    for device, incarnation, sequence in database.each("SELECT device, incarnation, sequence FROM acks"):
        yield ack_row(device, incarnation, sequence, sparse=False)
    for device, incarnation, sequence in database.each(
        "SELECT device, incarnation, sequence FROM acks_sparse"
    ):
        yield ack_row(device, incarnation, sequence, sparse=True)


def _file_rows(database: Database) -> Iterator[bytes]:
    for path, device, incarnation, sequence, executable, modified_at, gone, parts in database.each(
        "SELECT path, device, incarnation, sequence, executable, modified_at, gone, parts FROM files"
    ):
        version = Origin(device, incarnation, sequence)
        yield file_row(path, version, executable, modified_at, gone, parts)


def _condemned_rows(database: Database) -> Iterator[bytes]:
    for (name,) in database.each("SELECT name FROM condemned"):
        yield condemned_row(name)
