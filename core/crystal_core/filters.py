"""What a search may find: the person's filters, and what pending forgets hide. And where a found chunk comes from.

A chunk is admitted if one of its places (an occurrence, its memory, or a provisional one) meets all filters; the place shown
is the latest of those. What a place has not (a memory has no session), no filter on it finds. One `Filters` belongs to one
snapshot.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crystal_core.database import Database, Row
from crystal_core.keywords import EVERYTHING, RANKED_MAX, Restriction
from crystal_core.provisional import HIDDEN
from crystal_core.scope import CONVERSATION, DOCUMENT, EVERYWHERE, MEMORY, Scope

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_HIDDEN_CHUNKS = (
    f"SELECT rowid FROM chunks WHERE forget_hash IN ({HIDDEN}) UNION ALL SELECT chunk FROM stale_chunks"  # noqa: S608 - ours
)
"""Texts that a pending word forgets, and memories and documents that are not what counts any more (`schema3`)."""
_ANY_HIDDEN = """
SELECT EXISTS (SELECT 1 FROM provisional_marks WHERE hides = 1) OR EXISTS (SELECT 1 FROM provisional_memories)
    OR EXISTS (SELECT 1 FROM provisional_documents)
    OR EXISTS (SELECT 1 FROM memories WHERE status <> 'active' OR superseded_by <> x'')
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a chunk comes from. A memory has no session, and so on: what is not known is empty."""

    kind: str
    agent: str
    session: str
    role: str
    created_at: int
    project: str
    repository: str
    source: str


@dataclass(frozen=True, slots=True)
class _Places:
    """A table of places: its kind, and the columns that it has. A kind that is SQL's own tells its rows apart by `own`."""

    table: str
    kind: str
    columns: Mapping[str, str]
    own: str = ""


_SAID = ("agent", "session", "role", "created_at", "project", "repository", "source")
_NOTED = ("agent", "created_at")
_WRITTEN = ("created_at", "source")
_SHOWN = ("created_at", "agent", "session", "role", "project", "repository", "source")

_TABLES = (
    _Places("occurrences", CONVERSATION, {name: name for name in _SAID}),
    _Places("memory_places", MEMORY, {name: name for name in _NOTED}),
    _Places("document_places", DOCUMENT, {name: name for name in _WRITTEN}),
    _Places(
        "provisional_places",
        CONVERSATION,
        {name: name for name in _SAID},
        "category IS NULL AND path IS NULL",
    ),
)


@dataclass(frozen=True, slots=True)
class _Condition:
    """What rows of one table have to meet; empty if all do."""

    places: _Places
    sql: str
    bindings: tuple[object, ...]


