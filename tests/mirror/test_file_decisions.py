"""The table of `crystal_mirror.files.tree`, held against what it promises for every combination of states."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from crystal_mirror.files.tree import (
    FUSE_FILES_MAX,
    FUSE_FREE_FILES,
    FUSED,
    AgreedFile,
    DeletionDirection,
    FileAction,
    FileContent,
    PlannedAction,
    content_digest,
    content_of,
    decide,
    fuse_limit,
    fused,
    merged,
)
from crystal_mirror.operations import FilePart
from crystal_mirror.ports import FileRow
from crystal_mirror.types import Origin

PATH = "notes/plan.md"


def part(number: int) -> FilePart:
    return FilePart(bytes([number]) * 32, number + 1)


def row(number: int, version: int, *, gone: bool = False, executable: bool = False) -> FileRow:
    origin = Origin(bytes(16), bytes(8), version)
    return FileRow(PATH, origin, executable, 0, () if gone else (part(number),), gone)


def content(number: int, *, executable: bool = False) -> FileContent:
    return FileContent(content_digest([part(number)]), executable)


def agreed(number: int, version: int, *, aside: bool = False) -> AgreedFile:
    return AgreedFile(PATH, Origin(bytes(16), bytes(8), version), content(number), aside)


LOCALS = [None, content(1), content(2), content(1, executable=True)]
REMOTES = [
    *(None, row(0, 9, gone=True), row(1, 1), row(2, 2), row(1, 3), row(3, 4)),
    *(row(1, 1, executable=True), row(1, 5, executable=True), row(2, 6, executable=True)),
]
AGREED = [None, agreed(1, 1), agreed(2, 2), agreed(1, 1, aside=True)]
ALL = list(product(LOCALS, REMOTES, AGREED))


def test_nothing_is_removed_without_a_tombstone() -> None:
    for local, remote, past in ALL:
        if decide(local, remote, past) is FileAction.REMOVE:
            assert remote is not None
            assert remote.gone


def test_nothing_is_removed_or_overwritten_here_that_was_not_agreed() -> None:
    for local, remote, past in ALL:
        if local is None or _only_lacks_the_bit(local, remote, past):
            continue
        if decide(local, remote, past) in (FileAction.REMOVE, FileAction.FETCH):
            assert past is not None
            assert past.content == local


def _only_lacks_the_bit(local: FileContent, remote: FileRow | None, past: AgreedFile | None) -> bool:
    """Whether a version that was not agreed has the same bytes, and is executable there alone."""
    if remote is None or remote.gone or (past is not None and past.version == remote.version):
        return False
    return content_of(remote) == FileContent(local.digest, executable=True) != local


def test_an_executable_version_of_the_same_bytes_gives_its_bit_and_makes_no_second_file() -> None:
    """A device that left the bit unset and then lost its database comes to this."""
    found = [states for states in ALL if states[0] and _only_lacks_the_bit(*states)]  # type: ignore[arg-type]
    assert found
    assert {decide(*states) for states in found} == {FileAction.FETCH}


def test_a_deletion_is_passed_on_only_for_the_very_version_that_was_here() -> None:
    for local, remote, past in ALL:
        if decide(local, remote, past) is FileAction.DROP:
            assert local is None
            assert remote is not None
            assert past is not None
            assert remote.version == past.version
            assert not past.aside


def test_what_was_excluded_is_never_passed_on_as_deleted() -> None:
    for remote in REMOTES:
        assert decide(None, remote, agreed(1, 1, aside=True)) is not FileAction.DROP


def test_a_local_change_is_always_offered() -> None:
    for local, remote, past in ALL:
        if local is not None and (past is None or past.content != local):
            if _only_lacks_the_bit(local, remote, past):
                continue
            living = remote is not None and not remote.gone
            same = living and remote is not None and content_of(remote) == local
            assert decide(local, remote, past) is (FileAction.ADOPT if same else FileAction.PUT)


def test_equal_states_rest() -> None:
    assert decide(content(1), row(1, 1), agreed(1, 1)) is FileAction.NOTHING
    assert decide(None, None, None) is FileAction.NOTHING
    assert decide(None, row(0, 9, gone=True), None) is FileAction.NOTHING


def test_what_is_offered_waits_whatever_stands_there() -> None:
    assert {decide(*states, pending=True) for states in ALL} == {FileAction.WAIT}


def test_every_action_leads_to_rest_if_nobody_interferes() -> None:
    """Carries each action out in the model; the log's answer to a put or a drop is that of a base that still stands."""
    for states in ALL:
        local, remote, past = states
        for _ in range(4):
            action = decide(local, remote, past)
            match action:
                case FileAction.NOTHING:
                    break
                case FileAction.ADOPT | FileAction.PUT:
                    assert local is not None
                    if action is FileAction.PUT:
                        number = next(n for n in range(4) if content(n).digest == local.digest)
                        remote = row(number, 20, executable=local.executable)
                    assert remote is not None
                    past = AgreedFile(PATH, remote.version, local)
                case FileAction.FETCH:
                    assert remote is not None
                    local = content_of(remote)
                    past = AgreedFile(PATH, remote.version, local)
                case FileAction.REMOVE | FileAction.FORGET:
                    local = past = None
                case FileAction.DROP:
                    remote, past = row(0, 30, gone=True), None
                case FileAction.WAIT:
                    raise AssertionError("nothing is offered")
        assert decide(local, remote, past) is FileAction.NOTHING


