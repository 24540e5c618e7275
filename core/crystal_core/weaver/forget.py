"""What a forget does to what was woven: the part of a journal that was read from the text goes, with its answers in the book.

Nobody can tell which of a model's sentences came from which message, so the whole part goes. Where a text is only known by its
keyed hash nothing can be searched for it: pages and memories that a model made of it stay until they are written anew or
forgotten themselves, which `docs/agent.md` says.

Two steps: ``let_go``, then the caller writes the files anew, then ``has_let_go``. Killed in between, the first finds the
same parts again.
"""

from collections.abc import Iterable

from msgspec import structs

from crystal_core.weaver.database import WeaverDatabase
from crystal_core.weaver.records import BatchOutcome, Run, WeaverBatch, decode_outcome, encode_outcome

FORGOTTEN = "A text that this part was made of has been forgotten since; the part was taken out."


def let_go(book: WeaverDatabase, forgotten: Iterable[bytes]) -> list[tuple[Run, WeaverBatch]]:
    """Lets go of all that was made of texts with these keyed hashes. Returns whose journals are to be written anew."""
    found: list[tuple[Run, WeaverBatch]] = []
    for mark in forgotten:
        for run, batch in book.read_from(mark):
            data = book.outcome_of(batch)
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
            book.forget(batch, encode_outcome(structs.replace(left, unread=before.unread)))
            found.append((run, batch))
    return found


def has_let_go(book: WeaverDatabase, gone: Iterable[tuple[Run, WeaverBatch]]) -> None:
    """The journals of these are written anew."""
    for _, batch in gone:
        book.unmark(batch)
