"""The conversation around a search hit, offline, from any device.

Sorted by time; parts of one message, and messages of the same time, in the order of recording. Forgotten messages are left
out. Messages of this device that the Core has not ordered yet are included and marked. Of a message that its tool rewrote, the
last version is shown, and the one that was asked for.
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from crystal_core.database import Database, Row
from crystal_core.projects import ProjectKey
from crystal_core.search.filters import CONVERSATION
from crystal_core.search.turns import PERSON, UNSAID
from crystal_node.base.errors import NoSuchEntry
from crystal_node.base.lookup import StoredText, find_shown_text, place_in
from crystal_node.search.places import opened_place

TURN_PIECES_MAX = 100
"""Of a turn as it is shown; of a longer one its beginning and end, and what is nearest to what was asked for."""

_OF_SESSION = """
SELECT c.id, c.text, c.rowid, s.agent, s.session, s.message, s.part, s.role, s.created_at, s.project, s.repository, s.source,
       s.device, s.provisional, s.model
FROM (SELECT chunk, agent, session, message, part, role, created_at, project, repository, source, device, 0 AS provisional,
             rowid AS number, model
      FROM occurrences INDEXED BY occurrences_by_session WHERE session = ?2 AND agent = ?1
      UNION ALL
      SELECT p.chunk, p.agent, p.session, p.message, p.part, p.role, p.created_at, p.project, p.repository, p.source, q.device,
             1, p.rowid + (SELECT coalesce(max(rowid), 0) FROM occurrences), p.model
      FROM provisional_places p JOIN provisional q ON q.number = p.number
      WHERE p.session = ?2 AND p.agent = ?1 AND p.category IS NULL AND p.path IS NULL) s
