"""Where each tool keeps its sessions on this machine, and how it is told to resume one.

    claude-code  <root>/projects/<folder>/<session>.jsonl, what belongs to it in <session>/ beside it
    codex        <root>/sessions/<year>/<month>/<day>/rollout-<time>-<session>.jsonl
    gemini-cli   <root>/tmp/<project>/chats/session-<time>-<start of session>.jsonl; <project>/.project_root names the folder
    qwen-code    <root>/projects/<folder>/chats/<session>.jsonl; <session>.runtime.json beside it names the folder
    openclaw     <root>/agents/<agent>/sessions/<session>.jsonl and its row in sessions.json; later rows of a database

Session ids and paths come from other devices: nothing of them becomes a path before it has a form that cannot leave the tool's
own folder. Formats are not ours; what was tried with which version is in docs/resume.md.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import ClassVar

from crystal_node.base.errors import LocalStorage, UsageError
from crystal_node.base.home import write_private
from crystal_node.base.settings import Settings
from crystal_node.capture.folders import files_below, folders_in
from crystal_node.capture.json_values import as_object, as_text, is_object, parse_json
from crystal_node.capture.line_reader import open_regular
from crystal_node.capture.openclaw_database import STORE_NAME, session_path, session_rows, store_of
from crystal_node.derive.resume.files import (
    Comparison,
    Lines,
    Relation,
    compare,
    compare_lines,
    tail_of,
    write,
)
from crystal_node.derive.resume.openclaw_import import (
    NotImported,
    StoredSession,
    can_import,
    import_session,
    stored_session,
)
from crystal_node.derive.sessions.layout import Head

SLUG_CHARS_MAX = 200
"""Claude Code appends a digest to longer names of folders, another one in each of its builds."""
_FOLDER_CHARS_MAX = 255
"""Of a folder's name, on all file systems in use."""
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,127}")
_ROLLOUT = re.compile(r"rollout-(\d{4})-(\d{2})-(\d{2})T\d{2}-\d{2}-\d{2}-")
_GEMINI_FILE = re.compile(r"session-(\d{4}-\d{2}-\d{2}T\d{2}-\d{2})-[0-9a-f]{8}\.jsonl")
_NO_LETTER = re.compile(r"[^a-z0-9]+")
_HEADER = re.compile(rb'"type"[ ]?:[ ]?"session(?:_meta)?"')
_GO_ON = "Go on with the session that is described in"
_MARKER = ".project_root"
_MARKER_BYTES_MAX = 4096
_HEAD_BYTES_MAX = 256 * 1024
_PROJECTS_MAX = 1000
_MOMENT_MAX = 253_402_300_800_000
"""The year 10000, in milliseconds since 1970."""
_OPENCLAW_STATE = "openclaw.sqlite"


class CannotPlace(UsageError):
    """The tool would not find the session wherever it was put."""

    hint = "`crystal handoff ID --to TOOL` starts a tool with what the session was about."


@dataclass(frozen=True, slots=True)
class SessionName:
    """A session of a tool. ``id``: as its copies are named; ``own``: by which the tool resumes it, of Gemini CLI another one.
    ``native``: its file's path where it was made; ``started_ms``: when it began, 0 if unknown. Both choose a file's name, never
    its folder."""

    id: str
    own: str
    native: str = ""
    started_ms: int = 0

    @classmethod
    def of(cls, head: Head) -> "SessionName":
        return cls(head.session, head.tool_session or head.session, head.native, head.started_at)

    @property
    def file_name(self) -> str:
        return PurePosixPath(self.native.replace("\\", "/")).name

    @property
    def began(self) -> datetime:
        """When it began; 1970 if that is unknown, or no time of this calendar."""
        known = self.started_ms if 0 <= self.started_ms < _MOMENT_MAX else 0
        return datetime.fromtimestamp(known / 1000, UTC)

    def fork(self, own: str) -> "SessionName":
        """The name of a fork with this id."""
        return replace(self, id=own, own=own)


