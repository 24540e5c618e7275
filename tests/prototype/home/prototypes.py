"""Homes and databases as the published prototype leaves them: its tables, with what may stand in them."""

import json
from contextlib import closing
from pathlib import Path

import apsw

from crystal_core.database import extension_path
from crystal_node.base.settings.settings import Places

_SCHEMA = """
CREATE TABLE sources (id INTEGER PRIMARY KEY AUTOINCREMENT, type TEXT NOT NULL, uri TEXT NOT NULL, title TEXT,
    agent_id TEXT NOT NULL, metadata TEXT DEFAULT '{}', ingested_at TEXT NOT NULL, chunk_count INTEGER DEFAULT 0);
CREATE TABLE capture_state (agent_id TEXT NOT NULL, source_id TEXT NOT NULL, last_message_count INTEGER DEFAULT 0,
    capture_count INTEGER DEFAULT 0, last_capture_at TEXT, PRIMARY KEY (agent_id, source_id));
CREATE TABLE memories (id INTEGER PRIMARY KEY AUTOINCREMENT, text TEXT NOT NULL, category TEXT NOT NULL DEFAULT 'fact',
    confidence REAL NOT NULL DEFAULT 1.0, source_ids TEXT DEFAULT '[]', status TEXT NOT NULL DEFAULT 'active',
    created_at TEXT NOT NULL, updated_at TEXT NOT NULL);
CREATE TABLE source_collections (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, root_path TEXT NOT NULL,
    glob_patterns TEXT NOT NULL DEFAULT '[]', ignore_patterns TEXT NOT NULL DEFAULT '[]', file_count INTEGER DEFAULT 0,
    chunk_count INTEGER DEFAULT 0, last_sync_at TEXT, created_at TEXT NOT NULL);
CREATE TABLE chunks (id INTEGER PRIMARY KEY AUTOINCREMENT, text TEXT NOT NULL, text_hash TEXT NOT NULL, role TEXT,
    source_type TEXT, source_id TEXT, agent_id TEXT, token_count INTEGER, created_at TEXT NOT NULL);
CREATE VIRTUAL TABLE chunks_fts USING fts5 (text, tokenize = 'porter unicode61');
"""
CHUNKS = (
    (
        "We raised the retry budget to nine.",
        "user",
        "conversation",
        "cc:1",
        "cc-mini",
        "2026-01-05T10:00:00.000Z",
    ),
    (
        "Because the relay restarts at night.",
        "assistant",
        "conversation",
        "cc:1",
        "cc-mini",
        "2026-01-05T10:00:05Z",
    ),
    (
        "We raised the retry budget to nine.",
        "user",
        "conversation",
        "cc:2",
        "cc-mini",
        "2026-01-06T10:00:00.000Z",
    ),
    (
        "The key is sk-ant-api03-" + "a" * 90 + "-" + "b" * 5,
        "user",
        "conversation",
        "cc:2",
        "cc-mini",
        "rubbish",
    ),
    ("# A heading of a file", "system", "file", "docs/a.md", "system", "2026-01-05T10:00:00Z"),
    ("Lesa heard this.", "tool", "imessage", None, "../../etc; rm -rf /", "2026-02-01 09:00:00"),
    ("   ", "user", "conversation", "cc:3", "cc-mini", "2026-01-05T10:00:00Z"),
)
MANUAL = (
    ("The relay restarts at two.", "system", "manual", "memory:1", "system", "2026-01-05T10:00:00Z"),
    ("Tea, not coffee.", "system", "manual", "memory:2", "system", "2026-01-05T11:00:00Z"),
    ("A secret that was taken back.", "system", "manual", "memory:3", "system", "2026-01-05T12:00:00Z"),
)
"""What `remember` put beside a memory: it stayed when the memory was forgotten."""
MEMORIES = (
    ("The relay restarts at two.", "fact", 0.8, "active", "2026-01-05T10:00:00Z"),
    ("Tea, not coffee.", "preference", 7, "deprecated", "2026-01-05T11:00:00Z"),
    ("A secret that was taken back.", "fact", 1, "deleted", "2026-01-05T12:00:00Z"),
    ("Something else.", "no such category", "high", "active", "2026-01-05T13:00:00Z"),
)


