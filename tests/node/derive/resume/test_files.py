"""A session's own file and a copy of it: what is written, and what never is."""

import errno
import os
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from crystal_node.base.errors import LocalStorage
from crystal_node.derive.resume import files
from crystal_node.derive.resume.files import Comparison, Relation, SessionBusy, compare, same_line, write
from crystal_node.derive.sessions.line_redaction import LineRedactor, blank
from tests.support.session_copies import written_long_ago

A, B, C = (b'{"n":%d,"text":"line"}\n' % number for number in range(3))
SECRET = b'{"n":1,"text":"the key is sk-proj-abcdef, keep it"}\n'
BLANKED = b'{"n":1,"text":"the key is [redacted:openai-key], keep it"}\n'


def brought_up(path: Path, lines: Iterable[bytes]) -> Comparison:
    """Compare and write, as a resume does."""
    held = list(lines)
    found = compare(path, lambda: held)
    write(path, lambda: held, found, path.parent / "torn")
    return found


def own(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "own.jsonl"
    path.write_bytes(data)
    written_long_ago(path)
    return path


@pytest.mark.parametrize(
    ("before", "copy", "relation", "after"),
    [
        (A, [A, B], Relation.BEHIND, A + B),
        (A + B, [A, B], Relation.EQUAL, A + B),
        (A + B + C, [A, B], Relation.AHEAD, A + B + C),
        (A + C, [A, B], Relation.FORKED, A + C),
        (b"", [A, B], Relation.BEHIND, A + B),
        (A, [], Relation.AHEAD, A),
    ],
)
def test_an_own_file_only_grows(
    tmp_path: Path, before: bytes, copy: list[bytes], relation: Relation, after: bytes
) -> None:
    path = own(tmp_path, before)
    assert brought_up(path, copy).relation is relation
    assert path.read_bytes() == after
    assert list(tmp_path.iterdir()) == [path]


def test_a_session_that_is_not_here_appears_whole_and_private(tmp_path: Path) -> None:
    path = tmp_path / "a folder" / "own.jsonl"
    assert brought_up(path, [A, B]).relation is Relation.ABSENT
    assert path.read_bytes() == A + B
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["own.jsonl"]


def test_own_bytes_stay_where_the_copy_is_redacted(tmp_path: Path) -> None:
    path = own(tmp_path, A + SECRET)
    assert brought_up(path, [A, BLANKED, C]).relation is Relation.BEHIND
    assert path.read_bytes() == A + SECRET + C
    written_long_ago(path)
    assert brought_up(path, [A, BLANKED, C]).relation is Relation.EQUAL


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (SECRET, BLANKED, True),
        (BLANKED, SECRET, True),
        (SECRET, BLANKED.replace(b"keep", b"lose"), False),
        (b'"[redacted:a] [redacted:b]"', b'"x y"', True),
        (b'"ab"', b'"ab[redacted:a]b"', False),
        (b'"\xff secret"', b'"\xff [redacted:a]"', True),
    ],
)
def test_marks_of_redaction_stand_for_anything(one: bytes, other: bytes, same: bool) -> None:
    assert same_line(one, other) is same
    assert same_line(other, one) is same


ASKED = b'{"type":"user","n":"Ask <private>about my health</private> the gauge at the pier."}\n'
PRIVATE_AND_SECRET = b'{"type":"user","n":"<private>x</private> the key is AKIAIOSFODNN7EXAMPLQ, keep it"}\n'


@pytest.mark.parametrize("line", [ASKED, PRIVATE_AND_SECRET])
@pytest.mark.parametrize("hidden", [False, True])
def test_private_words_and_times_are_no_other_way(tmp_path: Path, line: bytes, *, hidden: bool) -> None:
    copied = LineRedactor().line(line, hidden=hidden)
    assert copied != line
    path = own(tmp_path, A + line)
    assert brought_up(path, [A, copied, C]).relation is Relation.BEHIND
    assert path.read_bytes() == A + line + C
    assert not same_line(line, LineRedactor().line(line.replace(b"user", b"assistant"), hidden=hidden))


def test_what_was_forgotten_is_no_other_way(tmp_path: Path) -> None:
    line = b'{"n":"the harbour master is called Ann Other, by the way"}\n'
    copied = blank(line, ["harbour master is called Ann Other"])
    assert b"[forgotten]" in copied
    path = own(tmp_path, A + line)
    assert brought_up(path, [A, copied, C]).relation is Relation.BEHIND
    assert path.read_bytes() == A + line + C
    assert not same_line(line.replace(b"by the way", b"in any case"), copied)
    assert not same_line(line.replace(b"way", b"road"), copied)


def test_a_time_far_ahead_is_no_tool_that_writes(tmp_path: Path) -> None:
    path = own(tmp_path, A)
    ahead = time.time() + 86_400
    os.utime(path, (ahead, ahead))
    assert brought_up(path, [A, B]).relation is Relation.BEHIND
    assert path.read_bytes() == A + B


