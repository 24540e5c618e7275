"""The catalog's index of conversations, kept up to date as the memory grows, forgets and is rebuilt.

    update  --nothing changed (sum, removals, pending forgets)-->  done, without reading a row
          --rows behind the last one-->                          taken over in batches, each with how far
          --fewer rows than there should be, something removed, or not the memory of before-->
                                                                 all rows are compared with what is kept here
          --a memory that is behind where it was-->              nothing, until it has caught up again

The last case matters most: while `crystal.db` is rebuilt, what is not there yet must not count as forgotten. Each batch is
committed with how far it came, so that an update that was killed goes on.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from crystal_core.database import Database
from crystal_core.state import mirror_log
from crystal_node.derive.catalog.agents import WAITING, StagingEvent, StagingState, next_state
from crystal_node.derive.catalog.database import Catalog

TOKEN = "works.token"  # noqa: S105 - the name of a value that tells one memory file from another
TOKEN_BYTES = 16
MARK_BYTES = 8
BATCH_ROWS = 5000

_ROWS = """
SELECT o.rowid, o.agent, o.session, o.created_at, o.device, substr(c.forget_hash, 1, 8)
FROM occurrences o JOIN chunks c ON c.rowid = o.chunk WHERE o.rowid > ? ORDER BY o.rowid LIMIT ?
"""
_HIDDEN = """
SELECT DISTINCT substr(m.forget_hash, 1, 8) FROM provisional_marks m WHERE m.hides = 1
AND m.number = (SELECT max(number) FROM provisional_marks WHERE forget_hash = m.forget_hash)
"""


@dataclass
class IndexChanges:
    """What an update found. ``agents``: new ones, which wait in staging. ``behind``: the memory is being rebuilt; nothing was
    read."""

    pieces: int = 0
    lost: int = 0
    agents: list[str] = field(default_factory=list[str])
    checked_all: bool = False
    behind: bool = False


@dataclass(frozen=True, slots=True)
class _Head:
    token: bytes
    position: bytes
    removals: bytes
    """Number of removed windows, and the digest of forgotten texts: a text without vectors may be replaced, too."""
    sum: bytes
    count: int


class CatalogIndex:
    """Keeps ``conversation``, ``piece`` and ``agent`` of works.db in step with the memory's rows."""

    def __init__(
        self, catalog: Catalog, database: Database, own: bytes, is_known: Callable[[str], bool]
    ) -> None:
        """``own``: this device's id. ``is_known``: whether an agent had files here before it was first seen."""
        self._catalog = catalog
        self._database = database
        self._own = own
        self._is_known = is_known
        self._ids: dict[tuple[str, str], int] = {}
        self._states: dict[str, StagingState] = {}

    def update(self, now_ms: int) -> IndexChanges:
        """Applies what changed in the memory. Raises what the databases raise."""
        catalog, database = self._catalog, self._database
        self._ids.clear()
        self._states = {
            agent: StagingState(state) for agent, state in catalog.rows("SELECT agent, state FROM agent")
        }
        changes = IndexChanges()
        _give_token(database)
        with database.snapshot():
            head = _head(database)
            if head.position < (catalog.meta("position") or b""):
                changes.behind = True
                return changes
            self._hide(now_ms, changes)
            if head.sum == catalog.meta("sum") and self._goes_on(head):
                return changes
            if catalog.meta("token") is None:
                with catalog.transaction():
                    catalog.set_meta("token", head.token)
                    catalog.set_meta("removals", head.removals)
            if self._goes_on(head):
                self._follow(now_ms, changes)
            if not self._goes_on(head) or catalog.value("SELECT count(*) FROM piece") != head.count:
                self._compare(now_ms, changes)
            with catalog.transaction():
                for name in ("token", "position", "sum"):
                    catalog.set_meta(name, getattr(head, name))
                catalog.set_meta("removals", head.removals)
        if changes.lost:
            catalog.scrub()
        return changes

    def _goes_on(self, head: _Head) -> bool:
        """Whether this is the memory of the last update, with its last row unchanged."""
        catalog = self._catalog
        before = catalog.meta("token")
        if before is None:
            return True
        if before != head.token or catalog.meta("removals") != head.removals:
            return False
        last = catalog.rows(
            "SELECT p.occurrence, p.mark, c.agent, c.session FROM piece p JOIN conversation c ON c.id = p.conversation"
            " ORDER BY p.occurrence DESC LIMIT 1"
        )
        if not last:
            return True
        found = self._database.row(
            "SELECT o.rowid, substr(c.forget_hash, 1, 8), o.agent, o.session FROM occurrences o"
            " JOIN chunks c ON c.rowid = o.chunk WHERE o.rowid = ?",
            (last[0][0],),
        )
        return found == last[0]

    def _follow(self, now_ms: int, changes: IndexChanges) -> None:
        last = self._catalog.value("SELECT max(occurrence) FROM piece") or 0
        while rows := self._database.rows(_ROWS, (last, BATCH_ROWS)):
            with self._catalog.transaction():
                touched: dict[int, int] = {}
                pieces: list[tuple[int, int, bytes]] = []
                for rowid, agent, session, created_at, device, mark in rows:
                    conversation = self._conversation(agent, session, device, now_ms, changes)
                    touched[conversation] = max(created_at, touched.get(conversation, 0))
                    pieces.append((rowid, conversation, mark))
                self._catalog.run_many(
                    "INSERT INTO piece (occurrence, conversation, mark) VALUES (?, ?, ?)", pieces
                )
                self._touch(touched, now_ms)
            changes.pieces += len(rows)
            last = rows[-1][0]

    def _compare(self, now_ms: int, changes: IndexChanges) -> None:
        """Compares all rows and applies the differences in one transaction."""
        catalog = self._catalog
        changes.checked_all = True
        with catalog.transaction():
            catalog.run("DROP TABLE IF EXISTS temp.fresh")
            catalog.run(
                "CREATE TEMP TABLE fresh (occurrence INTEGER PRIMARY KEY, conversation INTEGER, mark BLOB,"
                " created_at INTEGER)"
            )
            last = 0
            while rows := self._database.rows(_ROWS, (last, BATCH_ROWS)):
                catalog.run_many(
                    "INSERT INTO fresh VALUES (?, ?, ?, ?)",
                    [
                        (rowid, self._conversation(agent, session, device, now_ms, changes), mark, created_at)
                        for rowid, agent, session, created_at, device, mark in rows
                    ],
                )
                last = rows[-1][0]
            lost = catalog.rows(
                "SELECT DISTINCT conversation FROM"
                " (SELECT conversation, mark FROM piece EXCEPT SELECT conversation, mark FROM fresh)"
            )
            changed = catalog.rows(
                "SELECT f.conversation, max(f.created_at) FROM fresh f LEFT JOIN piece p ON p.occurrence = f.occurrence"
                " AND p.conversation = f.conversation AND p.mark = f.mark WHERE p.occurrence IS NULL GROUP BY 1"
            )
            self._touch({**{row[0]: 0 for row in lost}, **dict(changed)}, now_ms)
            catalog.run_many("UPDATE conversation SET lost = 1 WHERE id = ?", lost)
            catalog.run_many("DELETE FROM digest WHERE conversation = ?", lost)
            catalog.run("DELETE FROM piece")
            catalog.run("INSERT INTO piece SELECT occurrence, conversation, mark FROM fresh")
            catalog.run("DROP TABLE temp.fresh")
            catalog.request_orphan_check()
        changes.lost += len(lost)

    def _hide(self, now_ms: int, changes: IndexChanges) -> None:
        """Marks conversations with a message that a pending forget hides, or hid until now, as changed."""
        catalog = self._catalog
        hidden = {bytes(mark) for (mark,) in self._database.rows(_HIDDEN)}
        before = {bytes(mark) for (mark,) in catalog.rows("SELECT mark FROM hidden")}
        if hidden == before:
            return
        with catalog.transaction():
            for mark in hidden ^ before:
                rows = catalog.rows("SELECT DISTINCT conversation FROM piece WHERE mark = ?", (mark,))
                self._touch({row[0]: 0 for row in rows}, now_ms)
                if mark in hidden:
                    catalog.run_many("UPDATE conversation SET lost = 1 WHERE id = ?", rows)
                    catalog.run_many("DELETE FROM digest WHERE conversation = ?", rows)
                    changes.lost += len(rows)
            catalog.run("DELETE FROM hidden")
            catalog.run_many("INSERT INTO hidden (mark) VALUES (?)", [(mark,) for mark in hidden])

    def _conversation(
        self, agent: str, session: str, device: bytes, now_ms: int, changes: IndexChanges
    ) -> int:
        self._agent(agent, device, now_ms, changes)
        found = self._ids.get((agent, session))
        if found is None:
            catalog, key = self._catalog, (agent, session)
            catalog.run(
                "INSERT INTO conversation (agent, session, last_at, changed_at, dirty_since, lost, staged, made, problem)"
                " VALUES (?, ?, 0, 0, 0, 0, 0, 0, '') ON CONFLICT DO NOTHING",
                key,
            )
            found = int(catalog.value("SELECT id FROM conversation WHERE agent = ? AND session = ?", key))
            self._ids[key] = found
        return found

    def _agent(self, agent: str, device: bytes, now_ms: int, changes: IndexChanges) -> None:
        state, own = self._states.get(agent), device == self._own
        if state is None:
            state = StagingState.LIVE if own or self._is_known(agent) else StagingState.GATHERING
            if state is StagingState.GATHERING:
                changes.agents.append(agent)
            self._catalog.run("INSERT INTO agent VALUES (?, ?, ?, '', '')", (agent, state, now_ms))
        elif own and state in WAITING:
            state = next_state(state, StagingEvent.RECORDED_HERE)
            set_state(self._catalog, agent, state, now_ms, remake=True)
        self._states[agent] = state

    def _touch(self, touched: dict[int, int], now_ms: int) -> None:
        self._catalog.run_many(
            "UPDATE conversation SET last_at = max(last_at, ?2), changed_at = ?3,"
            " dirty_since = CASE dirty_since WHEN 0 THEN ?3 ELSE dirty_since END, problem = '' WHERE id = ?1",
            [(conversation, last, now_ms) for conversation, last in touched.items()],
        )


