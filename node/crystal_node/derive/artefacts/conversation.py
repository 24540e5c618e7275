"""A conversation of any length, read from the replicated rows piece by piece.

Pieces are in order of time; those without a time are where they were recorded. Pieces of a message stay together, and pieces of
the same moment have the order of the rows, which is that of the log. Only the order is in memory (some hundred bytes a piece);
texts are read with each iteration. Read a conversation within one ``Database.snapshot``.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from crystal_core.database import Database

BATCH_KEYS = 1000
BATCH_TEXTS = 64
"""Texts in memory at a time, of at most 64 KiB each."""

_BITS = 63
_MASK = (1 << _BITS) - 1

_KEY = "SELECT rowid, created_at, message, part FROM occurrences WHERE rowid = ?"
SHOWN = """
coalesce((SELECT m.hides FROM provisional_marks m WHERE m.forget_hash = c.forget_hash ORDER BY m.number DESC LIMIT 1), 0) = 0
"""
"""Leaves out texts that a pending forget of this device hides."""
_PIECE = f"""
SELECT o.rowid, c.id, c.text, o.role, o.created_at, o.message, o.part, o.project, o.repository, o.source, o.device
FROM occurrences o JOIN chunks c ON c.rowid = o.chunk
WHERE o.rowid = ? AND o.agent = ? AND o.session = ? AND c.provisional = 0 AND {SHOWN}
"""  # noqa: S608 - constants of ours


@dataclass(frozen=True, slots=True)
class ConversationPiece:
    """A message or a part of one. ``created_at``: milliseconds since 1970, 0 if unknown."""

    id: bytes
    text: str
    role: str
    created_at: int
    message: str
    part: int
    project: str
    repository: str
    source: str
    device: bytes


class Conversation:
    """The pieces of ``agent`` and ``session`` at these rowids of ``occurrences``. Each iteration reads them again."""

    def __init__(self, database: Database, agent: str, session: str, rowids: Sequence[int]) -> None:
        """``rowids`` in ascending order. Rows that are no longer of this conversation are skipped."""
        self.agent = agent
        self.session = session
        self._database = database
        self._order = _ordered(database, rowids)

    def __iter__(self) -> Iterator[ConversationPiece]:
        return (piece for _, piece in self.numbered())

    def numbered(self) -> Iterator[tuple[int, ConversationPiece]]:
        """The pieces with their rowids."""
        for start in range(0, len(self._order), BATCH_TEXTS):
            wanted = [(rowid, self.agent, self.session) for rowid in self._order[start : start + BATCH_TEXTS]]
            for rowid, *row in self._database.rows_of_many(_PIECE, wanted):
                yield rowid, ConversationPiece(*row)


def _ordered(database: Database, rowids: Sequence[int]) -> Sequence[int]:
    moment = 0
    firsts: dict[str, int] = {}
    keys: list[int] = []
    for start in range(0, len(rowids), BATCH_KEYS):
        batch = [(rowid,) for rowid in rowids[start : start + BATCH_KEYS]]
        for rowid, created_at, message, part in database.rows_of_many(_KEY, batch):
            moment = created_at or moment
            first = firsts.setdefault(message, rowid) if message else rowid
            # One number sorts as the four would, in a tenth of the memory.
            keys.append(((moment << _BITS | first) << _BITS | part) << _BITS | rowid)
    keys.sort()
    return array("q", (key & _MASK for key in keys))
