"""Transcripts that the real programs wrote (``fixtures/real``): every message once, with its role, session and project, and
nothing that nobody said.

They were written by Claude Code 2.1.330, Codex 0.169.0, Gemini CLI 0.61.0 and Qwen Code 0.24.4, talking to a scripted model.
"""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crystal_node.capture.adapter import Adapter
from crystal_node.capture.claude_code import ClaudeCode
from crystal_node.capture.codex import Codex
from crystal_node.capture.gemini import GeminiCli
from tests.node.capture.tools import TOOLS, Tool, line, pieces, read_all
from tests.node.capture.transcripts import FIXTURES, said

REAL = FIXTURES / "real"
HOME = Path("/home/ada")
Said = tuple[str, str]


def _adapter(tool: str, root: Path | None = None) -> Adapter:
    folder = root or REAL / tool
    made: dict[str, Callable[[], Adapter]] = {
        "claude-code": lambda: ClaudeCode(folder, HOME),
        "codex": lambda: Codex(folder, HOME),
        "gemini": lambda: GeminiCli(folder, HOME),
    }
    return made[tool]()


def _read(tool: str, part: str) -> list[Said]:
    """What was said in the transcript with that part in its name: role and the first line, up to "STEPS:"."""
    adapter = _adapter(tool)
    (path,) = [found.path for found in adapter.discover() if part in found.path.name]
    operations, counts, _ = read_all(adapter, path)
    assert counts.spots == []
    assert {one.session.split("-")[0] for one in operations} <= set(re.split(r"[-./]", str(path)))
    return [(role, text.split("\n")[0].split(" STEPS:")[0]) for role, text in said(operations)]


@pytest.mark.parametrize("tool", ["claude-code", "codex", "gemini"])
def test_no_record_of_the_real_programs_raises_an_alarm(tool: str) -> None:
    adapter = _adapter(tool)
    paths = [found.path for found in adapter.discover()]
    assert len(paths) >= 4
    for path in paths:
        assert adapter.concerns(str(path))
        operations, counts, _ = read_all(adapter, path)
        assert (counts.strange, counts.spots) == (0, [])
        assert operations
        # Gemini CLI notes the folder beside its sessions; only those of one folder were kept with the note.
        kept = "work/proj" if tool != "gemini" else "work/pelicans" if "pelicans" in path.parts else ""
        assert {one.project for one in operations} == {kept}
        first = json.loads(path.read_bytes().split(b"\n")[0])
        assert adapter.recognises(first)


def test_claude_code_cleared_in_several_lines_and_with_a_command() -> None:
    assert _read("claude-code", "0b6e8476") == [
        ("user", "After clear: a fresh heron topic?"),
        (
            "assistant",
            "Plain answer to: <local-command-caveat>The command below was run directly in Claude Code, not sen",
        ),
        ("user", "Multi line A"),
        ("assistant", "Plain answer to: Multi line A"),
    ]


def test_claude_code_resumed_continued_and_its_sub_agent() -> None:
    turns = [line for line in _read("claude-code", "f2469400") if line[0] == "user"]
    assert turns == [
        ("user", "The gull counter project: we decided that the counter uses port 4711."),
        ("user", "Resumed question alpha about gulls?"),
        ("user", "Continued question beta about gulls?"),
    ]
    assert _read("claude-code", "agent-af7adbc5a4ddbf49a") == [
        ("subagent-user", "Count the pelicans in the bay."),
        ("subagent-assistant", "Sub looks around."),
        ("subagent-assistant", "Sub report: seventeen pelicans."),
    ]


def test_codex_with_a_queued_prompt_and_a_compaction_whose_summary_nobody_said() -> None:
    assert _read("codex", "13-24-15") == [
        ("user", "Interactive codex one: where do puffins land?"),
        ("thinking", "Puffin think."),
        ("assistant", "Puffins start."),
        ("user", "Queued codex prompt about puffins"),
        ("assistant", "Plain answer to: Queued codex prompt about puffins"),
        ("user", "After codex compaction: puffins again?"),
        ("assistant", "Plain answer to: After codex compaction: puffins again?"),
        ("user", "Multi A"),
        ("assistant", "Plain answer to: Multi A"),
    ]


