"""Following a growing file: every complete line once, whatever happens to the file."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal_node.capture import follow
from crystal_node.capture.follow import FileState, Line, LineReader, NotAFile, unchanged


def read(path: Path, state: FileState | None) -> tuple[list[bytes | None], FileState]:
    """Everything from a state on, pass after pass."""
    lines: list[bytes | None] = []
    while True:
        with LineReader(path, state) as reader:
            lines.extend(line.data for line in reader.lines())
            state = reader.state()
            if not reader.more:
                return lines, state


def test_growth_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"one\ntwo\n")
    lines, state = read(path, None)
    assert lines == [b"one", b"two"]
    assert read(path, state)[0] == []
    with path.open("ab") as file:
        file.write(b"three\n")
    assert read(path, state)[0] == [b"three"]


def test_a_half_written_line_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'one\n{"half": ')
    lines, state = read(path, None)
    assert lines == [b"one"]
    with path.open("ab") as file:
        file.write(b"true}\nnext")
    lines, state = read(path, state)
    assert lines == [b'{"half": true}']
    assert state.offset == len(b'one\n{"half": true}\n')


@given(
    st.lists(st.binary(max_size=30).filter(lambda line: b"\n" not in line), max_size=12),
    st.lists(st.integers(0, 400), max_size=8),
)
def test_any_way_of_growing_gives_the_lines_of_reading_at_once(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], cuts: list[int]
) -> None:
    path = tmp_path_factory.mktemp("grow") / "t.jsonl"
    whole = b"".join(line + b"\n" for line in lines)
    state: FileState | None = None
    got: list[bytes | None] = []
    for cut in [*sorted(min(cut, len(whole)) for cut in cuts), len(whole)]:
        path.write_bytes(whole[:cut])
        more, state = read(path, state)
        got += more
    assert got == [line.removesuffix(b"\r") for line in lines]


def test_a_replaced_file_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"old one\nold two\n")
    _, state = read(path, None)
    path.write_bytes(b"new one\nnew two\nnew three\n")
    assert read(path, state)[0] == [b"new one", b"new two", b"new three"]


def test_a_truncated_file_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"one\ntwo\nthree\n")
    _, state = read(path, None)
    path.write_bytes(b"one\n")
    assert read(path, state)[0] == [b"one"]


def test_a_file_rewritten_in_its_middle_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    body = b"".join(b"line %d\n" % n for n in range(1000))
    path.write_bytes(body)
    _, state = read(path, None)
    path.write_bytes(body[:-10] + b"X" + body[-9:] + b"more\n")
    with LineReader(path, state) as reader:
        assert reader.restarted


def test_a_rotated_file_is_read_on_under_its_new_name(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"one\n")
    _, state = read(path, None)
    moved = path.rename(tmp_path / "moved.jsonl")
    with moved.open("ab") as file:
        file.write(b"two\n")
    path.write_bytes(b"another\n")
    assert read(moved, state)[0] == [b"two"]
    assert read(path, state)[0] == [b"another"]


def test_a_line_over_the_limit_is_counted_and_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "LINE_BYTES_MAX", 1000)
    monkeypatch.setattr(follow, "BLOCK_BYTES", 64)
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"one\n" + b"x" * 5000 + b"\ntwo\n" + b"y" * 5000)
    lines, state = read(path, None)
    assert lines == [b"one", None, b"two", None]
    with path.open("ab") as file:
        file.write(b"still the long line\nthree\n")
    assert read(path, state)[0] == [b"three"]


def test_a_pass_is_bounded_and_the_next_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "PASS_BYTES_MAX", 100)
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"".join(b"line %03d\n" % n for n in range(100)))
    with LineReader(path, None) as reader:
        first = [line.data for line in reader.lines()]
        assert reader.more
        state = reader.state()
    assert len(first) == 12
    rest, _ = read(path, state)
    assert len(first) + len(rest) == 100


def test_windows_line_ends_are_taken_off(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"one\r\ntwo\r\n")
    assert read(path, None)[0] == [b"one", b"two"]


def test_skipping_leaves_nothing_of_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"private one\nprivate ha")
    with LineReader(path, None) as reader:
        state = reader.skip_to_end()
    with path.open("ab") as file:
        file.write(b"lf\npublic\n")
    assert read(path, state)[0] == [b"public"]


def test_skipping_a_file_that_ends_with_a_line_keeps_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    for before in (b"", b"private\n"):
        path.write_bytes(before)
        with LineReader(path, None) as reader:
            state = reader.skip_to_end()
        with path.open("ab") as file:
            file.write(b"public\n")
        assert read(path, state)[0] == [b"public"]


def test_links_folders_and_pipes_are_refused(tmp_path: Path) -> None:
    target = tmp_path / "target.jsonl"
    target.write_bytes(b"one\n")
    link = tmp_path / "link.jsonl"
    link.symlink_to(target)
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    for path in (link, pipe, tmp_path):
        with pytest.raises(OSError, match=path.name):
            LineReader(path, None)
    with pytest.raises(NotAFile):
        LineReader(pipe, None)


def test_an_untouched_file_need_not_be_opened(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"one\n")
    assert not unchanged(path, None)
    _, state = read(path, None)
    assert unchanged(path, state)
    path.write_bytes(b"one\ntwo\n")
    assert not unchanged(path, state)


def test_line_carries_where_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"one\ntwo\n")
    with LineReader(path, None) as reader:
        assert list(reader.lines()) == [Line(b"one", 0, 4), Line(b"two", 4, 8)]
