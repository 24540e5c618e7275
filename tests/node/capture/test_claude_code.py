"""The Claude Code adapter on transcripts as they are found: old, new, damaged, hostile."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import crystal_node
from crystal_mirror.operations import OPERATION_BYTES_MAX, Capture, encode_operation
from crystal_node.capture.adapter import Reading, decode_state, encode_state
from crystal_node.capture.claude_code import ClaudeCode, milliseconds
from crystal_node.capture.follow import FileState

SAMPLE = Path(crystal_node.__file__).parent / "samples" / "tidewatch.jsonl"
SESSION = "6f1d2c1e-54a7-4b7e-9d3a-0c2f8e7b4a61"


class Tool:
    """A Claude Code folder with one session file."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / ".claude"
        self.path = self.root / "projects" / "-home-mara-src-tidewatch" / f"{SESSION}.jsonl"
        self.path.parent.mkdir(parents=True)
        self.adapter = ClaudeCode(self.root, Path("/home/mara"))

    def write(self, *records: dict[str, Any] | bytes) -> None:
        with self.path.open("ab") as file:
            for record in records:
                file.write(record if isinstance(record, bytes) else json.dumps(record).encode() + b"\n")

    def read(self, state: FileState | None = None, hides: Callable[[int], bool] = lambda _: False) -> Reading:
        return self.adapter.read(self.path, state, agent="cc-mini", hides=hides)


@pytest.fixture
def tool(tmp_path: Path) -> Tool:
    return Tool(tmp_path)


def user(content: object, number: int = 1, **more: object) -> dict[str, Any]:
    return {
        "type": "user",
        "uuid": f"00000000-0000-4000-8000-{number:012d}",
        "sessionId": SESSION,
        "timestamp": "2026-11-17T09:12:04.118Z",
        "cwd": "/home/mara/src/tidewatch",
        "message": {"role": "user", "content": content},
        **more,
    }


def pieces(reading: Reading) -> list[tuple[str, str]]:
    return [(piece.role, piece.text) for operation in reading.operations for piece in operation.pieces]


def test_the_sample_is_captured_without_what_is_not_words(tool: Tool) -> None:
    shutil.copy(SAMPLE, tool.path)
    reading = tool.read()
    assert reading.counts.messages == 21
    assert dict(reading.counts.redacted) == {"assigned-secret": 1}
    assert sum(reading.counts.skipped.values()) == 17
    (operation,) = reading.operations
    assert (operation.agent, operation.session, operation.project) == ("cc-mini", SESSION, "src/tidewatch")
    whole = "\n".join(text for _, text in pieces(reading))
    for gone in (
        "tw_live_",
        "<command-",
        "system-reminder",
        "Request interrupted",
        "ran out of context",
        "Caveat",
    ):
        assert gone not in whole
    for kept in ("applied twice", "512 kilobytes", "pelican", "Halifax", "glass"):
        assert kept in whole
    assert {role for role, _ in pieces(reading)} == {"user", "assistant", "thinking"}


def test_growth_gives_only_what_is_new(tool: Tool) -> None:
    tool.write(user("first"))
    first = tool.read()
    tool.write(user("second", 2))
    second = tool.read(first.state)
    assert pieces(first) == [("user", "first")]
    assert pieces(second) == [("user", "second")]
    assert tool.read(second.state).operations == []


def test_the_state_survives_its_encoding(tool: Tool) -> None:
    tool.write(user("first"))
    state = tool.read().state
    assert decode_state(encode_state(state)) == state
    assert decode_state(b"\x93\x01\x02") is None


def test_user_text_in_blocks_and_old_string_form_are_the_same(tool: Tool) -> None:
    tool.write(user("plain"), user([{"type": "text", "text": "plain"}], 2))
    assert pieces(tool.read()) == [("user", "plain"), ("user", "plain")]


def test_tool_calls_results_and_images_are_counted_not_kept(tool: Tool) -> None:
    tool.write(
        user([{"type": "tool_result", "tool_use_id": "t", "content": "secret output"}, {"type": "image"}]),
        user([{"type": "hologram", "text": "from the future"}], 2),
        user([{"type": "text", "text": 5}, {"type": "text"}], 3),
    )
    reading = tool.read()
    assert reading.operations == []
    assert dict(reading.counts.skipped) == {
        "block tool_result": 1,
        "block image": 1,
        "block of unknown form": 3,
    }


def test_meta_compaction_and_unknown_records_are_counted_not_kept(tool: Tool) -> None:
    tool.write(
        user("meta", isMeta=True),
        user("summary", 2, isCompactSummary=True),
        {"type": "progress", "data": {"deep": [1, 2, 3]}},
        {"type": "user"},
        {"no": "type"},
        {"type": ["list"]},
        {"type": "user", "uuid": "7", "message": "no object"},
    )
    reading = tool.read()
    assert reading.operations == []
    assert dict(reading.counts.skipped) == {
        "meta": 1,
        "compaction summary": 1,
        "record progress": 1,
        "record of unknown form": 4,
    }


@pytest.mark.parametrize(
    "line",
    [
        b"not json\n",
        b'{"type": "user"\n',
        b"[" * 100_000 + b"\n",
        b"\x00\x00\x00\n",
        b"null\n",
        b"1e999\n",
        b'"text"\n',
        b"\xff\xfe\n",
    ],
)
def test_a_damaged_line_is_counted_and_the_next_is_read(tool: Tool, line: bytes) -> None:
    tool.write(line, user("after"))
    reading = tool.read()
    assert pieces(reading) == [("user", "after")]
    assert sum(reading.counts.skipped.values()) == 1


