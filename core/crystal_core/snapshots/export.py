"""Export of the replicated state at one moment, as parts of a snapshot.

Parts are content-defined: once a part has `PART_BYTES_MIN` it is cut after a chunk whose keyed content hash ends with
`CUT_BITS` zero bits, and in any case before it could get too large. Parts therefore hold the same rows in the next snapshot,
except where rows were added, removed or changed. New rows come last:

    chunks with their vectors and memories, in order; each followed by the occurrences up to it, in order
    memory_changes    documents    their places    sources    project_links    suppressed    files    condemned    acks
                      each in parts of its own

A read transaction on a separate connection holds the moment: writers continue, and the WAL grows until it ends. A database in
memory is copied instead.
"""

import json
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import NamedTuple, TypeVar

from crystal_core.database import Database, Row
from crystal_core.projects import LINK_COLUMNS
from crystal_core.snapshots.parts import encode_part
from crystal_core.snapshots.rows import (
    DocumentPartRow,
    DocumentRow,
    FileVersionRow,
    LinkRow,
    MemoryChangeRow,
    MemoryRow,
    PartRows,
    PlaceRow,
    SourceRow,
)
from crystal_core.sqlite_file import MEMORY
from crystal_core.state import digests, mirror_log
from crystal_core.state.vectors import FLOAT16_BYTES, dimensions, float16_vectors_between
from crystal_mirror.operations import Status
from crystal_mirror.ports import SNAPSHOT_PART_BYTES_MAX
from crystal_mirror.types import Position, StateDigest

PART_BYTES_MIN = 1024 * 1024
"""Estimated size of a part from which on the hash may end it."""
CUT_BITS = 9
"""One chunk in 512 ends a part."""

_CHUNK_BYTES = 64
_OCCURRENCE_BYTES = 48
_KNOWN_BYTES = 40
_PLACE_BYTES = 80
_MEMORY_BYTES = 160
_NAME_BYTES = 8
_ROW_BYTES = 80
"""Maximum size of a row besides its texts and names."""
_HEAD_BYTES = 512
_READ_AHEAD = 256
"""Chunks read at once."""
_CUT_MASK = (1 << CUT_BITS) - 1

T = TypeVar("T")


class StateExport:
    """The replicated state at one moment. Created by `exported`; not usable after it."""

    def __init__(self, database: Database, state_key: bytes) -> None:
        self._database = database
        self._state_key = state_key

    def position(self) -> Position:
        return mirror_log.position(self._database)

    def digest(self) -> StateDigest:
        return digests.current(self._database, self._state_key)

    def model(self) -> bytes | None:
        """Return the model that made the vectors; None if there are none."""
        return mirror_log.meta_get(self._database, mirror_log.MODEL) if dimensions(self._database) else None

    def parts(self) -> Iterator[bytes]:
        for rows in self._rows():
            yield encode_part(rows)

    def _rows(self) -> Iterator[PartRows]:
        yield from _chunk_parts(self._database)  # §13.3-2
        yield from _naming_parts(self._database)
        yield from _link_parts(self._database)
        yield from _plain_parts(self._database)


@contextmanager
def exported(database: Database, state_key: bytes) -> Generator[StateExport]:
    """Hold the committed state for reading."""
    in_memory = database.path == MEMORY
    reader = Database.from_bytes(database.to_bytes()) if in_memory else Database.open(database.path)
    try:
        with reader.snapshot():
            reader.value("SELECT one FROM index_state")  # a read transaction begins with its first read
            yield StateExport(reader, state_key)
    finally:
        reader.close()


class _Chunk(NamedTuple):
    rowid: int
    forget_hash: bytes
    text: bytes
    document: int | None
    category: str | None
    agent: str
    created_at: int
    device: bytes
    confidence: int
    status: Status
    superseded_by: bytes
    changed_at: int
    scope: str


