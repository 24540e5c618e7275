"""All conversations of this device's memory: listed with the latest first, counted, and read whole.

A conversation is what an agent heard and said in one session. Only its texts are stored: the list is computed from the index
over sessions, and again when the memory has changed. What a pending forget hides is left out.

::

    occurrences_by_session ──► (session, agent, quarter of an hour): how many texts ──► days, in this machine's zone
                           └─► the latest text's row ──► project, tool, device
    occurrences_by_person  ──► the first messages of a person ──► title, for those that are shown
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from hashlib import sha256

from crystal_core.cutting.messages import joined_pieces
from crystal_core.database import Database
from crystal_core.projects import NO_FOLDERS, ProjectKey, scope_of
from crystal_core.schema import HIDDEN
from crystal_core.search.turns import UNSAID
from crystal_node.base.errors import NoSuchEntry
from crystal_node.base.wording import iso
from crystal_node.search.conversation import ConversationMessage, session_messages
from crystal_node.search.conversation_documents import (
    CONVERSATION_DIGITS,
    VALUES_MAX,
    ActivityDocument,
    ConversationDocument,
    ConversationFilter,
    ConversationRequest,
    ConversationsDocument,
    ConversationsRequest,
    ConversationTextDocument,
    DayCount,
    MessageDocument,
    ValueCount,
)
from crystal_node.search.devices import DeviceNames
from crystal_node.search.titles import MESSAGES_MAX, READ_CHARS_MAX, first_title, titles_of

_QUARTER = 900_000
"""Milliseconds. In every time zone a day begins at such a quarter of an hour."""

_IS_SAID = "p.category IS NULL AND p.path IS NULL"
_COUNTS = f"""
SELECT session, agent, created_at / {_QUARTER}, min(created_at), max(created_at), count(*)
FROM occurrences INDEXED BY occurrences_by_session GROUP BY 1, 2, 3
UNION ALL
SELECT p.session, p.agent, p.created_at / {_QUARTER}, min(p.created_at), max(p.created_at), count(*)
FROM provisional_places p WHERE {_IS_SAID} GROUP BY 1, 2, 3
"""  # noqa: S608 - constants of ours
_HIDDEN_COUNTS = f"""
WITH hidden AS MATERIALIZED (SELECT rowid AS chunk FROM chunks WHERE forget_hash IN ({HIDDEN}))
SELECT o.session, o.agent, o.created_at / {_QUARTER} FROM hidden CROSS JOIN occurrences o ON o.chunk = hidden.chunk
UNION ALL
SELECT p.session, p.agent, p.created_at / {_QUARTER}
FROM hidden CROSS JOIN provisional_places p ON p.chunk = hidden.chunk WHERE {_IS_SAID}
"""  # noqa: S608 - constants of ours
_ORIGIN = """
SELECT project, repository, source, device FROM occurrences INDEXED BY occurrences_by_session
WHERE session = ?1 AND agent = ?2 AND created_at = ?3 LIMIT 1
"""
_PENDING_ORIGIN = f"""
SELECT p.project, p.repository, p.source, q.device
FROM provisional_places p INDEXED BY provisional_places_by_session JOIN provisional q ON q.number = p.number
WHERE p.session = ?1 AND p.agent = ?2 AND p.created_at = ?3 AND {_IS_SAID} LIMIT 1
"""  # noqa: S608 - constants of ours


_BEGINNING = f"""
SELECT substr(c.text, 1, {READ_CHARS_MAX}) FROM (
    SELECT * FROM (
        SELECT chunk, created_at, rowid AS number, role FROM occurrences INDEXED BY occurrences_by_session
        WHERE session = ?1 AND agent = ?2 ORDER BY created_at, rowid LIMIT {MESSAGES_MAX})
    UNION ALL
    SELECT p.chunk, p.created_at, p.rowid + (1 << 48), p.role
    FROM provisional_places p INDEXED BY provisional_places_by_session
    WHERE p.session = ?1 AND p.agent = ?2 AND {_IS_SAID}
) s JOIN chunks c ON c.rowid = s.chunk
WHERE s.role NOT IN {UNSAID} AND c.forget_hash NOT IN ({HIDDEN})
ORDER BY s.created_at, s.number LIMIT {MESSAGES_MAX}
"""  # noqa: S608 - constants of ours
"""What was said first where no person spoke."""

_Origin = tuple[ProjectKey, str, str]
"""Folder and repository, tool, and device of a conversation's latest text."""


