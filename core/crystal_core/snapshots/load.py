"""Loading of a snapshot's parts into the replicated rows, or into their digest only.

Both read the rows the same way, so `PartSums` computes without a database the digest that loading leads to. A row that already
exists, or that names a missing one, makes the part Malformed; the caller abandons the transaction.

A text with a provisional chunk uses that chunk, as in applying operations. All other rows get rowids after the existing ones,
in the order of the part.
"""

import json
from collections.abc import Mapping
from itertools import count
from typing import Any

import apsw

from crystal_core.database import Database
from crystal_core.errors import UnusableVectors
from crystal_core.projects import LINK_COLUMNS
from crystal_core.snapshots.parts import decode_part
from crystal_core.snapshots.rows import PartRows
from crystal_core.state.digests import (
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
    TABLES,
    Digests,
    ack_row,
    chunk_rows,
    condemned_row,
    document_part_row,
    document_row,
    file_row,
    memory_change_row,
    memory_row,
    occurrence_rows,
    place,
    project_link_row,
    source_row,
    suppressed_row,
)
from crystal_core.state.fulltext import merge_seldom
from crystal_core.state.vectors import note_lacking, store_block
from crystal_crypto.digest import TableDigest
from crystal_crypto.errors import Malformed
from crystal_crypto.hierarchy import VaultSecret
from crystal_mirror.file_paths import folded
from crystal_mirror.types import Origin, StateDigest, TableSum


class PartSums:
    """The digest of the rows in parts, without a database."""

    def __init__(self, state_key: bytes) -> None:
        self._tables = {name: TableDigest(state_key, name) for name in TABLES}

    def add(self, part: bytes) -> None:
        """Raises Malformed."""
        rows = decode_part(part)
        _add_to_digests(self._tables, rows, rows.contents())

    def digest(self) -> StateDigest:
        return StateDigest.of(
            [TableSum(name, table.sum_bytes, table.count) for name, table in self._tables.items()]
        )


def load(database: Database, secret: VaultSecret, digests: Digests, part: bytes) -> None:
    """Add the rows of a part, indexes included. Belongs in a transaction, which must be abandoned if it raises Malformed."""
    rows = decode_part(part)
    contents = rows.contents()
    try:
        _Loader(database, secret, digests, rows, contents).load()
    except apsw.ConstraintError:
        raise Malformed("a row of a snapshot's part stands already") from None  # §13.2-3
    except UnusableVectors as error:
        raise Malformed("a snapshot's part has vectors of another size") from error  # §13.2-3


