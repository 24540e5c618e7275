"""The Claude Code adapter: what becomes of whole transcripts, within which limits, and where it looks for them."""

import json
import shutil
import tracemalloc
from pathlib import Path

import pytest

from crystal_core.cutting.messages import split_message
from crystal_mirror.operations import OPERATION_BYTES_MAX, PIECES_MAX, encode_operation
from crystal_node.capture import line_reader
from crystal_node.capture.adapter import SPOTS_MAX, CaptureCounts, Spot, decode_state, encode_state
from crystal_node.capture.claude_code import ClaudeCode
from crystal_node.capture.line_reader import FileState
from tests.node.capture.transcripts import (
    FIXTURES,
    SAMPLE,
    SESSION,
    Tool,
    assistant,
    line,
    nothing,
    said,
    user,
)


@pytest.fixture
def tool(tmp_path: Path) -> Tool:
    return Tool(tmp_path)


def test_the_sample_is_captured_without_what_is_not_words(tool: Tool) -> None:
    shutil.copy(SAMPLE, tool.path)
    reading = tool.read()
    (operation,) = reading.operations
    assert (operation.agent, operation.session, operation.source) == ("cc-mini", SESSION, "claude-code")
    assert operation.project == "src/tidewatch"
    assert dict(reading.counts.redacted) == {"assigned-secret": 1}
    assert reading.counts.messages == 32
    assert reading.counts.spots == []
    words = said(reading.operations)
    whole = "\n".join(text for _, text in words)
    for gone in (
        "tw_live_",
        "<command-",
        "system-reminder",
        "Request interrupted",
        "ran out of context",
        "Caveat",
    ):
        assert gone not in whole
    for kept in ("applied twice", "512 kilobytes", "pelican", "Halifax", "glass", "4,870 mm"):
        assert kept in whole
    assert {role for role, _ in words} == {
        "user",
        "assistant",
        "thinking",
        "subagent-user",
        "subagent-assistant",
    }


def test_transcripts_of_early_versions(tool: Tool) -> None:
    shutil.copy(FIXTURES / "claude-code-1.0.jsonl", tool.path)
    reading = tool.read()
    assert said(reading.operations) == [
        ("user", "The vents open ten minutes after the heat alarm. Why?"),
        ("assistant", "I'll look at the controller."),
        ("subagent-user", "Find where the vent delay is set."),
        ("subagent-assistant", "controller.toml sets vent_delay_s = 600."),
        ("assistant", "`vent_delay_s` is 600. Sixty seconds would do: the fans need forty to spin up."),
    ]
    assert dict(reading.counts.skipped) == {
        "record summary": 1,
        "mark-up only": 4,
        "block tool_use": 1,
        "block tool_result": 1,
        "written by the tool": 1,
    }


def test_transcripts_of_recent_versions(tool: Tool) -> None:
    shutil.copy(FIXTURES / "claude-code-2.1.jsonl", tool.path)
    reading = tool.read()
    assert said(reading.operations) == [
        ("user", "Which pin drives the north fan?"),
        ("thinking", "fans.py names the pins. North should be 17."),
        ("user", "and the south one?"),
        ("assistant", "North is GPIO 17, south is GPIO 22."),
        ("user", "fans take forty seconds to spin up"),
    ]
    (operation,) = reading.operations
    assert [piece.created_at for piece in operation.pieces][:2] == [1771400402250, 1771400404250]
    assert len({piece.message for piece in operation.pieces}) == 5
    assert reading.counts.spots == []


def test_a_sub_agents_own_file_belongs_to_its_parents_session(tool: Tool) -> None:
    folder = tool.path.parent / SESSION / "subagents"
    folder.mkdir(parents=True)
    path = folder / "agent-a1b2c3d.jsonl"
    shutil.copy(FIXTURES / "claude-code-2.1-agent.jsonl", path)
    assert [found.path for found in tool.adapter.discover()] == [path]
    (operation,) = tool.adapter.read(path, None, agent="cc-mini", hides=nothing).operations
    assert operation.session == "c2f4a7de-90b1-4d3e-a8c6-77f0e1d2b3a4", "the record says whose session it is"
    assert said([operation]) == [
        ("subagent-user", "Find the datasheet of the south fan."),
        ("subagent-thinking", "It is probably in docs."),
        ("subagent-assistant", "docs/fans/south.pdf: 24 V, 1.1 A."),
    ]
    assert [piece.part for piece in operation.pieces] == [0, 0, 1], "parts number the pieces of one message"