def database(path: Path) -> Path:
    """A ``crystal.db`` of the prototype."""
    path.parent.mkdir(parents=True, exist_ok=True)
    db = apsw.Connection(str(path))
    db.execute("PRAGMA journal_mode = WAL")
    db.execute(_SCHEMA)
    db.enable_load_extension(True)
    db.load_extension(extension_path())
    db.execute(
        "CREATE VIRTUAL TABLE chunks_vec USING vec0"
        " (chunk_id INTEGER PRIMARY KEY, embedding float[4] distance_metric = cosine)"
    )
    db.execute("INSERT INTO chunks_vec VALUES (1, '[1, 0, 0, 0]')")
    db.executemany(
        "INSERT INTO chunks (text, text_hash, role, source_type, source_id, agent_id, created_at)"
        " VALUES (?1, hex(?1), ?2, ?3, ?4, ?5, ?6)",
        CHUNKS + MANUAL,
    )
    db.executemany(
        "INSERT INTO memories (text, category, confidence, status, created_at, updated_at) VALUES (?, ?, ?, ?, ?5, ?5)",
        MEMORIES,
    )
    db.execute(
        "INSERT INTO source_collections (name, root_path, created_at) VALUES ('notes', '/home/p/notes', '2026-01-01')"
    )
    db.close()
    return path


def say(path: Path, *rows: tuple[str, str, str, str]) -> None:
    """Adds rows of conversations: text, role, session and time."""
    with closing(apsw.Connection(str(path))) as db:
        db.executemany(
            "INSERT INTO chunks (text, text_hash, role, source_type, source_id, agent_id, created_at)"
            " VALUES (?1, hex(?1), ?2, 'conversation', ?3, 'cc-mini', ?4)",
            rows,
        )


def older_database(path: Path) -> Path:
    """OpenClaw's ``context-embeddings.sqlite``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    db = apsw.Connection(str(path))
    db.execute(
        "CREATE TABLE conversation_chunks (id INTEGER PRIMARY KEY, chunk_text TEXT, role TEXT, agent_id TEXT,"
        " session_key TEXT, timestamp INTEGER, compaction_number INTEGER)"
    )
    db.execute(
        "INSERT INTO conversation_chunks VALUES (1, 'An old remark about lighthouses.', 'user', 'main', 'agent:main:main',"
        " 1767607200000, 0)"
    )
    db.close()
    return path


def places_of(root: Path) -> Places:
    """Where things are for a home, whose person's home folder is the one around it."""
    return Places(root, root.parent / ".claude", root.parent / ".openclaw", root.parent)


def home(root: Path) -> None:
    """A whole home of the prototype."""
    database(root / "memory" / "crystal.db")
    (root / "memory" / "lance" / "chunks.lance").mkdir(parents=True)
    (root / "memory" / "lance" / "chunks.lance" / "data.bin").write_bytes(bytes(range(256)) * 100)
    (root / "state").mkdir()
    (root / "state" / "watermarks.json").write_text("{}")
    journals = root / "agents" / "cc-mini" / "memory" / "journals"
    journals.mkdir(parents=True)
    (journals / "2026-01-05.md").write_text("# A day\n\nWe raised the retry budget.\n")
    (root / "bin").mkdir()
    (root / "bin" / "crystal-capture.sh").write_text("#!/bin/sh\n")
    (root / "bin" / "crystal-capture.sh").chmod(0o755)
    (root / "config.json").write_text(
        json.dumps(
            {"version": "1.0.0", "agents": ["cc-mini"], "createdAt": "2026-01-01", "updatedAt": "2026-01-01"}
        )
    )