JOIN chunks c ON c.rowid = s.chunk
WHERE NOT EXISTS (SELECT 1 FROM provisional_marks m WHERE m.forget_hash = c.forget_hash AND m.hides = 1)
ORDER BY s.number
"""


class ConversationMessage(Struct, frozen=True):
    """One piece of a conversation. ``hit``: the one that was asked for; ``chunk``: its rowid in this database; ``model``: which
    one said it, "" if unknown."""

    id: str
    chunk: int
    text: str
    role: str
    created_at: int
    """Milliseconds since 1970; 0 if unknown."""
    device: bytes
    message: str
    part: int
    provisional: bool
    hit: bool
    model: str = ""


class Transcript(Struct, frozen=True):
    """A session, or some of it. ``before`` and ``after``: how many pieces of it were left out on either side."""

    agent: str
    session: str
    project: str
    repository: str
    source: str
    pieces: tuple[ConversationMessage, ...]
    before: int
    after: int


def transcript(
    database: Database,
    given: str,
    *,
    before: int | None = None,
    after: int | None = None,
    here: ProjectKey | None = None,
) -> Transcript:
    """The session of the text whose id begins with ``given``, or so many pieces of it before and after that; None for all.

    ``given`` may name the place behind the id. ``here``: the project that one is in, if that says which place is meant.

    Raises:
        Usage: not the beginning of an id, or of more than one text's; or the text stands in several projects.
        NoSuchEntry: no text here has that id, or not in that place.
    """
    found = find_shown_text(database, given)
    with database.snapshot():
        place = opened_place(database, found, place_in(given), here)
        if place is None or place.kind != CONVERSATION:
            return Transcript("", "", "", "", "", (_memory(database, found),), 0, 0)
        agent, session = place.one, place.two
        rows = list(database.each(_OF_SESSION, (agent, session)))
    if not rows:
        raise NoSuchEntry("that message or memory was forgotten")
    spoken, last = _in_order(rows, found.id), rows[-1]
    hits = [number for number, piece in enumerate(spoken) if piece.hit]
    for number in hits[:-1]:  # said again later: what a search finds is the last
        spoken[number] = replace(spoken[number], hit=False)
    first, end = 0, len(spoken)
    if hits and before is not None:
        first = max(hits[-1] - before, 0)
    if hits and after is not None:
        end = min(hits[-1] + after + 1, len(spoken))
    project, repository, source = last[9:12]
    return Transcript(
        agent, session, project, repository, source, tuple(spoken[first:end]), first, len(spoken) - end
    )


def session_messages(database: Database, agent: str, session: str) -> list[ConversationMessage]:
    """All pieces of a session in order; none if nothing of it is here. Belongs in a snapshot."""
    return _in_order(list(database.each(_OF_SESSION, (agent, session))), b"")


def turn_of(database: Database, given: str, *, here: ProjectKey | None = None) -> Transcript:
    """The turn of the text whose id begins with ``given``: what a person said, and all up to their next message. Thinking is
    left out, unless it was asked for. Raises what ``transcript`` raises."""
    whole = transcript(database, given, here=here)
    spoken = whole.pieces
    hit = next((number for number, piece in enumerate(spoken) if piece.hit), None)
    if hit is None:
        raise NoSuchEntry("that message or memory was forgotten")
    begin, end = _turn_bounds(spoken, hit)
    shown = [piece for piece in spoken[begin:end] if piece.role not in UNSAID or piece.hit]
    if len(shown) > TURN_PIECES_MAX:
        at = next(number for number, piece in enumerate(shown) if piece.hit)
        first = min(max(at - TURN_PIECES_MAX // 2, 1), len(shown) - TURN_PIECES_MAX + 1)
        shown = [shown[0], *shown[first : first + TURN_PIECES_MAX - 2], shown[-1]]
    return replace(whole, pieces=tuple(shown), before=begin, after=len(spoken) - end)


def _turn_bounds(spoken: Sequence[ConversationMessage], here: int) -> tuple[int, int]:
    """Where a piece's turn begins and ends, as ``crystal_core.search.turns`` has it. Where no person spoke before, it stands
    alone."""
    begin = here
    while begin >= 0 and spoken[begin].role != PERSON:
        begin -= 1
    if begin < 0:
        return here, here + 1
    while begin > 0 and _is_one_message(spoken[begin - 1], spoken[begin]):
        begin -= 1
    end = begin + 1
    while end < len(spoken) and (spoken[end].role != PERSON or _is_one_message(spoken[end], spoken[begin])):
        end += 1
    return begin, end


def _is_one_message(one: ConversationMessage, other: ConversationMessage) -> bool:
    return (
        bool(one.message)
        and one.role == other.role
        and one.message == other.message
        and one.created_at == other.created_at
    )


def _in_order(rows: list[Row], hit: bytes) -> list[ConversationMessage]:
    """By time; pieces of one message together, each once even if it is pending here and ordered already."""
    firsts: dict[object, int] = {}
    sortable: list[tuple[int, int, int, ConversationMessage]] = []
    last: dict[tuple[str, int, str, int], ConversationMessage] = {}
    seen: set[tuple[object, object, object]] = set()
    for number, row in enumerate(rows):
        content, text, chunk, _, _, message, part, role, created_at, _, _, _, device, provisional, model = row
        assert isinstance(content, bytes)
        assert isinstance(device, bytes)
        assert isinstance(chunk, int)
        assert isinstance(part, int)
        assert isinstance(created_at, int)
        if (content, message, part) in seen:
            continue
        seen.add((content, message, part))
        first = firsts.setdefault(message or number, number)
        piece = ConversationMessage(
            content.hex(),
            chunk,
            str(text),
            str(role),
            created_at,
            device,
            str(message),
            part,
            bool(provisional),
            content == hit,
            str(model),
        )
        sortable.append((created_at, first, part, piece))
        last[_version(piece)] = piece
    shown = (one for one in sortable if one[3].hit or not one[3].message or last[_version(one[3])] is one[3])
    return [one[3] for one in sorted(shown, key=lambda one: one[:3])]


def _version(piece: ConversationMessage) -> tuple[str, int, str, int]:
    """What versions of one piece have in common: the moment, too, for ids that a tool uses twice."""
    return piece.message, piece.part, piece.role, piece.created_at


def _memory(database: Database, found: StoredText) -> ConversationMessage:
    """A text that was said nowhere: something to remember."""
    row = database.row("SELECT created_at, device, category FROM memories WHERE chunk = ?", (found.chunk,))
    created_at, device, category = row if row is not None else (0, b"", "")
    return ConversationMessage(
        found.id.hex(),
        found.chunk,
        found.words,
        f"memory: {category}",
        created_at,
        device,
        "",
        0,
        row is None,
        True,
    )
