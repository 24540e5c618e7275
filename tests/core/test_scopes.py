"""Memories are for a project or for everywhere, and projects are linked: in rows, in searches, pending and in snapshots."""

import msgspec
import pytest

from crystal_core.memories import Memory, memories, memory, memory_history
from crystal_core.projects import ProjectKey, linked, links, projects
from crystal_core.replica import Replica
from crystal_core.search.filters import Scope
from crystal_core.search.search import Searcher
from crystal_core.snapshots.parts import decode_part
from crystal_crypto.errors import Malformed
from crystal_mirror.operations import Amend, LinkProjects, Remember
from tests.core.builders import NOW, apply, capture, content_hash, forget, new_replica, origin, target

APP = "host/me/app"
KEY: ProjectKey = ("work/app", APP)
PUMP: ProjectKey = ("work/pump", "")


def kept(replica: Replica, text: str) -> Memory:
    found = memory(replica.database, content_hash(text))
    assert found is not None
    return found


def fact(text: str, scope: str | None = None, *supersedes: str, at: int = NOW) -> Remember:
    return Remember(text, "fact", "agent", at, 100, tuple(target(each) for each in supersedes), scope)


def found(replica: Replica, *keys: ProjectKey) -> set[str]:
    result = Searcher(replica.database).search("the tide", now_ms=NOW, limit=50, scope=Scope(projects=keys))
    return {hit.text for hit in result.hits}


@pytest.mark.parametrize("pending", [False, True])
def test_a_project_is_shown_its_own_memories_and_those_for_everywhere(pending: bool) -> None:
    replica = new_replica()
    operations = [
        fact("the tide of the app", APP),
        fact("the tide of the folder", "work/app"),
        fact("the tide of the pump", "work/pump"),
        fact("the tide of all", ""),
        fact("the tide of before"),
    ]
    if pending:
        for number, operation in enumerate(operations):
            replica.index_provisional(origin(number), operation)
    else:
        apply(replica, *operations)
    everywhere = {"the tide of all", "the tide of before"}
    assert found(replica, KEY) == everywhere | {"the tide of the app", "the tide of the folder"}
    assert found(replica, ("elsewhere/app", APP)) == everywhere | {"the tide of the app"}
    assert found(replica, PUMP) == everywhere | {"the tide of the pump"}
    assert found(replica, KEY, PUMP) == {operation.text for operation in operations}
    assert found(replica) == found(replica, ("", ""), (".", "")) == everywhere
    listed = memories(replica.database, scopes=[APP, "work/app"])
    assert {each.text for each in listed} == {"the tide of the app", "the tide of the folder"}
    replica.close()


def test_a_change_of_scope_counts_while_it_pends_and_is_gone_when_dropped() -> None:
    replica = new_replica()
    apply(replica, fact("the tide", APP))
    replica.index_provisional(origin(50), Amend(target("the tide"), None, None, None, "person", NOW + 1, ""))
    assert kept(replica, "the tide").scope == ""
    assert found(replica, PUMP) == {"the tide"}
    events = memory_history(replica.database, content_hash("the tide"))
    assert [(each.what, each.scope, each.pending) for each in events] == [
        ("remembered", APP, False),
        ("amended", "", True),
    ]
    replica.drop_provisional(origin(50))
    assert found(replica, PUMP) == set()
    replica.close()


@pytest.mark.parametrize("pending", [False, True])
def test_a_scope_that_is_not_stated_never_becomes_wider(pending: bool) -> None:
    replica = new_replica()
    apply(replica, fact("old", APP))
    later = [fact("new", None, "never there", "old"), fact("old"), fact("newest", None, "new")]
    for number, operation in enumerate(later):
        if pending:
            replica.index_provisional(origin(100 + number), operation)
        else:
            apply(replica, operation)
    assert {text: kept(replica, text).scope for text in ("old", "new", "newest")} == dict.fromkeys(
        ("old", "new", "newest"), APP
    )
    replica.close()


def test_a_forgotten_memorys_scope_is_not_inherited() -> None:
    replica = new_replica()
    apply(replica, fact("old", APP), forget("old"), fact("new", None, "old"))
    assert kept(replica, "new").scope == ""
    replica.close()