class ToolSessions(ABC):
    """The sessions of one tool on this machine. ``root``: the tool's own folder, such as ``~/.claude``."""

    name: ClassVar[str]
    title: ClassVar[str]
    program: ClassVar[str]
    ids: ClassVar[re.Pattern[str]] = _UUID

    def __init__(self, root: Path) -> None:
        self.root = root

    def check(self, session: SessionName) -> None:
        """Raises CannotPlace: this cannot be an id of the tool's sessions."""
        if not self.ids.fullmatch(session.own):
            raise CannotPlace(f"{session.own[:60]!r} is no id of a session of {self.title}")

    @abstractmethod
    def find(self, session: SessionName) -> list[Path]:
        """The tool's own files of this session here, links left out."""

    @abstractmethod
    def place(self, session: SessionName, cwd: Path) -> Path:
        """The file in which the tool looks for the session when it is started in ``cwd``. Raises CannotPlace."""

    @abstractmethod
    def command(self, session: SessionName, cwd: Path) -> list[str]:
        """What resumes it, started in ``cwd``."""

    @abstractmethod
    def fresh(self, file: Path) -> list[str]:
        """What starts a new session whose first prompt is to read a file."""

    def unread(self, session: SessionName) -> list[tuple[Path, str]]:
        """Files that may have the session but cannot be read, and why."""
        return []

    def note(self, session: SessionName, file: Path, cwd: Path) -> list[Path]:
        """Write what else the tool needs to find the session. Returns the files that were written."""
        return []

    def compare(self, own: Path, copy: Lines) -> Comparison:
        """Compares what the tool has of a session with a copy. ``own``: as ``place`` names it. Raises LocalStorage."""
        return compare(own, copy)

    def write(self, own: Path, copy: Lines, compared: Comparison, aside: Path) -> int:
        """Bring it up to the copy, as ``files.write`` does, which says what it raises. Returns how many bytes were written."""
        return write(own, copy, compared, aside)

    def renamed(self, line: bytes, old: str, new: str) -> bytes:
        """A line of a session as a line of its fork."""
        return _with_id(line, b"sessionId", old, new)

    def _contained(self, path: Path) -> Path:
        # A link that a person made of the tool's folder is theirs; one below it leads elsewhere.
        below = path.parent
        while below != self.root and below != below.parent:
            if below.is_symlink():
                raise CannotPlace(
                    f"{below} is a link", hint="Nothing is written through links: replace it by a folder."
                )
            below = below.parent
        if below != self.root:
            raise CannotPlace(f"{path} is outside of {self.root}")
        return path


class ClaudeCodeSessions(ToolSessions):
    name, title, program = "claude-code", "Claude Code", "claude"

    def find(self, session: SessionName) -> list[Path]:
        self.check(session)
        folders, _ = folders_in(self.root / "projects")
        return _plain_files(folder / f"{session.own}.jsonl" for folder in folders)

    def place(self, session: SessionName, cwd: Path) -> Path:
        self.check(session)
        return self._contained(self._folder(str(cwd)) / f"{session.own}.jsonl")

    def command(self, session: SessionName, cwd: Path) -> list[str]:
        return [self.program, "--resume", session.own]

    def fresh(self, file: Path) -> list[str]:
        return [self.program, "--add-dir", str(file.parent), "--", f"{_GO_ON} @{_escaped(file)}"]

    def _folder(self, cwd: str) -> Path:
        slug = _slug(cwd)
        projects = self.root / "projects"
        if len(slug) <= SLUG_CHARS_MAX:
            return projects / slug
        start = slug[:SLUG_CHARS_MAX] + "-"
        for folder in folders_in(projects)[0]:
            if folder.name.startswith(start) and cwd in _working_folders(folder):
                return folder
        raise CannotPlace(
            f"the path of {cwd} is so long that Claude Code alone knows its name for it",
            hint="Start `claude` there once, say a word to it, and run this again; or use a folder with a shorter path.",
        )


