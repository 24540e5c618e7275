"""What a search returns: hits, each a chunk with its place, and how they were found."""

from enum import Enum

from msgspec import Struct

from crystal_core.search.ranking import DAY_MILLISECONDS, Explanation
from crystal_core.search.turns import Turn

FRESH_DAYS, RECENT_DAYS, AGING_DAYS = 3, 7, 14


class Mode(Enum):
    """The halves that a search could use."""

    HYBRID = "hybrid"
    KEYWORD = "keyword"


class Freshness(Enum):
    """Age of a chunk: under 3, 7, 14 days, or more (or unknown)."""

    FRESH = "fresh"
    RECENT = "recent"
    AGING = "aging"
    STALE = "stale"


class Hit(Struct, frozen=True):
    """A found chunk. Place and time are those of its latest place that the filters admit."""

    id: str
    text: str
    score: float
    agent: str
    session: str
    role: str
    created_at: int
    """Milliseconds since 1970; 0 if unknown."""
    again_at: int
    """When the same words were said last, in ms since 1970; 0 if never later, or if no present value is asked for."""
    project: str
    repository: str
    source: str
    path: str
    title: str
    """For a piece of a document: its path in the source, and the headings above the piece."""
    kind: str
    """One of `filters.KINDS`, from its place."""
    freshness: Freshness
    category: str | None
    """Category of a memory; None for other texts."""
    provisional: bool
    """Whether only this device knows of it, so far."""
    snippet: str
    marks: tuple[tuple[int, int], ...]
    """Start and end of each highlight in the snippet."""
    alike: tuple[str, ...]
    """Ids of near duplicates, which this hit stands for."""
    weak: bool
    """Whether it is unlikely to answer: its relevance is below `ranking.WEAK_BELOW`."""
    relevance: float
    """How likely it is that it answers the query, between 0 and 1."""
    turn: Turn | None
    """The turn that it stands for; None for memories, documents and single messages."""
    explanation: Explanation
    chunk: int
    """Its rowid in this database."""


class SearchResult(Struct, frozen=True):
    """The hits, best first, and how they were found. `note`: why by keyword only, else empty.

    `more`: further hits follow. `weak`: the first hits are all weak, or there are none."""

    hits: tuple[Hit, ...]
    mode: Mode
    note: str
    more: bool
    weak: bool
    judge_note: str = ""
    """Why the judge counts for nothing; "" if it counts, or if there is none."""


class Ranked(Struct, frozen=True):
    """What the ranking found, before a judge has read it. `hits` begin at `first`, and reach further than the page if a judge
    is to read them: `passages` are what it reads of them."""

    query: str
    hits: tuple[Hit, ...]
    first: int
    weak: bool
    mode: Mode
    note: str
    count: int
    """How many there are, up to one behind the page."""
    page: slice
    passages: tuple[str, ...] = ()


def freshness(created_at: int, now_ms: int) -> Freshness:
    if not created_at:
        return Freshness.STALE
    days = (now_ms - created_at) / DAY_MILLISECONDS
    if days < FRESH_DAYS:
        return Freshness.FRESH
    if days < RECENT_DAYS:
        return Freshness.RECENT
    return Freshness.AGING if days < AGING_DAYS else Freshness.STALE