def test_a_codex_answer_that_no_event_told_of_is_an_answer_unless_a_compaction_follows(
    tmp_path: Path,
) -> None:
    (path,) = [found.path for found in _adapter("codex").discover() if "13-24-15" in found.path.name]
    lines = path.read_bytes().splitlines(keepends=True)
    (at,) = [number for number, one in enumerate(lines) if json.loads(one)["type"] == "compacted"]
    told = tmp_path / "codex" / "sessions" / path.name
    told.parent.mkdir(parents=True)
    told.write_bytes(b"".join(lines[:at]))
    adapter = _adapter("codex", tmp_path / "codex")
    operations, _, state = read_all(adapter, told)
    assert not any("LIGHTHOUSE" in text.upper() for _, text in said(operations)), "it waits"
    told.write_bytes(b"".join([*lines[:at], *lines[at + 1 :]]))
    later = said(read_all(adapter, told, state)[0])
    assert "talked about lighthouses" in later[0][1]
    assert later[1][1] == "After codex compaction: puffins again?"


def test_codex_resumed_forked_with_a_picture_and_its_sub_agent() -> None:
    assert _read("codex", "13-08-02")[-2:] == [
        ("user", "Resumed codex question about otters?"),
        ("assistant", "Plain answer to: Resumed codex question about otters?"),
    ]
    assert _read("codex", "13-10-22")[0] == ("user", "Forked codex question about otters?")
    assert _read("codex", "13-10-20")[0] == ("user", "Codex picture question: what colour?")
    assert _read("codex", "13-10-03")[1] == ("subagent-assistant", "Sub codex: nine walruses.")


def test_a_resumed_gemini_session_has_each_thought_once() -> None:
    assert _read("gemini", "2f4b74a4") == [
        ("user", "Second gemini marmot"),
        ("assistant", "Burrows are deep."),
        ("thinking", "Burrows"),
        ("assistant", "Burrows final."),
        ("user", "Resumed two about burrows?"),
        ("assistant", "Plain answer to: Resumed two about burrows?"),
    ]


def test_a_gemini_session_in_two_files_that_are_deleted_is_recorded_once(tmp_path: Path) -> None:
    """A resumption in a later minute begins a second file of the session; the program deletes both at a later start."""
    root = tmp_path / "gemini"
    shutil.copytree(REAL / "gemini", root)
    adapter = _adapter("gemini", root)
    (first,) = [found.path for found in adapter.discover() if "2f4b74a4" in found.path.name]
    lines = first.read_bytes().splitlines(keepends=True)
    (again,) = [number for number, one in enumerate(lines) if b'"sessionId"' in one[:14] and number]
    second = first.with_name(first.name.replace("13-13", "13-15"))
    second.write_bytes(b"".join(lines[again:]))
    first.write_bytes(b"".join(lines[:again]))
    both = [piece for path in (first, second) for piece in pieces(read_all(adapter, path)[0])]
    places = {(session, piece.message, piece.part, piece.text) for session, piece in both}
    assert sorted(text for *_, text in places if "STEPS" not in text) == [
        "Burrows\ndeep ones.",
        "Burrows are deep.",
        "Burrows final.",
        "Plain answer to: Resumed two about burrows?",
        "Resumed two about burrows?",
    ]
    first.unlink()
    second.unlink()
    assert [found for found in adapter.discover() if "2f4b74a4" in found.path.name] == []


CONTEXT = "<hook_context>What another program knows.\nIt says &lt;hook_context&gt;, too.</hook_context>"


