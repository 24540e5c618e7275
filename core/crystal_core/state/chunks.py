"""The replicated chunks within one write transaction: adds, indexes and removes them, and updates their digest.

A chunk is kept while an occurrence, a memory or a place in a document refers to it. A provisional chunk counts as absent and
becomes replicated in place; a chunk that leaves the replicated state stays, provisional, while pending operations need it.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import NamedTuple

from crystal_core.database import Database
from crystal_core.schema import DROP_VECTORS
from crystal_core.state import pending
from crystal_core.state.digests import CHUNKS, SUPPRESSED, Digests, chunk_row, suppressed_row
from crystal_core.state.fulltext import indexed_terms, merge_often, purge
from crystal_core.state.vectors import float16_vectors, note_embedded, note_lacking, store
from crystal_crypto.hierarchy import VaultSecret
from crystal_mirror.ports import Vectors

DEFERRED_MAX = 2000
"""Texts indexed in one statement; more would only cost memory."""


class FoundChunk(NamedTuple):
    """Rowid of a text's chunk (never 0): in the replicated state, or for provisional rows only."""

    replicated: int | None
    pending: int | None


_NOTHING = FoundChunk(None, None)

_NEEDED = (
    "SELECT EXISTS (SELECT 1 FROM occurrences WHERE chunk = ?1) OR EXISTS (SELECT 1 FROM memories WHERE chunk = ?1)"
    " OR EXISTS (SELECT 1 FROM document_parts WHERE chunk = ?1)"
)


class ChunkRows:
    """The chunks of one transaction."""

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
        """Whether a text was deleted, so that its bytes must be scrubbed after the commit."""
        self.left_out = False
        """Whether an operation contained a suppressed text."""

    def find(self, forget_hash: bytes) -> FoundChunk:
        row = self._database.row(
            "SELECT rowid, provisional FROM chunks WHERE forget_hash = ?", (forget_hash,)
        )
        if row is None:
            return _NOTHING
        return FoundChunk(None, row[0]) if row[1] else FoundChunk(row[0], None)

    def take(self, text: str, vectors: Vectors) -> tuple[bytes, int] | None:
        """Return content hash and chunk of a text, added to the replicated state if necessary; None if suppressed."""
        content = sha256(text.encode()).digest()
        forget_hash = self._secret.forget_hash(content)
        found = self.find(forget_hash)
        if found.replicated is not None:
            return content, found.replicated  # a replicated text is never suppressed
        if self._suppressed(forget_hash):
            self.left_out = True
            return None
        return content, self._add(content, forget_hash, text, found.pending, vectors)

    def take_shown(self, text: str, vectors: Vectors) -> tuple[bytes, bytes, int]:
        """As `take`, for a suppressed text too: lifts the suppression. Returns content hash, keyed hash and chunk."""
        content = sha256(text.encode()).digest()
        forget_hash = self._secret.forget_hash(content)
        if self._database.changed("DELETE FROM suppressed WHERE forget_hash = ?", (forget_hash,)):
            self._digests[SUPPRESSED].remove(suppressed_row(forget_hash))
        found = self.find(forget_hash)
        chunk = found.replicated or self._add(content, forget_hash, text, found.pending, vectors)
        return content, forget_hash, chunk

    def release(self, chunks: Iterable[int]) -> None:
        """Remove those chunks from the state to which nothing replicated refers any more, without suppressing them."""
        database = self._database
        for chunk in chunks:
            if database.value(_NEEDED, (chunk,)):  # §11.4-10
                continue
            self.index()
            self.retract(chunk, database.value("SELECT id FROM chunks WHERE rowid = ?", (chunk,)))
            pending.remove_unneeded(database, [chunk])

    def retract(self, chunk: int, content: bytes) -> None:
        """Remove a chunk that no row refers to from the state. It remains as a provisional chunk, needed or not."""
        database = self._database
        self._digests[CHUNKS].remove(chunk_row(content, float16_vectors(database, chunk)))
        database.run("DELETE FROM windows WHERE chunk = ?", (chunk,))
        database.run("UPDATE chunks SET provisional = 1 WHERE rowid = ?", (chunk,))

    def forget_terms(self, text: str) -> None:
        """Note a text that is being deleted, to check before the commit that its words have left the index."""
        self._forgotten |= indexed_terms(self._database, text)

    def finish(self) -> None:
        """Complete the indexes before the commit."""
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
        """Bring the indexes up to date with the rows. Call before reading an index."""
        if not self._deferred:
            return
        texts, self._texts = self._texts, []
        windows, self._windows = self._windows, []
        merge_often(self._database)
        self._database.run_many("INSERT INTO chunks_fts (rowid, text) VALUES (?, ?)", texts)
        store(self._database, windows)
        lacking = [chunk for chunk, vectors in windows if not vectors]
        if lacking:
            note_lacking(self._database, lacking)
        self._database.run("UPDATE index_state SET deferred = 0")
        self._deferred = False

    def embed_anew(self, content: bytes, windows: Sequence[bytes]) -> None:
        """Replace the vectors of a text, if the replicated state has it."""
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
            note_lacking(database, [found])
        self._embedded_anew = True

    def drop_vectors(self) -> None:
        """Remove all vectors; the next ones may have another size."""
        self.index()
        database = self._database
        database.run(DROP_VECTORS)  # §11.14-4
        digest = self._digests[CHUNKS]
        digest.sum = digest.count = 0
        digest.add_many(
            chunk_row(content, ())
            for (content,) in database.each("SELECT id FROM chunks WHERE provisional = 0")
        )

    def _add(
        self, content: bytes, forget_hash: bytes, text: str, provisional_chunk: int | None, vectors: Vectors
    ) -> int:
        """Add a text with its vectors to the replicated state; its provisional chunk, if any, becomes replicated."""
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
