"""An agent's messages in order, from the replicated rows.

A piece is identified by its key, a hash of its place and its text's keyed hash: the same in a rebuilt database, and useless
for guessing a forgotten text. Pieces are ordered by day, within a day by project, then by session, within a session by time. A
piece without a time has its session's first one; a session without times is undated and comes first. No batch has pieces of
two projects: what a model writes of one project must not get into what is remembered of another.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from hashlib import sha256

from crystal_core.database import Database
from crystal_core.projects import ProjectKey, scope_of
from crystal_mirror.types import ACTION_ROLES

KEY_BYTES = 16
UNDATED = "undated"
PIECE_OVERHEAD_BYTES = 96
"""Size of a piece in a prompt besides its text."""

_LISTED = f"""
SELECT o.rowid, o.session, o.message, o.part, o.created_at, octet_length(c.text), c.forget_hash, o.project, o.repository
FROM occurrences o JOIN chunks c ON c.rowid = o.chunk
WHERE o.agent = ? AND o.role NOT IN {ACTION_ROLES}
"""  # noqa: S608 - a constant of ours
_TEXT = """
SELECT c.text, o.role, o.project, o.repository FROM occurrences o JOIN chunks c ON c.rowid = o.chunk
WHERE o.rowid = ? AND o.agent = ?
"""


@dataclass(frozen=True, slots=True)
class WeaverSource:
    """The place of a piece. ``moment``: milliseconds, 0 if unknown. ``size``: approximate bytes in a prompt. ``scope``: of what
    is remembered of it."""

    key: bytes
    rowid: int
    session: str
    moment: int
    size: int
    day: str
    mark: bytes
    """The keyed hash under which the text can be forgotten."""
    scope: str = ""


@dataclass(frozen=True, slots=True)
class Said:
    """A piece with its text."""

    source: WeaverSource
    role: str
    text: str
    project: ProjectKey = ("", "")


def list_sources(database: Database, agent: str, zone: tzinfo, *, since: int = 0) -> list[WeaverSource]:
    """Return all pieces of an agent from ``since`` on, in order."""
    rows = list(database.each(_LISTED, (agent,)))
    firsts: dict[str, int] = {}
    for _, session, _, _, moment, *_ in rows:
        if moment > 0:
            firsts[session] = min(moment, firsts.get(session, moment))
    found: list[WeaverSource] = []
    same: dict[str, str] = {}  # one text for equal sessions, days and scopes: there are many rows of each
    for rowid, session, message, part, moment, size, forget_hash, project, repository in rows:
        when = moment if moment > 0 else firsts.get(session, 0)
        if since and when < since:
            continue
        key, day = _key(agent, session, message, part, forget_hash), day_of(when, zone)
        scope = scope_of((project, repository))
        found.append(
            WeaverSource(
                key,
                rowid,
                same.setdefault(session, session),
                when,
                size + PIECE_OVERHEAD_BYTES,
                same.setdefault(day, day),
                forget_hash,
                same.setdefault(scope, scope),
            )
        )
    begins: dict[tuple[str, ...], int] = {}
    for one in found:
        for place in ((one.day, one.scope), (one.day, one.scope, one.session)):
            begins[place] = min(one.moment, begins.get(place, one.moment))
    found.sort(
        key=lambda one: (
            one.day != UNDATED,
            one.day,
            begins[one.day, one.scope],
            one.scope,
            begins[one.day, one.scope, one.session],
            one.session,
            one.moment,
            one.rowid,
        )
    )
    return found


def load(database: Database, agent: str, sources: Iterable[WeaverSource]) -> list[Said]:
    """Return the pieces with their texts, as far as these still exist."""
    said: list[Said] = []
    for source in sources:
        row = database.row(_TEXT, (source.rowid, agent))
        if row is not None:
            said.append(Said(source, str(row[1]), str(row[0]), (str(row[2]), str(row[3]))))
    return said


def scope_of_all(said: Sequence[Said]) -> str | None:
    """Return the scope of what is remembered of these pieces: their project, "" if they were said in none; None if they were
    said in several, so that nothing of them can be remembered."""
    scopes = {scope_of(one.project) for one in said}
    return scopes.pop() if len(scopes) == 1 else None


def batch_length(sources: Sequence[WeaverSource], at: int, size_max: int) -> int:
    """Return how many pieces from ``at`` on make a batch: those of one day and project that fit. A larger piece is alone in its
    batch."""
    size, first = 0, sources[at]
    for number in range(at, len(sources)):
        one = sources[number]
        elsewhere = (one.day, one.scope) != (first.day, first.scope)
        if number > at and (elsewhere or size + one.size > size_max):
            return number - at
        size += one.size
    return len(sources) - at


def day_of(moment: int, zone: tzinfo) -> str:
    """Return the day of a moment in ``zone``."""
    if moment <= 0:
        return UNDATED
    try:
        return datetime.fromtimestamp(moment / 1000, zone).date().isoformat()
    except (OverflowError, ValueError, OSError):
        return UNDATED


def clock_of(moment: int, zone: tzinfo) -> str:
    """Return the time as "09:31", or "" if unknown."""
    if day_of(moment, zone) == UNDATED:
        return ""
    return datetime.fromtimestamp(moment / 1000, zone).strftime("%H:%M")


def _key(agent: str, session: str, message: str, part: int, forget_hash: bytes) -> bytes:
    digest = sha256()
    for text in (agent, session, message, str(part)):
        data = text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(4, "big") + data)
    digest.update(forget_hash)
    return digest.digest()[:KEY_BYTES]
