"""Hooks in Codex, Gemini CLI and Qwen Code: in their own form, beside our MCP server, and gone without a trace."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from crystal_node.search.recall.hook import HookEvent, read_input
from tests.support.machine import Machine

TOOLS = {
    "codex": (".codex/hooks.json", 1, {"SessionStart", "UserPromptSubmit", "Stop"}),
    "gemini-cli": (
        ".gemini/settings.json",
        1000,
        {"SessionStart", "BeforeAgent", "AfterAgent", "SessionEnd"},
    ),
    "qwen-code": (".qwen/settings.json", 1, {"SessionStart", "UserPromptSubmit", "Stop", "SessionEnd"}),
}
OWN = b'{"general":   {"vimMode": true},\n "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "true"}]}]}}'
WITH_SERVER = ("gemini-cli", "qwen-code")


def _file(machine: Machine, tool: str) -> Path:
    file = machine.root / TOOLS[tool][0]
    file.parent.mkdir(exist_ok=True)
    return file


def _ours(file: Path) -> dict[str, dict[str, Any]]:
    hooks: dict[str, list[Any]] = json.loads(file.read_bytes())["hooks"]
    entries = [
        (event, entry) for event, groups in hooks.items() for group in groups for entry in group["hooks"]
    ]
    return {event: entry for event, entry in entries if "crystal" in entry["command"]}


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize(
    "own",
    [OWN, b'{"hooks": {"SessionStart": []}}', b"{}\n", None],
    ids=["a person's own", "empty hooks", "empty", "none"],
)
def test_hooks_are_there_and_gone_to_the_byte(machine: Machine, tool: str, own: bytes | None) -> None:
    file = _file(machine, tool)
    _, timeout, events = TOOLS[tool]
    if own is not None:
        file.write_bytes(own)
    machine.call("hooks", "install")
    ours = _ours(file)
    assert set(ours) == events
    assert {entry["timeout"] for entry in ours.values()} == {timeout}
    recalling = {event for event, entry in ours.items() if " recall --hook " in entry["command"]}
    assert recalling == {"SessionStart", "BeforeAgent" if "BeforeAgent" in events else "UserPromptSubmit"}
    assert not any(ours[event].get("async") for event in recalling)
    assert machine.call("hooks", "install", "--json").json["changed"] is False
    machine.call("hooks", "uninstall")
    assert [path.name for path in file.parent.iterdir()] == ([] if own is None else [file.name])
    assert own is None or file.read_bytes() == own


@pytest.mark.parametrize("tool", WITH_SERVER)
@pytest.mark.parametrize("own", [OWN, b"{}\n", None], ids=["a person's own", "empty", "none"])
@pytest.mark.parametrize("order", ["hooks first", "server first"])
@pytest.mark.parametrize("out", ["hooks first", "server first"])
def test_hooks_and_a_server_in_one_file_go_to_the_byte_in_any_order(
    machine: Machine, tool: str, own: bytes | None, order: str, out: str
) -> None:
    file = _file(machine, tool)
    if own is not None:
        file.write_bytes(own)
    for verb, way in (("install", order), ("uninstall", out)):
        parts = ["hooks", "mcp"] if way == "hooks first" else ["mcp", "hooks"]
        for part in parts:
            machine.call(part, verb)
    assert [path.name for path in file.parent.iterdir()] == ([] if own is None else [file.name])
    assert own is None or file.read_bytes() == own


def test_settings_that_cannot_be_changed_keep_no_other_tools_hooks_back(machine: Machine) -> None:
    for tool in TOOLS:
        _file(machine, tool)
    codex, gemini, qwen = (machine.root / TOOLS[tool][0] for tool in TOOLS)
    machine.call("hooks", "install", "qwen-code")
    damaged = b'{\n  // mine\n  "general": \n}\n'
    gemini.write_bytes(damaged)
    for verb in ("uninstall", "install"):
        told = machine.call("hooks", verb, check=False)
        assert told.code != 0
        assert str(gemini) in told.err
        assert (codex.exists(), qwen.exists()) == (verb == "install",) * 2
    shown = machine.call("hooks", "status", check=False)
    assert str(gemini) in shown.err
    assert "Qwen Code" in shown.out
    assert gemini.read_bytes() == damaged


def test_codex_asks_its_person_whether_it_trusts_new_hooks(machine: Machine) -> None:
    _file(machine, "codex")
    assert "/hooks" in machine.call("hooks", "install").out


def test_a_tool_that_takes_no_hooks_is_named(machine: Machine) -> None:
    refused = machine.call("hooks", "install", "cursor", check=False)
    assert refused.code == 2
    assert "codex" in refused.err


@pytest.mark.parametrize(
    ("name", "event"),
    [
        ("SessionStart", HookEvent.START),
        ("UserPromptSubmit", HookEvent.PROMPT),
        ("BeforeAgent", HookEvent.PROMPT),
    ],
)
def test_each_tools_name_of_an_event_is_known(name: str, event: HookEvent) -> None:
    told = {"hook_event_name": name, "session_id": "s", "cwd": "/x", "prompt": "Why?"}
    hook = read_input(json.dumps(told).encode())
    assert hook is not None
    assert (hook.event, hook.hook_event_name) == (event, name)


def test_a_hook_of_gemini_cli_ends_with_its_shell_and_is_given_its_input(
    machine: Machine, tmp_path: Path
) -> None:
    """Gemini CLI ends the shell alone, and waits for the output's end: a program that hangs would hold it for ever."""
    file = _file(machine, "gemini-cli")
    machine.call("hooks", "install")
    said = _ours(file)["BeforeAgent"]["command"]
    own = str(Path(sys.executable).with_name("crystal"))
    assert said.startswith(own)
    program = tmp_path / "crystal"
    program.write_text('#!/bin/sh\nread -r given\necho "given: $given"\nexec sleep 600\n')
    program.chmod(0o755)
    with subprocess.Popen(
        ["bash", "-c", said.replace(own, str(program))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(b"a prompt\n")
            process.stdin.close()
            assert process.stdout.readline() == b"given: a prompt\n"
            process.terminate()
            assert process.stdout.read() == b"", "the output has an end"
        finally:
            with suppress(ProcessLookupError):  # all of it is gone
                os.killpg(process.pid, signal.SIGKILL)
