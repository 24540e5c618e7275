"""Crystal's entry comes into the agents' own files and out again, and nothing of anybody else is touched."""

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from crystal_node.agent.hooks.program import program
from tests.support.machine import Machine

_OURS = {"command": program()[0], "args": [*program()[1:], "mcp"]}
_KINDS = {"claude-code": "stdio", "vscode": "stdio", "opencode": "local", "copilot-cli": "local"}
_CODEX = """# My settings
model = "o9"   # the best one
notify = [
  "say", [
    "done" ],
]

[mcp_servers.other]
command = "npx"
args = ["-y", "other"]

[tui]
theme = 'dark'
"""


def _applications(machine: Machine) -> Path:
    return machine.root / ("Library/Application Support" if sys.platform == "darwin" else ".config")


def _files(machine: Machine) -> dict[str, Path]:
    return {
        "claude-code": machine.root / ".claude.json",
        "claude-desktop": _applications(machine) / "Claude" / "claude_desktop_config.json",
        "codex": machine.root / ".codex" / "config.toml",
        "gemini-cli": machine.root / ".gemini" / "settings.json",
        "qwen-code": machine.root / ".qwen" / "settings.json",
        "cursor": machine.root / ".cursor" / "mcp.json",
        "vscode": _applications(machine) / "Code" / "User" / "mcp.json",
        "openclaw": machine.root / ".openclaw" / "openclaw.json",
        "opencode": machine.root / ".config" / "opencode" / "opencode.json",
        "copilot-cli": machine.root / ".copilot" / "mcp-config.json",
    }


@pytest.fixture
def person(machine: Machine) -> Machine:
    """Somebody with all of the programs, and settings in each."""
    (machine.root / ".claude").mkdir()
    for name, file in _files(machine).items():
        file.parent.mkdir(parents=True, exist_ok=True)
        text = _CODEX if name == "codex" else '{\n    "theme": "dark – ünïcode",\n    "list": [1,  2]\n}\n'
        file.write_bytes(text.encode())
    return machine


def _states(machine: Machine) -> dict[str, str]:
    rows = machine.call("mcp", "status", "--json").json["clients"]
    return {row["client"]: row["state"] for row in rows}


def _entry(machine: Machine, name: str) -> Any:
    text = _files(machine)[name].read_text()
    found: Any = tomllib.loads(text) if name == "codex" else json.loads(text)
    places = {
        "codex": ["mcp_servers"],
        "vscode": ["servers"],
        "openclaw": ["mcp", "servers"],
        "opencode": ["mcp"],
    }
    for step in places.get(name, ["mcpServers"]):
        found = found[step]
    return found["crystal"]


def test_all_programs_get_the_entry_once_and_lose_it_to_the_byte(person: Machine) -> None:
    before = {name: file.read_bytes() for name, file in _files(person).items()}
    assert set(_states(person).values()) == {"missing"}
    person.call("mcp", "install")
    assert set(_states(person).values()) == {"installed"}
    for name in before:
        entry = _entry(person, name)
        kind = entry.pop("type", None)
        if name == "opencode":
            assert entry == {"command": [_OURS["command"], *_OURS["args"]], "enabled": True}
        else:
            assert {key: entry[key] for key in _OURS} == _OURS
            assert Path(entry["command"]).is_absolute()
        assert kind == _KINDS.get(name)
    installed = {name: file.read_bytes() for name, file in _files(person).items()}
    person.call("mcp", "install")
    assert {name: file.read_bytes() for name, file in _files(person).items()} == installed
    person.call("mcp", "uninstall")
    assert {name: file.read_bytes() for name, file in _files(person).items()} == before
    assert list(person.root.rglob("*.before-crystal")) == []


def test_nothing_is_made_for_a_program_that_is_not_there(machine: Machine) -> None:
    (machine.root / ".cursor").mkdir()
    rows = machine.call("mcp", "install", "--json").json["clients"]
    assert [(row["client"], row["state"]) for row in rows] == [("cursor", "installed")]
    outcome = machine.call("mcp", "install", "--client", "codex", "--json", check=False)
    assert outcome.code == 10
    assert not (machine.root / ".codex").exists()
    assert machine.call("mcp", "install", "--client", "emacs", check=False).code == 2
    machine.call("mcp", "uninstall")
    assert list((machine.root / ".cursor").iterdir()) == []


