"""What a search may find: the person's filters, and what pending forgets hide. And where a found chunk comes from.

A chunk is admitted if one of its places (an occurrence, its memory, or a provisional one) meets all filters; the place shown
is the latest of those. One `Filters` belongs to one snapshot.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crystal_core.database import Database, Row
from crystal_core.keywords import EVERYTHING, RANKED_MAX, Restriction

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_HIDDEN = (
    "SELECT forget_hash FROM (SELECT forget_hash, hides, max(number) FROM provisional_marks GROUP BY forget_hash)"
    " WHERE hides = 1"
)
"""The keyed hashes of texts on which the latest pending word is a forget (see `provisional`). SQLite takes `hides` from the row
that has the maximum."""
_HIDDEN_CHUNKS = f"SELECT rowid FROM chunks WHERE forget_hash IN ({_HIDDEN})"  # noqa: S608 - constants of ours


@dataclass(frozen=True, slots=True)
class Place:
    """Where a chunk comes from. A memory has no session, and so on: what is not known is empty."""

    agent: str
    session: str
    role: str
    created_at: int
    project: str
    repository: str
    source: str


class Filters:
    """The filters of one search over one snapshot."""

    def __init__(self, database: Database, agent: str | None, since_ms: int | None) -> None:
        self._database = database
        conditions: list[str] = []
        bindings: list[object] = []
        if agent is not None:
            conditions.append("agent = ?")
            bindings.append(agent)
        if since_ms is not None:
            conditions.append("created_at >= ?")
            bindings.append(since_ms)
        self._condition = " AND ".join(conditions)
        self._bindings = tuple(bindings)
        self._hides = bool(database.rows("SELECT 1 FROM provisional_marks WHERE hides = 1 LIMIT 1"))

    def restriction(self) -> Restriction:
        """For the keyword half."""
        sql: list[str] = []
        bindings: tuple[object, ...] = ()
        narrow = False
        if self._condition:
            # The plus sign keeps SQLite from asking FTS5 for each admitted row by itself.
            sql.append(f"+rowid IN ({self._admitted()})")
            bindings = self._bindings * 3
            count = f"SELECT count(*) FROM ({self._admitted()} LIMIT {RANKED_MAX + 1})"  # noqa: S608
            narrow = int(self._database.value(count, bindings)) <= RANKED_MAX
        if self._hides:
            sql.append(f"+rowid NOT IN ({_HIDDEN_CHUNKS})")
        return Restriction(" AND ".join(sql), bindings, narrow) if sql else EVERYTHING

    def admitted(self) -> "NDArray[np.int64] | None":
        """The chunks that may be found, by rowid, some perhaps twice; None if there is no filter."""
        return self._rowids(self._admitted(), self._bindings * 3) if self._condition else None

    def hidden(self) -> "NDArray[np.int64] | None":
        """The chunks that pending forgets hide; None if there is no such forget."""
        return self._rowids(_HIDDEN_CHUNKS, ()) if self._hides else None

    def places(self, chunks: Sequence[int]) -> dict[int, Place]:
        """The latest admitted place of each of these chunks that has one."""
        condition = f" AND {self._condition}" if self._condition else ""
        query = f"""
            WITH wanted AS MATERIALIZED (SELECT value AS chunk FROM json_each(?)),
            places AS (
                SELECT chunk, created_at, agent, session, role, project, repository, source
                FROM occurrences WHERE chunk IN wanted {condition}
                UNION ALL
                SELECT chunk, created_at, agent, '', '', '', '', ''
                FROM memories WHERE chunk IN wanted {condition}
                UNION ALL
                SELECT chunk, created_at, agent, session, role, project, repository, source
                FROM provisional_places WHERE chunk IN wanted {condition}
            )
            SELECT chunk, max(created_at), agent, session, role, project, repository, source
            FROM places GROUP BY chunk
        """  # noqa: S608 - the conditions are constants of ours, their values are bound
        rows = self._database.rows(query, (json.dumps(list(chunks)), *self._bindings * 3))
        return dict(_place(row) for row in rows)

    def _admitted(self) -> str:
        """A query for the admitted chunks; one with several places may come several times."""
        tables = ("occurrences", "memories", "provisional_places")
        return " UNION ALL ".join(
            f"SELECT chunk FROM {table} WHERE {self._condition}"  # noqa: S608
            for table in tables
        )

    def _rowids(self, query: str, bindings: Sequence[object]) -> "NDArray[np.int64]":
        from crystal_core.numbers import integers

        query = f"WITH found (rowid) AS ({query}) SELECT group_concat(rowid) FROM found"  # noqa: S608
        return integers(self._database.value(query, bindings))


def _place(row: Row) -> tuple[int, Place]:
    chunk, created_at, agent, session, role, project, repository, source = row
    return int(chunk), Place(agent, session, role, int(created_at), project, repository, source)
