"""The kept transcripts of all tools, as folders on a person's machine, and what was said in them.

``fixtures/real/<tool>`` was written by the real program, ``fixtures/<tool>`` by hand after its published source. Beside each is
``<tool>.said.jsonl``: session, role, time (0: the file's), project, beginning and model of each text, in order. A database is
kept as its schema (``schema.sql``) and its rows (``rows.jsonl``), and made of them here.
"""

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from crystal_mirror.operations import Capture
from crystal_node.base.settings.options import ActionDetail
from crystal_node.capture.adapter import Adapter
from crystal_node.capture.aider import Aider
from crystal_node.capture.claude_code import ClaudeCode
from crystal_node.capture.cline import Cline
from crystal_node.capture.codex import Codex
from crystal_node.capture.continue_dev import Continue
from crystal_node.capture.copilot import CopilotCli
from crystal_node.capture.crush import Crush
from crystal_node.capture.drop import DropFolder
from crystal_node.capture.gemini import GeminiCli
from crystal_node.capture.goose import Goose
from crystal_node.capture.openclaw import OpenClaw
from crystal_node.capture.opencode import OpenCode
from crystal_node.capture.qwen import QwenCode
from tests.node.capture.transcripts import FIXTURES

HOME = Path("/home/ada")
SAID_CHARS = 60
"""Characters of a message by which it is known in ``<tool>.said.jsonl``."""


@dataclass(frozen=True)
class Kept:
    """One tool's kept folder. ``database``: where its database is, below the folder. ``form``: how its transcripts are kept."""

    folder: str
    adapter: Callable[[Path, Path], Adapter]
    form: str = "lines"
    database: str = ""

    def __str__(self) -> str:
        return self.adapter(Path("x"), HOME).name

    def said(self) -> list[list[Any]]:
        """What was said in all of its transcripts."""
        lines = FIXTURES.joinpath(f"{self.folder}.said.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def rows(self) -> list[dict[str, Any]]:
        """The rows of its database."""
        lines = FIXTURES.joinpath(self.folder, "rows.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def copy(self, root: Path) -> Adapter:
        """The folder as it is on a person's machine, and its adapter, which records all tool calls."""
        source = FIXTURES / self.folder
        shutil.copytree(source, root, ignore=shutil.ignore_patterns("schema.sql", "rows.jsonl"))
        if self.database:
            make_database(root / self.database, source)
        adapter = self.adapter(root, HOME)
        adapter.actions = ActionDetail.FULL
        return adapter


def _crush(root: Path, home: Path) -> Adapter:
    """Its list of projects names folders wherever they are: here one below its own."""
    if root.is_dir():
        listed = {"path": str(home / "work" / "proj"), "data_dir": str(root / "kept" / ".crush")}
        (root / "projects.json").write_text(json.dumps({"projects": [listed]}))
    return Crush(root, home)


def _aider(root: Path, _home: Path) -> Adapter:
    """Its files are in projects: here in one of a home that is the kept folder."""
    adapter = Aider(root / ".aider", root)
    adapter.projects = lambda: [root / "work" / "proj"]
    return adapter


KEPT = [
    Kept("real/claude-code", ClaudeCode),
    Kept("real/openclaw", OpenClaw, "database", "agents/main/agent/openclaw-agent.sqlite"),
    Kept("real/codex", Codex),
    Kept("real/gemini", GeminiCli),
    Kept("real/qwen-code", QwenCode),
    Kept("real/copilot-cli", CopilotCli),
    Kept("real/cline", Cline, "documents"),
    Kept("real/opencode", OpenCode, "database", "opencode.db"),
    Kept("real/continue", Continue, "documents"),
    Kept("goose", Goose, "database", "sessions/sessions.db"),
    Kept("crush", _crush, "database", "kept/.crush/crush.db"),
    Kept("real/aider", _aider, "text"),
    Kept("drop", lambda root, home: DropFolder(root, home, "cc-mini")),
]


def make_database(path: Path, source: Path) -> None:
    """A database of the rows that are kept in a folder, without a journal."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(apsw.Connection(str(path))) as database:
        database.execute((source / "schema.sql").read_text())
        for line in (source / "rows.jsonl").read_text().splitlines():
            insert(database, json.loads(line))


def insert(database: apsw.Connection, row: dict[str, Any]) -> None:
    """Adds one kept row to its table."""
    table, columns = row["table"], [name for name in row if name != "table"]
    places = ", ".join("?" for _ in columns)
    query = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})"  # noqa: S608  of our own names
    database.execute(query, [row[name] for name in columns])


def told(operations: list[Capture]) -> list[list[str | int]]:
    """Session, role, time, project, the beginning of the text and the model of each piece, in order."""
    return [
        [one.session, piece.role, piece.created_at, one.project, piece.text[:SAID_CHARS], piece.model]
        for one in operations
        for piece in one.pieces
    ]
