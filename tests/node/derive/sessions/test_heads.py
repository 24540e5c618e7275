"""What is known of the heads is looked at only when something changed, and no head of another device can spoil it."""

from pathlib import Path

import pytest
from msgspec import structs

from crystal_node.base import home
from crystal_node.derive.sessions import heads
from crystal_node.derive.sessions.copies import CopyDamaged, SessionCopies, read_head
from crystal_node.derive.sessions.database import SessionDatabase
from crystal_node.derive.sessions.heads import PACKED_BYTES_MAX, HeadCache, copies_summary
from crystal_node.derive.sessions.layout import FOLDER, HEAD_NAME, Head, Stream, encode_head
from crystal_node.derive.sessions.segments import write_head
from tests.node.derive.sessions.machines import Machine
from tests.node.derive.sessions.support import base_of, head_of, lines, write
from tests.node.derive.sessions.test_writer import turns

HOUR = heads.LOOK_MS


class Here:
    """A home, its cache, and which heads were read."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.changes = root / "home", root / "files.db"
        self.changes.write_bytes(b"1")
        self.copies = SessionCopies(self.root)
        self.database = SessionDatabase.open(root / "sessions.db")
        self.cache = HeadCache(self.copies, self.database, (self.changes,))
        self.read: list[str] = []
        real = read_head

        def noted(path: Path) -> Head:
            self.read.append(path.relative_to(self.root / FOLDER).parent.as_posix())
            return real(path)

        monkeypatch.setattr("crystal_node.derive.sessions.heads.read_head", noted)

    def refresh(self, now_ms: int = HOUR) -> list[str]:
        """Which heads it read."""
        self.read = []
        self.cache.refresh(now_ms)
        return self.read

    def files_changed(self) -> None:
        self.changes.write_bytes(self.changes.read_bytes() + b"1")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    return Here(tmp_path, monkeypatch)


def copy(here: Here, device: str, **about: object) -> Head:
    parts = [lines(0, 3)]
    return write(here.root, structs.replace(head_of(device, parts), **about), parts)


def test_heads_are_read_once_and_again_only_where_one_changed(here: Here) -> None:
    one, two = copy(here, "a"), copy(here, "b")
    assert len(here.refresh()) == 2
    write_head(here.root, structs.replace(two, forgotten=3, title="another"))
    assert here.refresh() == [], "nobody said that files changed"
    here.files_changed()
    assert [each.split("/")[2] for each in here.refresh()] == [two.device]
    assert [row.device for row in here.cache.behind(3)] == [one.device]
    assert [row.device for row in here.cache.behind(0)] == [two.device], (
        "its set is another, not a smaller one"
    )


def test_an_idle_look_touches_no_folder_and_an_hour_later_it_does(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy(here, "a")
    assert here.cache.refresh(HOUR)

    def looked(_root: Path) -> None:
        pytest.fail("it looked")

    with monkeypatch.context() as patched:
        patched.setattr(heads, "_stats", looked)
        assert not here.cache.refresh(HOUR + 1)
    copy(here, "b")
    assert here.cache.refresh(2 * HOUR)
    assert here.cache.summary().copies == 2


def test_copies_that_are_gone_or_removed_by_a_rule_are_counted_as_such(here: Here) -> None:
    first, second = copy(here, "a"), copy(here, "b")
    here.refresh()
    summary = here.cache.summary()
    assert (summary.sessions, summary.copies, summary.bytes) == (1, 2, first.packed + second.packed)
    for head in (first, second):
        write_head(here.root, structs.replace(head, main=Stream(), removed=7))
        here.cache.note(head.place)
    summary = here.cache.summary()
    assert (summary.sessions, summary.bytes, summary.dropped) == (0, 0, 1)
    for head in (first, second):
        (head.place.folder(here.root) / HEAD_NAME).unlink()
    here.files_changed()
    here.refresh()
    assert here.cache.summary().dropped == 0
    assert here.cache.heads() == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[" * 100_000,
        encode_head(head_of("a", [lines(0, 2)])),
        b'{"tool":"codex","session":"s","device":"bbbbbbbb","number":1,"forgotten":1' + b"0" * 400 + b"}",
        b'{"tool":"codex","session":"s","device":"bbbbbbbb","number":1,"removed":-1}',
    ],
)
def test_a_head_that_cannot_be_used_is_told_and_read_once(here: Here, content: bytes) -> None:
    good, bad = copy(here, "a"), copy(here, "b")
    (bad.place.folder(here.root) / HEAD_NAME).write_bytes(content)
    assert len(here.refresh()) == 2
    [damaged] = [row for row in here.cache.heads() if row.problem]
    assert damaged.folder.endswith(f"/{bad.device}/1")
    assert [row.device for row in here.cache.behind(1)] == [good.device]
    summary = here.cache.summary()
    assert (summary.copies, summary.unreadable) == (1, 1)
    here.files_changed()
    assert here.refresh() == []


def test_sizes_that_no_disk_has_do_not_break_the_sum(here: Here) -> None:
    for device in "abc":
        head = copy(here, device)
        segment = structs.replace(head.main.segments[0], packed=2**40)
        many = structs.replace(head, side=tuple(Stream(path=f"f{n}") for n in range(3)))
        write_head(here.root, structs.replace(many, main=structs.replace(head.main, segments=(segment,))))
    here.refresh()
    assert here.cache.summary().bytes <= 3 * PACKED_BYTES_MAX


def test_copies_that_stand_on_each_other_in_a_circle_are_damaged(here: Here) -> None:
    one, two = head_of("a", [lines(0, 3)]), head_of("b", [lines(0, 3)])
    for head, other in ((one, two), (two, one)):
        circle = structs.replace(head.main, base=base_of(other), segments=())
        write_head(here.root, structs.replace(head, main=circle))
    [first, _] = here.copies.heads()
    with pytest.raises(CopyDamaged, match="stands on itself"):
        list(here.copies.read(first))
    assert here.copies.digest_at(first, first.main.bytes - 1) is None


def test_what_this_device_writes_is_known_without_a_look(tmp_path: Path) -> None:
    one = Machine(tmp_path, "a")
    one.says(turns(0, 3))
    one.copy()
    [row] = one.database.heads()
    [head] = one.copies.heads()
    assert (row.place, row.packed, row.updated_at) == (head.place, head.packed, head.updated_at)


def test_a_home_without_copies_or_with_a_damaged_cache_has_no_summary(tmp_path: Path) -> None:
    here = home.Home(tmp_path)
    assert copies_summary(here) is None
    here.state.mkdir()
    here.sessions_database.write_bytes(b"no database" * 1000)
    assert copies_summary(here) is None


def test_a_transcript_that_did_not_change_is_not_read_and_one_beside_it_is_seen(tmp_path: Path) -> None:
    one = Machine(tmp_path, "a")
    one.says(turns(0, 3))
    beside = one.slug / one.transcript.stem / "tool-results" / "out.txt"
    beside.parent.mkdir(parents=True)
    beside.write_text("one")
    assert not one.writer.unchanged(one.transcript)
    one.copy()
    assert one.writer.unchanged(one.transcript)
    beside.write_text("another")
    assert not one.writer.unchanged(one.transcript)
    one.copy()
    assert one.writer.unchanged(one.transcript)
    one.says(turns(3, 4))
    assert not one.writer.unchanged(one.transcript)
