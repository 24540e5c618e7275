"""Applying operations to the replicated rows: the same operations in the same order give the same rows everywhere.

    Capture   adds for each piece whose text is not suppressed its chunk and its occurrence, if new
    Remember  lifts the suppression of its text and adds its chunk, if new, and a memory: see `memories`, also for Amend
    Forget    deletes the texts' chunks with all rows that refer to them, and suppresses their keyed hashes
    Replace   points the rows that refer to a text to another one, then treats the former text as Forget does
    PutFile, DropFile, ChangeFiles   change the tree of files: see `files`
    PutSource, DropSource, PutDocument, DropDocument   change the documents: see `documents`
    LinkProjects   adds or removes the link of two projects

Provisional rows never influence the outcome: a provisional chunk counts as absent and becomes replicated in place.
"""

from collections.abc import Sequence
from hashlib import sha256

from crystal_core.database import Database
from crystal_core.projects import LINK_COLUMNS, LINK_IS, link_of
from crystal_core.schema import CHUNK_TRIGGERS, DROP_CHUNK_TRIGGERS, DROP_VECTORS
from crystal_core.state import documents, files, memories, pending
from crystal_core.state.chunks import ChunkRows
from crystal_core.state.digests import (
    OCCURRENCES,
    PROJECT_LINKS,
    SUPPRESSED,
    Digests,
    occurrence_row,
    place,
    project_link_row,
    suppressed_row,
)
from crystal_crypto.hierarchy import VaultSecret
from crystal_mirror.operations import (
    Amend,
    Capture,
    ChangeFiles,
    DropDocument,
    DropFile,
    DropSource,
    Forget,
    LinkProjects,
    Operation,
    PutDocument,
    PutFile,
    PutSource,
    Remember,
    Replace,
    Replaced,
)
from crystal_mirror.ports import Vectors
from crystal_mirror.types import Origin


