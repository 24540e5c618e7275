"""The AI tools on this machine: where their conversations are, how many, how big, and how much of them is recorded.

Only names and sizes are read, never a conversation.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from crystal_node.base.settings import Settings
from crystal_node.capture.adapter import Adapter, decode_state
from crystal_node.capture.adapters import all_adapters
from crystal_node.capture.claude_code import ClaudeCode
from crystal_node.capture.codex import Codex
from crystal_node.capture.drop import DropFolder
from crystal_node.capture.gemini import GeminiCli
from crystal_node.capture.openclaw import OpenClaw
from crystal_node.device.journal import SqliteJournal
from crystal_node.device.privacy import read_privacy


@dataclass(frozen=True, slots=True)
class AiTool:
    """One tool. ``there``: it has a folder here. ``wanted``: its conversations are to be recorded, when capture is on at all.

    ``waiting``: bytes that were not read yet. ``recorded_at``: when the newest transcript that was read was last written, in
    milliseconds; 0 if none was read. ``problems``: transcripts or folders that cannot be looked at.
    """

    name: str
    title: str
    folders: tuple[Path, ...]
    there: bool
    wanted: bool
    transcripts: int = 0
    size: int = 0
    waiting: int = 0
    recorded_at: int = 0
    problems: tuple[tuple[str, str], ...] = ()


def find_tools(settings: Settings, states: Mapping[str, bytes]) -> list[AiTool]:
    """Looks at every tool that is known. ``states``: what capture remembers of each transcript, by its path."""
    capture = settings.capture
    own = {
        ClaudeCode.name: settings.claude_folder,
        OpenClaw.name: capture.openclaw_folder,
        Codex.name: capture.codex_folder,
        GeminiCli.name: capture.gemini_folder,
        DropFolder.name: capture.drop_folder,
    }
    return [
        _look(adapter, own[adapter.name].is_dir(), adapter.name not in capture.without, states)
        for adapter in all_adapters(settings, settings.person_home)
    ]


def read_states(settings: Settings) -> tuple[bool, dict[str, bytes]]:
    """Whether private mode is on, and what capture remembers of each transcript. Opens no keys; nothing if there is no journal.

    Raises JournalDamaged.
    """
    if not settings.home.state_database.exists():
        return False, {}
    journal = SqliteJournal.open(settings.home.state_file())
    try:
        return read_privacy(journal).on, journal.file_states()
    finally:
        journal.close()


def _look(adapter: Adapter, there: bool, wanted: bool, states: Mapping[str, bytes]) -> AiTool:
    transcripts = size = waiting = recorded_at = 0
    problems: list[tuple[str, str]] = []
    for found in adapter.discover():
        if found.problem is not None:
            problems.append((str(found.path), found.problem))
            continue
        try:
            length = found.path.stat().st_size
        except FileNotFoundError:
            continue
        except OSError as error:
            problems.append((str(found.path), f"cannot be looked at: {error.strerror}"))
            continue
        transcripts += 1
        size += length
        kept = states.get(str(found.path.absolute()))
        state = None if kept is None else decode_state(kept)
        # A replaced file is shorter than what was read of it: all of it waits.
        waiting += length if state is None or state.offset > length else length - state.offset
        if state is not None and not state.stepped_over:
            recorded_at = max(recorded_at, state.modified // 1_000_000)
    return AiTool(
        adapter.name,
        adapter.title,
        tuple(adapter.folders),
        there,
        wanted,
        transcripts,
        size,
        waiting,
        max(recorded_at, 0),
        tuple(problems),
    )
