"""What was written while private mode was on never comes up later, however the file got there."""

from pathlib import Path

import pytest

from crystal_node.capture.line_reader import FileState, LineReader
from crystal_node.capture.messages import milliseconds
from tests.node.capture.transcripts import SESSION, Tool, line, nothing, said, user

NOON = milliseconds("2026-11-17T12:00:00Z")


@pytest.fixture
def tool(tmp_path: Path) -> Tool:
    return Tool(tmp_path)


def after(tool: Tool, state: FileState) -> list[str]:
    return [text for _, text in said(tool.read_all(state)[0])]


def test_what_was_written_while_private_is_stepped_over(tool: Tool) -> None:
    tool.write(user("before"))
    tool.read()
    tool.write(user("private", 2))
    state = tool.adapter.skip(tool.path)
    tool.write(user("after", 3))
    assert after(tool, state) == ["after"]


def test_a_file_that_began_while_private_is_read_only_from_its_end_then(tool: Tool) -> None:
    tool.write(user("private"), user("private, too", 2))
    state = tool.adapter.skip(tool.path)
    assert after(tool, state) == []
    tool.write(user("after", 3))
    assert after(tool, state) == ["after"]


@pytest.mark.parametrize("cut", [1, 60, -1])
def test_a_line_half_written_when_private_mode_ends_is_dropped_whole(tool: Tool, cut: int) -> None:
    half = line(user("private half", 2))
    tool.write(user("before"), half[:cut])
    state = tool.adapter.skip(tool.path)
    tool.write(half[cut:], user("after", 3))
    assert after(tool, state) == ["after"]


def test_a_line_half_written_when_private_mode_began_is_never_taken(tool: Tool) -> None:
    half = line(user("half", 2))
    tool.write(user("before"), half[:60])
    reading = tool.read()
    assert said(reading.operations) == [("user", "before")]
    tool.write(half[60:], user("private", 3))
    state = tool.adapter.skip(tool.path)
    tool.write(user("after", 4))
    assert after(tool, state) == ["after"]


def test_an_empty_file_is_stepped_over_to_its_start(tool: Tool) -> None:
    tool.path.touch()
    state = tool.adapter.skip(tool.path)
    tool.write(user("after"))
    assert after(tool, state) == ["after"]


def test_a_stepped_over_file_of_any_size_is_not_read(tool: Tool) -> None:
    tool.path.write_bytes(b"")
    with tool.path.open("ab") as file:
        file.truncate(10_000_000_000)  # sparse: reading it would take minutes
    state = tool.adapter.skip(tool.path)
    assert state.offset == 10_000_000_000
    assert tool.read(state).operations == []


def test_private_moments_are_dropped_wherever_they_turn_up(tool: Tool) -> None:
    tool.write(user("open"), user("private", 2, timestamp="2026-11-18T00:00:00Z"))
    reading = tool.read(hides=lambda moment: moment > NOON)
    assert said(reading.operations) == [("user", "open")]
    assert reading.counts.skipped["private"] == 1


def test_a_stepped_over_file_that_is_rewritten_gives_nothing_that_cannot_be_dated(tool: Tool) -> None:
    """The tool rewrites its file: it has to be read again, and what was private stands in it without a time."""
    private = user("private", 2, timestamp=None)
    tool.write(user("before"), private)
    state = tool.adapter.skip(tool.path)
    tool.path.write_bytes(line(user("rewritten")) + line(private) + line(user("after", 3)))
    operations, state = tool.read_all(state)
    assert said(operations) == [("user", "rewritten"), ("user", "after")]
    tool.path.write_bytes(line(private) + line(user("rewritten again", 4)))
    assert after(tool, state) == ["rewritten again"], "also the second time"


def test_undated_words_are_taken_as_long_as_nothing_was_stepped_over(tool: Tool) -> None:
    tool.write(user("undated", timestamp=None))
    operations, state = tool.read_all()
    tool.path.write_bytes(line(user("rewritten", timestamp="never")))
    assert said(operations) == [("user", "undated")]
    assert after(tool, state) == ["rewritten"]


def test_a_copy_of_a_private_conversation_is_private_by_its_times(tool: Tool) -> None:
    tool.write(user("private", timestamp="2026-11-17T12:30:00Z"))
    copy = tool.path.with_name("aaaaaaaa-54a7-4b7e-9d3a-0c2f8e7b4a61.jsonl")
    copy.write_bytes(tool.path.read_bytes().replace(SESSION.encode(), copy.stem.encode()))
    reading = tool.adapter.read(copy, None, agent="cc-mini", hides=lambda moment: moment >= NOON)
    assert reading.operations == []
    assert tool.adapter.read(copy, None, agent="cc-mini", hides=nothing).operations


def test_skipping_leaves_nothing_of_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"private one\nprivate ha")
    with LineReader(path, None) as reader:
        state = reader.skip_to_end()
    with path.open("ab") as file:
        file.write(b"lf\npublic\n")
    with LineReader(path, state) as reader:
        assert [found.data for found in reader.lines()] == [b"public"]