class _Cutter:
    """Collects the rows of chunks and occurrences into parts within the size limit."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._vector_bytes = dimensions(database) * FLOAT16_BYTES
        self._clear()

    def _clear(self) -> None:
        self._rows = PartRows()
        self._weight = _HEAD_BYTES
        self._vectors: list[bytes] = []
        self._chunks: dict[int, int] = {}
        self._known: dict[int, int] = {}
        self._places: dict[PlaceRow, int] = {}
        self._names: set[str] = set()
        self._may_end = False

    def room_for(self, chunk: _Chunk, windows: Sequence[bytes]) -> bool:
        """Whether this chunk belongs to the same part."""
        if self._may_end and self._weight >= PART_BYTES_MIN:  # §13.3-3
            return False
        needed = _CHUNK_BYTES + len(chunk.text) + len(windows) * self._vector_bytes
        if chunk.category is not None:
            needed += _memory_bytes(chunk)
        return self._weight + needed <= SNAPSHOT_PART_BYTES_MAX

    def add_chunk(self, chunk: _Chunk, windows: Sequence[bytes]) -> None:
        rows, number = self._rows, len(self._chunks)
        self._chunks[chunk.rowid] = number
        if chunk.document is not None:
            rows.document_of[number] = chunk.document
        rows.texts.append(chunk.text)
        rows.windows.append(len(windows))
        self._vectors += windows
        self._weight += _CHUNK_BYTES + len(chunk.text) + len(windows) * self._vector_bytes
        if chunk.category is not None:
            rows.memories.append(MemoryRow(number, chunk.category, *chunk[5:]))
            self._weight += _memory_bytes(chunk)
        self._may_end = not int.from_bytes(chunk.forget_hash[-2:]) & _CUT_MASK

    def add_occurrence(self, occurrence: Row) -> bool:
        """Add an occurrence; False if the part is full."""
        chunk, message, piece, role, moment, model, *shared = occurrence
        place = PlaceRow(*shared)
        needed = _OCCURRENCE_BYTES + (len(message) if message.isascii() else _utf8(message))
        if place not in self._places:
            needed += _PLACE_BYTES + sum(_utf8(name) for name in place[:-1])
        needed += sum(_NAME_BYTES + _utf8(name) for name in {role, model} - self._names)
        if chunk not in self._chunks and chunk not in self._known:
            needed += _KNOWN_BYTES
        if self._weight + needed > SNAPSHOT_PART_BYTES_MAX:
            return False
        rows = self._rows
        number = self._chunks.get(chunk)
        if number is None:
            # Counted from the end of the chunks, whose number is not known yet.
            known = self._known.setdefault(chunk, len(self._known))
            if known == len(rows.known):
                rows.known.append(self._database.value("SELECT id FROM chunks WHERE rowid = ?", (chunk,)))
            number = ~known
        rows.chunk_of.append(number)
        rows.place_of.append(self._places.setdefault(place, len(self._places)))
        rows.messages.append(message)
        rows.pieces.append(piece)
        rows.roles.append(role)
        rows.moments.append(moment)
        rows.models.append(model)
        self._names |= {role, model}
        self._weight += needed
        return True

    def finished(self) -> PartRows:
        rows = self._rows
        chunks = len(rows.texts)
        rows.vectors = b"".join(self._vectors)
        rows.vector_bytes = self._vector_bytes if rows.vectors else 0
        rows.places = list(self._places)
        rows.chunk_of = [number if number >= 0 else chunks + ~number for number in rows.chunk_of]
        self._clear()
        return rows

    def empty(self) -> bool:
        return self._weight == _HEAD_BYTES


def _memory_bytes(chunk: _Chunk) -> int:
    return _MEMORY_BYTES + sum(_utf8(name) for name in (chunk.category or "", chunk.agent, chunk.scope))


def _chunk_parts(database: Database) -> Iterator[PartRows]:
    cutter = _Cutter(database)
    occurrences = database.each(
        "SELECT chunk, message, part, role, created_at, model, agent, session, project, repository, source, device"
        " FROM occurrences ORDER BY rowid"
    )
    occurrence = next(occurrences, None)
    for chunk, windows in _chunks(database):
        if not cutter.room_for(chunk, windows):
            yield cutter.finished()
        cutter.add_chunk(chunk, windows)
        while occurrence is not None and occurrence[0] <= chunk.rowid:
            if not cutter.add_occurrence(occurrence):
                yield cutter.finished()
                continue
            occurrence = next(occurrences, None)
    if not cutter.empty():
        yield cutter.finished()


def _chunks(database: Database) -> Iterator[tuple[_Chunk, Sequence[bytes]]]:
    last = 0
    while True:
        chunks = [
            _Chunk(*row)
            for row in database.rows(
                "SELECT c.rowid, c.forget_hash, CAST(c.text AS BLOB),"
                " (SELECT min(document) FROM document_parts WHERE chunk = c.rowid),"
                " m.category, m.agent, m.created_at, m.device, m.confidence, m.status, m.superseded_by, m.changed_at,"
                " m.scope"
                " FROM chunks c LEFT JOIN memories m ON m.chunk = c.rowid"
                " WHERE c.provisional = 0 AND c.rowid > ? ORDER BY c.rowid LIMIT ?",
                (last, _READ_AHEAD),
            )
        ]
        if not chunks:
            return
        vectors = float16_vectors_between(database, chunks[0].rowid, chunks[-1].rowid)
        for chunk in chunks:
            yield chunk, vectors.get(chunk.rowid, ())
        last = chunks[-1].rowid


def _naming_parts(database: Database) -> Iterator[PartRows]:
    """Iterate over parts with rows that name chunks of earlier parts, and the documents that they belong to."""
    changes = database.each(
        "SELECT c.id, m.number, m.kind, m.category, m.confidence, m.status, m.superseded_by, m.agent, m.at, m.device,"
        " m.scope FROM memory_changes m JOIN chunks c ON c.rowid = m.chunk ORDER BY c.id, m.number"
    )
    for group in _cut((row, 3 * _ROW_BYTES + _length(row), row[0][-2:]) for row in changes):
        known = _known(row[0] for row in group)
        yield PartRows(
            known=list(known), memory_changes=[MemoryChangeRow(known[row[0]], *row[1:]) for row in group]
        )
    documents = database.each(
        "SELECT source, path, version, kind, modified_at, total, came FROM documents ORDER BY source, path"
    )
    for group in _cut((row, _ROW_BYTES + _length(row), _mark(row[:2])) for row in documents):
        yield PartRows(documents=[DocumentRow(*row) for row in group])
    places = database.each(
        "SELECT c.id, d.source, d.path, p.part, p.title FROM documents d JOIN document_parts p ON p.document = d.rowid"
        " JOIN chunks c ON c.rowid = p.chunk ORDER BY d.source, d.path, p.part"
    )
    for group in _cut((row, _ROW_BYTES + _length(row), row[0][-2:]) for row in places):
        known = _known(row[0] for row in group)
        yield PartRows(
            known=list(known),
            document_parts=[DocumentPartRow._make((*row[1:], known[row[0]])) for row in group],
        )
    sources = database.each("SELECT name, device, root, include, exclude, at FROM sources ORDER BY name")
    for group in _cut((row, _ROW_BYTES + _length(row), _mark(row[:1])) for row in sources):
        yield PartRows(
            sources=[
                SourceRow._make((*row[:3], json.loads(row[3]), json.loads(row[4]), row[5])) for row in group
            ]
        )


def _link_parts(database: Database) -> Iterator[PartRows]:
    links = database.each(
        f"SELECT {LINK_COLUMNS}, device, at FROM project_links ORDER BY {LINK_COLUMNS}"  # noqa: S608
    )
    for group in _cut((row, _ROW_BYTES + _length(row), _mark(row[:4])) for row in links):
        yield PartRows(project_links=[LinkRow(*row) for row in group])


def _known(contents: Iterable[bytes]) -> dict[bytes, int]:
    """Number the distinct content hashes."""
    return {content: number for number, content in enumerate(dict.fromkeys(contents))}


def _length(row: Row) -> int:
    """Return the size of a row's texts."""
    return sum(_utf8(value) for value in row if isinstance(value, str))


