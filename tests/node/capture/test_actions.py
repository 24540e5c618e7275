"""Tool calls as records: what each tool's arguments and results come to, within bounds, without secrets."""

import shlex
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from crystal_node.base.settings.options import ActionDetail
from crystal_node.capture.actions import (
    CHANGES_MAX,
    CHANGES_READ_MAX,
    COMMAND_CHARS_MAX,
    ERROR_CHARS_MAX,
    OPEN_CALLS_MAX,
    RAW_CHARS_MAX,
    CallPlace,
    Ending,
    FileChange,
    edit_change,
    ended,
    opened,
)
from crystal_node.capture.exclusions import Exclusion, write
from crystal_node.capture.json_values import parse_json
from crystal_node.capture.messages import SkippedRecord, TranscriptMessage
from tests.node.capture.transcripts import Tool, assistant, said, user

BRIEF, FULL, OFF = ActionDetail.BRIEF, ActionDetail.FULL, ActionDetail.OFF
PLACE = CallPlace("s", "/home/ada/work")
TOKEN = "sk-ant-api03-" + "Ab1_" * 24
PATCH = """*** Begin Patch
*** Update File: src/gauge.py
@@
 def read():
-    return 1
+    return 2
+    # in millimetres
*** Add File: docs/tide.md
+# Tide
*** Delete File: old.txt
*** End Patch"""


def record(tool: str, given: object, ending: Ending | None = None, *, detail: ActionDetail = BRIEF) -> str:
    """The record's text; "" if there is none."""
    made = ended(opened("c1", tool, given, 5), ending or Ending(), detail, PLACE)
    return made.texts["action"] if isinstance(made, TranscriptMessage) else ""


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_arguments_nested_as_deep_as_can_be_parsed_stop_no_transcript(opening: str) -> None:
    closing = "]" if opening == "[" else "}"
    deepest = sys.getrecursionlimit()
    given: object = None
    while given is None:
        deepest -= 1
        with suppress(ValueError):
            given = parse_json(f'{{"x": {opening * deepest}1{closing * deepest}}}'.encode())
    for less in range(12):
        depth = deepest - less
        given = parse_json(f'{{"x": {opening * depth}1{closing * depth}}}'.encode())
        assert opened("c1", "Deploy", given, 5).tool == "Deploy"


def test_a_call_whose_arguments_have_half_a_character_can_be_kept() -> None:
    kept = msgspec.msgpack.encode(opened("c1", "Deploy", parse_json(b'{"note": "a \\ud800 b"}'), 5))
    assert b"a ? b" in kept


def test_a_call_that_changes_more_files_than_anybody_is_told_of_stays_small() -> None:
    patch = "*** Begin Patch\n" + "".join(f"*** Add File: {n}\n+x\n" for n in range(CHANGES_READ_MAX + 5))
    call = opened("c1", "apply_patch", patch, 5)
    assert len(call.changes) == CHANGES_READ_MAX
    edits = [{"old_string": "a", "new_string": "b"}] * (CHANGES_READ_MAX + 5)
    call = opened("c1", "MultiEdit", {"file_path": "a.py", "edits": edits}, 5)
    assert call.changes == (FileChange("a.py", CHANGES_READ_MAX, CHANGES_READ_MAX),)


@pytest.mark.parametrize(
    ("tool", "given", "text"),
    [
        ("Bash", {"command": "npm install", "description": "x"}, "Bash done\ncommand: npm install"),
        ("shell", {"command": ["bash", "-lc", "make 'all'"]}, "shell done\ncommand: make 'all'"),
        ("shell", {"command": ["git", "commit", "-m", "a b"]}, "shell done\ncommand: git commit -m 'a b'"),
        ("exec_command", '{"cmd": "ls\\npwd"}', "exec_command done\ncommand: ls\n  pwd"),
        ("execute_command", {"commands": ["ls", "pwd"]}, "execute_command done\ncommand: ls\n  pwd"),
        (
            "Edit",
            {"file_path": "/home/ada/work/a.py", "old_string": "x\ny", "new_string": "x\nz\nw"},
            "Edit done\nfile: a.py +2 -1",
        ),
        (
            "MultiEdit",
            {
                "file_path": "/b",
                "edits": [{"old_string": "1", "new_string": "2"}, {"old_string": "3", "new_string": ""}],
            },
            "MultiEdit done\nfile: /b +1 -2",
        ),
        ("write_file", {"file_path": "n.txt", "content": "1\n2\n"}, "write_file done\nfile: n.txt +2 -0"),
        (
            "str_replace_editor",
            {"path": "n", "old_str": "a", "new_str": "b"},
            "str_replace_editor done\nfile: n +1 -1",
        ),
        (
            "apply_patch",
            PATCH,
            "apply_patch done\nfile: src/gauge.py +2 -1\nfile: docs/tide.md +1 -0\nfile: old.txt +0 -0",
        ),
        (
            "shell",
            {"command": ["apply_patch", PATCH]},
            "shell done\ncommand: apply_patch\nfile: src/gauge.py +2 -1\nfile: docs/tide.md +1 -0\nfile: old.txt +0 -0",
        ),
        (
            "WebFetch",
            {"url": "https://example.org/a", "prompt": "what is it"},
            "WebFetch done\nurl: https://example.org/a\nquery: what is it",
        ),
        ("web_search", {"query": "tide tables"}, "web_search done\nquery: tide tables"),
        (
            "tool_call",
            {"name": "calendar__add", "args": {"query": "noon"}},
            "calendar__add done\nquery: noon",
        ),
        ("a tool\nof two lines", {}, "a_tool_of_two_lines done"),
        (7, {"command": 7, "path": [], "url": {}}, "tool done"),
        ("odd", None, "odd done"),
    ],
)
def test_what_a_call_was_on(tool: str, given: object, text: str) -> None:
    assert record(tool, given) == text