class Filters:
    """The filters of one search over one snapshot."""

    def __init__(self, database: Database, scope: Scope = EVERYWHERE) -> None:
        self._database = database
        self._narrows = scope != EVERYWHERE
        self._conditions = [found for places in _TABLES if (found := _condition(places, scope)) is not None]
        self._only: NDArray[np.int64] | None = None
        self._hides = bool(database.value(_ANY_HIDDEN))

    def restriction(self) -> Restriction:
        """For the keyword half."""
        sql: list[str] = []
        bindings: tuple[object, ...] = ()
        narrow = False
        if self._narrows:
            admitted, bindings = self._admitted()
            # The plus sign keeps SQLite from asking FTS5 for each admitted row by itself.
            sql.append(f"+rowid IN ({admitted})")
            count = f"SELECT count(*) FROM ({admitted} LIMIT {RANKED_MAX + 1})"  # noqa: S608
            narrow = int(self._database.value(count, bindings)) <= RANKED_MAX
        if self._hides:
            sql.append(f"+rowid NOT IN ({_HIDDEN_CHUNKS})")
        return Restriction(" AND ".join(sql), bindings, narrow) if sql else EVERYTHING

    def admitted(self) -> "NDArray[np.int64] | None":
        """The chunks that may be found, by rowid, some perhaps twice; None if there is no filter."""
        if self._narrows and self._only is None:
            self._only = self._rowids(*self._admitted())
        return self._only

    def hidden(self) -> "NDArray[np.int64] | None":
        """The chunks that no result shows (`_HIDDEN_CHUNKS`); None if there are none."""
        return self._rowids(_HIDDEN_CHUNKS, ()) if self._hides else None

    def places(self, chunks: Sequence[int]) -> dict[int, Place]:
        """The latest admitted place of each of these chunks that has one."""
        selects: list[str] = []
        bindings: list[object] = [json.dumps(list(chunks))]
        for condition in self._conditions:
            places = condition.places
            shown = ", ".join(places.columns.get(name, "''") for name in _SHOWN)
            where = f" AND {condition.sql}" if condition.sql else ""
            selects.append(
                f"SELECT chunk, '{places.kind}', {shown} FROM {places.table} WHERE chunk IN wanted{where}"  # noqa: S608
            )
            bindings += condition.bindings
        if not selects:
            return {}
        query = f"""
            WITH wanted AS MATERIALIZED (SELECT value AS chunk FROM json_each(?)),
            places (chunk, kind, {", ".join(_SHOWN)}) AS ({" UNION ALL ".join(selects)})
            SELECT chunk, max(created_at), kind, {", ".join(_SHOWN[1:])} FROM places GROUP BY chunk
        """  # noqa: S608 - the conditions are constants of ours, their values are bound
        return dict(_place(row) for row in self._database.rows(query, bindings))

    def _admitted(self) -> tuple[str, tuple[object, ...]]:
        """A query for the admitted chunks, and its bindings; one with several places may come several times."""
        selects = [
            f"SELECT chunk FROM {condition.places.table} WHERE {condition.sql or 'true'}"  # noqa: S608
            for condition in self._conditions
        ]
        bindings = tuple(value for condition in self._conditions for value in condition.bindings)
        return " UNION ALL ".join(selects) or "SELECT rowid FROM chunks WHERE false", bindings

    def _rowids(self, query: str, bindings: Sequence[object]) -> "NDArray[np.int64]":
        from crystal_core.numbers import integers

        query = f"WITH found (rowid) AS ({query}) SELECT group_concat(rowid) FROM found"  # noqa: S608
        return integers(self._database.value(query, bindings))


def _condition(places: _Places, scope: Scope) -> _Condition | None:
    """What the scope asks of that table's rows; None if none of them can meet it."""
    if scope.kind is not None and scope.kind != places.kind:
        return None
    sql = [places.own] if places.own else []
    bindings: list[object] = []
    for name in ("agent", "session", "role", "source"):
        wanted = getattr(scope, name)
        if wanted is not None:
            if name not in places.columns:
                return None
            sql.append(f"{places.columns[name]} = ?")
            bindings.append(wanted)
    if scope.project is not None:
        if "project" not in places.columns:
            return None
        ends = " OR ".join(
            f"{column} = ? OR substr({column}, -length(?)) = ?"
            for column in (places.columns["project"], places.columns["repository"])
        )
        sql.append(f"({ends})")
        bindings += [scope.project, f"/{scope.project}", f"/{scope.project}"] * 2
    created_at = places.columns["created_at"]
    if scope.since_ms is not None:
        sql.append(f"{created_at} >= ?")
        bindings.append(max(scope.since_ms, 1))
    if scope.until_ms is not None:
        sql.append(f"{created_at} BETWEEN 1 AND ?")
        bindings.append(scope.until_ms)
    return _Condition(places, " AND ".join(sql), tuple(bindings))


def _place(row: Row) -> tuple[int, Place]:
    chunk, created_at, kind, agent, session, role, project, repository, source = row
    return int(chunk), Place(kind, agent, session, role, int(created_at), project, repository, source)
