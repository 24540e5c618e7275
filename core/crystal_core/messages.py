"""Queries over messages: everything that was said, and chunks by their ids."""

from collections.abc import Iterator
from hashlib import sha256
from typing import TYPE_CHECKING

from msgspec import Struct

from crystal_core.database import Database
from crystal_core.schema import BLOCK, HIDDEN

if TYPE_CHECKING:
    from crystal_crypto.hierarchy import VaultSecret
    from crystal_mirror.operations import Capture

ID_BYTES = 32
PREFIX_BYTES = 4
"""Minimum length of an id's prefix to look it up by."""

_COLUMNS = "c.text, p.agent, p.session, p.message, p.part, p.role, p.created_at, p.project, p.repository, p.source, p.model"

_STANDS = """
SELECT 1 FROM chunks c WHERE c.forget_hash = ?1 AND (
    EXISTS (SELECT 1 FROM occurrences WHERE chunk = c.rowid AND session = ?2 AND message = ?3 AND part = ?4 AND agent = ?5)
    OR EXISTS (SELECT 1 FROM provisional_places WHERE chunk = c.rowid AND session = ?2 AND message = ?3 AND part = ?4
               AND agent = ?5))
"""

_SAID_ALIKE = """
SELECT ?7 FROM chunks c WHERE c.forget_hash = ?1 AND (
    EXISTS (SELECT 1 FROM occurrences WHERE chunk = c.rowid AND session = ?2 AND (source = ?3) IS NOT ?4
            AND (?5 = 0 OR created_at = 0 OR abs(created_at - ?5) <= ?6))
    OR EXISTS (SELECT 1 FROM provisional_places WHERE chunk = c.rowid AND session = ?2 AND (source = ?3) IS NOT ?4
               AND (?5 = 0 OR created_at = 0 OR abs(created_at - ?5) <= ?6)))
"""
_ALIKE_MS = 1_000
"""Programs that read one transcript round its times differently."""
_LONG_CHARS = 400
"""Nobody says a text that long twice in one session, so its time does not matter."""


class SaidPiece(Struct, frozen=True):
    """A piece of a message at its place in a conversation. ``created_at``: milliseconds since 1970, 0 if unknown. ``model``:
    the language model whose words they are, "" if unknown."""

    text: str
    agent: str
    session: str
    message: str
    part: int
    role: str
    created_at: int
    project: str
    repository: str
    source: str
    model: str


def said_pieces(
    database: Database, *, agent: str | None = None, since_ms: int | None = None
) -> Iterator[SaidPiece]:
    """Iterate over all pieces in the order in which they arrived: replicated, then this device's pending ones.

    Leaves out what a pending forget hides. Belongs in a snapshot.
    """
    condition = ""
    bindings: list[object] = []
    if agent is not None:
        condition += " AND p.agent = ?"
        bindings.append(agent)
    if since_ms is not None:
        condition += " AND p.created_at >= ?"
        bindings.append(since_ms)
    for table, only in (("occurrences", ""), ("provisional_places", " AND p.category IS NULL")):
        query = (
            f"SELECT {_COLUMNS} FROM {table} p JOIN chunks c ON c.rowid = p.chunk"  # noqa: S608 - constants of ours
            f" WHERE c.forget_hash NOT IN ({HIDDEN}){only}{condition} ORDER BY p.rowid"
        )
        for row in database.each(query, bindings):
            yield SaidPiece(*row)


def forgotten(database: Database) -> set[bytes]:
    """Return the keyed hashes of all forgotten texts, by pending forgets too."""
    query = f"SELECT forget_hash FROM suppressed UNION {HIDDEN}"  # noqa: S608 - a constant of ours
    return {bytes(forget_hash) for (forget_hash,) in database.rows(query)}


def recorded(database: Database, secret: "VaultSecret", capture: "Capture") -> list[bool]:
    """For each piece of the capture, whether it is already stored at its place, pending operations counted.

    Captures leave such pieces out: applying them again would change nothing, but they would be sent and kept.
    """
    hashes = secret.forget_hashes([sha256(piece.text.encode()).digest() for piece in capture.pieces])
    return [
        database.row(_STANDS, (forget_hash, capture.session, piece.message, piece.part, capture.agent))
        is not None
        for forget_hash, piece in zip(hashes, capture.pieces, strict=True)
    ]


def said_alike(
    database: Database, secret: "VaultSecret", capture: "Capture", imported: str, *, timed: bool = False
) -> list[bool]:
    """For each piece, whether the session has its text of about that time from elsewhere: for a capture of the source
    ``imported`` from any other source, for any other capture from that one. Pending operations are counted.

    `imported` is the source of messages whose ids are not known, so that `recorded` cannot find them at their places.
    `timed`: the time of a long text counts as well.
    """
    hashes = secret.forget_hashes([sha256(piece.text.encode()).digest() for piece in capture.pieces])
    own = capture.source == imported
    found = database.rows_of_many(
        _SAID_ALIKE,
        [
            (
                forget_hash,
                capture.session,
                imported,
                own,
                0 if len(piece.text) >= _LONG_CHARS and not timed else piece.created_at,
                _ALIKE_MS,
                number,
            )
            for number, (forget_hash, piece) in enumerate(zip(hashes, capture.pieces, strict=True))
        ],
    )
    alike = {number for (number,) in found}
    return [number in alike for number in range(len(capture.pieces))]


def chunk_of(database: Database, content: bytes) -> int | None:
    """Return the rowid of the chunk with that id. Belongs in a snapshot."""
    found = chunks_between(database, content, content, 1)
    return found[0] if found else None


def chunks_between(database: Database, low: bytes, high: bytes, limit: int = 2) -> list[int]:
    """Return the rowids of chunks with an id from `low` to `high`, which share their first four bytes.

    Reads only the blocks of rowids whose `id_blocks` has that prefix. Belongs in a snapshot. Raises ValueError if the first
    four bytes differ.
    """
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


def _between(database: Database, low: bytes, high: bytes, first: int, last: int, limit: int) -> list[int]:
    rows = database.rows(
        "SELECT rowid FROM chunks WHERE rowid BETWEEN ? AND ? AND id BETWEEN ? AND ? LIMIT ?",
        (first, last, low, high, limit),
    )
    return [int(row[0]) for row in rows]
