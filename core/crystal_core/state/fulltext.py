"""Removal of the remains that FTS5's secure deletion leaves.

Secure deletion removes a text's terms from the index's pages, but not from `chunks_fts_idx`, which has the distinguishing
prefix of each page's first term: about one term in three hundred. A word that occurred only in a forgotten text could so stay
in the file. After a forget `purge` looks for such words; if there is one, it rebuilds the index. That is rare (few words of a
text are unique) and takes about 2 s for 100,000 chunks.
"""

from collections.abc import Iterable, Mapping

import apsw

from crystal_core.database import Database
from crystal_core.schema import TOKENIZER

MERGED_AT_ONCE = 64
"""Segments of the index merged at once while a snapshot is loaded. Each text is rewritten once instead of twice, which saves a
tenth of loading; a search reads some dozens of segments until the next entry arrives."""

_MERGES = {"automerge": 8, "crisismerge": 16}
"""FTS5's usual configuration: 8 segments are merged incrementally, 16 at once."""
_MAIN_INDEX = b"0"
"""FTS5's prefix of each term in the main index; prefix indexes, which are not used here, have other numbers."""


def indexed_terms(database: Database, text: str) -> set[bytes]:
    """Return the terms of a text in the full-text index."""
    words: list[str] = list(TOKENIZER.split())
    tokenizer = database.connection.fts5_tokenizer(words[0], words[1:])
    found = tokenizer(
        text.encode(), apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False, include_colocated=False
    )
    return {str(term).encode() for term in found}


def merge_seldom(database: Database) -> None:
    """Merge segments late while many texts are added. Belongs in a transaction, as all here."""
    if _automerge(database):
        _configure(database, {"automerge": 0, "crisismerge": MERGED_AT_ONCE})


def merge_often(database: Database) -> None:
    """Return to the usual merging. Adding the next texts merges the segments left over."""
    if not _automerge(database):
        _configure(database, _MERGES)


def purge(database: Database, forgotten: Iterable[bytes]) -> bool:
    """Rebuild the index if it still shows one of these terms that no text has any more. True if it did.

    Belongs in the transaction that deleted the texts, after they were deleted.
    """
    shown = {
        term.removeprefix(_MAIN_INDEX) for (term,) in database.rows("SELECT term FROM chunks_fts_idx") if term
    }
    suspects = {
        term[:length] for term in forgotten for length in range(1, len(term) + 1) if term[:length] in shown
    }
    if not suspects:
        return False
    database.run(
        "CREATE VIRTUAL TABLE IF NOT EXISTS temp.live_terms USING fts5vocab('main', 'chunks_fts', 'row')"
    )
    if all(_begins_a_live_term(database, suspect) for suspect in suspects):
        return False
    database.run("INSERT INTO chunks_fts (chunks_fts) VALUES ('rebuild')")
    return True


def _automerge(database: Database) -> int:
    return int(database.value("SELECT v FROM chunks_fts_config WHERE k = 'automerge'"))


def _configure(database: Database, values: Mapping[str, int]) -> None:
    for name, value in values.items():
        database.run("INSERT INTO chunks_fts (chunks_fts, rank) VALUES (?, ?)", (name, value))


def _begins_a_live_term(database: Database, start: bytes) -> bool:
    first = start.decode(errors="ignore")  # FTS5 may cut within a character
    for (term,) in database.each("SELECT term FROM temp.live_terms WHERE term >= ?", (first,)):
        encoded = str(term).encode()
        if encoded.startswith(start):
            return True
        if encoded > start:
            return False
    return False
