"""What the published prototype left comes in once, as far as it may, and its home is taken over without losing a byte."""

import hashlib
import json
from contextlib import closing
from pathlib import Path

import apsw
import pytest

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
    assert (counted["new"], counted["memories"], counted["files"], counted["deleted"]) == (5, 3, 1, 1)
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
        ("Tea, not coffee.", "preference", 100, "retired"),
        ("Something else.", "fact", 100, "active"),
    }
    again = core.call("migrate-db", str(path), "--json").json
    assert (again["new"], again["known"], again["memories"], again["memories_known"]) == (0, 5, 0, 3)
    assert tree(path.parent)["crystal.db"] == before["crystal.db"], "its file is only read"


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
    _joined(vault, machine)
    machine.call("migrate-db", database)
    machine.call("sync")
    vault.core.call("sync")
    machine.call("sync")
    assert machine.found("retry budget")[0] == "We raised the retry budget to nine."
    assert vault.core.found("retry budget")[0] == "We raised the retry budget to nine."


def _joined(vault: Vault, machine: Machine) -> None:
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
