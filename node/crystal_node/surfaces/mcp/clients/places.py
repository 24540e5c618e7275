"""The agents that speak MCP, and the file in which each keeps the servers of its person.

Only what their makers document. A program counts as there when its folder is: nothing is made for one that is not.
"""

import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from crystal_node.base.settings import Settings
from crystal_node.surfaces.mcp.clients.entries import EntryForm

_SERVERS = ("mcpServers",)


class FileForm(StrEnum):
    """How the file is written."""

    JSON = "json"
    TOML = "toml"


@dataclass(frozen=True, slots=True)
class McpClient:
    """One program. ``at``: where in the file the servers are, by name. ``entry``: how one is written there.
    ``also``: other files that may hold an entry of ours, which is only ever taken out of them."""

    name: str
    title: str
    folder: Path
    file: Path
    at: tuple[str, ...] = _SERVERS
    form: FileForm = FileForm.JSON
    entry: EntryForm = EntryForm.PLAIN
    also: tuple[Path, ...] = ()

    @property
    def there(self) -> bool:
        return self.folder.is_dir()

    @property
    def backup(self) -> Path:
        return self.file.with_name(self.file.name + ".before-crystal")


def clients_of(settings: Settings) -> list[McpClient]:
    """All that are known."""
    person, capture = settings.person_home, settings.capture
    claude = settings.claude_folder
    usual = claude == person / ".claude"
    claude_files = (person / ".claude.json", claude / ".claude.json")
    applications = (
        person / "Library" / "Application Support" if sys.platform == "darwin" else person / ".config"
    )
    opencode = settings.config_home / "opencode"
    opencode_files = (opencode / "opencode.json", opencode / "opencode.jsonc")
    desktop, code = applications / "Claude", applications / "Code" / "User"
    return [
        McpClient(
            "claude-code",
            "Claude Code",
            claude,
            claude_files[0 if usual else 1],
            entry=EntryForm.TYPED,
            also=claude_files,
        ),
        McpClient("claude-desktop", "Claude Desktop", desktop, desktop / "claude_desktop_config.json"),
        McpClient(
            "codex",
            "Codex",
            capture.codex_folder,
            capture.codex_folder / "config.toml",
            ("mcp_servers",),
            FileForm.TOML,
        ),
        McpClient("gemini-cli", "Gemini CLI", capture.gemini_folder, capture.gemini_folder / "settings.json"),
        McpClient("qwen-code", "Qwen Code", capture.qwen_folder, capture.qwen_folder / "settings.json"),
        McpClient("cursor", "Cursor", person / ".cursor", person / ".cursor" / "mcp.json"),
        McpClient("vscode", "VS Code", code, code / "mcp.json", ("servers",), entry=EntryForm.TYPED),
        McpClient(
            "openclaw",
            "OpenClaw",
            capture.openclaw_folder,
            capture.openclaw_folder / "openclaw.json",
            ("mcp", "servers"),
        ),
        McpClient(
            "opencode",
            "opencode",
            opencode,
            next((file for file in opencode_files if file.exists()), opencode_files[0]),
            ("mcp",),
            entry=EntryForm.OPENCODE,
            also=opencode_files,
        ),
        McpClient(
            "copilot-cli",
            "Copilot CLI",
            capture.copilot_folder,
            capture.copilot_folder / "mcp-config.json",
            entry=EntryForm.COPILOT,
        ),
    ]
