"""Crystal's packages, installed by the programs themselves: they recall once, also where `crystal up` has put its own hooks."""

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from scripts.install_test_tools import PROGRAMS, Tools
from scripts.make_plugins import FOLDER
from tests.node.agent.daemon.running import agent
from tests.support.machine import Machine
from tests.support.mcp_client import ANSWER_SECONDS_MAX, text_of
from tests.tools.conftest import Bare
from tests.tools.mcp_calls import MCP_CALLS
from tests.tools.programs import ClaudeCode, Codex, GeminiCli, OpenClaw, OpenCode, Program, QwenCode
from tests.tools.test_every_program import MARK, TRIES_MAX

FACT = "The heron camera wakes at 05:20."
INSTALL: dict[type[Program], list[list[str]]] = {
    ClaudeCode: [
        ["plugin", "marketplace", "add", str(FOLDER)],
        ["plugin", "install", "crystal@memory-crystal"],
    ],
    Codex: [
        ["plugin", "marketplace", "add", str(FOLDER)],
        ["plugin", "add", "crystal@memory-crystal"],
    ],
    GeminiCli: [["extensions", "install", str(FOLDER / "gemini-cli"), "--consent", "--skip-settings"]],
    QwenCode: [["extensions", "install", str(FOLDER / "qwen-code"), "--consent"]],
    OpenClaw: [
        ["plugins", "install", str(FOLDER / "openclaw"), "--force", "--accept-capabilities"],
        ["config", "set", "plugins.entries.crystal.hooks.allowConversationAccess", "true"],
    ],
    OpenCode: [["plugin", str(FOLDER / "opencode"), "--global"]],
}
SERVES = (ClaudeCode, Codex, GeminiCli)
"""Whose packages have the MCP server, and which name its tools in their requests: Qwen Code has its model look for them."""


@pytest.mark.parametrize("kind", INSTALL, ids=lambda kind: kind.name)
def test_a_package_recalls_once_alone_and_beside_crystal_up(
    bare: Bare, kind: type[Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    program = bare(kind)
    workplace = program.workplace
    machine, script = workplace.machine, workplace.model.script
    for words in INSTALL[kind]:
        workplace.run([program.command, *words], workplace.home, **program.variables)
    machine.run("up", "--role", "core", "--yes", "--no-service", "--no-hooks", "--no-mcp")
    machine.run("remember", FACT, "--scope", "everywhere")
    machine.run("capture", "off")  # else questions of earlier tries would be recalled
    with agent(machine):
        for stage in ("alone", "beside the hooks of crystal up"):
            if stage != "alone" and kind is OpenClaw:  # it has one plugin of a name: the package's stays
                refused = machine.run("hooks", "install", program.source, check=False)
                assert "is of Crystal's package" in refused.err
            elif stage != "alone":
                machine.run("hooks", "install", program.source)
            prompt = script.says(f"At which hour does the heron camera wake, {stage}?", "At that hour.")
            for _ in range(TRIES_MAX):
                program.ask(workplace.project("herons"), prompt)
                told = FACT in script.holding(prompt)[-1].text
                if told and (kind not in SERVES or _offers_search(script.holding(prompt)[-1].tools)):
                    break
            text = script.holding(prompt)[-1].text
            # A session is told it once: at its start or at its prompt.
            assert text.count(FACT) == 1, (stage, text[-2000:])
            assert MARK in text
            assert kind not in SERVES or _offers_search(script.holding(prompt)[-1].tools)


def _offers_search(tools: Sequence[str]) -> bool:
    return any(tool.endswith("crystal_search") for tool in tools)


def _mcpb(*words: str) -> str:
    """Run the packer of extensions for Claude Desktop. Skips the test if it is not there."""
    packer, tools = PROGRAMS["mcpb"], Tools.of(os.environ)
    if why_not := tools.missing(packer):
        pytest.skip(f"{packer.name} {packer.version}: {why_not}")
    command = [str(tools.command(packer)), *words]
    done = subprocess.run(
        command, env=tools.environment(), capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_extension_of_claude_desktop_is_packed_by_its_own_program(tmp_path: Path) -> None:
    manifest, packed = FOLDER / "claude-desktop" / "manifest.json", tmp_path / "crystal.mcpb"
    assert "validation passes" in _mcpb("validate", str(manifest))
    _mcpb("pack", str(manifest.parent), str(packed))
    with zipfile.ZipFile(packed) as archive:
        assert archive.namelist() == ["manifest.json"]
        assert json.loads(archive.read("manifest.json")) == json.loads(manifest.read_bytes())
    refused = tmp_path / "manifest.json"
    refused.write_text(json.dumps({**json.loads(manifest.read_bytes()), "server": {"type": "no such"}}))
    with pytest.raises(AssertionError):
        _mcpb("validate", str(refused))


async def test_the_packed_extension_serves_the_memory_as_its_manifest_says(tmp_path: Path) -> None:
    packed, unpacked = tmp_path / "crystal.mcpb", tmp_path / "unpacked"
    _mcpb("pack", str(FOLDER / "claude-desktop"), str(packed))
    _mcpb("unpack", str(packed), str(unpacked))
    machine = Machine(tmp_path / "home")
    machine.root.mkdir()
    machine.run("up", "--role", "core", "--yes", "--no-service", "--no-hooks", "--no-mcp")
    machine.run("remember", FACT, "--scope", "everywhere")
    config = json.loads((unpacked / "manifest.json").read_bytes())["server"]["mcp_config"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    how = StdioServerParameters(
        command=config["command"],
        args=config["args"],
        env=machine.environment | config.get("env", {}) | {"PATH": path},
        cwd=unpacked,
    )
    async with Client(stdio_client(how), read_timeout_seconds=ANSWER_SECONDS_MAX) as client:
        tools = (await client.list_tools()).tools
        assert {call.tool for call in MCP_CALLS} == {tool.name for tool in tools}
        found = await client.call_tool("crystal_search", {"query": "heron camera"})
    assert FACT in text_of(found)