class _Loader:
    def __init__(
        self, database: Database, secret: VaultSecret, digests: Digests, rows: PartRows, contents: list[bytes]
    ) -> None:
        self._database = database
        self._secret = secret
        self._digests = digests
        self._rows = rows
        self._contents = contents

    def load(self) -> None:
        rows, run_many = self._rows, self._database.run_many
        first = 1 + (self._database.value("SELECT max(rowid) FROM chunks") or 0)
        chunks = self._chunks(first)
        if chunks:
            self._index(first)
        else:
            _add_to_digests(self._digests.tables, rows, self._contents)
        store_block(self._database, chunks, rows.windows, rows.vectors)
        named = chunks + self._known()
        self._occurrences(named)
        run_many(
            "INSERT INTO memories (chunk, category, agent, created_at, device, confidence, status, superseded_by, changed_at,"
            " scope) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [(chunks[memory.chunk], *memory[1:]) for memory in rows.memories],
        )
        run_many(
            "INSERT INTO memory_changes (chunk, number, kind, category, confidence, status, superseded_by, agent, at, device,"
            " scope) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [(named[change.chunk], *change[1:]) for change in rows.memory_changes],
        )
        run_many(
            "INSERT INTO sources (name, device, root, include, exclude, at) VALUES (?, ?, ?, ?, ?, ?)",
            [(*row[:3], json.dumps(row.include), json.dumps(row.exclude), row.at) for row in rows.sources],
        )
        run_many(
            "INSERT INTO documents (source, path, version, kind, modified_at, total, came) VALUES (?, ?, ?, ?, ?, ?, ?)",
            rows.documents,
        )
        run_many(
            "INSERT INTO document_parts (document, part, title, chunk)"
            " VALUES ((SELECT rowid FROM documents WHERE source = ? AND path = ?), ?, ?, ?)",
            [(*row[:4], named[row.chunk]) for row in rows.document_parts],
        )
        run_many(
            f"INSERT INTO project_links ({LINK_COLUMNS}, device, at) VALUES (?, ?, ?, ?, ?, ?)",  # noqa: S608
            rows.project_links,
        )
        run_many("INSERT INTO suppressed (forget_hash) VALUES (?)", [(row,) for row in rows.suppressed])
        run_many("INSERT INTO acks (device, incarnation, sequence) VALUES (?, ?, ?)", rows.acks)
        run_many("INSERT INTO acks_sparse (device, incarnation, sequence) VALUES (?, ?, ?)", rows.sparse)
        run_many(
            "INSERT INTO files (path, device, incarnation, sequence, executable, modified_at, gone, parts, folded)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [(*row, folded(row.path)) for row in rows.files],
        )
        run_many("INSERT INTO condemned (name) VALUES (?)", [(row,) for row in rows.condemned])
        lacking = [chunk for chunk, windows in zip(chunks, rows.windows, strict=True) if not windows]
        if lacking:
            note_lacking(self._database, lacking)

    def _chunks(self, first: int) -> list[int]:
        """Add the chunks and return their rowids: from `first` on, except provisional ones. Not indexed yet."""
        database, contents = self._database, self._contents
        hashes = self._secret.forget_hashes(contents)
        provisional: dict[bytes, int] = dict(
            database.rows("SELECT forget_hash, rowid FROM chunks WHERE provisional = 1")
        )
        free = count(first)
        chunks = [provisional.pop(forget_hash, 0) or next(free) for forget_hash in hashes]
        new = zip(chunks, contents, hashes, self._rows.strings, strict=True)
        database.run("UPDATE index_state SET deferred = 1")  # see `schema.CHUNK_TRIGGERS`
        database.run_many(
            "INSERT INTO chunks (rowid, id, forget_hash, text) VALUES (?, ?, ?, ?)",
            [row for row in new if row[0] >= first],
        )
        database.run("UPDATE index_state SET deferred = 0")
        database.run_many(
            "UPDATE chunks SET provisional = 0 WHERE rowid = ?",
            [(chunk,) for chunk in chunks if chunk < first],
        )
        return chunks

    def _index(self, first: int) -> None:
        """Index the texts in one statement, the slowest step, which releases the GIL; compute the digests meanwhile."""
        from concurrent.futures import ThreadPoolExecutor  # lazy: few processes load a snapshot

        merge_seldom(self._database)
        with ThreadPoolExecutor(1) as beside:
            digested = beside.submit(_add_to_digests, self._digests.tables, self._rows, self._contents)
            self._database.run(
                "INSERT INTO chunks_fts (rowid, text) SELECT rowid, text FROM chunks WHERE rowid >= ?",
                (first,),
            )
            digested.result()

    def _known(self) -> list[int]:
        known = self._rows.known
        found = self._database.rows_of_many(
            "SELECT rowid FROM chunks WHERE forget_hash = ? AND provisional = 0",
            [(forget_hash,) for forget_hash in self._secret.forget_hashes(known)],
        )
        if len(found) != len(known):  # §13.2-3
            raise Malformed("a snapshot's part names a chunk that does not stand")
        return [rowid for (rowid,) in found]

    def _occurrences(self, chunks: list[int]) -> None:
        rows, places = self._rows, self._rows.places
        inserted: list[tuple[Any, ...]] = [
            (chunks[chunk], message, piece, role, moment, model, *places[where])
            for chunk, message, piece, role, moment, model, where in zip(
                rows.chunk_of,
                rows.messages,
                rows.pieces,
                rows.roles,
                rows.moments,
                rows.models,
                rows.place_of,
                strict=True,
            )
        ]
        self._database.run_many(
            "INSERT INTO occurrences (chunk, message, part, role, created_at, model, agent, session, project, repository,"
            " source, device) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            inserted,
        )


def _add_to_digests(digests: Mapping[str, TableDigest], rows: PartRows, contents: list[bytes]) -> None:
    known = contents + rows.known
    shared = [place(*where) for where in rows.places]
    digests[CHUNKS].add_many(chunk_rows(contents, rows.windows, rows.vectors))
    digests[OCCURRENCES].add_many(
        occurrence_rows(
            [shared[where] for where in rows.place_of],
            [known[chunk] for chunk in rows.chunk_of],
            rows.messages,
            rows.pieces,
            rows.roles,
            rows.moments,
            rows.models,
        )
    )
    digests[MEMORIES].add_many(memory_row(contents[memory.chunk], *memory[1:]) for memory in rows.memories)
    digests[MEMORY_CHANGES].add_many(
        memory_change_row(known[change.chunk], *change[1:]) for change in rows.memory_changes
    )
    digests[SOURCES].add_many(source_row(*row) for row in rows.sources)
    digests[DOCUMENTS].add_many(document_row(*row) for row in rows.documents)
    digests[DOCUMENT_PARTS].add_many(
        document_part_row(row.source, row.path, row.part, known[row.chunk], row.title)
        for row in rows.document_parts
    )
    digests[PROJECT_LINKS].add_many(project_link_row(*row) for row in rows.project_links)
    digests[SUPPRESSED].add_many(map(suppressed_row, rows.suppressed))
    digests[ACKS].add_many(ack_row(*stream, sparse=False) for stream in rows.acks)
    digests[ACKS].add_many(ack_row(*stream, sparse=True) for stream in rows.sparse)
    digests[FILES].add_many(
        file_row(
            row.path,
            Origin(row.device, row.incarnation, row.sequence),
            row.executable,
            row.modified_at,
            row.gone,
            row.parts,
        )
        for row in rows.files
    )
    digests[CONDEMNED].add_many(map(condemned_row, rows.condemned))
