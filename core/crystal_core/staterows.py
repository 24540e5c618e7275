"""Applying operations to the replicated rows: the same operations in the same order give the same rows everywhere.

    Capture   each piece whose text is not suppressed: its chunk if new, and the place it came from if new
    Remember  lifts the suppression of its text; its chunk if new, and a memory; a later category wins
    Forget    deletes the texts' chunks, with all that hangs on them, and suppresses their keyed hashes for good
    PutFile, DropFile   change the tree of files: see `filerows`

Provisional rows never influence the outcome: a provisional chunk counts as absent and is taken over as it stands.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

from crystal_core import filerows, provisional
from crystal_core.database import Database
from crystal_core.digests import (
    CHUNKS,
    MEMORIES,
    OCCURRENCES,
    SUPPRESSED,
    Digests,
    chunk_row,
    memory_row,
    occurrence_row,
    place,
    suppressed_row,
)
from crystal_core.fulltext import indexed_terms, merge_often, purge
from crystal_core.schema import CHUNK_TRIGGERS, DROP_CHUNK_TRIGGERS, DROP_VECTOR_TABLE
from crystal_core.vectors import float16_vectors, note_embedded, note_lacking, store
from crystal_crypto.hierarchy import VaultSecret
from crystal_mirror.operations import Capture, DropFile, Forget, Operation, PutFile, Remember
from crystal_mirror.ports import Vectors
from crystal_mirror.types import Origin

DEFERRED_MAX = 2000
"""Texts that wait to be indexed together; more than that only cost memory."""


class _Found(NamedTuple):
    """A text's chunk by rowid (never 0): in the replicated state, or for provisional rows only."""

    replicated: int | None
    provisional: int | None


_NOTHING = _Found(None, None)


