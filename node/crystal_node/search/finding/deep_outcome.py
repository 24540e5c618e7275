"""What a deep search is made of and what it comes to. Loads no event loop and no web client."""

from collections.abc import Callable

from msgspec import Struct, field

from crystal_core.database import Database
from crystal_core.search.hits import Hit, SearchResult
from crystal_node.search.finding.documents import Depth, SearchRequest

Explanation = dict[str, str | int | float | list[str]]
HitExplanation = dict[str, float | int | str | None]


class Fast(Struct, frozen=True):
    """The fast search under a request's filters. ``search``: words, how many hits, by words alone. ``mark``: see ``deepcache``.

    Both may be called in another thread, while the caller waits."""

    search: Callable[[str, int, bool], SearchResult]
    mark: Callable[[], str]


class Deepened(Struct, frozen=True):
    """What a deep search came to. ``plain``: what the fast search says of itself; ``hits``: the page that was asked for."""

    plain: SearchResult
    hits: tuple[Hit, ...]
    more: bool
    note: str
    explain: Explanation
    by_hit: dict[str, HitExplanation] = field(default_factory=dict[str, HitExplanation])


class Fallen(Struct, frozen=True):
    """A deep search that came to nothing: the fast one answers. ``note`` is "" unless deep was demanded."""

    note: str
    explain: Explanation


def demanded(request: SearchRequest) -> bool:
    """Whether the request itself asks for a model, not just the settings."""
    return request.depth is Depth.DEEP or bool(request.intent.strip() or request.provider)


def fallen(request: SearchRequest, why: str) -> Fallen:
    note = f"searched without a language model: {why}" if demanded(request) else ""
    return Fallen(note, {"fallen_back": why})


def forget_mark(database: Database) -> str:
    """Changes whenever something is forgotten, here or on another device, ordered or not yet."""
    ordered = database.row("SELECT hex(sum), count FROM digests WHERE name = 'suppressed'")
    pending = database.row("SELECT count(*), max(number) FROM provisional_marks WHERE hides = 1")
    return f"{ordered} {pending}"