class StateRows:
    """The replicated rows within one write transaction."""

    def __init__(self, database: Database, secret: VaultSecret, digests: Digests) -> None:
        self._database = database
        self._secret = secret
        self._digests = digests
        self._chunks = ChunkRows(database, secret, digests)

    @property
    def deleted(self) -> bool:
        """Whether a text was deleted, so that its bytes must be scrubbed after the commit."""
        return self._chunks.deleted

    @deleted.setter
    def deleted(self, value: bool) -> None:
        self._chunks.deleted = value

    @property
    def left_out(self) -> bool:
        """Whether an operation contained a suppressed text."""
        return self._chunks.left_out

    def apply(self, origin: Origin, operation: Operation, vectors: Vectors) -> None:
        database, digests, chunks = self._database, self._digests, self._chunks
        match operation:
            case Capture():
                self._capture(origin, operation, vectors)
            case Remember():
                memories.remember(database, digests, chunks, origin, operation, vectors)
            case Amend():
                memories.amend(database, digests, origin, operation)
            case Forget():
                chunks.index()
                for target in operation.targets:
                    self._forget(target)
            case Replace():
                for each in operation.replaced:
                    chunks.index()
                    self._replace(each, vectors)
            case PutFile() | DropFile():
                files.change(database, self._secret, digests, origin, operation)
            case ChangeFiles():
                for one in operation.changes:  # §11.4-18
                    files.change(database, self._secret, digests, origin, one)
            case PutSource():
                documents.put_source(database, digests, origin, operation)
            case DropSource():
                documents.drop_source(database, digests, chunks, operation)
            case PutDocument():
                documents.put_document(database, digests, chunks, origin, operation, vectors)
            case DropDocument():
                documents.drop_document(database, digests, chunks, origin, operation)
            case LinkProjects():
                self._link(origin, operation)
        pending.drop(database, origin)
        chunks.index_if_many()

    def finish(self) -> None:
        """Complete the indexes before the commit."""
        self._chunks.finish()

    def index(self) -> None:
        """Bring the indexes up to date with the rows. Call before reading an index."""
        self._chunks.index()

    def embed_anew(self, content: bytes, windows: Sequence[bytes]) -> None:
        """Replace the vectors of a text, if the replicated state has it."""
        self._chunks.embed_anew(content, windows)

    def drop_vectors(self) -> None:
        """Remove all vectors; the next ones may have another size."""
        self._chunks.drop_vectors()

    def wipe(self) -> None:
        """Delete every row of the replicated state. Texts that provisional rows need stay, provisional."""
        self._chunks.index()
        # Rebuilding the index of a quarter of a million texts is faster than deleting them from it one by one.
        self._database.run(DROP_CHUNK_TRIGGERS)
        self._database.run(DROP_VECTORS)
        self._database.run(
            """
            DELETE FROM occurrences; DELETE FROM memories; DELETE FROM suppressed; DELETE FROM id_blocks;
            DELETE FROM memory_changes; DELETE FROM document_parts; DELETE FROM documents; DELETE FROM sources;
            DELETE FROM project_links;
            DELETE FROM acks; DELETE FROM acks_sparse; DELETE FROM position; DELETE FROM files; DELETE FROM condemned;
            UPDATE chunks SET provisional = 1 WHERE rowid IN (SELECT chunk FROM provisional_places);
            DELETE FROM chunks WHERE provisional = 0;
            INSERT INTO chunks_fts (chunks_fts) VALUES ('delete-all');
            INSERT INTO chunks_fts (rowid, text) SELECT rowid, text FROM chunks;
            """
        )
        self._database.run(CHUNK_TRIGGERS)
        self._digests.clear()
        self._chunks.deleted = True

    def _capture(self, origin: Origin, operation: Capture, vectors: Vectors) -> None:
        database, digest = self._database, self._digests[OCCURRENCES]
        agent, session, project = operation.agent, operation.session, operation.project
        repository, source = operation.repository, operation.source
        shared = place(agent, session, project, repository, source, origin.device)
        for piece in operation.pieces:
            taken = self._chunks.take(piece.text, vectors)  # §11.4-1
            if taken is None:
                continue
            content, chunk = taken
            new = database.changed(
                "INSERT INTO occurrences (chunk, agent, session, message, part, role, created_at, project, repository,"
                " source, device, model) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
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
                    piece.model,
                ),
            )
            if new:  # §11.4-1
                said = (piece.message, piece.part, piece.role, piece.created_at, piece.model)
                digest.add(occurrence_row(shared, content, *said))

    def _link(self, origin: Origin, operation: LinkProjects) -> None:
        database, digest = self._database, self._digests[PROJECT_LINKS]
        names = link_of(operation.one, operation.other)  # §11.4-15
        known = database.row(f"SELECT device, at FROM project_links WHERE {LINK_IS}", names)  # noqa: S608
        if operation.linked and known is None:
            new = (*names, origin.device, operation.at)
            insert = f"INSERT INTO project_links ({LINK_COLUMNS}, device, at) VALUES (?, ?, ?, ?, ?, ?)"  # noqa: S608
            database.run(insert, new)
            digest.add(project_link_row(*new))
        elif not operation.linked and known is not None:
            database.run(f"DELETE FROM project_links WHERE {LINK_IS}", names)  # noqa: S608
            digest.remove(project_link_row(*names, *known))

    def _forget(self, forget_hash: bytes) -> None:
        database = self._database
        self._suppress(forget_hash)  # §11.4-5
        found = database.row(
            "SELECT rowid, id, text, provisional FROM chunks WHERE forget_hash = ?", (forget_hash,)
        )
        if found is None:
            return
        chunk, content, text, is_provisional = found
        self._chunks.forget_terms(text)
        if not is_provisional:
            self._retract(chunk, content)
        self._chunks.deleted = True
        pending.forget(database, forget_hash)
        pending.remove_unneeded(database, [chunk])

    def _suppress(self, forget_hash: bytes) -> None:
        if self._database.changed(
            "INSERT INTO suppressed (forget_hash) VALUES (?) ON CONFLICT DO NOTHING", (forget_hash,)
        ):
            self._digests[SUPPRESSED].add(suppressed_row(forget_hash))

    def _replace(self, replaced: Replaced, vectors: Vectors) -> None:
        """Put another text in all places of a text, and forget the former."""
        self._suppress(replaced.target)
        old = self._chunks.find(replaced.target).replicated
        content = sha256(replaced.text.encode()).digest()
        if old is not None and self._secret.forget_hash(content) != replaced.target:
            former = self._database.value("SELECT id FROM chunks WHERE rowid = ?", (old,))
            taken = self._chunks.take(replaced.text, vectors)  # §11.4-16
            if taken is not None:
                self._chunks.index()
                self._move_occurrences(old, former, taken[1], content)
                names = (replaced.target, self._secret.forget_hash(content))
                memories.move(self._database, self._digests, (old, former), (taken[1], content), names)
                documents.move(self._database, self._digests, (old, former), (taken[1], content))
        self._forget(replaced.target)

    def _move_occurrences(self, old: int, former: bytes, chunk: int, content: bytes) -> None:
        """Rows keep their numbers, and so their order. Rows that the other text has already stay with the old one."""
        database, digest = self._database, self._digests[OCCURRENCES]
        for rowid, *shared, message, part, role, created_at, model in database.rows(
            "SELECT rowid, agent, session, project, repository, source, device, message, part, role, created_at, model"
            " FROM occurrences WHERE chunk = ?",
            (old,),
        ):
            if database.changed("UPDATE OR IGNORE occurrences SET chunk = ? WHERE rowid = ?", (chunk, rowid)):
                where = place(*shared)
                digest.remove(occurrence_row(where, former, message, part, role, created_at, model))
                digest.add(occurrence_row(where, content, message, part, role, created_at, model))

    def _retract(self, chunk: int, content: bytes) -> None:
        """Remove a chunk from the replicated state, with all rows that refer to it."""
        database, digest = self._database, self._digests[OCCURRENCES]
        for *shared, message, part, role, created_at, model in database.rows(
            "SELECT agent, session, project, repository, source, device, message, part, role, created_at, model"
            " FROM occurrences WHERE chunk = ?",
            (chunk,),
        ):
            digest.remove(occurrence_row(place(*shared), content, message, part, role, created_at, model))
        database.run("DELETE FROM occurrences WHERE chunk = ?", (chunk,))
        memories.remove(database, self._digests, chunk, content)
        documents.remove_from(database, self._digests, chunk, content)  # §11.4-5
        self._chunks.retract(chunk, content)