def test_a_record_without_a_session_belongs_to_the_one_its_file_is_named_after(tool: Tool) -> None:
    folder = tool.path.parent / SESSION / "subagents"
    folder.mkdir(parents=True)
    nameless = user("x")
    del nameless["sessionId"]
    tool.write(nameless)
    (folder / "agent-1.jsonl").write_bytes(line(nameless))
    for path in (tool.path, folder / "agent-1.jsonl"):
        (operation,) = tool.adapter.read(path, None, agent="cc-mini", hides=nothing).operations
        assert operation.session == SESSION


def test_a_resumed_session_has_the_same_pieces_under_its_own_name(tool: Tool) -> None:
    tool.write(user("first"), user("second", 2))
    resumed = tool.path.with_name("aaaaaaaa-54a7-4b7e-9d3a-0c2f8e7b4a61.jsonl")
    resumed.write_bytes(tool.path.read_bytes().replace(SESSION.encode(), resumed.stem.encode()))
    (first,) = tool.read().operations
    (second,) = tool.adapter.read(resumed, None, agent="cc-mini", hides=nothing).operations
    assert first.pieces == second.pieces, "equal text is one chunk"
    assert (first.session, second.session) == (SESSION, resumed.stem), "and both places are known"


def test_growth_gives_only_what_is_new(tool: Tool) -> None:
    tool.write(user("first"))
    first = tool.read()
    tool.write(user("second", 2))
    second = tool.read(first.state)
    assert said(first.operations) == [("user", "first")]
    assert said(second.operations) == [("user", "second")]
    assert tool.read(second.state).operations == []


def test_a_session_that_moves_to_another_folder_becomes_another_operation(tool: Tool, tmp_path: Path) -> None:
    adapter = ClaudeCode(tool.root, tmp_path)
    for name in ("tide", "vents"):
        (tmp_path / name / ".git").mkdir(parents=True)
        (tmp_path / name / ".git" / "config").write_text(
            f'[remote "origin"]\n\turl = https://mara:tok3n@git.example.org/harbour/{name}.git\n'
        )
    tool.write(
        *(
            user(f"in {name}", number, cwd=str(tmp_path / name / "src"))
            for number, name in enumerate(("tide", "vents"))
        )
    )
    reading = adapter.read(tool.path, None, agent="cc-mini", hides=nothing)
    assert [(operation.project, operation.repository) for operation in reading.operations] == [
        ("tide/src", "git.example.org/harbour/tide"),
        ("vents/src", "git.example.org/harbour/vents"),
    ]


def test_a_long_message_becomes_several_pieces_of_one_message(tool: Tool) -> None:
    text = "A sentence about tides. " * 1000
    tool.write(assistant({"type": "thinking", "thinking": "short"}, {"type": "text", "text": text}))
    (operation,) = tool.read().operations
    assert [piece.text for piece in operation.pieces] == ["short", *split_message(text)]
    assert [piece.part for piece in operation.pieces] == list(range(len(operation.pieces)))
    assert len({piece.message for piece in operation.pieces}) == 1


def test_a_secret_on_the_border_of_two_pieces_is_taken_out(tool: Tool) -> None:
    secret = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
    for before in range(1540, 1640, 10):
        tool.write(user(("word " * 2000)[:before] + f" {secret} " + "more " * 2000, before))
    operations, _ = tool.read_all()
    whole = "\n".join(text for _, text in said(operations))
    assert secret[:12] not in whole
    assert secret[-12:] not in whole
    assert "[redacted:github-token]" in whole


@pytest.mark.slow
@pytest.mark.parametrize("text", ["ä" * 5000, "x", "\N{GRINNING FACE} " * 3000, '"\\' * 4000])
def test_operations_stay_within_their_limits(tool: Tool, text: str) -> None:
    ids = {"uuid": "\N{GRINNING FACE}" * 2000, "sessionId": "s" * 5000, "cwd": "/home/mara/" + "d/" * 1500}
    tool.write(*(user(f"{n} {text}", n, **ids) for n in range(300)))
    operations, _ = tool.read_all()
    assert len({piece.text for operation in operations for piece in operation.pieces}) >= 300
    for operation in operations:
        assert len(operation.pieces) <= PIECES_MAX
        assert len(encode_operation(operation)) <= OPERATION_BYTES_MAX


