"""Plugins of opencode and OpenClaw and the hooks of Copilot CLI: made whole, and gone without a trace."""

import shutil
import subprocess
from pathlib import Path

import pytest

from crystal_node.agent.hooks.own_files import plugin_source
from crystal_node.base.settings import resolve
from tests.support.machine import Machine

FILES = {
    "opencode": (".config/opencode", "plugin/crystal.js"),
    "openclaw": (".openclaw", "extensions/crystal/index.js"),
    "copilot-cli": (".copilot", "hooks/crystal.json"),
}
COMMENTED = b'{\n  // mine\n  "mcp": {},\n  "agents": {"a": 1}, /* two */\n  "z": "// none",\n}\n'


def _folder(machine: Machine, tool: str) -> Path:
    folder = machine.root / FILES[tool][0]
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _all(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("tool", FILES)
def test_files_are_there_and_gone_and_so_are_their_folders(machine: Machine, tool: str) -> None:
    folder = _folder(machine, tool)
    (folder / "own.json").write_text("{}")
    assert machine.call("hooks", "install", tool, "--json").json["changed"] is True
    assert str(machine.home) in (folder / FILES[tool][1]).read_text()
    assert machine.call("hooks", "status", tool, "--json").json["tools"][0]["installed"] is True
    assert machine.call("hooks", "install", tool, "--json").json["changed"] is False
    machine.call("hooks", "uninstall")
    assert [path.name for path in folder.rglob("*")] == ["own.json"]


@pytest.mark.parametrize("order", ["hooks first", "server first"])
@pytest.mark.parametrize("out", ["hooks first", "server first"])
@pytest.mark.parametrize(
    "own", [COMMENTED, b'{"plugins": {"entries": {}}}', None], ids=["commented", "plugins", "none"]
)
def test_openclaws_settings_go_to_the_byte_in_any_order(
    machine: Machine, order: str, out: str, own: bytes | None
) -> None:
    folder = _folder(machine, "openclaw")
    settings = folder / "openclaw.json"
    if own is not None:
        settings.write_bytes(own)
    for verb, way in (("install", order), ("uninstall", out)):
        for part in ["hooks", "mcp"] if way == "hooks first" else ["mcp", "hooks"]:
            machine.call(part, verb)
        if verb == "install":
            assert '"allowConversationAccess": true' in settings.read_text().replace('":true', '": true')
    assert _all(folder) == ({} if own is None else {"openclaw.json": own})


@pytest.mark.parametrize("tool", ["gemini-cli", "qwen-code"])
def test_settings_with_comments_take_hooks_and_a_server_and_keep_every_byte(
    machine: Machine, tool: str
) -> None:
    file = machine.root / (".gemini" if tool == "gemini-cli" else ".qwen") / "settings.json"
    file.parent.mkdir()
    file.write_bytes(COMMENTED)
    machine.call("hooks", "install", tool)
    machine.call("mcp", "install", "--client", tool)
    assert b"// mine" in file.read_bytes()
    assert b"recall --hook" in file.read_bytes()
    edited = file.read_bytes().replace(b"// mine", b"// mine, too")
    file.write_bytes(edited)
    machine.call("hooks", "uninstall")
    machine.call("mcp", "uninstall")
    assert file.read_bytes() == COMMENTED.replace(b"// mine", b"// mine, too")


def test_opencodes_server_is_written_in_its_own_form(machine: Machine) -> None:
    file = _folder(machine, "opencode") / "opencode.jsonc"
    file.write_bytes(COMMENTED)
    machine.call("mcp", "install", "--client", "opencode")
    lines = [line.partition("// ")[0] for line in file.read_text().splitlines() if "none" not in line]
    assert '"type": "local"' in "\n".join(lines)
    machine.call("mcp", "uninstall")
    assert file.read_bytes() == COMMENTED


def test_anothers_file_is_left_alone(machine: Machine) -> None:
    file = _folder(machine, "opencode") / "plugin" / "crystal.js"
    file.parent.mkdir()
    file.write_text("export const Mine = 1\n")
    refused = machine.call("hooks", "install", "opencode", check=False)
    assert refused.code != 0
    assert str(file) in refused.err
    machine.call("hooks", "uninstall")
    assert file.read_text() == "export const Mine = 1\n"


def test_the_folders_of_the_xdg_specification_are_looked_at(machine: Machine) -> None:
    config, data = machine.root / "c", machine.root / "d"
    (config / "opencode").mkdir(parents=True)
    elsewhere = Machine(machine.root, {"XDG_CONFIG_HOME": str(config), "XDG_DATA_HOME": str(data)})
    elsewhere.call("hooks", "install", "opencode")
    assert (config / "opencode" / "plugin" / "crystal.js").exists()
    (data / "opencode").mkdir(parents=True)
    (elsewhere.root / ".config" / "opencode").mkdir(parents=True)
    assert (
        elsewhere.call("hooks", "status", "opencode", "--json")
        .json["tools"][0]["file"]
        .startswith(str(config))
    )
    found = resolve(environment=elsewhere.environment).capture
    assert (found.opencode_folder, found.goose_folder) == (data / "opencode", data / "goose")
    ignored = resolve(environment=elsewhere.environment | {"XDG_DATA_HOME": "not/absolute"}).capture
    assert ignored.opencode_folder == Path.home() / ".local/share/opencode"


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node.js here")
@pytest.mark.parametrize("tool", ["opencode", "openclaw"])
def test_a_plugin_is_sound_javascript(tmp_path: Path, tool: str) -> None:
    file = tmp_path / "plugin.mjs"
    file.write_text(plugin_source(tool, tmp_path))
    subprocess.run(["node", "--check", str(file)], check=True, capture_output=True)


def test_a_plugin_that_the_package_put_there_is_left_alone_and_named(machine: Machine) -> None:
    folder = _folder(machine, "openclaw")
    (folder / "openclaw.json").write_text("{}")
    plugin = folder / FILES["openclaw"][1]
    plugin.parent.mkdir(parents=True)
    plugin.write_text(plugin_source("openclaw", None))
    before = _all(folder)
    told = machine.call("hooks", "install", "openclaw", check=False)
    assert "is of Crystal's package for OpenClaw" in told.err
    assert _all(folder) == before