@pytest.mark.parametrize(
    ("torn", "after", "aside"),
    [
        (B[:9], A + B + C, []),
        (B[:-1], A + B + C, []),
        (SECRET[:-1], A + SECRET + C, []),
        (b'{"n":7,"te', A + B + C, [b'{"n":7,"te']),
    ],
    ids=["a beginning", "without its end", "redacted, without its end", "another's half"],
)
def test_half_a_line_is_completed_or_set_aside(
    tmp_path: Path, torn: bytes, after: bytes, aside: list[bytes]
) -> None:
    path = own(tmp_path, A + torn)
    copy = [A, BLANKED if torn == SECRET[:-1] else B, C]
    assert brought_up(path, copy).relation is Relation.BEHIND
    assert path.read_bytes() == after
    assert [each.read_bytes() for each in tmp_path.glob("torn/*")] == aside


def test_a_whole_record_without_its_line_end_that_the_copy_lacks_is_a_fork(tmp_path: Path) -> None:
    path = own(tmp_path, A + C[:-1])
    assert brought_up(path, [A, B]).relation is Relation.FORKED
    assert path.read_bytes() == A + C[:-1]


def test_back_and_forth_three_times(tmp_path: Path) -> None:
    """Two machines, each of which says something in turn; neither loses a line or its own exact bytes."""
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    first.write_bytes(SECRET)
    for number in range(3):
        for here, there in ((first, second), (second, first)):
            copy = [
                line.replace(b"sk-proj-abcdef", b"[redacted:openai-key]")
                for line in here.read_bytes().splitlines(keepends=True)
            ]
            if there.exists():
                written_long_ago(there)
            assert brought_up(there, copy).relation in (Relation.ABSENT, Relation.BEHIND)
            with there.open("ab") as file:
                file.write(b'{"turn":"%d %s"}\n' % (number, there.stem.encode()))
    said = [b'{"turn":"%d %s"}\n' % (number, who) for number in range(3) for who in (b"second", b"first")]
    assert first.read_bytes() == b"".join([SECRET, *said])
    assert second.read_bytes() == b"".join([BLANKED, *said[:-1]])


def test_a_file_that_is_being_written_is_left_alone(tmp_path: Path) -> None:
    path = own(tmp_path, A)
    os.utime(path)
    with pytest.raises(SessionBusy, match="a moment ago"):
        brought_up(path, [A, B])
    written_long_ago(path)
    found = compare(path, lambda: [A, B])
    path.write_bytes(A + C)
    with pytest.raises(SessionBusy, match="while it was compared"):
        write(path, lambda: [A, B], found, tmp_path)
    assert path.read_bytes() == A + C


def test_a_file_that_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    found = compare(path, lambda: [A])
    path.write_bytes(C)
    with pytest.raises(SessionBusy, match="another program"):
        write(path, lambda: [A], found, tmp_path)
    assert path.read_bytes() == C
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("meanwhile", [True, False])
def test_without_second_names_for_a_file_nothing_is_replaced_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: bool
) -> None:
    path = tmp_path / "own.jsonl"
    found = compare(path, lambda: [A])

    def no_links(*_: object) -> None:
        if meanwhile:
            path.write_bytes(C)
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    if meanwhile:
        with pytest.raises(SessionBusy, match="another program"):
            write(path, lambda: [A], found, tmp_path)
    else:
        write(path, lambda: [A], found, tmp_path)
    assert path.read_bytes() == (C if meanwhile else A)
    assert list(tmp_path.iterdir()) == [path]


def test_a_copy_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> Iterable[bytes]:
        yield A
        yield B
        raise LocalStorage("the copy is damaged")

    path = own(tmp_path, A)
    found = compare(path, lambda: [A, B, C])
    with pytest.raises(LocalStorage):
        write(path, broken, found, tmp_path)
    with pytest.raises(LocalStorage):
        write(tmp_path / "other.jsonl", broken, Comparison(Relation.ABSENT), tmp_path)
    assert path.read_bytes() == A
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_takes_back_half_a_tail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = own(tmp_path, A)
    found = compare(path, lambda: [A, B, C])
    real = os.write

    def full(descriptor: int, data: bytes) -> int:
        if data == C:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(LocalStorage, match="the disk is full") as raised:
        write(path, lambda: [A, B, C], found, tmp_path)
    assert "Free some space" in raised.value.hint
    assert path.read_bytes() == A


def test_a_disk_without_room_is_found_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "SPARE_BYTES", 1 << 62)
    with pytest.raises(LocalStorage, match="free; the session takes"):
        brought_up(tmp_path / "deep" / "own.jsonl", [A])
    assert list(tmp_path.iterdir()) == []
