"""``crystal verify --deep`` and ``crystal repair``: what is damaged or lost is named, and mended from whoever has it."""

from random import Random

import apsw
import pytest

from tests.node.sync.maintenance.relay_disk import change, lose, lose_files
from tests.support.machine import Machine, Vault


@pytest.fixture
def house(vault: Vault) -> Vault:
    """A Core and a laptop, with memories, a file, and a snapshot."""
    laptop = vault.add()
    for number in range(4):
        vault.core.call("remember", f"sounding number {number}")
        vault.core.call("sync")
    (laptop.home / "chart.bin").write_bytes(bytes(range(256)) * 5000)
    vault.settle()
    vault.core.call("snapshot")
    vault.core.call("remember", "after the snapshot")
    vault.settle()
    return vault


def _faults(machine: Machine) -> list[str]:
    found = machine.call("verify", "--deep", "--json", check=False)
    return [problem["fault"] for problem in found.json["relay"]["problems"]]


def _vault(vault: Vault) -> str:
    return str(vault.core.call("status", "--json").json["vault"])


def test_a_vault_that_is_well_is_said_to_be_and_nothing_is_mended(house: Vault) -> None:
    laptop = house.nodes[0]
    for machine in house.machines:
        found = machine.call("verify", "--deep", "--json").json
        assert found["ok"] is True
        assert found["relay"]["snapshot_parts"] >= 1
        assert found["relay"]["file_parts"] >= 1
        assert found["relay"]["slots"] > 4
    assert laptop.call("repair", "--json").json["done"] == []
    assert "has everything" in laptop.call("verify", "--deep").out


def test_lost_slots_of_the_log_are_named_and_put_back_by_the_core(house: Vault) -> None:
    gone = lose(house.relay, _vault(house), lambda key: "/mirror/" in key and int(key[-16:]) in (1, 2))
    assert len(gone) == 2
    assert _faults(house.nodes[0]) == ["relay-log-lacks"]
    assert house.core.call("verify", "--deep", check=False).code == 6
    done = house.core.call("repair", "--json").json["done"]
    assert any("back on the relay" in line for line in done)
    assert _faults(house.nodes[0]) == _faults(house.core) == []


def test_a_snapshot_that_is_not_whole_is_replaced(house: Vault) -> None:
    parts = lose(house.relay, _vault(house), lambda key: "/blob/" in key)
    assert parts
    assert "snapshot" in _faults(house.core)
    assert "`crystal repair` there" in house.nodes[0].call("repair", check=False).out
    house.core.call("repair")
    house.settle()
    assert _faults(house.core) == _faults(house.nodes[0]) == []
    late = house.add()
    late.call("sync")
    assert (late.home / "chart.bin").read_bytes() == bytes(range(256)) * 5000
    assert len(house.digests()) == 1


def test_parts_of_files_that_the_relay_changed_come_back_under_another_name(house: Vault) -> None:
    laptop = house.nodes[0]
    assert change(house.relay, _vault(house), lambda key: "/blob/" in key)
    assert {"snapshot", "file-part-differs"} == set(_faults(house.core))
    house.core.call("repair", check=False)
    laptop.call("repair", check=False)
    house.settle()
    house.core.call("repair", check=False)
    house.settle()
    late = house.add()
    late.call("sync")
    assert (late.home / "chart.bin").read_bytes() == bytes(range(256)) * 5000
    assert _faults(house.core) == []


def test_parts_of_files_that_the_relays_disk_lost_come_back_under_another_name(house: Vault) -> None:
    laptop = house.nodes[0]
    photo = Random(7).randbytes(1_000_000)
    (laptop.home / "photo.bin").write_bytes(photo)
    house.settle()
    assert lose_files(house.relay, _vault(house), lambda key: "/blob/" in key)
    assert "file-part-lacks" in _faults(house.core)
    laptop.call("repair", check=False)
    house.settle()
    house.core.call("repair", check=False)
    house.settle()
    assert _faults(house.core) == []
    late = house.add()
    late.call("sync")
    assert (late.home / "photo.bin").read_bytes() == photo


def test_rows_that_were_changed_are_made_anew(house: Vault) -> None:
    for machine in house.machines:
        _run(machine, "DELETE FROM memories WHERE chunk = (SELECT min(chunk) FROM memories)")
        assert machine.call("verify", "--deep", check=False).code == 8
        done = machine.call("repair", "--json").json
        assert any("rebuilt" in line for line in done["done"])
        assert done["after"]["ok"] is True
    house.settle()
    assert len(house.digests()) == 1
    assert len(house.core.found("sounding number")) >= 4


def test_a_full_text_index_that_is_wrong_is_written_anew(house: Vault) -> None:
    laptop = house.nodes[0]
    _run(laptop, "DELETE FROM chunks_fts_data WHERE id > 10")
    assert laptop.call("verify", "--deep", check=False).code == 8
    assert laptop.call("repair", "--json").json["after"]["ok"] is True
    assert len(laptop.found("sounding number")) >= 4


def test_a_damaged_copy_of_the_log_is_read_again(house: Vault) -> None:
    for machine in (house.nodes[0], house.core):
        _run(machine, "UPDATE mirror_log SET data = zeroblob(length(data)) WHERE sequence = 2")
        assert "own-log-damaged" in _faults(machine)
        machine.call("repair", check=False)
        machine.call("sync")
        assert "own-log-damaged" not in _faults(machine)
    house.settle()
    assert len(house.digests()) == 1
    house.core.call("remember", "and on it goes")
    house.settle()
    assert len(house.digests()) == 1


def _run(machine: Machine, statement: str) -> None:
    connection = apsw.Connection(str(machine.home / "memory" / "crystal.db"))
    try:
        connection.pragma("foreign_keys", 0)
        connection.execute(statement)
    finally:
        connection.close()
