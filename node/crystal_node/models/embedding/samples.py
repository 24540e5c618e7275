"""A text of the vault with its one vector: what a provider's model is compared with. See ``remote``."""

from crystal_core.database import Database
from crystal_core.vectors import float16_vectors
from crystal_node.models.embedding.embedder import HeldEmbedder, Sample

_BYTES_MIN, _BYTES_MAX = 24, 800
"""Long enough to tell models apart, short enough to be one window of any of them."""
_LOOKED_AT = 2000


def compare_with(embedder: HeldEmbedder | None, database: Database) -> None:
    """Has a remote model compared with the vault before it gives anything out. Does nothing to the built-in one."""
    expect = getattr(embedder, "expect", None)
    if expect is not None:
        expect(sample_of(database))


def sample_of(database: Database) -> Sample | None:
    """One that every device of the vault has; None if there is none."""
    row = database.row(
        "SELECT c.rowid, c.text FROM (SELECT rowid, text, provisional FROM chunks ORDER BY rowid LIMIT ?) c"
        " WHERE c.provisional = 0 AND length(CAST(c.text AS BLOB)) BETWEEN ? AND ?"
        " AND (SELECT count(*) FROM windows w WHERE w.chunk = c.rowid) = 1 ORDER BY c.rowid LIMIT 1",
        (_LOOKED_AT, _BYTES_MIN, _BYTES_MAX),
    )
    if row is None:
        return None
    vectors = float16_vectors(database, row[0])
    return (row[1], vectors[0]) if vectors else None
