"""``crystal restore``: a memory made anew loses nothing and takes over nothing that was not checked."""

from pathlib import Path

import pytest

from crystal_core.database import Database
from tests.node.sync.maintenance.relay_disk import lose
from tests.support.machine import Machine, Vault


@pytest.fixture
def house(vault: Vault) -> Vault:
    vault.add()
    vault.add()
    for number in range(4):
        vault.core.call("remember", f"sounding number {number}")
        vault.core.call("sync")
    vault.settle()
    return vault


def _restore(machine: Machine, *more: str) -> Path:
    done = machine.call("restore", "--yes", "--json", *more).json
    return Path(done["kept"])


def test_a_memory_is_made_anew_from_the_relay_with_and_without_a_snapshot(house: Vault) -> None:
    laptop = house.nodes[0]
    laptop.call("remember", "recorded here and not sent")
    assert _restore(laptop).exists()
    assert laptop.found("recorded here sent")
    house.core.call("prune", "--now", "--yes")
    house.settle()
    _restore(laptop)
    house.settle()
    assert len(house.digests()) == 1
    assert house.core.found("recorded here sent")


def test_the_core_makes_its_memory_anew_and_leads_on(house: Vault) -> None:
    _restore(house.core)
    house.core.call("prune", "--now", "--yes")
    _restore(house.core)
    house.core.call("remember", "and on it goes")
    house.settle()
    assert len(house.digests()) == 1
    assert house.nodes[0].found("and on it goes")


def test_a_memory_that_cannot_be_read_is_set_aside_and_made_anew(house: Vault) -> None:
    laptop = house.nodes[0]
    database = laptop.home / "memory" / "crystal.db"
    database.write_bytes(b"junk" * 5000)
    (laptop.home / "memory" / "crystal.db-wal").unlink(missing_ok=True)
    refused = laptop.call("repair", check=False)
    assert refused.code == 8
    assert "`crystal restore`" in refused.err
    kept = _restore(laptop)
    assert kept.read_bytes() == b"junk" * 5000
    assert len(house.digests()) == 1


def test_another_machines_copy_is_checked_and_then_taken(house: Vault) -> None:
    laptop, tablet = house.nodes
    tablet.call("remember", "provisional on the tablet")
    laptop.call("remember", "provisional on the laptop")
    waiting = laptop.call("status", "--json").json["outbox"]
    assert waiting["pending"] == 1
    _restore(laptop, "--from", str(tablet.home))
    waiting = laptop.call("status", "--json").json["outbox"]
    assert waiting["pending"] == 1, "it offers nothing of the tablet's"
    assert laptop.found("provisional on the tablet")[0] != "provisional on the tablet"
    assert "provisional on the laptop" in laptop.found("provisional on the laptop")
    house.settle()
    assert len(house.digests()) == 1
    assert "provisional on the tablet" in laptop.found("provisional on the tablet")


def test_a_copy_that_is_damaged_or_of_another_vault_replaces_nothing(house: Vault, tmp_path: Path) -> None:
    laptop = house.nodes[0]
    before = laptop.call("verify", "--json").json["digest"]
    stranger = Vault(house.relay, tmp_path / "strangers")
    stranger.core.call("remember", "of another vault")
    stranger.core.call("sync")
    refused = laptop.call("restore", "--yes", "--from", str(stranger.core.home), check=False)
    assert refused.code == 8
    assert "another vault" in refused.err
    junk = tmp_path / "junk.db"
    junk.write_bytes(b"junk" * 1000)
    assert laptop.call("restore", "--yes", "--from", str(junk), check=False).code == 8
    assert laptop.call("restore", "--yes", "--from", str(tmp_path / "none"), check=False).code == 2
    own = laptop.home / "memory" / "crystal.db"
    assert laptop.call("restore", "--yes", "--from", str(own), check=False).code == 2
    assert laptop.call("verify", "--json").json["digest"] == before
    assert [
        path.name for path in own.parent.iterdir() if "before" in path.name or "incoming" in path.name
    ] == []


def test_nothing_is_set_aside_while_the_relay_lacks_what_is_here(house: Vault) -> None:
    laptop = house.nodes[0]
    vault = str(laptop.call("status", "--json").json["vault"])
    assert lose(house.relay, vault, lambda key: "/mirror/" in key and int(key[-16:]) == 1)
    refused = laptop.call("restore", "--yes", check=False)
    assert refused.code == 6
    assert laptop.found("sounding number")


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER keep AFTER DELETE ON chunks BEGIN INSERT INTO meta VALUES (old.id, old.text); END",
        "CREATE VIEW look AS SELECT text FROM chunks",
        "ALTER TABLE suppressed ADD COLUMN more",
        "DROP TRIGGER chunks_deleted",
    ],
)
def test_a_copy_that_brings_a_schema_of_its_own_is_not_taken(house: Vault, statement: str) -> None:
    laptop, tablet = house.nodes
    with Database.open(tablet.home / "memory" / "crystal.db") as database:
        database.run(statement)
    before = laptop.call("status", "--json").json["memory"]
    done = laptop.call("restore", "--yes", "--from", str(tablet.home), check=False)
    assert "schema" in done.err
    assert laptop.call("status", "--json").json["memory"] == before
