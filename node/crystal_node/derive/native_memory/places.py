"""Which files of AI tools can be kept in step, where they are on this device, and how much of them each tool reads.

A file is known on all devices by what it is for, never by its path: the tool, and a project by its repository or folder as the
record knows it (decision 0060). The caps are the tools' own, as their documentation states them:

- Claude Code reads the first 200 lines or 25 KB of a project's MEMORY.md, whichever come first; its other memory files on
demand.
  It warns of a CLAUDE.md of more than 40,000 characters.
- Codex reads 32 KiB of AGENTS.md files together (``project_doc_max_bytes``), and 2,500 tokens of its memory_summary.md.
- Gemini CLI and Qwen Code read their whole file.
"""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from pathlib import Path

from crystal_core.database import Database
from crystal_node.base.project import ProjectFinder
from crystal_node.base.settings import Settings
from crystal_node.capture.exclusions import Exclusions
from crystal_node.capture.json_values import as_text, is_object, parse_json
from crystal_node.capture.line_reader import open_regular
from crystal_node.device.repositories import key_of

FILE_BYTES_MAX = 256 * 1024
"""A larger file is left alone."""
FILES_MAX = 500
"""Of one folder of memories."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\.md")
_MAIN = "MEMORY.md"
_TRANSCRIPT_BYTES = 256 * 1024
"""How much of a transcript is read for the folder that it was held in, at its beginning and at its end."""
_TRANSCRIPTS_MAX = 5
_SLOT_CHARS = 16


class NativeTool(StrEnum):
    """A tool whose memory can be kept in step."""

    CLAUDE_CODE = "claude-code"
    CODEX = "codex"
    GEMINI = "gemini-cli"
    QWEN = "qwen-code"


@dataclass(frozen=True, slots=True)
class Cap:
    """How much of a file its tool reads. None: all of it."""

    bytes_max: int | None = None
    lines_max: int | None = None

    def over(self, lines: list[str], size: int) -> str | None:
        """Why a file of these lines and of ``size`` bytes is too large; None if it is not."""
        if self.lines_max is not None and len(lines) > self.lines_max:
            return f"{len(lines):,} lines, and the tool reads {self.lines_max:,}"
        most = FILE_BYTES_MAX if self.bytes_max is None else self.bytes_max
        if size <= most:
            return None
        reader = "Crystal takes" if self.bytes_max is None else "the tool reads"
        return f"{size:,} bytes, and {reader} {most:,}"


_CLAUDE_USER = Cap(40_000)
_CLAUDE_MAIN = Cap(25_000, 200)
_CODEX_USER = Cap(32 * 1024)
_CODEX_SUMMARY = Cap(10_000)
"""2,500 tokens of four bytes."""


@dataclass(frozen=True, slots=True)
class FileKey:
    """What a file is for, on every device. ``project``: a repository or a folder; "" for a file for all projects."""

    tool: str
    name: str
    project: str = ""

    @property
    def slot(self) -> str:
        """The name of its folder below ``native/`` of the home."""
        named = f"{self.tool}\0{self.project}\0{self.name}".encode("utf-8", "surrogateescape")
        return sha256(named).hexdigest()[:_SLOT_CHARS]


@dataclass(frozen=True, slots=True)
class NativePlace:
    """One file on this device, which may not be there yet. ``many``: it is one of a folder's, which may be removed alone."""

    key: FileKey
    path: Path
    cap: Cap
    many: bool = False


def places(
    settings: Settings,
    tools: frozenset[str],
    database: Database,
    exclusions: Exclusions,
    known: frozenset[FileKey],
) -> Iterator[NativePlace]:
    """The files of these tools on this device; those that are ``known`` of other devices too, where their folder is here."""
    finders: dict[str, Callable[[], Iterator[NativePlace]]] = {
        NativeTool.CLAUDE_CODE: lambda: _claude(settings, database, exclusions, known),
        NativeTool.CODEX: lambda: _codex(settings.capture.codex_folder),
        NativeTool.GEMINI: lambda: _user(
            NativeTool.GEMINI, settings.capture.gemini_folder, "GEMINI.md", Cap()
        ),
        NativeTool.QWEN: lambda: _user(NativeTool.QWEN, settings.capture.qwen_folder, "QWEN.md", Cap()),
    }
    for tool in NativeTool:
        if tool in tools:
            yield from finders[tool]()


