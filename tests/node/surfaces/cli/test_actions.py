"""What agents did, from their transcript to every machine: recorded briefly, found when it is asked for, kept out as messages
are."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.machine import Machine, Vault, turn

SESSION = "5e1c0f7a-0000-4000-8000-0000000000ac"
ERROR = "Exit code 1\nnpm ERR! code ERESOLVE\nnpm ERR! token sk-ant-api03-" + "Ab1_" * 24
SAID = "npm install says that the peer dependency of the gauge does not fit."


def block(role: str, *blocks: dict[str, Any], at: int, **more: Any) -> str:
    moment = f"2026-01-05T09:00:{at:02}.000Z"
    record = json.loads(turn("", session=SESSION, role=role, moment=moment, **more))
    record["message"]["content"] = list(blocks)
    return json.dumps(record) + "\n"


def called(number: str, tool: str, at: int, **given: Any) -> str:
    return block("assistant", {"type": "tool_use", "id": number, "name": tool, "input": given}, at=at)


def returned(number: str, text: str, at: int, *, failed: bool = False, **more: Any) -> str:
    result = {"type": "tool_result", "tool_use_id": number, "content": text, "is_error": failed}
    return block("user", result, at=at, **more)


def work() -> list[str]:
    patch = [{"oldStart": 1, "newStart": 1, "lines": [" a", "-b", "+c", "+d"]}]
    edited = {"filePath": "/home/someone/work/package.json", "structuredPatch": patch}
    return [
        turn("why does it not install?", session=SESSION, moment="2026-01-05T09:00:01.000Z"),
        called("t1", "Bash", 2, command="npm install", description="Install"),
        returned("t1", ERROR, 3, failed=True),
        called("t2", "Read", 4, file_path="/home/someone/work/package.json"),
        returned("t2", "contents of the manifest", 5),
        called(
            "t3", "Edit", 6, file_path="/home/someone/work/package.json", old_string="b", new_string="c\nd"
        ),
        returned("t3", "done", 7, toolUseResult=edited),
        turn(SAID, session=SESSION, role="assistant", moment="2026-01-05T09:00:08.000Z"),
    ]


def written(machine: Machine, *lines: str) -> Path:
    path = machine.projects / "-home-someone-work" / f"{SESSION}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(lines)
    return path


@pytest.fixture
def core(vault: Vault) -> Machine:
    written(vault.core, *work())
    return vault.core


def test_the_command_and_whether_it_failed_are_found_on_another_machine(vault: Vault, core: Machine) -> None:
    other = vault.add()
    recorded = core.call("capture", "--json").json
    assert (recorded["messages"], recorded["actions"]) == (2, 2)
    vault.settle()
    assert core.call("search", "--json", "npm install").json["results"][0]["text"] == SAID
    for machine in (core, other):
        (hit,) = machine.call("search", "--json", "--kind", "action", "npm install").json["results"]
        assert hit["kind"] == hit["role"] == "action"
        assert hit["text"].startswith(
            "Bash failed, exit code 1\ncommand: npm install\nerror: npm ERR! code ERESOLVE"
        )
        assert "sk-ant" not in hit["text"]
        assert machine.found("package.json", "--kind", "action") == ["Edit done\nfile: package.json +2 -1"]
        assert not any("Edit done" in text for text in machine.found("package.json"))
    assert vault.digests() == {core.call("verify", "--json").json["digest"]}


def test_a_conversation_shows_them_folded(core: Machine) -> None:
    core.call("capture")
    shown = core.call("sessions", "show", SESSION).out.splitlines()
    assert "    Edit done file: package.json +2 -1" in shown
    assert "<summary>action" in core.call("sessions", "export", SESSION).out
    assert "<details><summary>action" in core.call("sessions", "export", SESSION, "--format", "html").out
    (hit,) = core.call("search", "--json", "peer dependency").json["results"]
    assert "Edit done" not in core.call("show", hit["id"][:12]).out


def test_how_much_is_recorded_is_a_setting(core: Machine) -> None:
    core.call("config", "set", "capture_actions", "off")
    assert core.call("capture", "--json").json["actions"] == 0
    core.call("config", "set", "capture_actions", "full")
    core.call("backfill", "--yes")
    assert any("contents of the manifest" in text for text in core.found("manifest", "--kind", "action"))
    refused = core.call("config", "set", "capture_actions", "all", check=False)
    assert refused.code == 3
    assert "brief" in refused.err


def test_private_mode_and_forgetting_hold_for_them(core: Machine) -> None:
    written(core, called("t9", "Bash", 20, command="make tide"))
    core.call("capture")
    core.call("private", "on")
    written(core, returned("t9", "the private tide", 21, failed=True))
    core.call("private", "off")
    core.call("capture")
    assert core.found("tide", "--kind", "action") == []
    written(core, called("ta", "Bash", 30, command="make moon"), returned("ta", "", 31))
    core.call("capture")
    (hit,) = core.call("search", "--json", "--kind", "action", "moon").json["results"]
    assert hit["text"] == "Bash done\ncommand: make moon"
    core.call("forget", hit["id"], "--yes")
    assert core.found("moon", "--kind", "action") == []