def test_links_join_two_projects_and_go_no_further() -> None:
    replica = new_replica()
    library: ProjectKey = ("", "host/me/library")
    apply(replica, LinkProjects(library, ("", APP), True, NOW), LinkProjects(PUMP, library, True, NOW))
    assert set(linked(replica.database, KEY)) == {KEY, library}
    assert set(linked(replica.database, ("elsewhere", "host/me/library"))[1:]) == {("", APP), PUMP}
    assert linked(replica.database, ("", "")) == (("", ""),)
    assert linked(replica.database, (".", "")) == ((".", ""),)
    replica.index_provisional(origin(70), LinkProjects(("", APP), library, False, NOW + 1))
    replica.index_provisional(origin(71), LinkProjects(KEY, PUMP, True, NOW + 2))
    assert set(linked(replica.database, KEY)) == {KEY, PUMP}
    assert [each.pending for each in links(replica.database)] == [False, True]
    replica.drop_provisional(origin(70))
    assert len(links(replica.database)) == 3
    apply(replica, LinkProjects(("", APP), library, False, NOW))
    assert len(links(replica.database)) == 2
    assert replica.digest() == replica.recompute_digest()
    replica.close()


def test_a_link_made_and_undone_leaves_the_digest_of_before() -> None:
    replica, twin = new_replica(), new_replica()
    apply(replica, LinkProjects(KEY, PUMP, True, NOW), LinkProjects(PUMP, KEY, False, NOW))
    apply(twin, LinkProjects(KEY, PUMP, False, NOW), LinkProjects(PUMP, KEY, False, NOW))
    assert replica.digest() == twin.digest()
    for each in (replica, twin):
        each.close()


def test_projects_are_told_with_their_folders_and_what_is_in_them() -> None:
    replica = new_replica()
    apply(
        replica,
        capture("one", "two", session="s1", project="work/app", created_at=NOW - 5),
        capture("three", session="s2", message="m2", project="src/app", created_at=NOW - 1),
        fact("of it", "example.org/crystal"),
        fact("of another", "work/pump"),
        fact("of all", ""),
    )
    first, second = projects(replica.database)
    assert (first.name, first.folders) == ("example.org/crystal", ["src/app", "work/app"])
    assert (first.conversations, first.messages, first.memories, first.last_at) == (2, 3, 1, NOW - 1)
    assert (second.name, second.messages, second.memories, second.last_at) == ("work/pump", 0, 1, 0)
    replica.close()


def _parts(replica: Replica) -> list[bytes]:
    with replica.export() as moment:
        return list(moment.parts())


def test_a_snapshot_without_scopes_and_links_has_the_parts_of_before() -> None:
    replica = new_replica()
    apply(replica, capture("said"), fact("old"), fact("new", None, "old"))
    assert {len(msgspec.msgpack.decode(part)) for part in _parts(replica)} == {31}
    apply(replica, fact("scoped", APP))
    assert max(len(msgspec.msgpack.decode(part)) for part in _parts(replica)) == 32
    apply(replica, LinkProjects(KEY, PUMP, True, NOW))
    twin = new_replica()
    with twin.transaction() as transaction:
        for part in _parts(replica):
            transaction.load(part)
    assert twin.digest() == replica.digest() == twin.recompute_digest()
    assert links(twin.database) == links(replica.database)
    assert kept(twin, "scoped").scope == APP
    for each in (replica, twin):
        each.close()


def test_a_snapshot_with_links_out_of_order_or_of_nothing_is_refused() -> None:
    replica = new_replica()
    apply(replica, LinkProjects(KEY, PUMP, True, NOW))
    (part,) = [each for each in _parts(replica) if len(msgspec.msgpack.decode(each)) == 34]
    elements = msgspec.msgpack.decode(part)
    (row,) = elements[33]
    assert decode_part(part).project_links
    for wrong in (
        [row[2], row[3], row[0], row[1], *row[4:]],
        ["", "", *row[2:]],
        [row[0], row[1], row[0], row[1], *row[4:]],
        ["two\nlines", *row[1:]],
    ):
        with pytest.raises(Malformed):
            decode_part(msgspec.msgpack.encode([*elements[:33], [wrong]]))
    replica.close()


def test_an_amended_scope_holds_once_it_is_applied() -> None:
    replica = new_replica()
    apply(replica, fact("the tide", APP), Amend(target("the tide"), None, None, None, "person", NOW + 1, ""))
    assert kept(replica, "the tide").scope == ""
    apply(replica, Amend(target("the tide"), "event", None, None, "person", NOW + 2))
    assert (kept(replica, "the tide").scope, kept(replica, "the tide").category) == ("", "event")
