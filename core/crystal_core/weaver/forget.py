"""Effect of a forget on woven files: removes the journal parts read from the text, and their answers in the database.

Which of a model's sentences came from which message is unknown, so the whole part is removed. A text known only by its keyed
hash cannot be searched for: pages and memories that a model made from it stay until they are rewritten or forgotten themselves
(`docs/agent.md`).

The caller runs ``let_go``, rewrites the files, then runs ``has_let_go``. After a crash in between, ``let_go`` finds the same
parts again.
"""

from collections.abc import Iterable

from msgspec import structs

from crystal_core.weaver.database import WeaverDatabase
from crystal_core.weaver.records import BatchOutcome, Run, WeaverBatch, decode_outcome, encode_outcome

FORGOTTEN = "A text that this part was made of has been forgotten since; the part was taken out."


def let_go(database: WeaverDatabase, forgotten: Iterable[bytes]) -> list[tuple[Run, WeaverBatch]]:
    """Delete all that was made from texts with these keyed hashes. Returns the batches whose journals must be rewritten."""
    found: list[tuple[Run, WeaverBatch]] = []
    for mark in forgotten:
        for run, batch in database.read_from(mark):
            data = database.outcome_of(batch)
            before = decode_outcome(data) if data is not None else BatchOutcome("", 0, 1, 0, 0)
            left = BatchOutcome(
                before.model,
                before.sessions,
                before.pieces,
                before.first,
                before.last,
                note=FORGOTTEN,
                remembered=before.remembered,
            )
            database.forget(batch, encode_outcome(structs.replace(left, unread=before.unread)))
            found.append((run, batch))
    return found


def has_let_go(database: WeaverDatabase, gone: Iterable[tuple[Run, WeaverBatch]]) -> None:
    """Mark the journals of these batches as rewritten."""
    for _, batch in gone:
        database.unmark(batch)