def test_how_it_ended() -> None:
    make = {"command": "make"}
    assert record("Bash", make, Ending(failed=True, exit_code=2, text="a\nb")) == (
        "Bash failed, exit code 2\ncommand: make\nerror: a\n  b"
    )
    assert record("Bash", make, Ending(exit_code=3)).startswith("Bash failed, exit code 3\n")
    assert record("Bash", make, Ending(cancelled=True, failed=True)) == "Bash cancelled\ncommand: make"
    assert record("Bash", make, Ending(failed=None)) == "Bash unanswered\ncommand: make"
    failed = record("Write", {"file_path": "a", "content": "x"}, Ending(failed=True, text="read-only"))
    assert failed == "Write failed\npath: a\nerror: read-only"
    stated = Ending(changes=(FileChange("/home/ada/work/b.py", 9, 8),))
    assert record("Edit", {"file_path": "b.py"}, stated).endswith("file: b.py +9 -8")


def test_brief_records_leave_out_looking_and_output_and_full_ones_do_not() -> None:
    for tool in ("Read", "read_file", "Grep", "glob", "TodoWrite", "list_directory", "ToolSearch"):
        assert record(tool, {"path": "a"}) == ""
        assert record(tool, {"path": "a"}, Ending(failed=True, text="none")) != ""
        assert record(tool, {"path": "a"}, Ending(text="words"), detail=FULL).endswith("output: words")
        assert record(tool, {"path": "a"}, Ending(failed=True), detail=OFF) == ""
    full = record("Bash", {"command": "x", "timeout": 9}, Ending(text="out"), detail=FULL)
    assert full == 'Bash done\ncommand: x\narguments: {"timeout": 9}\noutput: out'


def test_our_own_tools_are_never_recorded() -> None:
    for tool in ("mcp__crystal__crystal_search", "crystal__crystal_open", "crystal_remember"):
        assert record(tool, {"query": "x"}, Ending(text="of the memory"), detail=FULL) == ""
    assert record("tool_call", {"name": "crystal__crystal_search", "args": {}}, detail=FULL) == ""


def test_records_are_bounded_whatever_was_given() -> None:
    big = "x" * 2_000_000
    changes = tuple(FileChange(f"{n}", 1, 1) for n in range(CHANGES_MAX + 5))
    for detail in (BRIEF, FULL):
        text = record(
            big,
            {"command": big, "url": big, "query": big, "more": big},
            Ending(failed=True, text=big),
            detail=detail,
        )
        assert len(text) < COMMAND_CHARS_MAX[detail] + ERROR_CHARS_MAX[detail] + 3000
    many = record("apply", {}, Ending(changes=changes))
    assert many.count("file:") == CHANGES_MAX + 1
    assert many.endswith("file: and 5 more")


def test_an_error_is_cut_in_its_middle() -> None:
    text = record("Bash", {"command": "x"}, Ending(failed=True, text="begins " + "y" * 9000 + " ends"))
    assert "error: begins" in text
    assert text.endswith("ends")


@pytest.mark.parametrize("at", range(0, 400, 7))
def test_no_part_of_a_credential_is_left_where_a_text_is_cut(at: int) -> None:
    long = "a " * at + TOKEN + " b" * 800
    for text in (
        record("Bash", {"command": f"curl -H 'x-api-key: {TOKEN}' {long}"}),
        record("Bash", {"command": "x"}, Ending(failed=True, text=long)),
        record("other", {"more": long}, detail=FULL),
    ):
        assert TOKEN[:20] not in text
        assert TOKEN[-20:] not in text


def test_lines_that_are_the_same_at_both_ends_do_not_count() -> None:
    assert edit_change("a", "1\n2\n3", "1\n3") == FileChange("a", 0, 1)
    assert edit_change("a", "x\nx", "x\nx\nx") == FileChange("a", 1, 0)
    assert edit_change("a", "", "1\n2") == FileChange("a", 2, 0)


