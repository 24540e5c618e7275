"""The chunks of the replicated state within one write transaction: added, indexed, taken out, and their digest with them.

A chunk stands as long as something replicated refers to it: an occurrence, a memory, or a place in a document. A provisional
chunk counts as absent and is taken over as it stands; one that leaves the replicated state stays, provisional, while pending
operations need it.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import NamedTuple

from crystal_core.database import Database
from crystal_core.schema import DROP_VECTOR_TABLE
from crystal_core.state import pending
from crystal_core.state.digests import CHUNKS, SUPPRESSED, Digests, chunk_row, suppressed_row
from crystal_core.state.fulltext import indexed_terms, merge_often, purge
from crystal_core.state.vectors import float16_vectors, note_embedded, note_lacking, store
from crystal_crypto.hierarchy import VaultSecret
from crystal_mirror.ports import Vectors

DEFERRED_MAX = 2000
"""Texts that wait to be indexed together; more than that only cost memory."""


class FoundChunk(NamedTuple):
    """A text's chunk by rowid (never 0): in the replicated state, or for provisional rows only."""

    replicated: int | None
    pending: int | None


_NOTHING = FoundChunk(None, None)

_NEEDED = (
    "SELECT EXISTS (SELECT 1 FROM occurrences WHERE chunk = ?1) OR EXISTS (SELECT 1 FROM memories WHERE chunk = ?1)"
    " OR EXISTS (SELECT 1 FROM document_parts WHERE chunk = ?1)"
)


