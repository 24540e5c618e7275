"""What is read of copies, and what is refused."""

from pathlib import Path

import msgspec
import pytest

from crystal_node.derive.sessions.copies import CopyDamaged, CopyIncomplete, SessionCopies, UnreadableHead
from crystal_node.derive.sessions.layout import (
    HEAD_NAME,
    CopyPlace,
    Head,
    decode_head,
    encode_head,
    segment_path,
    session_folder,
    side_path_fault,
)
from crystal_node.derive.sessions.streams import Relation, branches, relation
from tests.node.derive.sessions.support import SESSION, base_of, head_of, lines, stream_of, write


def test_a_head_reads_as_it_was_written() -> None:
    head = head_of("a", [lines(0, 3), lines(3, 9)])
    assert decode_head(encode_head(head)) == head


@pytest.mark.parametrize(
    "change",
    [
        {"tool": "vim"},
        {"schema": 2},
        {"device": "../../x"},
        {"number": 0},
        {"session": ""},
        {"main": {"bytes": 5}},
        {"side": [{"path": "../secrets"}]},
        {"side": [{"path": "a"}, {"path": "a"}]},
    ],
)
def test_a_head_that_contradicts_itself_or_leaves_its_folder_is_refused(change: dict[str, object]) -> None:
    fields = msgspec.json.decode(encode_head(head_of("a", [lines(0, 3)])))
    with pytest.raises(ValueError, match=r"[a-z]"):
        decode_head(msgspec.json.encode(fields | change))


@pytest.mark.parametrize("path", ["/etc/passwd", "a/../../b", "C:x", "a\\b", "", "a//b", "./a", "a\nb"])
def test_a_side_file_stays_in_its_folder(path: str) -> None:
    assert side_path_fault(path)


def test_a_copy_reads_back_to_the_last_byte(tmp_path: Path) -> None:
    parts = [lines(0, 3), lines(3, 9), lines(9, 10)]
    head = write(tmp_path, head_of("a", parts), parts)
    copies = SessionCopies(tmp_path)
    assert b"".join(copies.read(head)) == b"".join(parts)
    assert list(copies.heads()) == copies.of("claude-code", SESSION) == [head]


def test_a_copy_that_continues_another_one_reads_as_one(tmp_path: Path) -> None:
    one = write(tmp_path, head_of("a", [lines(0, 3), lines(3, 9)]), [lines(0, 3), lines(3, 9)])
    at = one.main.segments[0].end
    two = write(tmp_path, head_of("b", [lines(3, 5, "other")], base=base_of(one, at)), [lines(3, 5, "other")])
    three = write(tmp_path, head_of("c", [lines(5, 6)], base=base_of(two)), [lines(5, 6)])
    copies = SessionCopies(tmp_path)
    assert b"".join(copies.read(three)) == lines(0, 3) + lines(3, 5, "other") + lines(5, 6)
    copies.check(three)


def test_what_has_not_arrived_is_told_apart_from_what_is_damaged(tmp_path: Path) -> None:
    parts = [lines(0, 3), lines(3, 9)]
    head = write(tmp_path, head_of("a", parts), parts)
    copies = SessionCopies(tmp_path)
    second = segment_path(head.place.folder(tmp_path), head.main, head.main.segments[1])
    kept = second.read_bytes()
    second.write_bytes(stream_of([lines(3, 9, "liar")])[1][0][1])
    with pytest.raises(CopyDamaged):
        list(copies.read(head))
    second.write_bytes(kept[:-3])
    with pytest.raises(CopyDamaged):
        list(copies.read(head))
    second.unlink()
    with pytest.raises(CopyIncomplete):
        copies.check(head)
    reading = copies.read(head)
    assert next(reading) == parts[0]
    with pytest.raises(CopyIncomplete):
        next(reading)


def test_a_copy_that_stands_on_itself_is_damaged(tmp_path: Path) -> None:
    one = head_of("a", [lines(0, 3)])
    circle = head_of("a", [lines(3, 4)], base=base_of(one))
    write(tmp_path, circle, [lines(3, 4)])
    with pytest.raises(CopyDamaged):
        list(SessionCopies(tmp_path).read(circle))


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    parts = [lines(0, 3)]
    head = write(tmp_path, head_of("a", parts), parts)
    path = segment_path(head.place.folder(tmp_path), head.main, head.main.segments[0])
    path.write_bytes(stream_of([b"0" * 50_000_000])[1][0][1])
    with pytest.raises(CopyDamaged):
        list(SessionCopies(tmp_path).read(head))


def test_a_head_in_anothers_place_is_named_and_left_out(tmp_path: Path) -> None:
    head = head_of("a", [lines(0, 3)])
    write(tmp_path, head, [lines(0, 3)])
    foreign = session_folder(tmp_path, "claude-code", SESSION) / ("b" * 32) / "1"
    foreign.mkdir(parents=True)
    (foreign / HEAD_NAME).write_bytes(encode_head(head))
    broken = session_folder(tmp_path, "codex", "x") / ("b" * 32) / "1"
    broken.mkdir(parents=True)
    (broken / HEAD_NAME).write_bytes(b"{")
    unreadable: list[UnreadableHead] = []
    assert list(SessionCopies(tmp_path).heads(unreadable)) == [head]
    assert {each.path.parent for each in unreadable} == {foreign, broken}


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    head = write(elsewhere, head_of("a", [lines(0, 3)]), [lines(0, 3)])
    inside = tmp_path / "home"
    folder = CopyPlace(*head.place).folder(inside)
    folder.mkdir(parents=True)
    (folder / HEAD_NAME).symlink_to(head.place.folder(elsewhere) / HEAD_NAME)
    assert list(SessionCopies(inside).heads()) == []


def test_a_beginning_is_no_fork_whether_its_end_is_known_or_read(tmp_path: Path) -> None:
    copies = SessionCopies(tmp_path)
    long = write(tmp_path, head_of("a", [lines(0, 3), lines(3, 9)]), [lines(0, 3), lines(3, 9)])
    at_an_end = write(tmp_path, head_of("b", [lines(0, 3)]), [lines(0, 3)])
    within = write(tmp_path, head_of("c", [lines(0, 5)]), [lines(0, 5)])
    fork = write(tmp_path, head_of("d", [lines(0, 5), b"x\n"], at=5000), [lines(0, 5), b"x\n"])
    assert relation(at_an_end, long, copies.digest_at) is Relation.BEGINNING
    assert relation(within, long, copies.digest_at) is Relation.BEGINNING
    assert relation(long, within, copies.digest_at) is Relation.CONTINUES
    assert relation(fork, long, copies.digest_at) is Relation.FORK
    found = copies.branches("claude-code", SESSION)
    assert [branch.tip for branch in found] == [fork, long]
    assert {copy.device[0] for branch in found for copy in branch.copies} == set("abcd")


def test_two_machines_that_hold_the_same_are_one_branch() -> None:
    one, other = head_of("a", [lines(0, 9)]), head_of("b", [lines(0, 3), lines(3, 9)], at=2000)
    [branch] = branches([one, other], _nothing_read)
    assert branch.tip == one
    assert branch.others == (other,)


def _nothing_read(head: Head, count: int) -> str | None:
    raise AssertionError("the heads tell it all")