class StateRows:
    """The replicated rows within one write transaction."""

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

    def apply(self, origin: Origin, operation: Operation, vectors: Vectors) -> None:
        match operation:
            case Capture():
                self._capture(origin, operation, vectors)
            case Remember():
                self._remember(origin, operation, vectors)
            case Forget():
                self.index()
                self._forget(operation)
            case PutFile():
                filerows.put(self._database, self._secret, self._digests, origin, operation)
            case DropFile():
                filerows.drop(self._database, self._digests, origin, operation)
        provisional.drop(self._database, origin)
        if len(self._texts) >= DEFERRED_MAX:
            self.index()

    def finish(self) -> None:
        """What belongs before every commit."""
        self.index()
        if self._embedded_anew:
            note_embedded(self._database)
            self._embedded_anew = False
        if self._forgotten:
            purge(self._database, self._forgotten)
            self._forgotten.clear()

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
        found = self._find(self._secret.forget_hash(content)).replicated
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
        database.run(DROP_VECTOR_TABLE)
        database.run("DELETE FROM windows")
        digest = self._digests[CHUNKS]
        digest.sum = digest.count = 0
        digest.add_many(
            chunk_row(content, ())
            for (content,) in database.each("SELECT id FROM chunks WHERE provisional = 0")
        )

    def wipe(self) -> None:
        """Delete every row of the replicated state. Texts that provisional rows need stay, provisional."""
        self.index()
        # A quarter of a million texts are faster indexed anew than taken out of the index one by one.
        self._database.run(DROP_CHUNK_TRIGGERS)
        self._database.run(DROP_VECTOR_TABLE)
        self._database.run(
            """
            DELETE FROM windows; DELETE FROM occurrences; DELETE FROM memories; DELETE FROM suppressed;
            DELETE FROM acks; DELETE FROM acks_sparse; DELETE FROM position; DELETE FROM files; DELETE FROM condemned;
            UPDATE chunks SET provisional = 1 WHERE rowid IN (SELECT chunk FROM provisional_places);
            DELETE FROM chunks WHERE provisional = 0;
            INSERT INTO chunks_fts (chunks_fts) VALUES ('delete-all');
            INSERT INTO chunks_fts (rowid, text) SELECT rowid, text FROM chunks;
            """
        )
        self._database.run(CHUNK_TRIGGERS)
        self._digests.clear()
        self.deleted = True

    def _capture(self, origin: Origin, operation: Capture, vectors: Vectors) -> None:
        database, digest = self._database, self._digests[OCCURRENCES]
        agent, session, project = operation.agent, operation.session, operation.project
        repository, source = operation.repository, operation.source
        shared = place(agent, session, project, repository, source, origin.device)
        for piece in operation.pieces:
            content = sha256(piece.text.encode()).digest()
            forget_hash = self._secret.forget_hash(content)
            found = self._find(forget_hash)
            if found.replicated is None and self._suppressed(forget_hash):
                self.left_out = True
                continue  # what is replicated is never suppressed
            chunk = found.replicated or self._add(
                content, forget_hash, piece.text, found.provisional, vectors
            )
            new = database.changed(
                "INSERT INTO occurrences (chunk, agent, session, message, part, role, created_at, project, repository,"
                " source, device) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (
                    chunk,
                    agent,
                    session,
                    piece.message,
                    piece.part,
                    piece.role,
                    piece.created_at,
                    project,
                    repository,
                    source,
                    origin.device,
                ),
            )
            if new:
                digest.add(
                    occurrence_row(shared, content, piece.message, piece.part, piece.role, piece.created_at)
                )

    def _remember(self, origin: Origin, operation: Remember, vectors: Vectors) -> None:
        database, digest = self._database, self._digests[MEMORIES]
        content = sha256(operation.text.encode()).digest()
        forget_hash = self._secret.forget_hash(content)
        if database.changed("DELETE FROM suppressed WHERE forget_hash = ?", (forget_hash,)):
            self._digests[SUPPRESSED].remove(suppressed_row(forget_hash))
        found = self._find(forget_hash)
        chunk = found.replicated or self._add(
            content, forget_hash, operation.text, found.provisional, vectors
        )
        known = database.row(
            "SELECT category, agent, created_at, device FROM memories WHERE chunk = ?", (chunk,)
        )
        if known is None:
            database.run(
                "INSERT INTO memories (chunk, category, agent, created_at, device) VALUES (?, ?, ?, ?, ?)",
                (chunk, operation.category, operation.agent, operation.created_at, origin.device),
            )
            digest.add(
                memory_row(content, operation.category, operation.agent, operation.created_at, origin.device)
            )
        elif known[0] != operation.category:
            category, agent, created_at, device = known
            database.run("UPDATE memories SET category = ? WHERE chunk = ?", (operation.category, chunk))
            digest.remove(memory_row(content, category, agent, created_at, device))
            digest.add(memory_row(content, operation.category, agent, created_at, device))

    def _forget(self, operation: Forget) -> None:
        for forget_hash in operation.targets:
            if self._database.changed(
                "INSERT INTO suppressed (forget_hash) VALUES (?) ON CONFLICT DO NOTHING", (forget_hash,)
            ):
                self._digests[SUPPRESSED].add(suppressed_row(forget_hash))
            found = self._database.row(
                "SELECT rowid, id, text, provisional FROM chunks WHERE forget_hash = ?", (forget_hash,)
            )
            if found is None:
                continue
            chunk, content, text, is_provisional = found
            self._forgotten |= indexed_terms(self._database, text)
            if not is_provisional:
                self._retract(chunk, content)
            self.deleted = True
            provisional.forget(self._database, forget_hash)
            provisional.remove_unneeded(self._database, [chunk])

    def _retract(self, chunk: int, content: bytes) -> None:
        """Take a chunk out of the replicated state. What is left is a provisional chunk, perhaps needed by nobody."""
        database = self._database
        self._digests[CHUNKS].remove(chunk_row(content, float16_vectors(database, chunk)))
        for (
            agent,
            session,
            project,
            repository,
            source,
            device,
            message,
            part,
            role,
            created_at,
        ) in database.rows(
            "SELECT agent, session, project, repository, source, device, message, part, role, created_at"
            " FROM occurrences WHERE chunk = ?",
            (chunk,),
        ):
            shared = place(agent, session, project, repository, source, device)
            self._digests[OCCURRENCES].remove(
                occurrence_row(shared, content, message, part, role, created_at)
            )
        for category, agent, created_at, device in database.rows(
            "SELECT category, agent, created_at, device FROM memories WHERE chunk = ?", (chunk,)
        ):
            self._digests[MEMORIES].remove(memory_row(content, category, agent, created_at, device))
        database.run("DELETE FROM windows WHERE chunk = ?", (chunk,))
        database.run("DELETE FROM occurrences WHERE chunk = ?", (chunk,))
        database.run("DELETE FROM memories WHERE chunk = ?", (chunk,))
        database.run("UPDATE chunks SET provisional = 1 WHERE rowid = ?", (chunk,))

    def _find(self, forget_hash: bytes) -> "_Found":
        row = self._database.row(
            "SELECT rowid, provisional FROM chunks WHERE forget_hash = ?", (forget_hash,)
        )
        if row is None:
            return _NOTHING
        return _Found(None, row[0]) if row[1] else _Found(row[0], None)

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


def unembedded(database: Database, secret: VaultSecret, operations: Sequence[Operation]) -> list[str]:
    """The texts for which applying the operations would ask for vectors, each once, in that order."""
    present: dict[bytes, bool] = {}
    suppressed: dict[bytes, bool] = {}
    wanted: dict[str, None] = {}

    def is_suppressed(forget_hash: bytes) -> bool:
        if forget_hash not in suppressed:
            suppressed[forget_hash] = bool(
                database.rows("SELECT 1 FROM suppressed WHERE forget_hash = ?", (forget_hash,))
            )
        return suppressed[forget_hash]

    def take(forget_hash: bytes, text: str) -> None:
        if forget_hash not in present:
            present[forget_hash] = bool(
                database.rows(
                    "SELECT 1 FROM chunks WHERE forget_hash = ? AND provisional = 0", (forget_hash,)
                )
            )
        if not present[forget_hash]:
            wanted[text] = None
            present[forget_hash] = True

    for operation in operations:
        match operation:
            case Capture():
                for piece in operation.pieces:
                    forget_hash = secret.forget_hash(sha256(piece.text.encode()).digest())
                    if not is_suppressed(forget_hash):
                        take(forget_hash, piece.text)
            case Remember():
                forget_hash = secret.forget_hash(sha256(operation.text.encode()).digest())
                suppressed[forget_hash] = False
                take(forget_hash, operation.text)
            case Forget():
                for forget_hash in operation.targets:
                    suppressed[forget_hash] = True
                    present[forget_hash] = False
            case PutFile() | DropFile():
                pass  # no text
    return list(wanted)