class ChunkRows:
    """Made anew for each transaction."""

    def __init__(self, database: Database, secret: VaultSecret, digests: Digests) -> None:
        self._database = database
        self._secret = secret
        self._digests = digests
        self._texts: list[tuple[int, str]] = []
        self._windows: list[tuple[int, Sequence[bytes]]] = []
        self._deferred = False
        self._forgotten: set[bytes] = set()
        self._embedded_anew = False
        self.deleted = False
        """Whether a text was deleted: its bytes have to be scrubbed after the commit."""
        self.left_out = False
        """Whether an operation held a text that is suppressed."""

    def find(self, forget_hash: bytes) -> FoundChunk:
        row = self._database.row(
            "SELECT rowid, provisional FROM chunks WHERE forget_hash = ?", (forget_hash,)
        )
        if row is None:
            return _NOTHING
        return FoundChunk(None, row[0]) if row[1] else FoundChunk(row[0], None)

    def take(self, text: str, vectors: Vectors) -> tuple[bytes, int] | None:
        """Content hash and chunk of a text, brought into the replicated state if need be; None if it is suppressed."""
        content = sha256(text.encode()).digest()
        forget_hash = self._secret.forget_hash(content)
        found = self.find(forget_hash)
        if found.replicated is not None:
            return content, found.replicated  # what is replicated is never suppressed
        if self._suppressed(forget_hash):
            self.left_out = True
            return None
        return content, self._add(content, forget_hash, text, found.pending, vectors)

    def take_shown(self, text: str, vectors: Vectors) -> tuple[bytes, bytes, int]:
        """As `take`, with the keyed hash between; lifts the suppression."""
        content = sha256(text.encode()).digest()
        forget_hash = self._secret.forget_hash(content)
        if self._database.changed("DELETE FROM suppressed WHERE forget_hash = ?", (forget_hash,)):
            self._digests[SUPPRESSED].remove(suppressed_row(forget_hash))
        found = self.find(forget_hash)
        chunk = found.replicated or self._add(content, forget_hash, text, found.pending, vectors)
        return content, forget_hash, chunk

    def release(self, chunks: Iterable[int]) -> None:
        """Take those of the chunks out of the state to which nothing replicated refers any more. None of them is suppressed."""
        database = self._database
        for chunk in chunks:
            if database.value(_NEEDED, (chunk,)):  # §11.4-10
                continue
            self.index()
            self.retract(chunk, database.value("SELECT id FROM chunks WHERE rowid = ?", (chunk,)))
            pending.remove_unneeded(database, [chunk])

    def retract(self, chunk: int, content: bytes) -> None:
        """Take a chunk without rows that refer to it out of the state. What is left is a provisional chunk, perhaps needed by
        nobody."""
        database = self._database
        self._digests[CHUNKS].remove(chunk_row(content, float16_vectors(database, chunk)))
        database.run("DELETE FROM windows WHERE chunk = ?", (chunk,))
        database.run("UPDATE chunks SET provisional = 1 WHERE rowid = ?", (chunk,))

    def forget_terms(self, text: str) -> None:
        """Look before the commit whether the words of this text, which is being deleted, still show in the index."""
        self._forgotten |= indexed_terms(self._database, text)

    def finish(self) -> None:
        """What belongs before every commit."""
        self.index()
        if self._embedded_anew:
            note_embedded(self._database)
            self._embedded_anew = False
        if self._forgotten:
            purge(self._database, self._forgotten)
            self._forgotten.clear()

    def index_if_many(self) -> None:
        if len(self._texts) >= DEFERRED_MAX:
            self.index()

    def index(self) -> None:
        """Bring the indexes up to the rows. Belongs before anything reads an index."""
        if not self._deferred:
            return
        texts, self._texts = self._texts, []
        windows, self._windows = self._windows, []
        merge_often(self._database)
        self._database.run_many("INSERT INTO chunks_fts (rowid, text) VALUES (?, ?)", texts)
        store(self._database, windows)
        lacking = [chunk for chunk, vectors in windows if not vectors]
        if lacking:
            note_lacking(self._database, min(lacking))
        self._database.run("UPDATE index_state SET deferred = 0")
        self._deferred = False

    def embed_anew(self, content: bytes, windows: Sequence[bytes]) -> None:
        """Put vectors in the place of those that a text has, if the replicated state has that text."""
        self.index()
        database = self._database
        found = self.find(self._secret.forget_hash(content)).replicated
        if found is None:
            return
        digest = self._digests[CHUNKS]
        digest.remove(chunk_row(content, float16_vectors(database, found)))
        database.run("DELETE FROM windows WHERE chunk = ?", (found,))
        store(database, [(found, windows)])
        digest.add(chunk_row(content, windows))
        if not windows:
            note_lacking(database, found)
        self._embedded_anew = True

    def drop_vectors(self) -> None:
        """Remove all vectors; the next may have another size."""
        self.index()
        database = self._database
        database.run(DROP_VECTOR_TABLE)  # §11.14-4
        database.run("DELETE FROM windows")
        digest = self._digests[CHUNKS]
        digest.sum = digest.count = 0
        digest.add_many(
            chunk_row(content, ())
            for (content,) in database.each("SELECT id FROM chunks WHERE provisional = 0")
        )

    def _add(
        self, content: bytes, forget_hash: bytes, text: str, provisional_chunk: int | None, vectors: Vectors
    ) -> int:
        """Bring a text into the replicated state, vectors and all; a provisional chunk of it is taken over."""
        database = self._database
        windows = tuple(bytes(vector) for vector in vectors(text))
        if not self._deferred:
            database.run("UPDATE index_state SET deferred = 1")
            self._deferred = True
        if provisional_chunk is None:
            rows = database.rows(
                "INSERT INTO chunks (id, forget_hash, text) VALUES (?, ?, ?) RETURNING rowid",
                (content, forget_hash, text),
            )
            chunk = int(rows[0][0])
            self._texts.append((chunk, text))
        else:
            chunk = provisional_chunk
            database.run("UPDATE chunks SET provisional = 0 WHERE rowid = ?", (chunk,))
        self._digests[CHUNKS].add(chunk_row(content, windows))
        self._windows.append((chunk, windows))
        return chunk

    def _suppressed(self, forget_hash: bytes) -> bool:
        return bool(self._database.rows("SELECT 1 FROM suppressed WHERE forget_hash = ?", (forget_hash,)))
