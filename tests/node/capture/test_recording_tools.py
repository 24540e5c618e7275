"""All tools through the recorder: found by search under their agents, once, whatever their tools do with the files."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from crystal_node.capture.line_adapter import QUIET_MS
from crystal_node.device.activity import STRANGE_LINES
from tests.node.capture.tools import TOOLS, Tool
from tests.node.capture.transcripts import FIXTURES
from tests.support.machine import Machine, Vault, transcript

FOLDERS = {
    "openclaw": ".openclaw",
    "codex": ".codex",
    "gemini-cli": ".gemini",
    "qwen-code": ".qwen",
    "copilot-cli": ".copilot",
    "drop": ".ldm/drop",
    "claude-code": ".claude",
}


@pytest.fixture
def person(vault: Vault) -> Machine:
    return vault.core


def _write(machine: Machine, tool: Tool, *texts: str, begin: bool = True, end: bytes = b"\n") -> Path:
    path = machine.root / FOLDERS[tool.name] / tool.path
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [tool.line(int(text.split()[-1]), text).removesuffix(b"\n") for text in texts]
    with path.open("ab") as file:
        file.write((tool.begin() if begin else b"") + b"\n".join(lines) + end)
    return path


def _quiet(path: Path) -> None:
    then = time.time() - QUIET_MS / 1000 - 60
    os.utime(path, (then, then))


def _messages(machine: Machine, *arguments: str) -> int:
    return int(machine.call("capture", "--json", *arguments).json["messages"])


def test_every_tool_on_a_machine_is_recorded_and_found(person: Machine) -> None:
    for tool in ("openclaw", "codex", "gemini", "drop"):
        shutil.copytree(FIXTURES / tool, person.root / (".ldm/drop" if tool == "drop" else f".{tool}"))
    report = person.call("capture", "--json").json
    assert report["problems"] == []
    assert report["files"] == 10
    assert person.found("high water tomorrow", "--agent", "harbour", "--by", "message")[0].startswith(
        "When is high water"
    )
    assert person.found("gauge", "--agent", "codex")
    assert person.found("March", "--agent", "gemini-cli")
    assert person.found("wick", "--agent", "lighthouse")
    again = person.call("capture", "--json").json
    assert (again["messages"], again["operations"]) == (0, 0)


def test_a_session_that_was_moved_by_its_tool_is_read_on_and_not_again(person: Machine) -> None:
    by_name = {tool.name: tool for tool in TOOLS}
    codex = _write(person, by_name["codex"], "said 1", "said 2")
    claw = _write(person, by_name["openclaw"], "said 3")
    assert _messages(person) == 3
    archived = person.root / ".codex" / "archived_sessions" / codex.name
    archived.parent.mkdir()
    codex.rename(archived)
    with claw.open("ab") as file:
        file.write(by_name["openclaw"].line(4, "said 4"))
    claw.rename(claw.with_name(claw.name + ".reset.2026-02-07T03-00-00.000Z"))
    assert _messages(person) == 1
    assert sorted(person.found("said", "-n", "20")) == ["said 1", "said 2", "said 3", "said 4"]


def test_a_session_that_was_moved_away_for_another_of_its_name_is_read_on(person: Machine) -> None:
    tool = next(tool for tool in TOOLS if tool.name == "openclaw")
    path = _write(person, tool, "said 1", "said 2")
    assert _messages(person) == 2
    with path.open("ab") as file:
        file.write(tool.line(3, "said 3"))
    path.rename(path.with_name(path.name + ".reset.2026-02-07T03-00-00.000Z"))
    _write(person, tool, "said 4")
    assert _messages(person) == 2


@pytest.mark.parametrize("tool", TOOLS, ids=str)
def test_a_session_that_ended_by_a_crash_is_finished_and_goes_on(person: Machine, tool: Tool) -> None:
    path = _write(person, tool, "said 1", "said 2", end=b"")
    assert _messages(person) == 1
    assert _messages(person) == 0
    _quiet(path)
    assert _messages(person) == 1
    assert _messages(person) == 0
    _write(person, tool, "said 3", begin=False)
    assert _messages(person) == 1
    assert sorted(person.found("said", "-n", "20")) == ["said 1", "said 2", "said 3"]


def test_captures_at_the_same_time_record_each_message_once(person: Machine) -> None:
    for tool in TOOLS:
        _write(person, tool, *(f"{tool.name} said {number}" for number in range(1, 41)))
    running = [person.start("capture", "--json") for _ in range(3)]
    outcomes = [process.communicate(timeout=60) for process in running]
    assert [process.returncode for process in running] == [0, 0, 0], outcomes
    assert sum(json.loads(out)["messages"] for out, _ in outcomes) == 40 * len(TOOLS)
    assert _messages(person) == 0


def test_recording_that_is_off_waits_and_catches_up(person: Machine) -> None:
    codex = next(tool for tool in TOOLS if tool.name == "codex")
    claude = TOOLS[0]
    person.call("config", "set", "capture_without", "codex")
    _write(person, codex, "said 1")
    _write(person, claude, "said 2")
    assert _messages(person) == 1
    person.call("config", "set", "capture", "no")
    _write(person, claude, "said 3", begin=False)
    assert _messages(person) == 0
    person.call("config", "unset", "capture_without")
    person.call("config", "unset", "capture")
    assert _messages(person) == 2


def test_a_tool_that_is_not_recorded_is_when_a_person_names_its_file(person: Machine) -> None:
    codex = next(tool for tool in TOOLS if tool.name == "codex")
    path = _write(person, codex, "said 1")
    person.call("config", "set", "capture_without", "codex")
    elsewhere = person.root / "copy.jsonl"
    shutil.copy(path, elsewhere)
    assert _messages(person, str(elsewhere)) == 1
    assert person.found("said", "--agent", "codex") == ["said 1"]


def test_private_mode_is_for_tools_that_are_not_recorded_too(person: Machine) -> None:
    drop = next(tool for tool in TOOLS if tool.name == "drop")
    person.call("config", "set", "capture_without", "drop")
    person.call("private", "on")
    path = person.root / FOLDERS["drop"] / "lighthouse" / "undated.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text('{"role": "user", "text": "private and undated"}\n')
    person.call("private", "off")
    person.call("config", "unset", "capture_without")
    _write(person, drop, "said 1")
    assert _messages(person) == 1
    assert person.found("undated") == []


def test_of_a_message_that_its_tool_wrote_again_the_last_version_is_shown(person: Machine) -> None:
    shutil.copytree(FIXTURES / "gemini", person.root / ".gemini")
    person.call("capture")
    found = person.call("search", "--json", "--by", "message", "March is not in it", "-n", "9").json[
        "results"
    ]
    versions = {hit["text"]: hit["id"] for hit in found if hit["text"].startswith("March")}
    assert len(versions) == 2, "both can be found"
    for asked in ("and March?", *versions):
        hit = next(hit["id"] for hit in found if hit["text"] == asked)
        shown = [piece["text"] for piece in person.call("open", hit, "--json").json["pieces"]]
        expected = {"March is not in it. April is."} | ({asked} & versions.keys())
        assert {text for text in shown if text.startswith("March")} == expected


def test_what_has_no_time_and_stood_there_before_is_recorded_on_going_private(person: Machine) -> None:
    path = person.root / FOLDERS["drop"] / "lighthouse" / "undated.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text('{"role": "user", "text": "undated and before"}\n')
    time.sleep(0.05)  # the file's clock ticks more slowly than ours
    person.call("private", "on")
    with path.open("a") as file:
        file.write('{"role": "user", "text": "undated and private"}\n')
    person.call("private", "off")
    with path.open("a") as file:
        file.write('{"role": "user", "text": "undated and after"}\n')
    person.call("capture")
    assert sorted(person.found("undated")) == ["undated and after", "undated and before"]


def test_a_file_that_cannot_be_stepped_over_gives_nothing_without_a_time_later(person: Machine) -> None:
    path = person.root / FOLDERS["drop"] / "lighthouse" / "note.md"
    path.parent.mkdir(parents=True)
    person.call("private", "on")
    path.write_text("".join(f"## user\n\nprivate {number}\n" for number in range(9000)))
    problems = person.call("private", "off")
    assert "messages in one document" in problems.err
    path.write_text("## user\n\nprivate 1\n")
    assert _messages(person) == 0
    assert person.found("private") == []


def test_a_tool_whose_lines_are_not_understood_any_more_is_told_until_words_of_it_are(
    person: Machine,
) -> None:
    """A tool that changes its format must not stop being recorded without anybody hearing of it."""
    strange = person.root / ".claude/projects/-work/strange.jsonl"
    strange.parent.mkdir(parents=True)
    strange.write_text('{"kind":"turn","speaker":"user"}\n' * STRANGE_LINES)
    report = person.call("capture", "--json").json
    assert (report["messages"], report["strange"]) == (0, STRANGE_LINES)
    assert report["spots"][1] == {"path": str(strange), "offset": 33, "reason": "record of unknown form"}
    (told,) = person.call("status", "--json").json["stuck"]
    assert (told["name"], str(strange) in told["text"]) == ("capture", True)
    (check,) = [
        each
        for each in person.call("doctor", "--offline", "--json").json["checks"]
        if each["name"] == "transcripts"
    ]
    assert (check["state"], "crystal backfill" in check["fix"]) == ("warning", True)
    transcript(person, "It is understood again.")
    person.call("capture")
    assert person.call("status", "--json").json["stuck"] == []


def test_a_file_of_another_kind_that_a_person_names_is_no_fault_of_a_tool(person: Machine) -> None:
    path = person.root / "list.txt"
    path.write_text("a line\n" * STRANGE_LINES)
    assert person.call("capture", str(path), "--json").json["strange"] == STRANGE_LINES
    assert person.call("status", "--json").json["stuck"] == []


def test_lines_that_are_not_understood_are_named_to_who_records_by_hand(person: Machine) -> None:
    path = transcript(person, "Words.")
    with path.open("a") as file:
        file.write("{half\n")
    done = person.call("capture")
    assert f"1 line is of no kind that is known here: {path}, byte " in done.err