def _user(tool: NativeTool, folder: Path, name: str, cap: Cap) -> Iterator[NativePlace]:
    if folder.is_dir():
        yield NativePlace(FileKey(tool, name), folder / name, cap)


def _codex(folder: Path) -> Iterator[NativePlace]:
    yield from _user(NativeTool.CODEX, folder, "AGENTS.md", _CODEX_USER)
    memories = folder / "memories"
    if memories.is_dir():
        yield NativePlace(FileKey(NativeTool.CODEX, "memories/MEMORY.md"), memories / _MAIN, Cap())
        yield NativePlace(
            FileKey(NativeTool.CODEX, "memories/memory_summary.md"),
            memories / "memory_summary.md",
            _CODEX_SUMMARY,
        )


def _claude(
    settings: Settings, database: Database, exclusions: Exclusions, known: frozenset[FileKey]
) -> Iterator[NativePlace]:
    root = settings.claude_folder
    yield from _user(NativeTool.CLAUDE_CODE, root, "CLAUDE.md", _CLAUDE_USER)
    finder = ProjectFinder(settings.person_home)
    try:
        folders = sorted(each for each in (root / "projects").iterdir() if each.is_dir())
    except OSError:  # there is none yet
        return
    for folder in folders:
        cwd = _working_folder(folder)
        if cwd is None:
            continue
        place = finder.of(cwd)
        if exclusions.hides(cwd, place.repository, 0):
            continue
        name, repository = key_of(database, place)
        project = repository or name
        if not project:
            continue
        names = _memory_names(folder / "memory") | {
            key.name for key in known if key.tool == NativeTool.CLAUDE_CODE and key.project == project
        }
        for each in sorted(names):
            if _NAME.fullmatch(each):
                cap = _CLAUDE_MAIN if each == _MAIN else Cap()
                key = FileKey(NativeTool.CLAUDE_CODE, each, project)
                yield NativePlace(key, folder / "memory" / each, cap, many=each != _MAIN)


def _memory_names(folder: Path) -> set[str]:
    try:
        return {each.name for each in sorted(folder.iterdir())[:FILES_MAX] if each.suffix == ".md"}
    except OSError:
        return set()


def _working_folder(folder: Path) -> str | None:
    """The folder of a project of Claude Code, by its transcripts: the name of its own folder does not tell.

    A session that was begun on another machine names that machine's folder first. None if no transcript names a folder that
    Claude Code would keep here; one that is there comes before one that is not.
    """
    try:
        transcripts = sorted(folder.glob("*.jsonl"), key=lambda each: each.stat().st_mtime_ns, reverse=True)
    except OSError:  # one was removed meanwhile: the next run finds the others
        return None
    missing = None
    for path in transcripts[:_TRANSCRIPTS_MAX]:
        given: set[str] = set()
        for cwd in _folders_of(path):
            if cwd in given:
                continue
            given.add(cwd)
            found = next(
                (each for each in (Path(cwd), *Path(cwd).parents) if _folder_name(each) == folder.name), None
            )
            if found is not None and found.is_dir():
                return str(found)
            if found is not None:
                missing = missing or str(found)
    return missing


def _folders_of(path: Path) -> Iterator[str]:
    """The folders that a transcript names at its beginning and at its end."""
    try:
        with open_regular(path) as file:
            lines = file.read(_TRANSCRIPT_BYTES).split(b"\n")[:-1]
            rest = os.fstat(file.fileno()).st_size - _TRANSCRIPT_BYTES
            if rest > 0:
                file.seek(-min(rest, _TRANSCRIPT_BYTES), os.SEEK_END)
                lines += file.read(_TRANSCRIPT_BYTES).split(b"\n")[1:]
    except OSError:
        return
    for line in lines:
        try:
            record = parse_json(line)
        except ValueError:
            continue
        cwd = as_text(record.get("cwd")) if is_object(record) else None
        if cwd:
            yield cwd


def _folder_name(path: Path) -> str:
    return re.sub(r"[^A-Za-z0-9]", "-", str(path))
