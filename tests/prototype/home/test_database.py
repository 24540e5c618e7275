"""What the published prototype left comes in once, as far as it may, and its home is taken over without losing a byte."""

import hashlib
import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from crystal_core.cutting.messages import joined_pieces, split_message
from tests.prototype.home import prototypes
from tests.support.machine import Machine, Vault


def tree(root: Path) -> dict[str, str]:
    """Every file with its SHA-256."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_what_the_prototype_recorded_is_found_and_comes_in_once(vault: Vault, tmp_path: Path) -> None:
    core = vault.core
    path = prototypes.database(tmp_path / "memory" / "crystal.db")
    before = tree(path.parent)
    counted = core.call("migrate-db", str(path), "--dry-run", "--json").json
    assert (counted["new"], counted["memories"], counted["files"], counted["deleted"]) == (5, 2, 1, 2)
    assert counted["collections"] == {"notes": "/home/p/notes"}
    assert core.found("retry budget") == [], "a dry run takes nothing"
    done = core.call("migrate-db", str(path), "--json").json
    assert (done["new"], done["known"], done["redacted"]) == (5, 0, 1)
    core.call("sync")
    assert core.found("retry budget")[0] == "We raised the retry budget to nine."
    hit = core.call("search", "--json", "retry budget").json["results"][0]
    assert (hit["agent"], hit["source"]) == ("cc-mini", "memory-crystal")
    assert hit["created_at"].startswith("2026-01-0")
    agents = {each["agent"] for each in core.call("search", "--json", "Lesa heard").json["results"]}
    assert not any(set("/. ;") & set(agent) for agent in agents)
    listed = core.call("memories", "list", "--status", "any", "--json").json["memories"]
    assert {(each["text"], each["category"], each["confidence"], each["status"]) for each in listed} == {
        ("The relay restarts at two.", "fact", 80, "active"),
        ("Something else.", "fact", 100, "active"),
    }
    again = core.call("migrate-db", str(path), "--json").json
    assert (again["new"], again["known"], again["memories"], again["memories_known"]) == (0, 5, 0, 2)
    assert tree(path.parent) == before, "its file is only read, and none is made beside it"


def test_what_was_forgotten_in_the_prototype_stays_forgotten(vault: Vault, tmp_path: Path) -> None:
    core = vault.core
    path = prototypes.database(tmp_path / "crystal.db")
    said = "Tea, not coffee."
    prototypes.say(path, (said, "user", "cc:9", "2026-01-07T10:00:00Z"))
    core.call("migrate-db", str(path))
    core.call("sync")
    listed = core.call("memories", "list", "--status", "any", "--json").json["memories"]
    assert {each["text"] for each in listed} == {"The relay restarts at two.", "Something else."}
    for forgotten in (said, "A secret that was taken back."):
        assert forgotten not in core.found(forgotten)
    agents = {each["agent"] for each in core.call("search", "--json", "relay restarts").json["results"]}
    assert "system" not in agents, "what was remembered is no conversation"


SESSION = "6f1f3f0e-0f39-4c1c-9d5a-0a4f5c2e8b11"
LONG = " ".join(f"Step {number} moves table {number * 7} to the new disk." for number in range(400))


def pieces_of(text: str) -> list[str]:
    """About 400 tokens each, of which the next one repeats 80."""
    return [text[start : start + 1600].strip() for start in range(0, len(text) - 320, 1280)]


def transcript(machine: Machine, *said: tuple[str, str, str]) -> None:
    """Claude Code's transcript of the session: role, text and time of each message."""
    lines: list[dict[str, object]] = []
    for number, (role, text, moment) in enumerate(said):
        content: object = text if role == "user" else [{"type": "text", "text": text}]
        lines.append(
            {
                "type": role,
                "uuid": f"00000000-0000-4000-8000-{number:012d}",
                "sessionId": SESSION,
                "timestamp": moment,
                "message": {"role": role, "content": content},
            }
        )
    folder = machine.projects / "-home-p"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{SESSION}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize("captured_first", [False, True])
