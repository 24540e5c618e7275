"""Places of a text: the conversations and documents that it stands in, and the memory that it is.

The same words may have been said in several projects, one of which may be nobody else's business. So a text is opened at the
place that was named behind its id (``ID@PLACE``). An id alone opens the latest place if all are of one project; else the latest
of the project that one is in, or the memory by itself; or nothing: then the error names the places.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256

from msgspec import Struct

from crystal_core.database import Database
from crystal_core.projects import Names, ProjectKey, names_of, scope_of
from crystal_core.search.filters import CONVERSATION, DOCUMENT, MEMORY
from crystal_node.base.errors import NoSuchEntry, UsageError
from crystal_node.base.lookup import StoredText
from crystal_node.base.text_ids import PLACE_DIGITS, placed_id
from crystal_node.base.wording import one_line

_NAMED_MAX = 5
"""Places that an error names."""
_NAME_CHARS = 80

_PLACES = f"""
SELECT '{CONVERSATION}' AS kind, o.agent AS one, o.session AS two, o.project, o.repository, o.created_at
FROM occurrences o WHERE o.chunk = ?1
UNION ALL
SELECT '{CONVERSATION}', p.agent, p.session, p.project, p.repository, p.created_at
FROM provisional_places p WHERE p.chunk = ?1 AND p.category IS NULL AND p.path IS NULL
UNION ALL
SELECT '{DOCUMENT}', d.source, d.path, '', '', d.created_at FROM document_places d WHERE d.chunk = ?1
UNION ALL
SELECT '{MEMORY}', '', '', m.scope, '', m.created_at FROM memory_states m WHERE m.chunk = ?1
"""  # noqa: S608 - constants of ours
_GROUPED = f"""
SELECT kind, one, two, project, repository, max(created_at) AS at FROM ({_PLACES})
GROUP BY kind, one, two, project, repository ORDER BY at DESC, kind, one, two
"""  # noqa: S608 - constants of ours
_ELSEWHERE = f"SELECT 1 FROM ({_PLACES}) WHERE (kind, one, two) <> (?2, ?3, ?4) LIMIT 1"  # noqa: S608 - constants of ours


class TextPlace(Struct, frozen=True):
    """A conversation (``one`` its agent, ``two`` its session), a document (source and path), or a memory (neither).

    ``project``: of a conversation; of a memory the name that its scope has, in place of the folder. ``at``: when the text was
    last said or written there, in milliseconds since 1970, 0 if unknown.
    """

    kind: str
    one: str
    two: str
    project: ProjectKey
    at: int

    @property
    def digits(self) -> str:
        """What names the place behind an id."""
        return place_digits(self.kind, self.one, self.two)

    @property
    def named(self) -> str:
        """What it is, for people."""
        if self.kind == DOCUMENT:
            what = f"{self.one}: {self.two}"
        elif self.kind == MEMORY:
            what = f"memory for {self.project[0]}" if self.project[0] else "memory"
        else:
            what = scope_of(self.project) or "no project"
        day = datetime.fromtimestamp(self.at / 1000, UTC).strftime("%Y-%m-%d") if self.at > 0 else ""
        return one_line(", ".join(part for part in (what, day) if part), _NAME_CHARS)


def place_digits(kind: str, one: str, two: str) -> str:
    """The digits of a place: as many as tell the places of one text apart."""
    named = f"{kind}\0{one}\0{two}".encode("utf-8", "surrogatepass")
    return sha256(named).hexdigest()[:PLACE_DIGITS]


def place_to_name(database: Database, chunk: int, kind: str, one: str, two: str) -> str:
    """What to name behind the id of a text that was found there; "" where it stands nowhere else. Belongs in a snapshot."""
    elsewhere = database.row(_ELSEWHERE, (chunk, kind, one, two)) is not None
    return place_digits(kind, one, two) if elsewhere else ""


def newest_place_to_name(database: Database, chunk: int) -> str:
    """The same of the latest place of a text."""
    places = places_of(database, chunk)
    several = len({place.digits for place in places}) > 1
    return places[0].digits if several else ""


def places_of(database: Database, chunk: int) -> list[TextPlace]:
    """The places of a text, the latest first; one that was in two projects is there twice. Belongs in a snapshot."""
    return [
        TextPlace(kind, one, two, (project, repository), int(at))
        for kind, one, two, project, repository, at in database.rows(_GROUPED, (chunk,))
    ]


def opened_place(
    database: Database, found: StoredText, named: str, here: ProjectKey | None = None
) -> TextPlace | None:
    """The place at which a text is opened; None for a text that stands nowhere. See the module.

    ``named`` is what stood behind the id, "" if nothing. ``here``: the project that one is in. Belongs in a snapshot.

    Raises:
        NoSuchEntry: it does not stand there.
        Usage: it stands in several projects, and nothing says which is meant.
    """
    places = places_of(database, found.chunk)
    if named:
        places = [place for place in places if place.digits == named]
        if not places:
            raise NoSuchEntry(
                f"{placed_id(found.id.hex(), '')} does not stand in the place {named}",
                hint="Give the id without its place.",
            )
    groups = _by_project(places)
    if len(groups) > 1 and not named:
        own = [place for place in places if here is not None and _is_in(place, names_of([here]))]
        own = own or [place for place in places if place.kind == MEMORY]
        if not own:
            raise _several(found, groups)
        places = own
    # What was remembered and said in one project is shown where it was said.
    return next((place for place in places if place.kind != MEMORY), places[0] if places else None)


def _by_project(places: Sequence[TextPlace]) -> list[list[TextPlace]]:
    """The places of each project, in order; a source of documents is one by itself."""
    groups: list[list[TextPlace]] = []
    for place in places:
        for group in groups:
            if all(_is_one_project(place, other) for other in group):
                group.append(place)
                break
        else:
            groups.append([place])
    return groups


def _is_one_project(one: TextPlace, other: TextPlace) -> bool:
    if DOCUMENT in (one.kind, other.kind):
        return (one.kind, one.one) == (other.kind, other.one)
    if not (scope_of(one.project) and scope_of(other.project)):
        return scope_of(one.project) == scope_of(other.project)
    return _is_in(one, _names(other)) or _is_in(other, _names(one))


def _names(place: TextPlace) -> Names:
    """A scope is a folder's name or a repository's."""
    both = [place.project, ("", place.project[0])] if place.kind == MEMORY else [place.project]
    return names_of(both)


def _is_in(place: TextPlace, names: Names) -> bool:
    if place.kind == DOCUMENT:
        return False
    if place.kind == MEMORY:
        return place.project[0] in names.folders or place.project[0] in names.repositories
    return names.have(place.project)


def _several(found: StoredText, groups: Sequence[Sequence[TextPlace]]) -> UsageError:
    content = found.id.hex()
    some = [f"{placed_id(content, group[0].digits)} ({group[0].named})" for group in groups[:_NAMED_MAX]]
    rest = f", and {len(groups) - _NAMED_MAX:,} more" if len(groups) > _NAMED_MAX else ""
    return UsageError(
        f"{placed_id(content, '')} stands in {len(groups):,} projects",
        hint=f"Say which: {', '.join(some)}{rest}.",
    )