@pytest.mark.parametrize(
    "content",
    [
        [{"text": f"{CONTEXT}\n\nWhere do the marmots hide?"}],
        [{"text": CONTEXT}, {"text": "Where do the marmots hide?"}],
        [{"text": "Where do the marmots hide?"}, {"text": CONTEXT}],
        [{"text": f"{CONTEXT}\n\n{CONTEXT}\n\nWhere do the marmots hide?"}],
        f"{CONTEXT}\n\nWhere do the marmots hide?",
    ],
)
@pytest.mark.parametrize("shown", [False, True])
def test_a_gemini_prompt_with_what_a_hook_adds_is_recorded_without_it(
    tmp_path: Path, content: object, shown: bool
) -> None:
    prompt: dict[str, Any] = {"id": "p", "timestamp": "2026-11-22T13:13:25.735Z", "type": "user"}
    path = tmp_path / "gemini" / "tmp" / "proj" / "chats" / "session-2026-11-22T13-13-00000001.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(
        line({"sessionId": "s", "projectHash": "h"})
        + line(prompt | ({"displayContent": content, "content": "x"} if shown else {"content": content}))
        + line(prompt | {"id": "q", "content": [{"text": CONTEXT}]})
    )
    operations, counts, _ = read_all(_adapter("gemini", tmp_path / "gemini"), path)
    assert said(operations) == [("user", "Where do the marmots hide?")]
    assert counts.skipped["mark-up only"] == 1


def test_a_gemini_sub_agents_task_is_recorded_without_the_instructions_before_it(tmp_path: Path) -> None:
    loaded = "<loaded_context>\n<project_context>\nThese are <b>instructions</b>.\n</project_context>\n</loaded_context>"
    path = tmp_path / "gemini" / "tmp" / "proj" / "chats" / "session-2026-11-22T13-13-00000001.jsonl"
    path.parent.mkdir(parents=True)
    prompt = {"id": "p", "timestamp": "2026-11-22T13:13:25.735Z", "type": "user"}
    path.write_bytes(
        line({"sessionId": "s", "projectHash": "h"})
        + line(prompt | {"content": [{"text": f"{loaded}Count the pelicans in the bay."}]})
    )
    assert said(read_all(_adapter("gemini", tmp_path / "gemini"), path)[0]) == [
        ("user", "Count the pelicans in the bay.")
    ]


@pytest.mark.parametrize("tool", [tool for tool in TOOLS if tool.name != "drop"], ids=str)
def test_a_record_of_a_new_kind_raises_an_alarm_if_it_holds_words(tool: Tool, tmp_path: Path) -> None:
    """The drop folder is no tool's: its form is ours, and documented."""
    adapter, path = tool.adapter(tmp_path), tmp_path / tool.path
    path.parent.mkdir(parents=True)
    new = {"type": "new-kind", "uuid": "u", "timestamp": "2026-02-06T00:00:01Z"}
    silent = new | {"payload": {"model": "a b", "tokens": 7, "tools": ["Bash", "Read"], "cost": 1.5}}
    worded = new | {"payload": {"content": [{"type": "text", "text": "words of a new kind"}]}}
    path.write_bytes(tool.begin() + tool.line(1, "one") + line(silent) + line(worded) + tool.line(2, "two"))
    operations, counts, _ = read_all(adapter, path)
    assert [text for _, text in said(operations)] == ["one", "two"]
    assert counts.skipped["record without words"] == 1
    assert [spot.offset for spot in counts.spots] == [path.read_bytes().index(line(worded))]


def test_what_a_model_writes_about_the_tools_mark_up_stays(tmp_path: Path) -> None:
    text = "Write <bash-input>ls</bash-input> and <system-reminder>x</system-reminder>, then [Request interrupted by user]."
    path = tmp_path / "claude-code" / "projects" / "p" / "s.jsonl"
    path.parent.mkdir(parents=True)
    spoken = {"uuid": "u", "sessionId": "s", "timestamp": "2026-11-22T13:13:25Z"}
    blocks = [{"type": "thinking", "thinking": text}, {"type": "text", "text": text}]
    path.write_bytes(
        line(spoken | {"type": "assistant", "message": {"role": "assistant", "content": blocks}})
        + line(spoken | {"type": "user", "message": {"role": "user", "content": f"{text} Why?"}})
    )
    assert said(read_all(_adapter("claude-code", tmp_path / "claude-code"), path)[0]) == [
        ("thinking", text),
        ("assistant", text),
        ("user", "Write  and , then . Why?"),
    ]


def test_a_file_of_another_tool_is_not_taken_for_claude_codes() -> None:
    (path,) = (REAL / "qwen-code").rglob("*.jsonl")
    first = json.loads(path.read_bytes().split(b"\n")[0])
    assert {"type", "uuid", "sessionId", "message"} <= first.keys()
    for tool in ("claude-code", "codex", "gemini"):
        assert not _adapter(tool).recognises(first)