def set_state(
    catalog: Catalog, agent: str, state: StagingState, now_ms: int, *, remake: bool, weave: str | None = None
) -> None:
    """Sets an agent's state and clears its failure. ``remake``: make the files of all its conversations again."""
    with catalog.transaction():
        catalog.run(
            "UPDATE agent SET state = ?, since = ?, failure = '', weave = coalesce(?, weave) WHERE agent = ?",
            (state, now_ms, weave, agent),
        )
        if remake:
            catalog.run(
                "UPDATE conversation SET dirty_since = CASE dirty_since WHEN 0 THEN ?2 ELSE dirty_since END,"
                " changed_at = 0, problem = '' WHERE agent = ?1",
                (agent, now_ms),
            )


def _give_token(database: Database) -> None:
    if mirror_log.meta_get(database, TOKEN) is None:
        with database.transaction():
            if mirror_log.meta_get(database, TOKEN) is None:
                mirror_log.meta_set(database, TOKEN, os.urandom(TOKEN_BYTES))


def _head(database: Database) -> _Head:
    position = mirror_log.position(database)
    row: tuple[Any, ...] = database.row("SELECT sum, count FROM digests WHERE name = 'occurrences'") or (
        b"",
        0,
    )
    return _Head(
        mirror_log.meta_get(database, TOKEN) or b"",
        position.epoch.to_bytes(8, "big") + position.sequence.to_bytes(8, "big"),
        b"%d %s"
        % (
            database.value("SELECT removals FROM index_state"),
            (database.value("SELECT sum FROM digests WHERE name = 'suppressed'") or b"").hex().encode(),
        ),
        bytes(row[0]),
        int(row[1]),
    )