class CodexSessions(ToolSessions):
    name, title, program = "codex", "Codex", "codex"

    def find(self, session: SessionName) -> list[Path]:
        self.check(session)
        ending = f"-{session.own}.jsonl"

        def wanted(name: str) -> bool:
            return name.endswith(ending) and _ROLLOUT.match(name) is not None

        return [each.path for each in files_below(self.root / "sessions", wanted, 3) if each.problem is None]

    def place(self, session: SessionName, cwd: Path) -> Path:
        self.check(session)
        name = session.file_name
        dated = _ROLLOUT.match(name)
        if dated is None:
            name = f"rollout-{session.began:%Y-%m-%dT%H-%M-%S}-{session.own}.jsonl"
            dated = _ROLLOUT.match(name)
        assert dated is not None, "such a name was just made"
        name = f"{dated[0]}{session.own}.jsonl"
        return self._contained(self.root / "sessions" / dated[1] / dated[2] / dated[3] / name)

    def command(self, session: SessionName, cwd: Path) -> list[str]:
        return [self.program, "resume", "--cd", str(cwd), session.own]

    def fresh(self, file: Path) -> list[str]:
        return [self.program, "--", f"{_GO_ON} {file}"]

    def renamed(self, line: bytes, old: str, new: str) -> bytes:
        # Records of a parent's history keep its id: only the session's own header says who it is.
        if not _HEADER.search(line):
            return line
        return _with_id(line, b"id|session_id", old, new)


class GeminiSessions(ToolSessions):
    name, title, program = "gemini-cli", "Gemini CLI", "gemini"

    def find(self, session: SessionName) -> list[Path]:
        name = self._file_name(session)
        return _plain_files(folder / "chats" / name for folder in folders_in(self.root / "tmp")[0])

    def place(self, session: SessionName, cwd: Path) -> Path:
        return self._contained(self._project(cwd) / "chats" / self._file_name(session))

    def _file_name(self, session: SessionName) -> str:
        """A session that was resumed has several files, of which the tool takes the latest: each keeps its name."""
        self.check(session)
        if _GEMINI_FILE.fullmatch(f"{session.id}.jsonl"):
            return f"{session.id}.jsonl"
        dated = _GEMINI_FILE.fullmatch(session.file_name)
        began = dated[1] if dated else f"{session.began:%Y-%m-%dT%H-%M}"
        return f"session-{began}-{session.own[:8]}.jsonl"

    def command(self, session: SessionName, cwd: Path) -> list[str]:
        return [self.program, "--resume", session.own]

    def fresh(self, file: Path) -> list[str]:
        prompt = f"{_GO_ON} @{_escaped(file)}"
        return [self.program, "--include-directories", str(file.parent), "--prompt-interactive", prompt]

    def note(self, session: SessionName, file: Path, cwd: Path) -> list[Path]:
        marker = file.parent.parent / _MARKER
        if marker.exists():
            return []
        write_private(marker, str(cwd).encode())
        return [marker]

    def _project(self, cwd: Path) -> Path:
        """The folder that the tool takes for this project: it looks at the markers, too."""
        there, _ = folders_in(self.root / "tmp")
        for folder in there:
            if _marker(folder) == str(cwd):
                return folder
        taken = {folder.name for folder in there} | self._registered()
        slug = _NO_LETTER.sub("-", cwd.name.lower()).strip("-") or "project"
        for number in range(_PROJECTS_MAX):
            name = f"{slug}-{number}" if number else slug
            if name not in taken:
                return self.root / "tmp" / name
        raise CannotPlace(f"{_PROJECTS_MAX} projects of Gemini CLI are called {slug}")

    def _registered(self) -> set[str]:
        try:
            with open_regular(self.root / "projects.json") as file:
                known = parse_json(file.read(_HEAD_BYTES_MAX * 16))
        except (OSError, ValueError):
            return set()
        projects = as_object(known.get("projects")) if is_object(known) else {}
        return {name for value in projects.values() if (name := as_text(value))}


class QwenSessions(ToolSessions):
    name, title, program = "qwen-code", "Qwen Code", "qwen"

    def find(self, session: SessionName) -> list[Path]:
        self.check(session)
        folders, _ = folders_in(self.root / "projects")
        return _plain_files(folder / "chats" / f"{session.own}.jsonl" for folder in folders)

    def place(self, session: SessionName, cwd: Path) -> Path:
        self.check(session)
        slug = _slug(str(cwd))
        if len(slug) > _FOLDER_CHARS_MAX:
            raise CannotPlace(
                f"the path of {cwd} is longer than Qwen Code can keep sessions of",
                hint="Use a folder with a shorter path.",
            )
        return self._contained(self.root / "projects" / slug / "chats" / f"{session.own}.jsonl")

    def command(self, session: SessionName, cwd: Path) -> list[str]:
        return [self.program, "--resume", session.own]

    def fresh(self, file: Path) -> list[str]:
        prompt = f"{_GO_ON} @{_escaped(file)}"
        return [self.program, "--include-directories", str(file.parent), "--prompt-interactive", prompt]

    def note(self, session: SessionName, file: Path, cwd: Path) -> list[Path]:
        # Qwen Code shows a session only in the folder that its first record names, or that this file names.
        beside = file.with_name(f"{session.own}.runtime.json")
        status = {
            "schema_version": 1,
            "pid": 0,
            "session_id": session.own,
            "work_dir": str(cwd),
            "hostname": "",
        }
        with suppress(OSError, ValueError):
            with open_regular(beside) as old:
                there = parse_json(old.read(_HEAD_BYTES_MAX))
            if is_object(there) and there.get("work_dir") == str(cwd):
                return []
        write_private(beside, json.dumps(status | {"started_at": 0, "qwen_version": None}).encode())
        return [beside]