def test_a_session_that_is_captured_too_comes_in_once(
    vault: Vault, tmp_path: Path, *, captured_first: bool
) -> None:
    core = vault.core
    first, second, third = (f"2026-01-08T10:00:0{number}.250Z" for number in range(3))
    path = prototypes.database(tmp_path / "crystal.db")
    prototypes.say(path, ("Shall we migrate?", "user", f"cc:{SESSION}", first))
    prototypes.say(path, *((piece, "assistant", f"cc:{SESSION}", second) for piece in pieces_of(LONG)))
    transcript(
        core,
        ("user", "Shall we migrate?", first),
        ("assistant", LONG, second),
        ("user", "Shall we migrate?", third),
        ("assistant", "That the prototype never saw.", third),
    )
    steps = [("migrate-db", str(path)), ("capture",)]
    for step in reversed(steps) if captured_first else steps:
        core.call(*step)
        core.call("sync")
    core.call("capture")
    core.call("backfill")
    core.call("sync")
    pieces = of_session(vault, tmp_path / "export", SESSION)
    assert sorted(text for text in pieces if len(text) < 100) == [
        "Shall we migrate?",
        "Shall we migrate?",
        "That the prototype never saw.",
    ], "the question was asked twice"
    long = [text for text in pieces if len(text) >= 100]
    assert joined_pieces(long) == LONG
    assert long == split_message(LONG), (
        "each piece of the long answer stands there once, cut as every long text is"
    )


def of_session(vault: Vault, folder: Path, session: str) -> list[str]:
    """The texts of a session in an export, in their order."""
    vault.core.call("export", str(folder))
    [name] = [path for path in folder.iterdir() if path.name.startswith("conversations")]
    records = [json.loads(line) for line in name.read_text().splitlines()]
    found = [record for record in records if record["session"] == session]
    return [record["text"] for record in sorted(found, key=lambda each: (each["message"], each["part"]))]


def test_what_a_killed_program_left_in_its_log_comes_in_and_nothing_is_touched(
    vault: Vault, tmp_path: Path
) -> None:
    path = prototypes.database(tmp_path / "memory" / "crystal.db")
    writer = (
        "import apsw, os, sys; db = apsw.Connection(sys.argv[1]); db.execute('PRAGMA wal_autocheckpoint = 0');"
        'db.execute("INSERT INTO chunks (text, text_hash, role, source_type, source_id, agent_id, created_at)'
        " VALUES ('Only the log has this.', 'x', 'user', 'conversation', 'cc:1', 'cc-mini', '2026-01-09')\");"
        "os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", writer, str(path)], check=True, timeout=100)
    before = tree(path.parent)
    assert set(before) == {"crystal.db", "crystal.db-wal", "crystal.db-shm"}
    vault.core.call("migrate-db", str(path))
    assert vault.core.found("Only the log has this", "--by", "message") == ["Only the log has this."]
    assert tree(path.parent) == before


def test_tables_of_the_prototype_in_our_own_database_are_named(vault: Vault) -> None:
    own = vault.core.home / "memory" / "crystal.db"
    vault.core.call("remember", "There is a memory of one's own.")
    assert _foreign(vault) == []
    with closing(apsw.Connection(str(own))) as db:
        db.execute(
            "CREATE TABLE IF NOT EXISTS capture_state (agent_id TEXT); CREATE TABLE IF NOT EXISTS entities (id INTEGER);"
            " CREATE VIRTUAL TABLE notes_fts USING fts5 (text)"
        )
    [finding] = _foreign(vault)
    assert "capture_state, entities, notes_fts" in finding
    assert "notes_fts_data" not in finding


def _foreign(vault: Vault) -> list[str]:
    checks = vault.core.call("doctor", "--json", "--offline", check=False).json["checks"]
    return [each["what"] for each in checks if each["name"] == "foreign tables"]


def test_what_was_forgotten_here_does_not_come_back_by_a_migration(vault: Vault, tmp_path: Path) -> None:
    core = vault.core
    path = prototypes.database(tmp_path / "crystal.db")
    core.call("migrate-db", str(path))
    core.call("sync")
    [identity] = {
        each["id"]
        for each in core.call("search", "--json", "retry budget").json["results"]
        if "nine" in each["text"]
    }
    core.call("forget", identity)
    core.call("sync")
    again = core.call("migrate-db", str(path), "--json").json
    assert (again["new"], again["forgotten"]) == (0, 2)
    core.call("sync")
    assert "We raised the retry budget to nine." not in core.found("retry budget")


def test_a_text_that_is_no_utf_8_keeps_no_other_out(vault: Vault, tmp_path: Path) -> None:
    path = prototypes.database(tmp_path / "crystal.db")
    with closing(apsw.Connection(str(path))) as db:
        db.execute("UPDATE chunks SET text = CAST(x'54656120ff2068657265' AS TEXT) WHERE id = 1")
    assert vault.core.call("migrate-db", str(path), "--json").json["new"] == 5
    assert vault.core.found("Tea here", "--by", "message") == ["Tea \ufffd here"]