@dataclass(slots=True)
class Conversation:
    """One that was listed. Times in milliseconds since 1970, 0 if unknown. ``days``: pieces of text by day."""

    agent: str
    session: str
    began_at: int = 0
    ended_at: int = 0
    texts: int = 0
    days: Counter[str] = field(default_factory=Counter[str])
    project: str = ""
    tool: str = ""
    device: str = ""

    @property
    def id(self) -> str:
        return conversation_id(self.agent, self.session)


def conversation_id(agent: str, session: str) -> str:
    """A conversation's id in addresses. It does not reveal the session's own name, which may be anybody's words."""
    named = f"{len(agent.encode())}:{agent}{session}"
    return sha256(named.encode()).hexdigest()[:CONVERSATION_DIGITS]


class ConversationList:
    """The conversations of one database, as they are at each call. Used by one thread at a time."""

    def __init__(self, database: Database, zone: tzinfo) -> None:
        self._database = database
        self._zone = zone
        self._version: tuple[int, int] | None = None
        self._ordered: list[Conversation] = []
        self._by_id: dict[str, Conversation] = {}
        self._origins: dict[tuple[str, str, int, int], _Origin] = {}
        self._days: dict[int, str] = {}

    def listed(self, asked: ConversationsRequest) -> ConversationsDocument:
        """Some of them, the latest first."""
        with self._database.snapshot():
            self._look()
            found = [each for each in self._ordered if _meets(each, asked)]
            names = DeviceNames(self._database)
            shown = found[asked.offset : asked.offset + asked.limit]
            titles = self._titles(shown)
            return ConversationsDocument(
                conversations=[
                    self._document(each, title, names) for each, title in zip(shown, titles, strict=True)
                ],
                total=len(found),
            )

    def activity(self, asked: ConversationFilter) -> ActivityDocument:
        """What they can be filtered by, with counts, and the days on which something was said."""
        with self._database.snapshot():
            self._look()
            names = DeviceNames(self._database)
        days: dict[str, list[int]] = {}
        for each in self._met(asked, without=("since", "until")):
            for day, texts in each.days.items():
                if not day:
                    continue
                counted = days.setdefault(day, [0, 0])
                counted[0] += 1
                counted[1] += texts
        return ActivityDocument(
            total=sum(1 for _ in self._met(asked)),
            projects=_counts(each.project for each in self._met(asked, without=("project",))),
            devices=_counts((each.device for each in self._met(asked, without=("device",))), names),
            tools=_counts(each.tool for each in self._met(asked, without=("tool",))),
            agents=_counts(each.agent for each in self._met(asked, without=("agent",))),
            days=[DayCount(day=day, conversations=days[day][0], texts=days[day][1]) for day in sorted(days)],
        )

    def read(self, asked: ConversationRequest) -> ConversationTextDocument:
        """Messages of one. Raises NoSuchEntry."""
        with self._database.snapshot():
            self._look()
            found = self._by_id.get(asked.id)
            if found is None:
                raise NoSuchEntry("that conversation is not in this memory, or was forgotten")
            (title,) = self._titles([found])
            messages = list(_messages(session_messages(self._database, found.agent, found.session)))
            return ConversationTextDocument(
                conversation=self._document(found, title, DeviceNames(self._database)),
                messages=messages[asked.offset : asked.offset + asked.limit],
                offset=asked.offset,
                total=len(messages),
            )

    def _met(self, asked: ConversationFilter, without: Sequence[str] = ()) -> Iterator[Conversation]:
        return (each for each in self._ordered if _meets(each, asked, without))

    def _titles(self, shown: Sequence[Conversation]) -> list[str]:
        """From a person's first message, or from anybody's first if no person spoke; "" where that gives none."""
        found = titles_of(self._database, ((each.agent, each.session) for each in shown))
        return [found[each.agent, each.session] or self._beginning(each) for each in shown]

    def _beginning(self, found: Conversation) -> str:
        rows = self._database.rows(_BEGINNING, (found.session, found.agent))
        return first_title(str(text) for (text,) in rows)

    def _document(self, found: Conversation, title: str, names: DeviceNames) -> ConversationDocument:
        return ConversationDocument(
            id=found.id,
            title=title,
            agent=found.agent,
            session=found.session,
            project=found.project,
            tool=found.tool,
            device=found.device,
            device_name=names.name(found.device),
            began_at=iso(found.began_at) or "",
            ended_at=iso(found.ended_at) or "",
            texts=found.texts,
        )

    def _look(self) -> None:
        """Make the list again if the memory has changed. Inside a snapshot."""
        version = self._database.version()
        if version == self._version:
            return
        hidden = Counter((str(s), str(a), int(q)) for s, a, q in self._database.rows(_HIDDEN_COUNTS))
        found: dict[tuple[str, str], Conversation] = {}
        for session, agent, quarter, first, last, count in self._database.each(_COUNTS):
            left = count
            if hidden and (taken := hidden.get((session, agent, quarter))):
                left -= min(count, taken)
                hidden[session, agent, quarter] -= count - left
            if not left:
                continue
            each = found.get((session, agent))
            if each is None:
                each = found[session, agent] = Conversation(agent, session)
            each.texts += left
            if last > 0:
                each.began_at = min(each.began_at or first, first) if first > 0 else each.began_at
                each.ended_at = max(each.ended_at, last)
                each.days[self._day(quarter)] += left
        origins: dict[tuple[str, str, int, int], _Origin] = {}
        for each in found.values():
            key = (each.session, each.agent, each.ended_at, each.texts)
            origins[key] = self._origins.get(key) or self._origin(each)
            _, each.tool, each.device = origins[key]
        names = _project_names(place for place, _, _ in origins.values())
        for each in found.values():
            each.project = names[origins[each.session, each.agent, each.ended_at, each.texts][0]]
        self._origins = origins
        self._ordered = sorted(found.values(), key=lambda each: (-each.ended_at, each.agent, each.session))
        self._by_id = {each.id: each for each in self._ordered}
        self._version = version

    def _origin(self, found: Conversation) -> _Origin:
        """Where the latest text was said, with which tool, and on which device."""
        place = (found.session, found.agent, found.ended_at)
        row = self._database.row(_ORIGIN, place) or self._database.row(_PENDING_ORIGIN, place)
        if row is None:
            return ("", ""), "", ""
        folder, repository, source, device = row
        return (str(folder), str(repository)), str(source), bytes(device).hex()

    def _day(self, quarter: int) -> str:
        """The day of a quarter of an hour, "" for one outside the calendar."""
        day = self._days.get(quarter)
        if day is None:
            try:
                day = datetime.fromtimestamp(quarter * _QUARTER // 1000, self._zone).date().isoformat()
            except (OverflowError, ValueError, OSError):
                day = ""
            self._days[quarter] = day
        return day


def _project_names(places: Iterable[ProjectKey]) -> dict[ProjectKey, str]:
    """The names of the projects that these places are of. A folder without a repository takes the one that it has
    elsewhere, if there is exactly one."""
    keys = set(places)
    repositories: dict[str, set[str]] = {}
    for folder, repository in keys:
        if repository:
            repositories.setdefault(folder, set()).add(repository)
    lone = {folder: min(names) for folder, names in repositories.items() if len(names) == 1}
    return {
        (folder, repository): scope_of(
            (folder, repository or ("" if folder in NO_FOLDERS else lone.get(folder, "")))
        )
        for folder, repository in keys
    }


def _meets(found: Conversation, asked: ConversationFilter, without: Sequence[str] = ()) -> bool:
    for name in ("project", "device", "tool", "agent"):
        wanted = getattr(asked, name)
        if wanted and name not in without and getattr(found, name) != wanted:
            return False
    if asked.session and not (found.session.startswith(asked.session) or found.id.startswith(asked.session)):
        return False
    since = asked.since if "since" not in without else ""
    until = asked.until if "until" not in without else ""
    if not since and not until:
        return True
    return any(since <= day and (not until or day <= until) for day in found.days if day)


def _counts(values: Iterator[str], names: DeviceNames | None = None) -> list[ValueCount]:
    counted = Counter(value for value in values if value)
    ordered = sorted(counted.items(), key=lambda each: (-each[1], each[0]))
    return [
        ValueCount(value=value, name=names.name(value) if names else value, conversations=count)
        for value, count in ordered[:VALUES_MAX]
    ]


def _messages(pieces: Sequence[ConversationMessage]) -> Iterator[MessageDocument]:
    """The messages that these pieces are of, in order."""
    waiting: list[ConversationMessage] = []
    for piece in pieces:
        if waiting and not _continues(waiting[-1], piece):
            yield _message(waiting)
            waiting = []
        waiting.append(piece)
    if waiting:
        yield _message(waiting)


def _continues(one: ConversationMessage, other: ConversationMessage) -> bool:
    """Whether it is the next piece of the same message. Some tools use an id for several messages."""
    return (
        bool(one.message)
        and one.message == other.message
        and one.role == other.role
        and one.created_at == other.created_at
        and other.part == one.part + 1
    )


def _message(pieces: Sequence[ConversationMessage]) -> MessageDocument:
    first = pieces[0]
    return MessageDocument(
        id=first.id,
        ids=list(dict.fromkeys(piece.id for piece in pieces)),
        role=first.role,
        text=joined_pieces([piece.text for piece in pieces]),
        created_at=iso(first.created_at) or "",
        provisional=any(piece.provisional for piece in pieces),
        model=first.model,
    )