class OpenClawSessions(ToolSessions):
    name, title, program = "openclaw", "OpenClaw", "openclaw"
    ids = _NAME

    def find(self, session: SessionName) -> list[Path]:
        self.check(session)
        folders, _ = folders_in(self.root / "agents")
        files = _plain_files(folder / "sessions" / f"{session.own}.jsonl" for folder in folders)
        return [session_path(store, session.own) for store, _ in self._stored(session)[0]] + files

    def place(self, session: SessionName, cwd: Path) -> Path:
        self.check(session)
        if stored := self._stored(session)[0]:
            return session_path(stored[0][0], session.own)
        parts = PurePosixPath(session.native.replace("\\", "/")).parts
        agent = parts[parts.index("agents") + 1] if "agents" in parts[:-2] else "main"
        folder = self.root / "agents" / (agent if _NAME.fullmatch(agent) else "main")
        file = self._contained(folder / "sessions" / f"{session.own}.jsonl")
        return (
            session_path(folder / "agent" / STORE_NAME, session.own) if self._has_database(folder) else file
        )

    def compare(self, own: Path, copy: Lines) -> Comparison:
        store = store_of(own)
        if store is None:
            return super().compare(own, copy)
        try:
            return compare_lines(session_rows(own) if store.exists() else (), copy)
        except OSError as error:
            raise LocalStorage(
                f"{store} cannot be read: {error.strerror or error}",
                hint="`openclaw doctor` looks at what is wrong with it.",
            ) from error

    def write(self, own: Path, copy: Lines, compared: Comparison, aside: Path) -> int:
        store = store_of(own)
        if store is None:
            return super().write(own, copy, compared, aside)
        agent, session = store.parent.parent.name, own.name.removesuffix(".jsonl")
        known = stored_session(store, session) if store.exists() else None
        named = known or StoredSession(_openclaw_key(agent, session), "")
        # OpenClaw is given its own lines unchanged: it would take a line that was redacted in the copy for a new one.
        mine = session_rows(own) if known else iter(())
        lines = chain(mine, tail_of(copy(), compared.tail_at))
        given = import_session(self.root, agent, session, named, lines)
        if self.compare(own, copy).relation not in (Relation.EQUAL, Relation.AHEAD):
            raise NotImported(
                f"OpenClaw has changed lines of the session that it imported into {store}",
                hint="They stay there. Run this again: the copy becomes a session of its own where they differ.",
            )
        return given

    def command(self, session: SessionName, cwd: Path) -> list[str]:
        if stored := self._stored(session)[0]:
            return [self.program, "tui", "--local", "--session", stored[0][1].key]
        found = self.find(session)
        if not found and (store := store_of(self.place(session, cwd))) is not None:
            key = _openclaw_key(store.parent.parent.name, session.own)
            return [self.program, "tui", "--local", "--session", key]
        agent = found[0].parent.parent.name if found else "main"
        return [self.program, "tui", "--session", _openclaw_key(agent, session.own)]

    def unread(self, session: SessionName) -> list[tuple[Path, str]]:
        return self._stored(session)[1]

    def _stored(
        self, session: SessionName
    ) -> tuple[list[tuple[Path, StoredSession]], list[tuple[Path, str]]]:
        """The databases that have a session, and what they store of it; then those that cannot be read, and why."""
        folders, _ = folders_in(self.root / "agents")
        stores = [store for folder in folders if (store := folder / "agent" / STORE_NAME).is_file()]
        found: list[tuple[Path, StoredSession]] = []
        unread: list[tuple[Path, str]] = []
        for store in stores:
            try:
                if (known := stored_session(store, session.own)) is not None:
                    found.append((store, known))
            except OSError as error:
                unread.append((store, error.strerror or str(error)))
        return found, unread

    def _has_database(self, folder: Path) -> bool:
        """Whether sessions of this agent belong in a database: there is one, or the installed OpenClaw would make it."""
        if (folder / "agent" / STORE_NAME).exists() or (self.root / "state" / _OPENCLAW_STATE).exists():
            return True
        return (self.root / "openclaw.json").exists() and can_import()

    def fresh(self, file: Path) -> list[str]:
        return [self.program, "tui", "--message", f"{_GO_ON} {file}"]

    def renamed(self, line: bytes, old: str, new: str) -> bytes:
        if not _HEADER.search(line):
            return line
        return _with_id(line, b"id", old, new)

    def note(self, session: SessionName, file: Path, cwd: Path) -> list[Path]:
        if store_of(file) is not None:
            return []
        table = file.with_name("sessions.json")
        rows: dict[str, object] = {}
        if table.exists():
            read: object = None
            with suppress(ValueError), open_regular(table) as there:
                read = parse_json(there.read(_HEAD_BYTES_MAX * 64))
            if not is_object(read):
                raise CannotPlace(
                    f"{table} is not what OpenClaw writes", hint="Move it away; OpenClaw makes another one."
                )
            rows = dict(read)
        if any(is_object(row) and row.get("sessionId") == session.own for row in rows.values()):
            return []
        row = {
            "sessionId": session.own,
            "updatedAt": int(file.stat().st_mtime * 1000),
            "sessionFile": str(file),
        }
        rows[_openclaw_key(file.parent.parent.name, session.own)] = row
        write_private(table, json.dumps(rows, ensure_ascii=False, indent=2).encode())
        return [table]


