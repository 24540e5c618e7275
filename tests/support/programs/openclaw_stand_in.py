"""As much of OpenClaw as imports sessions from files: what is not in its database is appended to it."""

import json
import os
import sqlite3
import sys
from pathlib import Path

SCHEMA = """
CREATE TABLE IF NOT EXISTS session_nodes
  (session_key TEXT PRIMARY KEY, current_session_id TEXT, entry_json TEXT) STRICT;
CREATE TABLE IF NOT EXISTS transcript_events
  (session_id TEXT NOT NULL, seq INTEGER NOT NULL, event_json TEXT, created_at INTEGER NOT NULL, event_zstd BLOB,
   PRIMARY KEY (session_id, seq)) STRICT;
"""
OPTION = "--session-sqlite"


def import_files(agent: Path) -> None:
    store, table = agent / "agent" / "openclaw-agent.sqlite", agent / "sessions" / "sessions.json"
    store.parent.mkdir(exist_ok=True)
    database = sqlite3.connect(store)
    database.executescript(SCHEMA)
    for key, row in json.loads(table.read_text()).items():
        session, file = row["sessionId"], Path(row["sessionFile"])
        rows = database.execute("SELECT event_json FROM transcript_events WHERE session_id = ?", (session,))
        known = [text for (text,) in rows]
        fresh = [line for line in file.read_text().splitlines() if line not in known]
        events = [(session, number, line) for number, line in enumerate(fresh, start=len(known))]
        database.executemany("INSERT INTO transcript_events VALUES (?, ?, ?, 1, NULL)", events)
        node = (key, session, json.dumps(row))
        database.execute("INSERT OR REPLACE INTO session_nodes VALUES (?, ?, ?)", node)
        file.rename(agent / "imported")
    database.commit()
    database.close()
    table.unlink()


if __name__ == "__main__":
    if sys.argv[1:] == ["doctor", "--help"]:
        sys.stdout.write(f"{OPTION} <mode>\n")
    elif sys.argv[1:] == ["doctor", OPTION, "import", f"{OPTION}-agent", "main", "--json"]:
        import_files(Path(os.environ["OPENCLAW_STATE_DIR"], "agents", "main"))
        sys.stdout.write(json.dumps({"totals": {"issues": 0}}))
    else:
        sys.exit(f"unknown: {sys.argv[1:]}")