@given(st.integers(0, 100_000))
def test_the_fuse_stands_three_deletions_a_tenth_and_never_more_than_twenty(files: int) -> None:
    limit = fuse_limit(files)
    assert FUSE_FREE_FILES <= limit <= FUSE_FILES_MAX
    assert limit <= max(FUSE_FREE_FILES, files * 0.1)


@given(
    st.lists(st.sampled_from([FileAction.DROP, FileAction.REMOVE, FileAction.PUT]), max_size=60),
    st.integers(0, 300),
    st.integers(0, 30),
)
def test_more_deletions_than_the_fuse_stands_all_wait_and_nothing_else_does(
    actions: list[FileAction], files: int, lately: int
) -> None:
    plan = [PlannedAction(f"{number}", action) for number, action in enumerate(actions)]
    held = fused(plan, files, {DeletionDirection.HERE: lately}, frozenset())
    for direction in DeletionDirection:
        asked = [one.path for one in plan if FUSED.get(one.action) is direction]
        before = lately if direction is DeletionDirection.HERE else 0
        waits = [path for path, one in held if one is direction]
        assert waits in ([], asked)
        assert bool(waits) == (bool(asked) and len(asked) + before > fuse_limit(files + before))


def test_what_a_person_has_confirmed_does_not_wait() -> None:
    plan = [PlannedAction(f"{number}", FileAction.DROP) for number in range(30)]
    confirmed = frozenset((one.path, DeletionDirection.EVERYWHERE) for one in plan)
    assert fused(plan, 100, {}, confirmed) == []
    assert len(fused([*plan, PlannedAction("more", FileAction.DROP)], 100, {}, confirmed)) == 0
    more = [PlannedAction(f"more-{number}", FileAction.DROP) for number in range(30)]
    assert len(fused([*plan, *more], 100, {}, confirmed)) == 30


PATHS = st.lists(st.text("ab/.é", min_size=1, max_size=4), unique=True, max_size=12).map(sorted)


@given(PATHS, PATHS, PATHS)
def test_three_sorted_states_are_met_path_by_path(one: list[str], two: list[str], three: list[str]) -> None:
    version = Origin(bytes(16), bytes(8), 1)
    found = list(
        merged(
            [(path, content(1)) for path in one],
            [AgreedFile(path, version, content(1)) for path in two],
            [FileRow(path, version, False, 0, (), gone=True) for path in three],
        )
    )
    assert [path for path, *_ in found] == sorted({*one, *two, *three})
    assert [path for path, local, _, _ in found if local is not None] == one
    assert [path for path, _, past, _ in found if past is not None] == two
    assert [path for path, _, _, remote in found if remote is not None] == three
