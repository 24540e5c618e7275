"""Texts by their ids (content hashes), or the beginnings of these, without an index over random values.

Such an index would cost a page for almost every chunk that is added (docs/decisions/0010). Instead `id_blocks` keeps, for each
`BLOCK` rowids, the first four bytes of their ids in one text: `|0A1B2C3D|…`. A lookup searches these texts (9 bytes a chunk),
and then the rows of the block that has it, and of the blocks that are not kept: the last one, which is still growing.

Triggers write a block when its last rowid is given out, and take a deleted chunk's digits out of it. What is not found so is
looked for in all rows, so a block that is wrong or lost costs time and nothing else.
"""

from crystal_core.database import Database
from crystal_core.schema5 import BLOCK

ID_BYTES = 32
PREFIX_BYTES = 4
"""An id's beginning has to be so long, at least."""


def chunks_between(database: Database, low: bytes, high: bytes, limit: int = 2) -> list[int]:
    """The rowids of chunks with an id from `low` to `high`, whose first four bytes are the same. Belongs in a snapshot."""
    if low[:PREFIX_BYTES] != high[:PREFIX_BYTES]:
        raise ValueError("a range of ids has four bytes in common")
    found: list[int] = []
    last = database.value("SELECT max(rowid) FROM chunks") or 0
    kept = dict[int, int](
        database.rows(
            "SELECT block, instr(prefixes, ?) FROM id_blocks", (f"|{low[:PREFIX_BYTES].hex().upper()}",)
        )
    )
    for block in range(last // BLOCK, -1, -1):
        if kept.get(block, 1):
            first = block * BLOCK + 1
            found += _between(database, low, high, first, first + BLOCK - 1, limit)
    return (found or _between(database, low, high, 1, last, limit))[:limit]


def chunk_of(database: Database, content: bytes) -> int | None:
    """The rowid of the chunk with that id. Belongs in a snapshot."""
    found = chunks_between(database, content, content, 1)
    return found[0] if found else None


def _between(database: Database, low: bytes, high: bytes, first: int, last: int, limit: int) -> list[int]:
    rows = database.rows(
        "SELECT rowid FROM chunks WHERE rowid BETWEEN ? AND ? AND id BETWEEN ? AND ? LIMIT ?",
        (first, last, low, high, limit),
    )
    return [int(row[0]) for row in rows]
