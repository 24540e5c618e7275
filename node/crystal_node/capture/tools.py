"""The tools whose conversations are recorded: one adapter each, and which adapter reads a given file."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from crystal_node.base.settings import Settings
from crystal_node.capture.adapter import Adapter, FoundTranscript
from crystal_node.capture.aider import Aider
from crystal_node.capture.claude_code import ClaudeCode
from crystal_node.capture.cline import Cline
from crystal_node.capture.codex import Codex
from crystal_node.capture.continue_dev import Continue
from crystal_node.capture.copilot import CopilotCli
from crystal_node.capture.crush import Crush
from crystal_node.capture.database_file import read_snapshot, tables_of
from crystal_node.capture.documents import DOCUMENT_BYTES_MAX
from crystal_node.capture.drop import DropFolder
from crystal_node.capture.folders import files_below
from crystal_node.capture.gemini import GeminiCli
from crystal_node.capture.goose import Goose
from crystal_node.capture.json_values import is_object, parse_json
from crystal_node.capture.line_reader import LineReader, open_regular
from crystal_node.capture.openclaw import OpenClaw
from crystal_node.capture.opencode import OpenCode
from crystal_node.capture.qwen import QwenCode

_TABLE: dict[str, Callable[[Settings, Path], Adapter]] = {
    ClaudeCode.name: lambda wanted, home: ClaudeCode(wanted.claude_folder, home, wanted.agent_id),
    OpenClaw.name: lambda wanted, home: OpenClaw(wanted.capture.openclaw_folder, home),
    Codex.name: lambda wanted, home: Codex(wanted.capture.codex_folder, home),
    GeminiCli.name: lambda wanted, home: GeminiCli(wanted.capture.gemini_folder, home),
    QwenCode.name: lambda wanted, home: QwenCode(wanted.capture.qwen_folder, home),
    CopilotCli.name: lambda wanted, home: CopilotCli(wanted.capture.copilot_folder, home),
    Cline.name: lambda wanted, home: Cline(wanted.capture.cline_folder, home),
    OpenCode.name: lambda wanted, home: OpenCode(wanted.capture.opencode_folder, home),
    Continue.name: lambda wanted, home: Continue(wanted.capture.continue_folder, home),
    Goose.name: lambda wanted, home: Goose(wanted.capture.goose_folder, home),
    Crush.name: lambda wanted, home: Crush(wanted.capture.crush_folder, home),
    Aider.name: lambda wanted, home: Aider(home / ".aider", home),
    DropFolder.name: lambda wanted, home: DropFolder(wanted.capture.drop_folder, home, wanted.agent_id),
}
"""All tools, and how the adapter of each is made of the settings and the person's home folder. This is the one place that
names them."""
TOOLS = tuple(_TABLE)
"""Their names, as `crystal capture off TOOL` takes them."""


Projects = Callable[[], Iterable[Path]]
"""The folders of projects that the memory knows, as they are now."""


def adapters_of(settings: Settings, person_home: Path, projects: Projects | None = None) -> list[Adapter]:
    """The adapters of the tools that are recorded here, in the order of ``TOOLS``, without those in
    ``capture_without``."""
    found = all_adapters(settings, person_home, projects)
    return [one for one in found if one.name not in settings.capture.without]


def all_adapters(settings: Settings, person_home: Path, projects: Projects | None = None) -> list[Adapter]:
    """The adapters of all tools, whether they are recorded or not. Without ``projects`` none is known of a tool that keeps its
    files in projects and has no list of them."""
    adapters = [make(settings, person_home) for make in _TABLE.values()]
    for one in adapters:
        one.crystal_home = settings.home.root
        one.actions = settings.capture.actions
        if isinstance(one, Aider) and projects is not None:
            one.projects = projects
    return adapters


def tools_here(settings: Settings, person_home: Path) -> list[Adapter]:
    """The adapters of the AI tools that have a folder on this machine, recorded or not."""
    return [
        one
        for one in all_adapters(settings, person_home)
        if one.name != DropFolder.name and one.root.is_dir()
    ]


def tools_words(settings: Settings, person_home: Path) -> str:
    """One line for people: the AI tools here that are recorded, and those that are turned off, here or not."""
    without = settings.capture.without
    here = [one.name for one in tools_here(settings, person_home)]
    words = ", ".join(name for name in here if name not in without) if here else "no AI tool is found here"
    off = f"not of {', '.join(sorted(without))}" if without else ""
    return "; ".join(part for part in (words, off) if part)


Choice = tuple[Adapter, FoundTranscript]

_BY_NAME = {
    ".md": DropFolder.name,
    ".json": GeminiCli.name,
    ".sqlite": OpenClaw.name,
    ".db": OpenCode.name,
}
"""Endings of files that do not consist of lines, and whose such a file is if its content does not tell."""
_ENDINGS = (".jsonl", *_BY_NAME)
_DATABASE = b"SQLite format 3\0"
_BEGINNING_BYTES = 1024
"""Bytes at the beginning of a Markdown file by which its tool is recognised."""


def discovered(adapters: Iterable[Adapter]) -> Iterator[Choice]:
    """All transcripts of these tools."""
    for adapter in adapters:
        for found in adapter.discover():
            yield adapter, found


def chosen(adapters: Sequence[Adapter], paths: Iterable[Path]) -> Iterator[Choice]:
    """The files that a person named, and everything that looks like a transcript in folders that they named.

    The state of a file that is gone stays, in case it comes back.
    """
    for path in paths:
        if path.is_dir():
            for found in files_below(path, lambda name: name.endswith(_ENDINGS) or ".jsonl." in name):
                adapter = _by_place(adapters, found.path)
                if adapter is None and found.path.suffix == ".jsonl":
                    adapter = adapter_of(adapters, found.path)
                if adapter is not None or found.problem is not None:
                    yield adapter or adapters[0], found
        elif path.exists():
            adapter = adapter_of(adapters, path)
            yield adapter, FoundTranscript(adapter.transcript(path))


def adapter_of(adapters: Sequence[Adapter], path: Path) -> Adapter:
    """The adapter of a file: by its folder, else by its first record; Claude Code's if neither tells."""
    return _by_place(adapters, path) or _by_content(adapters, path) or _named(adapters, ClaudeCode.name)


def _by_place(adapters: Sequence[Adapter], path: Path) -> Adapter | None:
    return next((one for one in adapters if one.concerns(str(path.absolute()))), None)


def _by_content(adapters: Sequence[Adapter], path: Path) -> Adapter | None:
    try:
        record = _beginning(path)
    except (OSError, ValueError):
        record = None
    found = next((one for one in adapters if is_object(record) and one.recognises(record)), None)
    return found or (_named(adapters, _BY_NAME[path.suffix]) if path.suffix in _BY_NAME else None)


def _beginning(path: Path) -> object:
    """What a file is recognised by: a database's tables with their columns, a document, the beginning of a Markdown file, or
    a file's first line. Raises OSError, ValueError."""
    with open_regular(path) as file:
        if file.read(len(_DATABASE)) == _DATABASE:
            nothing: dict[str, list[str]] = {}
            return read_snapshot(path, tables_of, nothing)[0]
        if path.suffix == ".json":
            file.seek(0)
            return parse_json(file.read(DOCUMENT_BYTES_MAX))
        if path.suffix == ".md":
            file.seek(0)
            return {"beginning": file.read(_BEGINNING_BYTES).decode("utf-8", "replace")}
    with LineReader(path, None) as reader:
        return parse_json(reader.first_line() or b"")


def _named(adapters: Sequence[Adapter], name: str) -> Adapter:
    return next(one for one in adapters if one.name == name)