def test_what_others_wrote_meanwhile_stays_when_the_entry_goes(person: Machine) -> None:
    person.call("mcp", "install")
    codex, cursor = _files(person)["codex"], _files(person)["cursor"]
    codex.write_text(codex.read_text() + "\n[mcp_servers.later]\ncommand = 'x'\n")
    changed = json.loads(cursor.read_text())
    changed["mcpServers"]["later"] = {"command": "x"}
    cursor.write_text(json.dumps(changed))
    person.call("mcp", "uninstall")
    assert codex.read_text() == _CODEX + "\n[mcp_servers.later]\ncommand = 'x'\n"
    assert json.loads(cursor.read_text())["mcpServers"] == {"later": {"command": "x"}}


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "npx", "args": ["crystal", "mcp"]},
        {"command": "/opt/bin/crystal", "args": ["mcp"], "env": {"CRYSTAL_HOME": "/another/home"}},
        {"url": "http://127.0.0.1:1/mcp"},
    ],
)
def test_a_server_of_our_name_that_is_not_ours_is_left_alone(person: Machine, entry: dict[str, Any]) -> None:
    file = _files(person)["gemini-cli"]
    file.write_text(json.dumps({"mcpServers": {"crystal": entry}}))
    outcome = person.call("mcp", "install", "--json", check=False)
    states = {row["client"]: row["state"] for row in outcome.json["clients"]}
    assert (states.pop("gemini-cli"), set(states.values())) == ("failed", {"installed"})
    assert outcome.code == 2
    person.call("mcp", "uninstall")
    assert json.loads(file.read_text()) == {"mcpServers": {"crystal": entry}}


def test_an_entry_of_an_earlier_place_is_replaced(person: Machine) -> None:
    _files(person)["codex"].write_text('[mcp_servers.crystal]\ncommand = "/old/crystal"\nargs = ["mcp"]\n')
    _files(person)["openclaw"].write_text(
        '{"mcp": {"servers": {"crystal": {"command": "/old/crystal", "args": ["mcp"]}}}}'
    )
    states = _states(person)
    assert (states["codex"], states["openclaw"]) == ("outdated", "outdated")
    person.call("mcp", "install")
    assert set(_states(person).values()) == {"installed"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("vscode", '{\n  // mine\n  "servers": {}\n'),
        ("cursor", '{"mcpServers": []}'),
        ("cursor", '{"mcpServers": {'),
        ("codex", "mcp_servers = { other = { command = 'x' } }\n"),
        ("codex", "model = \n"),
        ("codex", "mcp_servers = 3\n"),
    ],
)
def test_a_file_that_cannot_be_changed_without_a_doubt_is_told_and_left(
    person: Machine, name: str, text: str
) -> None:
    file = _files(person)[name]
    file.write_text(text)
    outcome = person.call("mcp", "install", "--json", check=False)
    row = next(row for row in outcome.json["clients"] if row["client"] == name)
    assert row["state"] == "failed"
    assert str(file) in row["error"]
    assert outcome.code == 8
    assert file.read_text() == text


def test_another_home_is_named_in_the_entry(person: Machine) -> None:
    other = str(person.root / 'my "home"; $(true)')
    person.call("mcp", "install", "--client", "codex", "--client", "cursor", CRYSTAL_HOME=other)
    for name in ("codex", "cursor"):
        assert _entry(person, name)["env"] == {"CRYSTAL_HOME": other}
    person.call("mcp", "uninstall")
    assert _states(person)["codex"] == "other"
    person.call("mcp", "uninstall", CRYSTAL_HOME=other)
    assert _files(person)["codex"].read_text() == _CODEX


def test_no_empty_place_of_ours_stays_where_a_program_has_written_since(person: Machine) -> None:
    """Qwen Code writes the version of its settings at each start of a new version."""
    before = {name: json.loads(_files(person)[name].read_bytes()) for name in ("qwen-code", "openclaw")}
    person.call("mcp", "install")
    for name in before:
        file = _files(person)[name]
        file.write_text(json.dumps(json.loads(file.read_bytes()) | {"$version": 4}))
    person.call("mcp", "uninstall")
    for name, own in before.items():
        assert json.loads(_files(person)[name].read_bytes()) == own | {"$version": 4}
