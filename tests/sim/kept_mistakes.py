"""Plausible mistakes with memories and documents, to be put back on purpose: each undoes one rule of `memoryrows`,
`documentrows` or `chunkrows`."""

# pyright: reportPrivateUsage=false
# Mistakes are made in the middle of things.

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from msgspec import structs

from crystal_core.database import Database
from crystal_core.state import chunks as chunkrows
from crystal_core.state import documents, memories
from crystal_core.state.chunks import ChunkRows
from crystal_core.state.digests import MEMORIES, Digests, memory_row
from crystal_core.state.operations import StateRows
from crystal_mirror.operations import Amend, LinkProjects, PutDocument
from crystal_mirror.types import Origin
from tests.support.constant import always


def forgetting_the_new_memory_revives_the_old() -> AbstractContextManager[Any]:
    """Whose place a forgotten memory took is current again."""
    honest = memories.remove

    def remove(database: Database, digests: Digests, chunk: int, content: bytes) -> None:
        (name,) = database.rows("SELECT forget_hash FROM chunks WHERE rowid = ?", (chunk,))[0]
        for old, old_content in database.rows(
            "SELECT c.rowid, c.id FROM memories m JOIN chunks c ON c.rowid = m.chunk WHERE m.superseded_by = ?",
            (name,),
        ):
            _revive(database, digests, old, old_content)
        honest(database, digests, chunk, content)

    return patch.object(memories, "remove", remove)


def an_amendment_revives_what_was_superseded() -> AbstractContextManager[Any]:
    """Active is taken for current."""
    honest = memories.amend

    def amend(database: Database, digests: Digests, origin: Origin, operation: Amend) -> None:
        honest(database, digests, origin, operation)
        if operation.status == "active":
            for chunk, content in database.rows(
                "SELECT c.rowid, c.id FROM memories m JOIN chunks c ON c.rowid = m.chunk WHERE c.forget_hash = ?",
                (operation.target,),
            ):
                _revive(database, digests, chunk, content)

    return patch.object(memories, "amend", amend)


def _revive(database: Database, digests: Digests, chunk: int, content: bytes) -> None:
    memory = memories._memory(database, chunk)
    assert memory is not None
    digests[MEMORIES].remove(memory_row(content, *memory))
    digests[MEMORIES].add(memory_row(content, *memory._replace(superseded_by=b"")))
    database.run("UPDATE memories SET superseded_by = x'' WHERE chunk = ?", (chunk,))


def a_documents_text_goes_though_it_was_said_too() -> AbstractContextManager[Any]:
    """What leaves a document leaves the memory, whatever else has it."""
    return patch.object(chunkrows, "_NEEDED", "SELECT ?1 IS NULL")


def a_late_document_of_the_old_owner_counts() -> AbstractContextManager[Any]:
    """A source is everybody's."""

    def exists(database: Database, source: str, _device: bytes) -> bool:
        return bool(database.rows("SELECT 1 FROM sources WHERE name = ?", (source,)))

    return patch.object(documents, "_belongs_to", exists)


def late_pieces_of_an_old_version_count() -> AbstractContextManager[Any]:
    """Pieces are put wherever they say, whatever version stands there."""
    honest = documents.put_document

    def put_document(
        database: Database,
        digests: Digests,
        chunks: ChunkRows,
        origin: Origin,
        operation: PutDocument,
        vectors: Any,
    ) -> None:
        known = documents._find(database, operation.source, operation.path)
        if operation.first and known is not None and known.version != operation.version:
            operation = structs.replace(operation, version=known.version, total=known.total)
        honest(database, digests, chunks, origin, operation, vectors)

    return patch.object(documents, "put_document", put_document)


def a_document_brings_a_forgotten_text_back() -> AbstractContextManager[Any]:
    """What a source still has cannot have been forgotten."""
    honest = ChunkRows.take

    def take(self: ChunkRows, text: str, vectors: Any) -> Any:
        content, _, chunk = (
            self.take_shown(text, vectors) if honest(self, text, vectors) is None else (b"", b"", 0)
        )
        return (content, chunk) if chunk else honest(self, text, vectors)

    def put_document(*args: Any) -> None:
        with patch.object(ChunkRows, "take", take):
            put(*args)

    put = documents.put_document
    return patch.object(documents, "put_document", put_document)


def what_takes_a_memorys_place_is_for_everywhere() -> AbstractContextManager[Any]:
    """A scope that is not stated is none."""
    return patch.object(memories, "_inherited", always(""))


def a_link_that_was_made_stays() -> AbstractContextManager[Any]:
    """Projects are linked for good."""
    honest = StateRows._link

    def link(self: StateRows, origin: Origin, operation: LinkProjects) -> None:
        if operation.linked:
            honest(self, origin, operation)

    return patch.object(StateRows, "_link", link)


KEPT_MISTAKES = (
    forgetting_the_new_memory_revives_the_old,
    an_amendment_revives_what_was_superseded,
    a_documents_text_goes_though_it_was_said_too,
    a_late_document_of_the_old_owner_counts,
    late_pieces_of_an_old_version_count,
    a_document_brings_a_forgotten_text_back,
    what_takes_a_memorys_place_is_for_everywhere,
    a_link_that_was_made_stays,
)