def test_openclaws_older_memory_comes_in(vault: Vault) -> None:
    core = vault.core
    prototypes.older_database(core.root / ".openclaw" / "memory" / "context-embeddings.sqlite")
    assert core.call("migrate-embeddings", "--dry-run", "--json").json["new"] == 1
    core.call("migrate-embeddings")
    core.call("sync")
    assert core.found("lighthouses") == ["An old remark about lighthouses."]


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0" + bytes(4096)])
def test_what_is_no_database_of_the_prototypes_is_refused(
    vault: Vault, tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "some.db"
    path.write_bytes(content)
    own = vault.core.home / "memory" / "crystal.db"
    vault.core.call("remember", "There is a memory of one's own.")
    vault.core.call("sync")
    said: list[str] = []
    for given in (path, tmp_path / "nowhere.db", own):
        outcome = vault.core.call("migrate-db", str(given), "--json", check=False)
        assert outcome.code == 2
        assert "memory/crystal.db" in outcome.error["hint"]
        said.append(outcome.error["error"])
    assert said[-1] == f"{own} is Crystal's own database, not the prototype's"


def test_nothing_is_migrated_in_private_mode(vault: Vault, tmp_path: Path) -> None:
    path = prototypes.database(tmp_path / "crystal.db")
    vault.core.call("private", "on")
    assert vault.core.call("migrate-db", str(path), check=False).code == 2
    vault.core.call("private", "off")
    assert vault.core.call("migrate-db", str(path), "--json").json["new"] == 5


def test_a_home_of_the_prototypes_is_named_and_taken_over_in_place(machine: Machine) -> None:
    prototypes.home(machine.home)
    before = tree(machine.home)
    refused = machine.call("status", "--json", check=False)
    assert "crystal takeover" in refused.error["hint"]
    assert machine.call("takeover", typed="no\n", check=False).code == 2
    assert tree(machine.home) == before
    done = machine.call("takeover", "--yes", "--json").json
    copy = Path(done["copy"])
    assert tree(copy) == before
    assert copy.parent == machine.home.parent
    assert copy.stat().st_mode & 0o077 == 0
    assert set(tree(machine.home)) == {"agents/cc-mini/memory/journals/2026-01-05.md"}
    assert Path(done["database"]).is_file()
    assert machine.call("takeover", "--yes", check=False).code == 2, "there is nothing more to take over"


def test_a_home_that_was_taken_over_has_what_was_recorded_in_it(vault: Vault, machine: Machine) -> None:
    prototypes.home(machine.home)
    database = machine.call("takeover", "--yes", "--json").json["database"]
    joined(vault, machine)
    machine.call("migrate-db", database)
    machine.call("sync")
    vault.core.call("sync")
    machine.call("sync")
    assert machine.found("retry budget")[0] == "We raised the retry budget to nine."
    assert vault.core.found("retry budget")[0] == "We raised the retry budget to nine."


def joined(vault: Vault, machine: Machine) -> None:
    code = vault.core.call("pair", "--offline", "--yes", "--json").json["code"]
    machine.call("pair", "--code", "-", "--relay", vault.relay.url, typed=code)


def test_a_prototype_that_still_writes_there_is_named(machine: Machine) -> None:
    prototypes.home(machine.home)
    settings = machine.root / ".claude" / "settings.json"
    settings.parent.mkdir()
    command = "node /opt/memory-crystal/dist/cc-hook.js"
    settings.write_text(
        json.dumps({"hooks": {"Stop": [{"hooks": [{"type": "command", "command": command}]}]}})
    )
    before = tree(machine.home)
    refused = machine.call("takeover", "--yes", "--json", check=False)
    assert refused.code == 9
    assert str(settings) in refused.error["error"]
    assert tree(machine.home) == before
    machine.call("takeover", "--yes", "--even-so")


def test_a_copy_that_cannot_be_made_takes_nothing_out(machine: Machine) -> None:
    prototypes.home(machine.home)
    before = tree(machine.home)
    (machine.home / "agents" / "gone.md").symlink_to("nowhere")
    from unittest import mock

    with mock.patch(
        "crystal_prototype.home.takeover._copy", side_effect=OSError(28, "No space left on device")
    ):
        refused = machine.call("takeover", "--yes", "--json", check=False)
    assert refused.code == 8
    assert "No space left" in refused.error["error"]
    assert tree(machine.home) == before
    assert [path.name for path in machine.home.parent.iterdir()] == [machine.home.name]
