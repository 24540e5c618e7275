"""A byte of the device log rots at the relay, not in its last object: members have read past it, and no newcomer can."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from crystal_mirror.membership import founding
from crystal_mirror.requests import Request
from tests.node.sync.maintenance.relay_disk import change
from tests.support.constant import always
from tests.support.machine import Machine, Vault
from tests.support.recovery import fresh_machine, kit_of, lost_copy

_TEXTS = ("Eels leave the pond in autumn.", "The sluice is opened at new moon.")


@pytest.fixture
def house(vault: Vault) -> Vault:
    """A Core, a laptop and a tablet, with memories that all have."""
    vault.add()
    vault.add()
    for text in _TEXTS:
        vault.core.call("remember", text)
    vault.settle()
    return vault


def rot(vault: Vault, slot: int) -> None:
    named = str(vault.core.call("status", "--json").json["vault"])
    assert change(vault.relay, named, lambda key: key.endswith(f"/devlog/{slot:016d}"))


def faults(machine: Machine) -> list[str]:
    found = machine.call("verify", "--deep", "--json", check=False)
    return [problem["fault"] for problem in found.json["relay"]["problems"]]


def newcomer(vault: Vault, folder: Path, name: str) -> Machine:
    machine = Machine(folder / name)
    machine.root.mkdir(parents=True)
    return machine


def pair(vault: Vault, machine: Machine, *, check: bool = True) -> int:
    return machine.call(
        *("pair", "--code", "-", "--relay", vault.relay.url), typed=vault.code() + "\n", check=check
    ).code


@pytest.mark.parametrize("slot", [0, 1, 3, 4])
def test_a_newcomer_that_cannot_read_the_log_fails_and_leaves_nothing(
    house: Vault, tmp_path: Path, slot: int
) -> None:
    rot(house, slot)
    late = newcomer(house, tmp_path, "late")
    told = late.call(
        *("pair", "--code", "-", "--relay", house.relay.url), typed=house.code() + "\n", check=False
    )
    assert (told.code, "device log" in told.err, "crystal repair" in told.err) == (6, True, True)
    assert late.call("status", check=False).code == 3, "it is not set up"
    assert not list((late.home / "state").glob("secrets/identity*"))
    house.core.call("repair")
    assert pair(house, late) == 0
    late.call("sync")
    assert all(text in late.found(text) for text in _TEXTS)
    listed = house.core.call("devices", "--json").json["devices"]
    assert len([each for each in listed if not each.get("revoked")]) == 4


def test_everybody_names_it_and_a_holder_of_the_root_puts_it_back(house: Vault) -> None:
    rot(house, 3)
    for machine in house.machines:
        assert "device-log-differs" in faults(machine)
        doctor = machine.call("doctor", "--json", check=False)
        assert doctor.code == 6
        assert "device log is damaged at slot 3" in doctor.out
    done = house.nodes[0].call("repair", "--json").json["done"]
    assert any("device log" in line for line in done)
    assert [faults(machine) for machine in house.machines] == [[], [], []]


def test_a_kit_restore_fails_with_the_reason_or_brings_the_log_back_from_a_copy(
    house: Vault, tmp_path: Path
) -> None:
    kit, copy = kit_of(house.core), lost_copy(house.nodes[0], tmp_path)
    rot(house, 3)
    machine = fresh_machine(tmp_path)
    told = machine.call("recovery", "restore", "--relay", house.relay.url, typed=kit, check=False)
    assert (told.code, "device log" in told.err, "--from" in told.err) == (6, True, True)
    assert machine.call("status", check=False).code == 3
    other = fresh_machine(tmp_path, "other")
    other.call("recovery", "restore", "--from", str(copy), "--relay", house.relay.url, typed=kit)
    assert faults(house.core) == []
    machine.call("recovery", "restore", "--relay", house.relay.url, typed=kit)
    assert all(text in machine.found(text) for text in _TEXTS)


def test_a_machine_that_got_stuck_before_comes_back_by_pairing_again(
    house: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rot(house, 3)
    stuck = newcomer(house, tmp_path, "stuck")
    with monkeypatch.context() as before:  # as an older program joined
        before.setattr(founding, "check_shown", always(None))
        before.setattr(founding, "_ahead", _nobody)
        pair(house, stuck)
        stuck.call("remember", "Waders hang in the boat house.")
        stuck.call("sync", check=False)
    listed = house.core.call("devices", "--json").json["devices"]
    assert len(listed) == 3, "nobody lists it"
    house.core.call("repair")
    told = stuck.call(
        *("pair", "--code", "-", "--relay", house.relay.url, "--json"), typed=house.code() + "\n"
    ).json
    assert told["anew"] is True
    for machine in (stuck, house.core, stuck, house.nodes[0]):
        machine.call("sync")
    assert "Waders hang in the boat house." in house.nodes[0].found("boat house")
    assert all(text in stuck.found(text) for text in _TEXTS)
    pending = stuck.call("status", "--json").json
    assert pending["outbox"]["pending"] + pending["outbox"]["stored"] == 0


def _nobody(_log: object, _keys: object) -> Generator[Request, Any, None]:
    """A flow that finds nobody ahead."""
    yield from ()
