"""Filters of a search, chunks hidden by pending forgets, and the places of found chunks.

A chunk is admitted if one of its places (an occurrence, a memory, a part of a document, or a provisional one) meets all
filters; the latest of those is shown. A filter on a property that a place does not have (a memory has no session) excludes
the place. Retired and superseded memories are not places, unless requested; nor are tool calls, unless their kind or their role
is. A `Filters` belongs to one snapshot.
"""

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast
from weakref import WeakKeyDictionary

from msgspec import Struct

from crystal_core.database import Database, Row
from crystal_core.projects import ProjectKey, named, names_of, project_keys
from crystal_core.schema import HIDDEN
from crystal_core.search.keywords import EVERYTHING, RANKED_MAX, Restriction
from crystal_mirror.types import ACTION, ACTION_ROLES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CONVERSATION = "conversation"
MEMORY = "memory"
DOCUMENT = "document"
ANY = "any"
STATUSES = ("active", "retired", "superseded", ANY)
KINDS = (CONVERSATION, MEMORY, DOCUMENT, ACTION)
OF_SESSIONS = (CONVERSATION, ACTION)
"""Kinds of what stands in a conversation."""


class Scope(Struct, frozen=True):
    """Filters of a search; None admits everything. A chunk is admitted if one of its places meets all of them.

    ``kind`` is one of ``KINDS``. ``project`` is a project's path or its repository, or the end of one from a slash on.
    ``projects`` are identities: they admit what was said in these projects, and memories that hold everywhere or in one of
    them, never documents; without any, memories that hold everywhere.
    ``source`` is where a text came from: the tool that a conversation was held with, or the name of a source of documents.
    ``since_ms`` and ``until_ms`` are in milliseconds since 1970, both included; what has no date meets neither.
    ``category`` and ``status`` are a memory's: of another status than active it is found only if that is asked for, or ``ANY``.
    ``agent_alias`` is another name of the agent, whose places are admitted too. ``device`` is the id of the device that
    recorded a text, or whose source has it.
    """

    agent: str | None = None
    project: str | None = None
    session: str | None = None
    role: str | None = None
    kind: str | None = None
    source: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    category: str | None = None
    status: str | None = None
    projects: tuple[ProjectKey, ...] | None = None
    agent_alias: str | None = None
    device: bytes | None = None

    @property
    def finds_actions(self) -> bool:
        """Whether it asks for tool calls."""
        return self.kind == ACTION or self.role in ACTION_ROLES


EVERYWHERE = Scope()


PENDING = 2**48
"""Rowids of pending places are that much higher: they come behind all others of their moment."""
PLACES_MAX = 8
"""Latest places of one chunk that are looked at: the same question may have been asked several times."""

MUCH = 6
"""A filter that admits more than one place in this many is broad."""
NARROW_MAX = RANKED_MAX
"""Most places that a narrow filter admits: all of them are ranked."""
LISTED_MAX = 250_000
"""In a memory of more chunks, listing what a broad filter admits takes longer than checking what was found."""
SCOPES_KEPT = 8
"""Broad filters whose admitted chunks are kept in memory until something is written."""

_NO_ACTIONS = "+rowid NOT IN (SELECT chunk FROM actions)"
_FORGOTTEN = f"SELECT rowid FROM chunks WHERE forget_hash IN ({HIDDEN})"  # noqa: S608 - constants of ours
"""Texts that a pending operation forgets. Without filters, `stale_chunks` are hidden too: memories and documents that are not
current (see `schema`). With filters they are not admitted, unless requested."""
_ANY_HIDDEN = """
SELECT EXISTS (SELECT 1 FROM provisional_marks WHERE hides = 1) OR EXISTS (SELECT 1 FROM provisional_memories)
    OR EXISTS (SELECT 1 FROM provisional_documents)
    OR EXISTS (SELECT 1 FROM memories WHERE status <> 'active' OR superseded_by <> x'')
"""


class HitPlace(Struct, frozen=True):
    """The place that a chunk comes from. Properties that it does not have are empty."""

    kind: str
    agent: str
    session: str
    role: str
    created_at: int
    project: str
    repository: str
    source: str
    path: str
    title: str
    row: int = 0
    """Of a conversation: the rowid of its occurrence; of one that is pending, `PENDING` more than its own."""