def tool_sessions(settings: Settings) -> dict[str, ToolSessions]:
    """The tools whose sessions can be resumed, by name."""
    kept: Sequence[ToolSessions] = (
        ClaudeCodeSessions(settings.claude_folder),
        CodexSessions(settings.capture.codex_folder),
        GeminiSessions(settings.capture.gemini_folder),
        QwenSessions(settings.capture.qwen_folder),
        OpenClawSessions(settings.capture.openclaw_folder),
    )
    return {each.name: each for each in kept}


def _slug(cwd: str) -> str:
    """A folder's name for a working folder, as Claude Code and Qwen Code make it: one sign for each unit of UTF-16."""
    return "".join(
        char if char.isascii() and char.isalnum() else "--" if ord(char) > 0xFFFF else "-" for char in cwd
    )


def _with_id(line: bytes, keys: bytes, old: str, new: str) -> bytes:
    """A line with another id under these keys. Within a text the quotes of a key are escaped, so that none is taken for one."""
    pattern = b'("(?:%s)"[ ]?:[ ]?")%s(?=")' % (keys, re.escape(old.encode()))
    return re.sub(pattern, lambda found: found[1] + new.encode(), line)


def _escaped(file: Path) -> str:
    """A path behind an @: what comes after a space would not belong to it."""
    return str(file).replace(" ", "\\ ")


def _plain_files(paths: Iterator[Path]) -> list[Path]:
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def _working_folders(folder: Path) -> Iterator[str]:
    """The working folders that the sessions of a folder begin in."""
    for each in files_below(folder, lambda name: name.endswith(".jsonl"), 0):
        if each.problem is not None:
            continue
        with suppress(OSError), open_regular(each.path) as file:
            for line in file.read(_HEAD_BYTES_MAX).splitlines():
                if b'"cwd":' not in line:
                    continue
                with suppress(ValueError):
                    record = parse_json(line)
                    if is_object(record) and (cwd := as_text(record.get("cwd"))):
                        yield cwd
                        break


def _marker(folder: Path) -> str:
    with suppress(OSError), open_regular(folder / _MARKER) as file:
        return file.read(_MARKER_BYTES_MAX).decode("utf-8", "replace").strip()
    return ""


def _openclaw_key(agent: str, session: str) -> str:
    return f"agent:{agent}:{session}"