def _mark(names: Sequence[str]) -> bytes:
    return sha256("\0".join(names).encode()).digest()[:2]


def _plain_parts(database: Database) -> Iterator[PartRows]:
    """Iterate over parts with rows that refer to no others, each table in separate parts."""
    suppressed = database.each("SELECT forget_hash FROM suppressed ORDER BY forget_hash")
    for group in _cut((row[0], _ROW_BYTES, row[0][-2:]) for row in suppressed):
        yield PartRows(suppressed=group)
    tree = database.each(
        "SELECT path, device, incarnation, sequence, executable, modified_at, gone, parts FROM files ORDER BY path"
    )
    for files in _cut(_weighed_file(row) for row in tree):
        yield PartRows(files=files)
    condemned = database.each("SELECT name FROM condemned ORDER BY name")
    for group in _cut((row[0], _ROW_BYTES, row[0][-2:]) for row in condemned):
        yield PartRows(condemned=group)
    for stream in _cut(
        (row, _ROW_BYTES, b"\xff")
        for row in database.each(
            "SELECT device, incarnation, sequence FROM acks ORDER BY device, incarnation"
        )
    ):
        yield PartRows(acks=stream)
    for stream in _cut(
        (row, _ROW_BYTES, b"\xff")
        for row in database.each(
            "SELECT device, incarnation, sequence FROM acks_sparse ORDER BY device, incarnation, sequence"
        )
    ):
        yield PartRows(sparse=stream)


def _weighed_file(row: Row) -> tuple[FileVersionRow, int, bytes]:
    path, device, incarnation, sequence, executable, modified_at, gone, parts = row
    file = FileVersionRow(
        path, device, incarnation, sequence, bool(executable), modified_at, bool(gone), parts
    )
    return file, _ROW_BYTES + _utf8(path) + len(parts), sha256(path.encode()).digest()[:2]


def _cut(rows: Iterable[tuple[T, int, bytes]]) -> Iterator[list[T]]:
    """Group rows, each given with its maximum size and the bytes that decide whether a group may end after it."""
    group: list[T] = []
    weight = _HEAD_BYTES
    for row, needed, mark in rows:
        if weight + needed > SNAPSHOT_PART_BYTES_MAX:
            yield group
            group, weight = [], _HEAD_BYTES
        group.append(row)
        weight += needed
        if weight >= PART_BYTES_MIN and not int.from_bytes(mark) & _CUT_MASK:  # §13.3-3
            yield group
            group, weight = [], _HEAD_BYTES
    if group:
        yield group


def _utf8(text: str) -> int:
    return len(text.encode())