class _Places(Struct, frozen=True):
    """A table or view of places: their kind, its columns, and a further condition on its rows."""

    table: str
    kind: str
    columns: Sequence[str]
    of_device: str
    """The condition that one device recorded a row; it has one binding, the device's id."""
    own: str = ""
    needs: Sequence[str] = ()
    """Columns of that condition."""
    indexed: bool = False
    """Whether it has the indexes of `occurrences`."""
    row: str = "0"
    """`HitPlace.row` of its rows."""


_SAID = ("agent", "session", "role", "created_at", "project", "repository", "source")
_NOTED = ("agent", "created_at", "category", "scope")
_STATE = ("status", "superseded_by")
_WRITTEN = ("created_at", "source", "path", "title")
_SHOWN = ("created_at", "agent", "session", "role", "project", "repository", "source", "path", "title")

_NOTED_OF_WANTED = """
SELECT chunk FROM wanted WHERE EXISTS (SELECT 1 FROM memories WHERE memories.chunk = wanted.chunk)
    OR EXISTS (SELECT 1 FROM provisional_places p WHERE p.chunk = wanted.chunk)
"""
"""The views of memories begin with the text of each chunk, and few chunks are memories."""
_BY_CHUNK = "sqlite_autoindex_occurrences_1"
"""SQLite's name of the index for UNIQUE (chunk, …). By itself it would choose the index over agents."""

_MEMORY_OF_DEVICE = "chunk IN (SELECT chunk FROM memory_states WHERE device = ?)"
_SOURCE_OF_DEVICE = """source IN (SELECT name FROM (
    SELECT name, device FROM sources
    UNION ALL SELECT s.name, q.device FROM provisional_sources s JOIN provisional q ON q.number = s.number) WHERE device = ?)"""

_CONVERSATIONS = (
    _Places("occurrences", CONVERSATION, _SAID, "device = ?", needs=("device",), indexed=True, row="rowid"),
    _Places(
        "provisional_places",
        CONVERSATION,
        _SAID,
        "number IN (SELECT number FROM provisional WHERE device = ?)",
        "category IS NULL AND path IS NULL",
        ("category", "path", "number"),
        row=f"rowid + {PENDING}",
    ),
)
_DOCUMENTS = _Places("document_places", DOCUMENT, _WRITTEN, _SOURCE_OF_DEVICE)
_CURRENT = _Places("memory_places", MEMORY, _NOTED, _MEMORY_OF_DEVICE)
_MEMORIES = {
    None: _CURRENT,
    "active": _CURRENT,
    "retired": _Places(
        "memory_states",
        MEMORY,
        _NOTED,
        _MEMORY_OF_DEVICE,
        "status = 'retired' AND superseded_by = x''",
        _STATE,
    ),
    "superseded": _Places("memory_states", MEMORY, _NOTED, _MEMORY_OF_DEVICE, "superseded_by <> x''", _STATE),
    ANY: _Places("memory_states", MEMORY, _NOTED, _MEMORY_OF_DEVICE),
}
_ONE_PLACE = ("agent", "session", "role", "source", "category")
"""Filters that a place meets by having exactly that value."""


class _Condition(Struct, frozen=True):
    """The condition on rows of one table; empty if all meet it."""

    places: _Places
    index: str
    sql: str
    bindings: tuple[object, ...]


class _AdmittedChunks:
    """What broad filters admit, a byte for each chunk, until the database changes.

    SQLite asks it by the functions `crystal_admits_0 (rowid)` and so on: looking a chunk up takes a tenth of the time of asking
    all tables of places for it, and a search with a broad filter asks for thousands. Each is a bytearray's own lookup, without
    a call of Python's."""

    def __init__(self, database: Database) -> None:
        self._version: tuple[int, int] | None = None
        self._numbers: dict[Scope, int] = {}
        self._bytes = [bytearray() for _ in range(SCOPES_KEPT)]
        self._next = 0
        for number, admitted in enumerate(self._bytes):
            lookup = cast("Callable[..., int]", admitted.__getitem__)
            database.connection.create_scalar_function(
                f"crystal_admits_{number}", lookup, 1, deterministic=True
            )

    def number(self, database: Database, scope: Scope) -> int | None:
        """The number of a scope's bytes; None if they are not here. Belongs in a snapshot."""
        version = database.version()
        if version != self._version:
            self._version, self._numbers = version, {}
        return self._numbers.get(scope)

    def keep(self, scope: Scope, chunks: "NDArray[np.int64]", size: int) -> int:
        """Keep the chunks, none higher than ``size``, that a scope admits, in place of the oldest scope, whose number then
        means this one. Call `number` first. Returns the scope's number."""
        import numpy as np

        admitted = np.zeros(size + 1, np.uint8)
        admitted[chunks] = 1
        number, self._next = self._next, (self._next + 1) % SCOPES_KEPT
        self._bytes[number][:] = admitted.tobytes()
        self._numbers = {known: other for known, other in self._numbers.items() if other != number}
        self._numbers[scope] = number
        return number

    def of(self, number: int) -> "NDArray[np.bool_]":
        """The bytes of a number."""
        import numpy as np

        return np.array(self._bytes[number], np.uint8).view(np.bool_)


