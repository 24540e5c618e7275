"""A database of OpenClaw's sessions, as its program writes it."""

import json
from pathlib import Path
from typing import Any

import apsw
import zstandard

from crystal_node.capture.openclaw import OpenClaw
from crystal_node.capture.openclaw_database import STORE_NAME

HOME = Path("/home/mara")
SCHEMA = """
CREATE TABLE session_windows (session_id TEXT NOT NULL PRIMARY KEY, session_key TEXT NOT NULL) STRICT;
CREATE TABLE transcript_events (
  session_id TEXT NOT NULL, seq INTEGER NOT NULL, event_json TEXT, created_at INTEGER NOT NULL, event_zstd BLOB,
  PRIMARY KEY (session_id, seq)) STRICT;
"""
NODES = """
CREATE TABLE session_nodes (session_key TEXT PRIMARY KEY, current_session_id TEXT, entry_json TEXT) STRICT;
"""


class Store:
    """One agent's database, as its program writes it."""

    def __init__(self, root: Path, schema: str = SCHEMA, journal: str = "wal", person: Path = HOME) -> None:
        self.adapter = OpenClaw(root, person)
        self.path = root / "agents" / "main" / "agent" / STORE_NAME
        self.path.parent.mkdir(parents=True)
        self.database = apsw.Connection(str(self.path))
        self.database.execute(f"PRAGMA journal_mode = {journal}")
        self.database.execute(schema)

    def add(self, session: str, number: int, record: dict[str, Any], *, packed: bool = False) -> None:
        data = json.dumps(record).encode()
        self.database.execute(
            "INSERT INTO transcript_events (session_id, seq, event_json, created_at, event_zstd) VALUES (?, ?, ?, ?, ?)",
            (
                session,
                number,
                None if packed else data.decode(),
                1_789_000_000_000 + number,
                zstandard.ZstdCompressor().compress(data) if packed else None,
            ),
        )

    def say(self, session: str, number: int, text: str, *, packed: bool = False) -> None:
        record = {
            "type": "message",
            "id": f"{session}-{number}",
            "message": {"role": "user", "content": text},
        }
        self.add(session, number, record, packed=packed)
