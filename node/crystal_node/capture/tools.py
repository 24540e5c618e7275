"""The tools whose conversations are recorded: one adapter each, from the settings."""

from pathlib import Path

from crystal_node.base.settings import Settings
from crystal_node.capture.adapter import Adapter
from crystal_node.capture.claude_code import ClaudeCode
from crystal_node.capture.codex import Codex
from crystal_node.capture.drop import DropFolder
from crystal_node.capture.gemini import GeminiCli
from crystal_node.capture.openclaw import OpenClaw

TOOLS = (ClaudeCode.name, OpenClaw.name, Codex.name, GeminiCli.name, DropFolder.name)
"""All tools, as `crystal capture off TOOL` names them."""


def adapters_of(settings: Settings, person_home: Path) -> list[Adapter]:
    """The adapters of the tools that are recorded here, in the order of ``TOOLS``, without those in
    ``capture_without``."""
    return [one for one in all_adapters(settings, person_home) if one.name not in settings.capture.without]


def all_adapters(settings: Settings, person_home: Path) -> list[Adapter]:
    """The adapters of all tools, whether they are recorded or not."""
    capture, agent = settings.capture, settings.agent_id
    return [
        ClaudeCode(settings.claude_folder, person_home, agent),
        OpenClaw(capture.openclaw_folder, person_home),
        Codex(capture.codex_folder, person_home),
        GeminiCli(capture.gemini_folder, person_home),
        DropFolder(capture.drop_folder, person_home, agent),
    ]
