"""What FTS5's secure deletion leaves over, and its removal.

Secure deletion takes a text's terms out of the index's pages, but not out of `chunks_fts_idx`, where the first term of each
page stands, as far as it differs from the term before, so that pages are found: about one term in three hundred. A word that
stood in a forgotten text alone would so be left in the file. After a forget we look for such words; where there is one, the
index is written anew. That is rare (a few words of a text are its own) and costs about 2 s for 100,000 chunks.
"""

from collections.abc import Iterable, Mapping

import apsw

from crystal_core.database import Database
from crystal_core.schema import TOKENIZER

MERGED_AT_ONCE = 64
"""Segments of the index that are merged together while a snapshot is loaded. Each text is so written once again and not twice,
at a tenth less for all of loading; a search looks at some dozens of segments until the next entry comes."""

_MERGES = {"automerge": 8, "crisismerge": 16}
"""FTS5's configuration otherwise: 8 segments are merged bit by bit, 16 at once."""
_MAIN_INDEX = b"0"
"""What FTS5 puts before each term (prefix indexes, which we have not, have other numbers)."""


def indexed_terms(database: Database, text: str) -> set[bytes]:
    """The terms under which the full-text index knows a text."""
    words: list[str] = list(TOKENIZER.split())
    tokenizer = database.connection.fts5_tokenizer(words[0], words[1:])
    found = tokenizer(
        text.encode(), apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False, include_colocated=False
    )
    return {str(term).encode() for term in found}


def merge_seldom(database: Database) -> None:
    """What many texts that come now write beside each other is merged late. Belongs in a transaction, as all here."""
    if _automerge(database):
        _configure(database, {"automerge": 0, "crisismerge": MERGED_AT_ONCE})


def merge_often(database: Database) -> None:
    """As usual again. The next texts that are added have what was left for later merged with them."""
    if not _automerge(database):
        _configure(database, _MERGES)


def purge(database: Database, forgotten: Iterable[bytes]) -> bool:
    """Write the index anew if one of these terms that no text has any more still shows in it. True if it did.

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


def rebuild(database: Database) -> None:
    """Write the full-text index and SQLite's own indexes anew from the rows. Belongs in a transaction.

    Raises VaultDamaged where the rows themselves cannot be read, or contradict each other.
    """
    database.run("INSERT INTO chunks_fts (chunks_fts) VALUES ('rebuild')")
    database.run("REINDEX")


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
