"""The replicated tree: versions that replace, versions that came second, tombstones, collisions, condemned blobs."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from crystal_core.replica import Replica
from crystal_mirror.file_paths import PATH_BYTES_MAX, conflict_path, conflict_paths, fault_of, folded
from crystal_mirror.operations import ChangeFiles, DropFile, FilePart, Operation, PutFile
from crystal_mirror.operations import blob_name as named_blob
from crystal_mirror.types import Origin
from tests.core.builders import (
    DEVICE,
    INCARNATION,
    OTHER_DEVICE,
    SECRET,
    content_hash,
    new_replica,
    no_vectors,
    origin,
)


def part(text: str, turn: int = 0) -> FilePart:
    return FilePart(content_hash(text), len(text), turn)


def put(path: str, text: str, base: Origin | None = None, turn: int = 0, modified_at: int = 7) -> PutFile:
    return PutFile(path, base, False, modified_at, (part(text, turn),))


def blob_name(of: FilePart) -> bytes:
    return named_blob(SECRET, of.content, of.named)


def done(replica: Replica, *history: tuple[Origin, Operation]) -> Replica:
    with replica.transaction() as transaction:
        for place, operation in history:
            transaction.apply(place, operation, no_vectors)
            transaction.mark_done(place)
    return replica


def tree(replica: Replica) -> dict[str, bytes]:
    return {row.path: row.parts[0].content for row in replica.files() if not row.gone}


FIRST, SECOND, THIRD = origin(1), origin(2, OTHER_DEVICE), origin(3)


def test_a_version_replaces_the_one_that_it_was_made_from() -> None:
    replica = done(
        new_replica(), (FIRST, put("notes/a.md", "one")), (SECOND, put("notes/a.md", "two", FIRST))
    )
    assert tree(replica) == {"notes/a.md": content_hash("two")}
    row = replica.file("notes/a.md")
    assert row is not None
    assert (row.version, row.size, row.modified_at, row.executable, row.gone) == (SECOND, 3, 7, False, False)
    assert replica.file("notes") is None


def test_a_version_that_came_second_is_kept_beside_the_first() -> None:
    replica = done(
        new_replica(),
        (FIRST, put("a.md", "one")),
        (SECOND, put("a.md", "two", FIRST)),
        (THIRD, put("a.md", "three", FIRST)),
    )
    beside = conflict_path("a.md", DEVICE, 3)
    assert tree(replica) == {"a.md": content_hash("two"), beside: content_hash("three")}


def test_equal_content_is_no_conflict() -> None:
    replica = done(
        new_replica(), (FIRST, put("a.md", "one")), (SECOND, put("a.md", "one", turn=3, modified_at=9))
    )
    row = replica.file("a.md")
    assert row is not None
    assert row.version == FIRST
    assert len(list(replica.files())) == 1


def test_an_executable_of_equal_bytes_is_another_content() -> None:
    executable = PutFile("a", None, True, 7, (part("one"),))
    replica = done(new_replica(), (FIRST, put("a", "one")), (SECOND, executable))
    assert len(tree(replica)) == 2


def test_a_tombstone_removes_only_the_version_that_it_means() -> None:
    edited: list[tuple[Origin, Operation]] = [
        (FIRST, put("a", "one")),
        (SECOND, put("a", "two", FIRST)),
        (THIRD, DropFile("a", FIRST)),
    ]
    assert tree(done(new_replica(), *edited)) == {"a": content_hash("two")}
    replica = done(new_replica(), edited[0], (THIRD, DropFile("a", FIRST)))
    assert tree(replica) == {}
    row = replica.file("a")
    assert row is not None
    assert (row.version, row.gone, row.parts) == (THIRD, True, ())
    done(replica, (SECOND, put("a", "two", FIRST)))
    assert tree(replica) == {"a": content_hash("two")}, "an edit beats a deletion"


def test_what_would_be_one_file_where_case_does_not_count_is_kept_apart() -> None:
    replica = done(new_replica(), (FIRST, put("Notes.md", "one")), (SECOND, put("notes.md", "two")))
    assert tree(replica) == {
        "Notes.md": content_hash("one"),
        conflict_path("notes.md", OTHER_DEVICE, 2): content_hash("two"),
    }


def test_a_file_in_the_place_of_a_folder_is_kept_apart() -> None:
    replica = done(new_replica(), (FIRST, put("a/b", "one")), (SECOND, put("A", "two")))
    assert tree(replica) == {
        "a/b": content_hash("one"),
        conflict_path("A", OTHER_DEVICE, 2): content_hash("two"),
    }
    replica = done(new_replica(), (FIRST, put("a", "one")), (SECOND, put("a/b/c", "two")))
    assert tree(replica) == {
        "a": content_hash("one"),
        conflict_path("a", OTHER_DEVICE, 2) + "/b/c": content_hash("two"),
    }


def test_a_conflict_path_that_another_file_has_loses_neither() -> None:
    squatted = conflict_path("a", OTHER_DEVICE, 2)
    replica = done(
        new_replica(), (FIRST, put("a", "one")), (THIRD, put(squatted, "mine")), (SECOND, put("a", "two"))
    )
    assert sorted(tree(replica).values()) == sorted(content_hash(text) for text in ("one", "mine", "two"))


def test_conflict_paths_may_travel_however_long_the_path_is() -> None:
    deep = "/".join(["é" * 100] * 5) + "/x"
    longest = deep + "y" * (PATH_BYTES_MAX - len(deep.encode()))
    assert fault_of(longest) is None
    for path in (longest, "a" * 200, "a/" * 31 + "a", "folder/.hidden", "a." + "b" * 190):
        candidates = conflict_paths(path, FIRST)
        for _ in range(70):
            candidate = next(candidates)
            assert fault_of(candidate) is None, candidate
            assert folded(candidate) != folded(path)


def test_a_condemned_blob_is_never_used_again() -> None:
    replica = done(new_replica(), (FIRST, put("a", "one")))
    condemned = blob_name(part("two"))
    with replica.transaction() as transaction:
        transaction.condemn([condemned])
        transaction.condemn([condemned, condemned])
        assert transaction.is_condemned(condemned)
    assert not replica.is_condemned(blob_name(part("two", 1)))
    done(replica, (SECOND, put("a", "two", FIRST)))
    assert tree(replica) == {"a": content_hash("one")}
    assert replica.done(SECOND)
    done(replica, (THIRD, put("a", "two", FIRST, turn=1)))
    assert tree(replica) == {"a": content_hash("two")}
    assert replica.digest() == replica.recompute_digest()
    assert {table.name: table.count for table in replica.digest().tables}["condemned"] == 1


def test_a_wipe_takes_the_tree_along_and_pending_operations_show_nothing_of_it() -> None:
    replica = new_replica()
    replica.index_provisional(SECOND, put("b", "two"))
    assert replica.provisional_origins() == {SECOND}
    done(replica, (FIRST, put("a", "one")))
    with replica.transaction() as transaction:
        transaction.condemn([bytes(32)])
        transaction.wipe()
    assert list(replica.files()) == []
    assert not replica.is_condemned(bytes(32))
    assert replica.digest() == replica.recompute_digest() == new_replica().digest()
    done(replica, (SECOND, put("b", "two")))
    assert replica.provisional_origins() == set()


PATHS = ("a", "A", "a/b", "a/B", "a/b/c", "d", "d (conflict 64657669-1)", "d (conflict 64657669-1)/e")
TEXTS = ("one", "two", "three", "four")
steps = st.lists(
    st.tuples(
        st.sampled_from([DEVICE, OTHER_DEVICE]),
        st.sampled_from(PATHS),
        st.sampled_from(TEXTS),
        st.integers(0, 1),
        st.sampled_from(["new", "edit", "edit an older version", "drop", "drop an older version", "condemn"]),
    ),
    max_size=14,
)


@settings(max_examples=150, deadline=None)
@given(steps)
def test_nothing_that_was_put_is_without_a_row_for_no_reason(
    history: Sequence[tuple[bytes, str, str, int, str]],
) -> None:
    replica, twin = new_replica(), new_replica()
    written: dict[Origin, PutFile] = {}
    excused: set[Origin] = set()
    for number, (device, path, text, turn, what) in enumerate(history):
        place = Origin(device, INCARNATION, number)
        before = {row.path: row for row in replica.files()}
        current = before.get(path)
        older = [version for version, operation in written.items() if operation.path == path]
        base = older[0] if what.endswith("older version") and older else current.version if current else None
        if what == "condemn":
            for one in (replica, twin):
                with one.transaction() as transaction:
                    transaction.condemn([blob_name(part(text, turn))])
            continue
        operation: Operation = (
            DropFile(path, base or place) if what.startswith("drop") else put(path, text, base, turn)
        )
        for one in (replica, twin):
            done(one, (place, operation))
        excused.update(row.version for row in before.values() if row.version == base and row.path == path)
        if isinstance(operation, PutFile):
            written[place] = operation
            living = current is not None and not current.gone
            same = living and current is not None and current.parts[0].content == operation.parts[0].content
            if replica.is_condemned(blob_name(operation.parts[0])) or same:
                excused.add(place)
        else:
            excused.add(place)
        rows = {row.version: row for row in replica.files()}
        for version, kept in written.items():
            assert version in excused or rows[version].parts == kept.parts
        assert replica.digest() == replica.recompute_digest() == twin.digest()
        _assert_no_collisions([row.path for row in replica.files() if not row.gone])


def _assert_no_collisions(living: list[str]) -> None:
    forms = [folded(path) for path in living]
    assert len(set(forms)) == len(forms)
    for form in forms:
        assert not any(other.startswith(form + "/") for other in forms)


def test_changes_of_one_operation_are_done_in_order_under_its_name() -> None:
    replica = done(
        new_replica(),
        (FIRST, ChangeFiles((put("a", "one"), put("b", "two"), put("c", "three")))),
        (
            SECOND,
            ChangeFiles(
                (DropFile("a", FIRST), put("b", "newer", FIRST), put("c", "beside"), put("d", "new"))
            ),
        ),
    )
    beside = conflict_path("c", OTHER_DEVICE, 2)
    now = {"b": "newer", "c": "three", beside: "beside", "d": "new"}
    assert tree(replica) == {path: content_hash(text) for path, text in now.items()}
    versions = {row.path: row.version for row in replica.files()}
    assert versions == dict.fromkeys(("a", "b", beside, "d"), SECOND) | {"c": FIRST}
    alone = done(
        new_replica(),
        (FIRST, put("a", "one")),
        (FIRST, put("b", "two")),
        (FIRST, put("c", "three")),
        (SECOND, DropFile("a", FIRST)),
        (SECOND, put("b", "newer", FIRST)),
        (SECOND, put("c", "beside")),
        (SECOND, put("d", "new")),
    )
    assert list(alone.files()) == list(replica.files())


def test_a_change_of_a_condemned_blob_leaves_the_others_of_its_operation() -> None:
    replica = new_replica()
    with replica.transaction() as transaction:
        transaction.condemn([blob_name(part("two"))])
    done(replica, (FIRST, ChangeFiles((put("a", "one"), put("b", "two"), put("c", "three")))))
    assert sorted(tree(replica)) == ["a", "c"]