def test_bytes_that_are_no_utf8_and_lone_surrogates_do_not_lose_the_message(tool: Tool) -> None:
    line = json.dumps(user("MARK and \ud800 half")).encode().replace(b"MARK", b"caf\xe9")
    tool.write(line + b"\n")
    ((_, text),) = pieces(tool.read())
    assert text.startswith("caf")
    assert text.endswith("half")
    text.encode()


def test_sub_agents_are_captured_under_their_parents_session(tool: Tool) -> None:
    folder = tool.path.parent / SESSION / "subagents"
    folder.mkdir(parents=True)
    path = folder / "agent-a1.jsonl"
    record = user("look for the datum", isSidechain=True)
    del record["sessionId"]
    path.write_text(json.dumps(record) + "\n")
    assert [found.path for found in tool.adapter.discover()] == [path]
    reading = tool.adapter.read(path, None, agent="cc-mini", hides=lambda _: False)
    assert reading.operations[0].session == SESSION
    assert pieces(reading) == [("subagent-user", "look for the datum")]


def test_discovery_leaves_out_what_is_no_transcript(tool: Tool, tmp_path: Path) -> None:
    tool.write(user("x"))
    outside = tmp_path / "outside.jsonl"
    outside.write_text("{}\n")
    (tool.path.parent / "link.jsonl").symlink_to(outside)
    (tool.path.parent / "notes.md").write_text("no")
    (tool.path.parent / "folder.jsonl").mkdir()
    (tool.root / "projects" / "linked").symlink_to(tmp_path)
    assert [found.path for found in tool.adapter.discover()] == [tool.path]
    assert tool.adapter.concerns(str(tool.path))
    assert not tool.adapter.concerns(str(outside))


def test_a_missing_root_is_no_error(tmp_path: Path) -> None:
    assert list(ClaudeCode(tmp_path / "nowhere", tmp_path).discover()) == []


def test_private_moments_are_dropped_wherever_they_turn_up(tool: Tool) -> None:
    tool.write(user("open"), user("private", 2, timestamp="2026-11-18T00:00:00Z"))
    limit = milliseconds("2026-11-17T12:00:00Z")
    reading = tool.read(hides=lambda moment: moment > limit)
    assert pieces(reading) == [("user", "open")]
    assert reading.counts.skipped["private"] == 1


def test_what_was_written_while_private_never_comes_later(tool: Tool) -> None:
    tool.write(user("before"))
    state = tool.read().state
    tool.write(user("private", 2), json.dumps(user("private half", 3)).encode()[:60])
    state = tool.adapter.skip(tool.path)
    tool.write(json.dumps(user("private half", 3)).encode()[60:] + b"\n", user("after", 4))
    assert pieces(tool.read(state)) == [("user", "after")]


def test_a_long_message_becomes_several_pieces_of_one_message(tool: Tool) -> None:
    tool.write(user("A sentence about tides. " * 1000))
    (operation,) = tool.read().operations
    assert len(operation.pieces) > 10
    assert [piece.part for piece in operation.pieces] == list(range(len(operation.pieces)))


def test_operations_stay_within_their_limits(tool: Tool) -> None:
    tool.write(*(user(f"{n} " + "ä" * 5000, n) for n in range(200)))
    operations: list[Capture] = []
    state: FileState | None = None
    while True:
        reading = tool.read(state)
        operations += reading.operations
        state = reading.state
        if not reading.more:
            break
    assert sum(len(operation.pieces) for operation in operations) == 200
    assert all(len(encode_operation(operation)) <= OPERATION_BYTES_MAX for operation in operations)


def test_the_project_is_relative_to_the_home_and_names_the_remote(tool: Tool, tmp_path: Path) -> None:
    repository = tmp_path / "work" / "tide"
    (repository / ".git").mkdir(parents=True)
    (repository / ".git" / "config").write_text(
        '[remote "origin"]\n\turl = https://mara:tok3n@git.example.org/harbour/tide.git\n'
    )
    adapter = ClaudeCode(tool.root, tmp_path)
    tool.write(user("x", cwd=str(repository / "src")))
    (operation,) = adapter.read(tool.path, None, agent="cc-mini", hides=lambda _: False).operations
    assert operation.project == "work/tide/src"
    assert operation.repository == "git.example.org/harbour/tide"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-17T09:12:04.118Z", 1794906724118),
        ("2026-11-17T10:12:04.118+01:00", 1794906724118),
        ("2026-11-17T09:12:04", 1794906724000),
        ("1969-01-01T00:00:00Z", 0),
        ("9999-12-31T23:59:59Z", 0),
        ("yesterday", 0),
        ("", 0),
        (None, 0),
    ],
)
def test_moments(text: str | None, expected: int) -> None:
    assert milliseconds(text) == expected


@given(st.lists(st.binary(max_size=80), max_size=10))
def test_no_content_makes_reading_fail(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]) -> None:
    tool = Tool(tmp_path_factory.mktemp("any"))
    tool.write(*(line + b"\n" for line in lines))
    tool.read()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(
        st.sampled_from(
            ["type", "uuid", "sessionId", "timestamp", "cwd", "message", "isMeta", "isSidechain"]
        ),
        json_values
        | st.sampled_from(["user", "assistant", {"content": "hello"}, {"content": [{"type": "text"}]}]),
    )
)
def test_no_record_makes_reading_fail(
    tmp_path_factory: pytest.TempPathFactory, record: dict[str, Any]
) -> None:
    tool = Tool(tmp_path_factory.mktemp("any"))
    tool.write(record, user("after"))
    assert ("user", "after") in pieces(tool.read())