def test_a_huge_transcript_is_read_piece_by_piece_in_bounded_memory(
    tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_reader, "PASS_BYTES_MAX", 256 * 1024)
    monkeypatch.setattr(line_reader, "LINE_BYTES_MAX", 512 * 1024)
    result = [{"type": "tool_result", "content": "x" * 100_000}]
    with tool.path.open("wb") as file:
        for number in range(300):
            file.write(line(user(f"message {number}", number)))
            file.write(line(user(result, number)))
        file.write(b"y" * 8_000_000 + b"\n")
        file.write(line(user("the end", 301)))
    assert tool.path.stat().st_size > 38_000_000
    tracemalloc.start()
    try:
        messages = passes = 0
        state: FileState | None = None
        while True:
            reading = tool.read(state)
            messages += reading.counts.messages
            passes += 1
            state = reading.state
            if not reading.more:
                break
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert messages == 301
    assert passes > 100
    assert peak < 6_000_000


def test_damaged_lines_are_counted_with_their_place(tool: Tool) -> None:
    start = line(user("before"))
    strange = {"type": "hologram", "uuid": "u", "text": "from the future"}
    tool.write(start, b"not json\n", user("after", 2), strange)
    counts = tool.read().counts
    assert counts.messages == 2
    assert counts.spots[0] == Spot(tool.path, len(start), "line is not JSON")
    assert counts.spots[1].reason == "record of unknown type"
    with tool.path.open("rb") as file:
        file.seek(counts.spots[1].offset)
        assert json.loads(file.readline()) == strange


def test_only_the_first_places_are_remembered_and_all_are_counted(tool: Tool) -> None:
    tool.write(b"?\n" * 100)
    counts = tool.read().counts
    assert counts.skipped["line is not JSON"] == 100
    assert len(counts.spots) == SPOTS_MAX
    both = CaptureCounts()
    both.add(counts)
    both.add(counts)
    assert both.skipped["line is not JSON"] == 200
    assert len(both.spots) == SPOTS_MAX


def test_the_state_survives_its_encoding_and_a_foreign_one_is_none(tool: Tool) -> None:
    tool.write(user("first"))
    state = tool.read().state
    assert decode_state(encode_state(state)) == state
    for foreign in (
        b"",
        b"\x93\x01\x02",
        b"\xc0",
        encode_state(state)[:-3],
        encode_state(FileState(offset=-1)),
    ):
        assert decode_state(foreign) is None


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
    assert not tool.adapter.concerns(str(tool.path.with_suffix(".json")))


def test_a_linked_root_is_followed_and_its_files_concern_us_under_both_names(
    tool: Tool, tmp_path: Path
) -> None:
    tool.write(user("x"))
    linked = tmp_path / "linked"
    linked.symlink_to(tool.root)
    adapter = ClaudeCode(linked, tmp_path)
    (found,) = adapter.discover()
    assert found.path.is_relative_to(linked)
    assert adapter.concerns(str(found.path))
    assert adapter.concerns(str(found.path.resolve()))


def test_a_missing_root_is_no_error(tmp_path: Path) -> None:
    assert list(ClaudeCode(tmp_path / "nowhere", tmp_path).discover()) == []


def test_a_folder_that_cannot_be_looked_into_is_reported(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    tool.write(user("x"))
    shut = tool.root / "projects" / "-shut"
    shut.mkdir()
    # Tests may run as root, whom no mode keeps out.
    from os import scandir

    def refusing(path: str | int) -> object:  # pytest's own clearing away hands over descriptors
        if str(path) == str(shut):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    with monkeypatch.context() as refused:
        refused.setattr("os.scandir", refusing)
        found = list(tool.adapter.discover())
    assert [item.path for item in found if item.problem is None] == [tool.path]
    assert [(item.path, item.problem) for item in found if item.problem] == [
        (shut, "cannot be looked into: Permission denied")
    ]