class Calls(Tool):
    """A Claude Code folder whose tool calls are recorded."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.adapter.actions = BRIEF

    def call(self, number: str, command: str, at: int = 1) -> None:
        block = {"type": "tool_use", "id": number, "name": "Bash", "input": {"command": command}}
        self.write(assistant(block, number=at))

    def result(self, number: str, content: object, at: int = 2, **more: Any) -> None:
        block = {"type": "tool_result", "tool_use_id": number, "content": content, **more}
        self.write(user([block], at, timestamp=f"2026-11-17T09:12:{at:02}.000Z"))


@pytest.fixture
def calls(tmp_path: Path) -> Calls:
    return Calls(tmp_path)


def test_a_call_waits_for_its_result_from_one_pass_to_the_next(calls: Calls) -> None:
    calls.call("a", "sleep 5")
    first = calls.read()
    assert said(first.operations) == []
    calls.result("a", "Exit code 2\nno", is_error=True)
    rest, _ = calls.read_all(first.state)
    assert said(rest) == [("action", "Bash failed, exit code 2\ncommand: sleep 5\nerror: no")]


def test_a_call_that_waits_holds_no_credential(calls: Calls) -> None:
    calls.call("a", f"export ANTHROPIC_API_KEY={TOKEN}")
    assert TOKEN[-20:].encode() not in calls.read().state.memo


def test_calls_that_nobody_answers_are_told_when_the_person_speaks_again(calls: Calls) -> None:
    calls.call("a", "sleep 5")
    calls.write(user("and now?", 3))
    assert said(calls.read().operations) == [
        ("action", "Bash unanswered\ncommand: sleep 5"),
        ("user", "and now?"),
    ]


def test_any_number_of_open_calls_takes_bounded_room(calls: Calls) -> None:
    for number in range(OPEN_CALLS_MAX + 3):
        calls.call(str(number), f"sleep {number}", number + 1)
    operations, state = calls.read_all()
    assert [text.split()[1] for _, text in said(operations)] == ["unanswered"] * 3
    assert len(state.memo) < OPEN_CALLS_MAX * 200


def test_a_call_or_a_result_in_a_private_span_is_not_recorded(calls: Calls) -> None:
    calls.call("a", "begun before")
    calls.result("a", "seen while private", 40, is_error=True)
    reading = calls.read(hides=lambda moment: moment % 60_000 == 40_000)
    assert said(reading.operations) == []
    assert reading.counts.skipped["private"]


def test_what_a_person_refused_is_cancelled(calls: Calls) -> None:
    calls.call("a", "rm -rf /")
    calls.result("a", "The user doesn't want to proceed with this tool use. It was rejected.", is_error=True)
    assert said(calls.read().operations) == [("action", "Bash cancelled\ncommand: rm -rf /")]


def test_an_excluded_project_keeps_its_calls_too(calls: Calls, tmp_path: Path) -> None:
    write(tmp_path, Exclusion(folder="/home/mara/src"))
    calls.adapter.crystal_home = tmp_path
    calls.call("a", "ls")
    calls.result("a", "x")
    reading = calls.read()
    assert reading.operations == []
    assert reading.counts.skipped["excluded project"] == 1


def test_results_of_any_form_end_nothing(calls: Calls) -> None:
    values: list[object] = [None, 7, {}, [7], [[]], {"error": 7}, "\0", "Exit code 99999999999"]
    for number, odd in enumerate(values):
        calls.call(f"c{number}", "ls", 2 * number)
        calls.result(f"c{number}", odd, 2 * number + 1, is_error=True)
    texts = [text for _, text in said(calls.read_all()[0])]
    assert len(texts) == 8
    assert all(text.startswith("Bash failed\ncommand: ls") for text in texts)


def test_without_the_setting_nothing_is_recorded(calls: Calls) -> None:
    calls.adapter.actions = OFF
    calls.call("a", "ls")
    calls.result("a", "x")
    reading = calls.read()
    assert reading.operations == []
    assert reading.counts.skipped["block tool_use"] == 1


def test_a_dull_call_is_counted_as_left_out() -> None:
    assert isinstance(ended(opened("c", "Read", {}, 1), Ending(), BRIEF, PLACE), SkippedRecord)


def test_of_endless_words_only_those_that_can_be_shown_are_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []

    def join(words: list[str]) -> str:
        counts.append(len(words))
        return shlex.join(words)

    words = [f"w{number}" for number in range(RAW_CHARS_MAX)]
    whole = record("shell", {"command": shlex.join(words)})
    monkeypatch.setattr("crystal_node.capture.actions.shlex", SimpleNamespace(join=join))
    assert record("shell", {"command": words}) == whole
    assert counts == [RAW_CHARS_MAX // 2 + 2]