_admitted_chunks: "WeakKeyDictionary[Database, _AdmittedChunks]" = WeakKeyDictionary()


class Filters:
    """The filters of one search over one snapshot."""

    def __init__(self, database: Database, scope: Scope = EVERYWHERE) -> None:
        self._database = database
        self._scope = scope
        self._narrows = scope != EVERYWHERE
        self.memories = _MEMORIES[scope.status].table
        """The view of the memories to return."""
        projects = _projects(database, scope)
        tables = [*_CONVERSATIONS, _MEMORIES[scope.status], _DOCUMENTS]
        conditions = (_condition(places, scope, projects, self._agents) for places in tables)
        self._conditions = [condition for condition in conditions if condition is not None]
        self._only: NDArray[np.int64] | None = None
        self._hidden = self._hidden_chunks()
        self._has_actions = bool(database.value("SELECT EXISTS (SELECT 1 FROM actions)"))
        self._narrow, self.broad = self._width() if self._narrows else (False, False)
        """Whether few chunks are admitted; and whether so many that checking what was found is cheaper than listing them."""

    def restriction(self) -> Restriction:
        """Return the restriction for the keyword half. It holds until another broad filter is asked for its own."""
        sql: list[str] = []
        bindings: tuple[object, ...] = ()
        listed: NDArray[np.bool_] | None = None
        if self._narrows:
            admitted, bindings = self._admitted()
            # The plus sign keeps SQLite from querying FTS5 separately for each admitted row.
            number = self._number()
            if number is not None:
                sql.append(f"crystal_admits_{number}(rowid)")
                bindings = ()
                listed = self._kept().of(number)
            else:
                sql.append(self._each() if self.broad else f"+rowid IN ({admitted})")
        if self._has_actions and not self._scope.finds_actions:
            sql.append(_NO_ACTIONS)
        if self._hidden:
            sql.append("+rowid NOT IN (SELECT value FROM json_each(?))")
            bindings = (*bindings, json.dumps(self._hidden))
        if not sql:
            return EVERYTHING
        admits = listed.__getitem__ if listed is not None and len(sql) == 1 else None
        return Restriction(" AND ".join(sql), bindings, self._narrow, admits)

    def admitted(self) -> "NDArray[np.int64] | None":
        """Return the admitted chunks by rowid, possibly with duplicates; None if there is no filter."""
        if self._narrows and self._only is None:
            self._only = self._rowids(*self._admitted())
        return self._only

    @property
    def listed(self) -> bool:
        """Whether what it admits is listed in memory, so that `admits` costs next to nothing."""
        return self._number() is not None

    def admits(self, chunks: "NDArray[np.int64]") -> "NDArray[np.bool_]":
        """For each of these chunks, whether it is admitted."""
        import numpy as np

        from crystal_core.sqlite_file import integers

        number = self._number()
        if number is not None:
            return self._kept().of(number)[chunks]
        query = (
            f"SELECT group_concat(rowid) FROM (SELECT value AS rowid FROM json_each(?)) WHERE {self._each()}"  # noqa: S608
        )
        bindings = (json.dumps(chunks.tolist()), *self._admitted()[1])
        return np.isin(chunks, integers(self._database.value(query, bindings)))

    def hidden(self) -> "NDArray[np.int64] | None":
        """Return the chunks that exist but that no search finds; None if there are none."""
        if not self._hidden:
            return None
        import numpy as np

        return np.array(self._hidden, np.int64)

    def places(self, chunks: Sequence[int]) -> dict[int, list[HitPlace]]:
        """Return the latest admitted places of each of these chunks that has one, at most `PLACES_MAX`, latest first."""
        selects: list[str] = []
        bindings: list[object] = [json.dumps(list(chunks))]
        for condition in self._conditions:
            places = condition.places
            shown = ", ".join(name if name in places.columns else "''" for name in _SHOWN)
            where = f" AND {condition.sql}" if condition.sql else ""
            among = "noted" if places.kind == MEMORY else "wanted"
            index = f" INDEXED BY {_BY_CHUNK}" if places.indexed else ""
            selects.append(
                f"SELECT chunk, '{places.kind}', {shown}, {places.row} FROM {places.table}{index}"  # noqa: S608
                f" WHERE chunk IN {among}{where}"
            )
            bindings += condition.bindings
        if not selects:
            return {}
        query = f"""
            WITH wanted AS MATERIALIZED (SELECT value AS chunk FROM json_each(?)),
            noted AS MATERIALIZED ({_NOTED_OF_WANTED}),
            places (chunk, kind, {", ".join(_SHOWN)}, row) AS ({" UNION ALL ".join(selects)}),
            latest AS (SELECT *, row_number() OVER
                (PARTITION BY chunk, kind, role LIKE '%thinking', role IN {ACTION_ROLES}
                 ORDER BY created_at DESC, row DESC) AS place FROM places)
            SELECT chunk, kind, {", ".join(_SHOWN)}, row FROM latest WHERE place <= {PLACES_MAX}
            ORDER BY chunk, created_at DESC, row DESC
        """  # noqa: S608 - the conditions are constants of ours, their values are bound
        found: dict[int, list[HitPlace]] = {}
        for row in self._database.rows(query, bindings):
            found.setdefault(int(row[0]), []).append(_place(row))
        return found

    def _kept(self) -> _AdmittedChunks:
        kept = _admitted_chunks.get(self._database)
        if kept is None:
            kept = _admitted_chunks[self._database] = _AdmittedChunks(self._database)
        return kept

    def _number(self) -> int | None:
        """The number of the function `crystal_admits_…` for this filter; None if it is not broad, or the memory is large."""
        if not self.broad:
            return None
        kept = self._kept()
        number = kept.number(self._database, self._scope)
        if number is None:
            size = int(self._database.value("SELECT max(rowid) FROM chunks") or 0)
            if size > LISTED_MAX:
                return None
            number = kept.keep(self._scope, self._rowids(*self._admitted()), size)
        return number

    def _admitted(self) -> tuple[str, tuple[object, ...]]:
        """Return a query for the admitted chunks, and its bindings; a chunk with several places may occur several times."""
        selects = [
            f"SELECT chunk FROM {condition.places.table}{condition.index} WHERE {condition.sql or 'true'}"  # noqa: S608
            for condition in self._conditions
        ]
        bindings = tuple(value for condition in self._conditions for value in condition.bindings)
        return " UNION ALL ".join(selects) or "SELECT rowid FROM chunks WHERE false", bindings

    def _width(self) -> tuple[bool, bool]:
        """Return whether the filter is narrow and whether it is broad: counted if an index suffices, assumed to be broad if
        counting would read all occurrences."""
        kept = _admitted_chunks.get(self._database)
        if kept is not None and kept.number(self._database, self._scope) is not None:
            return False, True  # listed since the last write
        counted = all(condition.index or not condition.places.indexed for condition in self._conditions)
        newest = self._database.value("SELECT max(rowid) FROM occurrences") or 0
        much = max(newest // MUCH, NARROW_MAX) if counted else NARROW_MAX
        admitted, bindings = self._admitted()
        count = f"SELECT count(*) FROM ({admitted} LIMIT {much + 1})"  # noqa: S608
        found = int(self._database.value(count, bindings))
        return found <= NARROW_MAX, found > much

    def _each(self) -> str:
        """Return a condition on `rowid`, with the bindings of `_admitted`. The tables in it have no such column themselves."""
        conditions: list[str] = []
        for condition in self._conditions:
            columns = ", ".join(dict.fromkeys(["chunk", *condition.places.columns, *condition.places.needs]))
            index = f" INDEXED BY {_BY_CHUNK}" if condition.places.indexed else ""
            conditions.append(
                f"EXISTS (SELECT 1 FROM (SELECT {columns} FROM {condition.places.table}{index})"  # noqa: S608
                f" WHERE chunk = rowid AND {condition.sql or 'true'})"
            )
        return f"({' OR '.join(conditions)})"

    def _agents(self) -> list[str]:
        """Return all agents, each by one lookup: they let the index over agents and times serve a filter by time alone."""
        found: list[str] = []
        agent = self._database.value("SELECT min(agent) FROM occurrences")
        while agent is not None:
            found.append(agent)
            agent = self._database.value("SELECT min(agent) FROM occurrences WHERE agent > ?", (agent,))
        return found

    def _hidden_chunks(self) -> list[int]:
        if not self._database.value(_ANY_HIDDEN):
            return []
        query = _FORGOTTEN if self._narrows else f"{_FORGOTTEN} UNION ALL SELECT chunk FROM stale_chunks"  # noqa: S608
        return [int(row[0]) for row in self._database.rows(query)]

    def _rowids(self, query: str, bindings: Sequence[object]) -> "NDArray[np.int64]":
        from crystal_core.sqlite_file import integers

        query = f"WITH found (rowid) AS ({query}) SELECT group_concat(rowid) FROM found"  # noqa: S608
        return integers(self._database.value(query, bindings))


def _condition(
    places: _Places,
    scope: Scope,
    projects: Sequence[ProjectKey] | None,
    agents: Callable[[], Sequence[str]],
) -> _Condition | None:
    """Return the scope's condition on that table's rows; None if no row can meet it."""
    wanted_kind = CONVERSATION if scope.kind == ACTION else scope.kind
    if wanted_kind not in (None, places.kind) or (scope.status is not None and places.kind != MEMORY):
        return None
    sql = [places.own] if places.own else []
    if scope.kind == ACTION:
        sql.append(f"role IN {ACTION_ROLES}")
    elif scope.kind == CONVERSATION and not scope.finds_actions:
        sql.append(f"role NOT IN {ACTION_ROLES}")
    bindings: list[object] = []
    for name in _ONE_PLACE:
        wanted = getattr(scope, name)
        if wanted is not None:
            if name not in places.columns:
                return None
            meant = [wanted]
            if name == "agent" and scope.agent_alias is not None:
                meant.append(scope.agent_alias)
            sql.append(f"{name} IN ({', '.join('?' * len(meant))})")
            bindings += meant
    if scope.device is not None:
        sql.append(places.of_device)
        bindings.append(scope.device)
    if projects is not None and places.kind != CONVERSATION:
        if scope.project is not None or places.kind != MEMORY:
            return None
        names = names_of(scope.projects or ())
        sql.append("scope IN (SELECT value FROM json_each(?))")
        bindings.append(json.dumps(["", *sorted(names.folders | names.repositories)]))
    elif projects is not None:
        if not projects:
            return None
        sql.append(f"(project, repository) IN (VALUES {', '.join(['(?, ?)'] * len(projects))})")
        bindings += [name for pair in projects for name in pair]
    if scope.since_ms is not None:
        sql.append("created_at >= ?")
        bindings.append(max(scope.since_ms, 1))
    if scope.until_ms is not None:
        sql.append("created_at BETWEEN 1 AND ?")
        bindings.append(scope.until_ms)
    index = ""
    if places.indexed:
        if scope.session is not None:
            index = " INDEXED BY occurrences_by_session"
        elif projects is not None:
            index = " INDEXED BY occurrences_by_project"
        elif scope.agent is not None or scope.since_ms is not None or scope.until_ms is not None:
            index = " INDEXED BY occurrences_by_agent"
            if scope.agent is None:
                sql.append("agent IN (SELECT value FROM json_each(?))")
                bindings.append(json.dumps(agents()))
    return _Condition(places, index, " AND ".join(sql), tuple(bindings))


def _projects(database: Database, scope: Scope) -> list[ProjectKey] | None:
    """Return the places' pairs of project and repository that the scope admits; None if it admits all."""
    if scope.project is None and scope.projects is None:
        return None
    found = list(project_keys(database))
    if scope.project is not None:
        found = [pair for pair in found if named(pair, scope.project)]
    if scope.projects is not None:
        names = names_of(scope.projects)
        found = [pair for pair in found if names.have(pair)]
    return found


def _place(row: Row) -> HitPlace:
    _, kind, created_at, *names, number = row
    agent, session, role, project, repository, source, path, title = names
    if role in ACTION_ROLES:
        kind = ACTION
    return HitPlace(
        kind, agent, session, role, int(created_at), project, repository, source, path, title, int(number)
    )
