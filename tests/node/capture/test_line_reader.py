"""Following a growing file: every complete line once, whatever happens to the file."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from crystal_node.capture import line_reader
from crystal_node.capture.line_reader import FileLine, FileState, LineReader, NotAFile, unchanged


def read(path: Path, state: FileState | None) -> tuple[list[bytes | None], FileState]:
    """Everything from a state on, pass after pass."""
    lines: list[bytes | None] = []
    while True:
        with LineReader(path, state) as reader:
            lines.extend(line.data for line in reader.lines())
            state = reader.state()
            if not reader.more:
                return lines, state


def restarted(path: Path, state: FileState) -> bool:
    with LineReader(path, state) as reader:
        return reader.restarted


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.jsonl"


def test_growth_is_read_once(path: Path) -> None:
    path.write_bytes(b"one\ntwo\n")
    lines, state = read(path, None)
    assert lines == [b"one", b"two"]
    assert read(path, state)[0] == []
    append(path, b"three\n")
    assert not restarted(path, state)
    assert read(path, state)[0] == [b"three"]


def test_growth_reads_no_more_than_the_new_bytes_and_the_marks(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_reader, "BLOCK_BYTES", 4096)
    path.write_bytes(b"".join(b"line %06d\n" % n for n in range(100_000)))
    _, state = read(path, None)
    append(path, b"new\n")
    consumed = 0
    true_read = os.read

    def counting(descriptor: int, length: int) -> bytes:
        nonlocal consumed
        data = true_read(descriptor, length)
        consumed += len(data)
        return data

    class Counted:
        """A file that reads through ``counting``."""

        def __init__(self, descriptor: int, *_: object, **__: object) -> None:
            self._descriptor = descriptor

        def fileno(self) -> int:
            return self._descriptor

        def seek(self, offset: int) -> None:
            os.lseek(self._descriptor, offset, os.SEEK_SET)

        def read(self, length: int) -> bytes:
            return counting(self._descriptor, length)

        def close(self) -> None:
            os.close(self._descriptor)

    monkeypatch.setattr(os, "fdopen", Counted)
    assert read(path, state)[0] == [b"new"]
    assert consumed <= 2 * line_reader.MARK_BYTES + len(b"new\n")


def test_a_half_written_line_waits_for_its_end_even_if_it_is_whole_json(path: Path) -> None:
    path.write_bytes(b'one\n{"half": 1}')
    lines, state = read(path, None)
    assert lines == [b"one"]
    append(path, b"\nnext")
    lines, state = read(path, state)
    assert lines == [b'{"half": 1}']
    assert state.offset == len(b'one\n{"half": 1}\n')


@given(
    st.lists(st.binary(max_size=30).filter(lambda line: b"\n" not in line), max_size=12),
    st.lists(st.integers(0, 400), max_size=8),
    st.sampled_from([1, 7, 64, 262_144]),
    st.sampled_from([1, 30, 4_194_304]),
)
def test_any_way_of_growing_gives_the_lines_of_reading_at_once(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], cuts: list[int], block: int, bound: int
) -> None:
    path = tmp_path_factory.mktemp("grow") / "t.jsonl"
    whole = b"".join(line + b"\n" for line in lines)
    state: FileState | None = None
    got: list[bytes | None] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_reader, "BLOCK_BYTES", block)
        patch.setattr(line_reader, "PASS_BYTES_MAX", bound)
        for cut in [*sorted(min(cut, len(whole)) for cut in cuts), len(whole)]:
            path.write_bytes(whole[:cut])
            more, state = read(path, state)
            got += more
    assert got == [line.removesuffix(b"\r") for line in lines]


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(b"new one\nnew two\nnew three\n", id="longer"),
        pytest.param(b"new one\nnew two\n", id="same length"),
        pytest.param(b"old one\n", id="truncated"),
        pytest.param(b"", id="emptied"),
        pytest.param(b"old one\nold tw0\nmore\n", id="last line changed"),
        pytest.param(b"0ld one\nold two\nmore\n", id="first line changed"),
    ],
)
@pytest.mark.parametrize("atomically", [True, False])
def test_a_file_that_is_another_one_is_read_from_its_start(
    path: Path, after: bytes, atomically: bool
) -> None:
    path.write_bytes(b"old one\nold two\n")
    _, state = read(path, None)
    if atomically:
        beside = path.with_suffix(".new")
        beside.write_bytes(after)
        beside.replace(path)
    else:
        path.write_bytes(after)
    assert restarted(path, state)
    lines, state = read(path, state)
    assert lines == after.splitlines()
    append(path, b"grown\n")
    assert read(path, state)[0] == [b"grown"]


@pytest.mark.parametrize("at", [0, 1000, 10_990])
def test_a_long_file_that_was_rewritten_at_either_end_is_another_one(path: Path, at: int) -> None:
    content = b"".join(b"line %05d\n" % n for n in range(1000))
    path.write_bytes(content)
    _, state = read(path, None)
    path.write_bytes(content[:at] + b"LINE" + content[at + 4 :] + b"more\n")
    assert restarted(path, state)


def test_a_file_that_was_away_and_came_back_is_read_on(path: Path, tmp_path: Path) -> None:
    path.write_bytes(b"one\n")
    _, state = read(path, None)
    content = path.read_bytes()
    path.unlink()
    with pytest.raises(FileNotFoundError):
        LineReader(path, state)
    path.write_bytes(content + b"two\n")
    assert read(path, state)[0] == [b"two"]


def test_a_rotated_file_is_read_on_under_its_new_name(path: Path, tmp_path: Path) -> None:
    path.write_bytes(b"one\n")
    _, state = read(path, None)
    moved = path.rename(tmp_path / "moved.jsonl")
    append(moved, b"two\n")
    path.write_bytes(b"another\n")
    assert read(moved, state)[0] == [b"two"]
    assert read(path, state)[0] == [b"another"]


def test_a_file_rewritten_while_it_is_read_is_noticed_the_next_time(path: Path) -> None:
    """The state is of what was consumed, not of what stands in the file by the time the pass ends."""
    path.write_bytes(b"old one\nold two\n")
    with LineReader(path, None) as reader:
        lines = reader.lines()
        assert next(lines).data == b"old one"
        path.write_bytes(b"new one\nnew two\n")
        list(lines)
        state = reader.state()
    assert restarted(path, state)
    assert read(path, state)[0] == [b"new one", b"new two"]


@pytest.mark.parametrize("bound", [1, 1000, 4_194_304])
def test_a_line_over_the_limit_is_counted_and_not_held(
    path: Path, monkeypatch: pytest.MonkeyPatch, bound: int
) -> None:
    monkeypatch.setattr(line_reader, "LINE_BYTES_MAX", 1000)
    monkeypatch.setattr(line_reader, "BLOCK_BYTES", 64)
    monkeypatch.setattr(line_reader, "PASS_BYTES_MAX", bound)
    path.write_bytes(b"one\n" + b"x" * 5000 + b"\n" + b"z" * 1000 + b"\ntwo\n" + b"y" * 5000)
    lines, state = read(path, None)
    assert lines == [b"one", None, b"z" * 1000, b"two", None]
    append(path, b"still the long line\nthree\n")
    assert read(path, state)[0] == [b"three"]


def test_a_line_over_the_limit_does_not_make_a_pass_endless(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_reader, "LINE_BYTES_MAX", 1000)
    monkeypatch.setattr(line_reader, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(line_reader, "PASS_BYTES_MAX", 10_000)
    path.write_bytes(b"x" * 1_000_000 + b"\nend\n")
    with LineReader(path, None) as reader:
        assert [line.data for line in reader.lines()] == [None]
        assert reader.more
        assert reader.state().offset <= 12_000
    assert read(path, reader.state())[0] == [b"end"]


def test_a_pass_is_bounded_and_the_next_goes_on(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_reader, "PASS_BYTES_MAX", 100)
    path.write_bytes(b"".join(b"line %03d\n" % n for n in range(100)))
    with LineReader(path, None) as reader:
        first = [line.data for line in reader.lines()]
        assert reader.more
        state = reader.state()
    assert len(first) == 12
    rest, _ = read(path, state)
    assert len(first) + len(rest) == 100


def test_windows_line_ends_are_taken_off(path: Path) -> None:
    path.write_bytes(b"one\r\ntwo\r\n\r\n")
    assert read(path, None)[0] == [b"one", b"two", b""]


def test_links_folders_and_pipes_are_refused(tmp_path: Path) -> None:
    target = tmp_path / "target.jsonl"
    target.write_bytes(b"one\n")
    link = tmp_path / "link.jsonl"
    link.symlink_to(target)
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    with pytest.raises(FileNotFoundError):
        LineReader(tmp_path / "missing.jsonl", None)
    for refused in (pipe, tmp_path):
        with pytest.raises(NotAFile):
            LineReader(refused, None)
    with pytest.raises(OSError, match=r"symbolic links|link\.jsonl"):
        LineReader(link, None)


def test_no_file_stays_open(path: Path, tmp_path: Path) -> None:
    path.write_bytes(b"one\n")
    before = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0
    for _ in range(5):
        read(path, None)
        with pytest.raises(NotAFile):
            LineReader(tmp_path, None)
    after = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0
    assert after == before


def test_an_untouched_file_need_not_be_opened(path: Path) -> None:
    path.write_bytes(b"one\n")
    assert not unchanged(path, None)
    _, state = read(path, None)
    assert unchanged(path, state)
    append(path, b"two\n")
    assert not unchanged(path, state)


def test_a_replacement_of_the_same_size_and_time_is_not_taken_for_untouched(path: Path) -> None:
    path.write_bytes(b"one\n")
    _, state = read(path, None)
    beside = path.with_suffix(".new")
    beside.write_bytes(b"two\n")
    os.utime(beside, ns=(state.modified, state.modified))
    beside.replace(path)
    assert not unchanged(path, state)
    assert read(path, state)[0] == [b"two"]


def test_a_replacement_within_one_tick_of_the_clock_is_known_by_its_inode(path: Path) -> None:
    path.write_bytes(b"one\n")
    _, state = read(path, None)
    beside = path.with_suffix(".new")
    beside.write_bytes(b"two\n")
    beside.replace(path)
    found = path.stat()
    assert not unchanged(path, structs.replace(state, modified=found.st_mtime_ns, changed=found.st_ctime_ns))


def test_line_carries_where_it_stands(path: Path) -> None:
    path.write_bytes(b"one\ntwo\n")
    with LineReader(path, None) as reader:
        assert list(reader.lines()) == [FileLine(b"one", 0, 4), FileLine(b"two", 4, 8)]
