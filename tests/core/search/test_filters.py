"""Filters admit exactly what meets them, inside both halves, and pages hold every hit once."""

from collections.abc import Iterator
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crystal_core.projects import ProjectKey
from crystal_core.replica import Replica
from crystal_core.search import filters
from crystal_core.search.by import By
from crystal_core.search.filters import EVERYWHERE, Scope
from crystal_core.search.keywords import RANKED_MAX
from crystal_core.search.search import LAYERS, Searcher
from crystal_mirror.operations import Capture, Piece, PutDocument, PutSource
from tests.core.builders import (
    DAY,
    DEVICE,
    NOW,
    apply,
    capture,
    content_hash,
    forget,
    new_replica,
    origin,
    remember,
)
from tests.core.meanings import MeaningEmbedder, set_model

EMBEDDER = MeaningEmbedder()
AGENTS = ("ada", "bo")
DEVICES = (DEVICE, bytes([0xB0]) * 16)
PROJECTS = (("home/crystal", "host/org/crystal"), ("home/pumps", ""), ("", ""))
SESSIONS = ("s1", "s2", "s3")
ROLES = ("user", "assistant")
TOOLS = ("claude-code", "codex")
TIMES = (0, NOW - 300 * DAY, NOW - 10 * DAY, NOW - 1000, NOW)

KEYS = (
    ("home/crystal", "host/org/crystal"),
    ("moved/crystal", "host/org/crystal"),
    ("home/pumps", "host/org/pumps"),
    ("home/pump", ""),
    (".", ""),
    ("", ""),
)
"""Identities of projects: one as it was recorded, one in another folder, one with a repository since, and three of none."""

Placed = tuple[str, Scope, str]
"""A text, a scope with the values of one of its places, and that place's repository."""


def _said(number: int) -> tuple[Capture, Placed]:
    """The number decides all: every combination comes, each text in one or two places."""
    agent, session = AGENTS[number % 2], SESSIONS[number // 2 % 3]
    project, repository = PROJECTS[number // 6 % 3]
    role, tool = ROLES[number // 18 % 2], TOOLS[number // 36 % 2]
    moment = TIMES[number // 72 % 5]
    text = f"the budget of pump {number % 300}"
    piece = Piece(text, role, moment, f"m{number}", 0)
    capture = Capture(agent, session, project, repository, tool, (piece,))
    scope = Scope(agent, project, session, role, "conversation", tool, moment, device=_device(number))
    return capture, (text, scope, repository)


def _device(number: int) -> bytes:
    return DEVICES[number // 5 % 2]


@pytest.fixture(scope="module")
def memory() -> Iterator[tuple[Replica, list[Placed]]]:
    """Some of it ordered, some of it pending; conversations, memories and documents, with some texts in two of them."""
    replica = new_replica()
    said = [_said(number) for number in [*range(0, 720, 2), *range(301, 400, 2)]]
    placed = [place for _, place in said]
    for device in DEVICES:
        spoken = [spoken for spoken, (_, place, _) in said[:300] if place.device == device]
        apply(replica, *spoken, vectors=EMBEDDER.vectors, device=device)
    for number, (pending, (_, place, _)) in enumerate(said[300:]):
        replica.index_provisional(origin(10_000 + number, place.device or b""), pending)
    for number in range(30):
        text, agent, moment = f"the budget of pump {number * 7}", AGENTS[number % 2], TIMES[number % 5]
        operation = remember(text, ("fact", "decision")[number % 2], agent, moment)
        device = _device(number)
        if number % 3:
            apply(replica, operation, vectors=EMBEDDER.vectors, device=device)
        else:
            replica.index_provisional(origin(20_000 + number, device), operation)
        place = Scope(agent=agent, kind="memory", since_ms=moment, category=operation.category, device=device)
        placed.append((text, place, ""))
    apply(replica, PutSource("notes", "", ("*.md",), (), NOW), device=DEVICES[1])
    for number in range(10):
        texts = tuple(f"the budget of pump {number * 31 + part}" for part in range(3))
        moment = TIMES[number % 5]
        apply(
            replica,
            PutDocument(
                "notes",
                f"{number}.md",
                content_hash(str(number)),
                moment,
                "markdown",
                0,
                3,
                texts,
                ("T",) * 3,
            ),
            vectors=EMBEDDER.vectors,
            device=DEVICES[1],
        )
        place = Scope(kind="document", source="notes", since_ms=moment, device=DEVICES[1])
        placed += [(text, place, "") for text in texts]
    gone = "the budget of pump 14"
    replica.index_provisional(origin(30_000), forget(gone))
    set_model(replica, EMBEDDER.identity)
    yield replica, [place for place in placed if place[0] != gone]
    replica.close()


def meets(place: Scope, repository: str, scope: Scope) -> bool:
    """The plain meaning of a filter."""
    for name in ("agent", "session", "role", "kind", "source", "category", "device"):
        wanted, has = getattr(scope, name), getattr(place, name)
        is_alias = name == "agent" and has is not None and has == scope.agent_alias
        if wanted is not None and has != wanted and not is_alias:
            return False
    if scope.status not in (None, "active", "any") or (scope.status is not None and place.kind != "memory"):
        return False
    if scope.project is not None and not any(
        name is not None and (name == scope.project or name.endswith(f"/{scope.project}"))
        for name in (place.project, repository if place.kind == "conversation" else None)
    ):
        return False
    if scope.projects is not None and not _in_projects(place, repository, scope.projects):
        return False
    moment = place.since_ms or 0
    if scope.since_ms is not None and (not moment or moment < scope.since_ms):
        return False
    return scope.until_ms is None or 0 < moment <= scope.until_ms


def _in_projects(place: Scope, repository: str, projects: tuple[ProjectKey, ...]) -> bool:
    if place.kind != "conversation":
        return place.kind == "memory"
    repositories = {key[1] for key in projects} - {""}
    if repository in repositories:
        return True
    by_folder = place.project in {key[0] for key in projects} - {"", "."}
    return by_folder and (not repository or not repositories)


def maybe(*values: str) -> st.SearchStrategy[str | None]:
    return st.one_of(st.none(), st.none(), st.sampled_from([*values, "nobody's", ""]))


SCOPES = st.builds(
    Scope,
    agent=maybe(*AGENTS),
    project=maybe("crystal", "home/crystal", "host/org/crystal", "pumps", "rystal", "%"),
    session=maybe(*SESSIONS),
    role=maybe(*ROLES),
    kind=st.sampled_from([None, None, "conversation", "memory", "document"]),
    source=maybe(*TOOLS, "notes"),
    since_ms=st.sampled_from([None, None, 0, 1, NOW - 20 * DAY, NOW]),
    until_ms=st.sampled_from([None, None, 0, NOW - 20 * DAY, NOW]),
    category=maybe("fact", "decision"),
    status=st.sampled_from([None, None, None, "active", "retired", "superseded", "any"]),
    projects=st.one_of(st.none(), st.none(), st.lists(st.sampled_from(KEYS), max_size=3).map(tuple)),
    agent_alias=maybe(*AGENTS),
    device=st.sampled_from([None, None, *DEVICES, bytes(16)]),
)


@settings(max_examples=150, deadline=None)
@given(
    scope=SCOPES,
    narrow_max=st.sampled_from([RANKED_MAX, 10, 0]),
    listed_max=st.sampled_from([filters.LISTED_MAX, 0]),
)
def test_a_search_finds_all_that_meets_the_filters_and_nothing_else(
    memory: tuple[Replica, list[Placed]], scope: Scope, narrow_max: int, listed_max: int
) -> None:
    with (
        mock.patch.object(filters, "NARROW_MAX", narrow_max),
        mock.patch.object(filters, "LISTED_MAX", listed_max),
    ):
        _finds_all(memory, scope)


def test_what_a_broad_filter_admits_is_known_until_something_is_written() -> None:
    replica = new_replica()
    apply(replica, *(capture(f"budget of pump {number}") for number in range(40)))
    searcher = Searcher(replica.database, None)

    def found(scope: Scope) -> set[str]:
        hits = searcher.search("budget pump", now_ms=NOW, limit=1000, scope=scope, by=By.MESSAGE).hits
        return {hit.text for hit in hits}

    scope = Scope(kind="conversation")
    with mock.patch.object(filters, "NARROW_MAX", 0):
        assert len(found(scope)) == len(found(scope)) == 40
        apply(replica, capture("budget of pump 40"))
        assert "budget of pump 40" in found(scope)
        apply(replica, forget("budget of pump 3"))
        assert found(scope) == {f"budget of pump {number}" for number in range(41)} - {"budget of pump 3"}
        for number in range(filters.SCOPES_KEPT + 2):
            assert found(Scope(since_ms=number)) == found(scope)


def test_a_date_in_the_query_leaves_what_the_filter_itself_admits() -> None:
    replica = new_replica()
    said = [f"budget of pump {number}" for number in range(20)]
    apply(replica, *(capture(text, created_at=NOW - 200 * DAY, message=text) for text in said[:10]))
    apply(replica, *(capture(text, created_at=NOW - 8 * DAY, message=text) for text in said[10:]))
    searcher = Searcher(replica.database, None)

    def found(query: str, scope: Scope) -> set[str]:
        hits = searcher.search(query, now_ms=NOW, limit=1000, scope=scope, by=By.MESSAGE).hits
        return {hit.text for hit in hits}

    scope = Scope(kind="conversation")
    with mock.patch.object(filters, "NARROW_MAX", 0):
        assert found("budget pump", scope) == set(said)
        for number in range(filters.SCOPES_KEPT - 1):  # what the filter admits is the oldest that is kept now
            found("budget pump", Scope(since_ms=number))
        assert found("budget pump last week", scope) == set(said)


def _finds_all(memory: tuple[Replica, list[Placed]], scope: Scope) -> None:
    replica, placed = memory
    wanted = {
        text for text, place, repository in placed if scope == EVERYWHERE or meets(place, repository, scope)
    }
    for embedder in (EMBEDDER, None):
        result = Searcher(replica.database, embedder).search(
            "budget pump", now_ms=NOW, limit=1000, scope=scope, by=By.MESSAGE
        )
        assert {hit.text for hit in result.hits} == wanted
        assert not result.more
        for hit in result.hits:
            shown = Scope(
                hit.agent or None,
                hit.project,
                hit.session or None,
                hit.role or None,
                hit.kind,
                hit.source or None,
                hit.created_at,
                category=hit.category,
                device=scope.device,
            )
            assert meets(shown, hit.repository, scope), "the place that is shown is one that was asked for"


@pytest.mark.parametrize("narrow_max", [RANKED_MAX, 10, 0])
@pytest.mark.parametrize("kind", [None, "conversation", "memory", "document"])
@pytest.mark.parametrize("device", DEVICES)
def test_a_device_narrows_every_kind_of_text(
    memory: tuple[Replica, list[Placed]], device: bytes, kind: str | None, narrow_max: int
) -> None:
    with mock.patch.object(filters, "NARROW_MAX", narrow_max):
        _finds_all(memory, Scope(kind=kind, device=device))


@settings(max_examples=25, deadline=None)
@given(scope=SCOPES, limit=st.integers(1, 90), words_only=st.booleans())
def test_pages_hold_every_hit_once_and_in_the_order_of_the_whole(
    memory: tuple[Replica, list[Placed]], scope: Scope, limit: int, words_only: bool
) -> None:
    searcher = Searcher(memory[0].database, EMBEDDER)

    def page(offset: int, count: int) -> tuple[list[str], bool]:
        found = searcher.search(
            "budget pump 7", now_ms=NOW, limit=count, offset=offset, scope=scope, words_only=words_only
        )
        return [hit.id for hit in found.hits], found.more

    whole, more = page(0, 1000)
    assert not more
    assert len(set(whole)) == len(whole)
    paged: list[str] = []
    more = True
    while more:
        ids, more = page(len(paged), limit)
        assert len(ids) == limit or not more
        paged += ids
    assert paged == whole


@pytest.mark.parametrize("projects", [(), (("", ""),), ((".", ""),), (("elsewhere", "host/org/elsewhere"),)])
def test_without_a_project_that_was_recorded_only_memories_that_hold_everywhere_are_found(
    memory: tuple[Replica, list[Placed]], projects: tuple[ProjectKey, ...]
) -> None:
    found = Searcher(memory[0].database, EMBEDDER).search(
        "budget pump", now_ms=NOW, limit=1000, scope=Scope(projects=projects)
    )
    assert {hit.kind for hit in found.hits} == {"memory"}


def test_the_home_itself_is_no_project() -> None:
    replica = new_replica()
    apply(
        replica, capture("the budget of the attic", project="."), capture("the budget of nothing", project="")
    )
    scope = Scope(projects=((".", ""), ("", "")))
    assert Searcher(replica.database).search("budget", now_ms=NOW, scope=scope).hits == ()
    replica.close()


def test_pages_reach_behind_the_first_layer(memory: tuple[Replica, list[Placed]]) -> None:
    hits = (
        Searcher(memory[0].database, EMBEDDER)
        .search("budget", now_ms=NOW, limit=5, offset=LAYERS[1] + 20, by=By.MESSAGE)
        .hits
    )
    assert len(hits) == 5


def test_a_page_behind_the_last_hit_is_empty(memory: tuple[Replica, list[Placed]]) -> None:
    found = Searcher(memory[0].database).search("budget", now_ms=NOW, limit=5, offset=10_000)
    assert (found.hits, found.more, found.weak) == ((), False, False)


@pytest.mark.parametrize("offset", [-1, 10_001])
def test_offsets_are_limited(memory: tuple[Replica, list[Placed]], offset: int) -> None:
    with pytest.raises(ValueError, match="leaves out"):
        Searcher(memory[0].database).search("budget", now_ms=NOW, offset=offset)
