"""A machine that lost ``state/state.db`` and pairs again, as it is told to."""

import pytest

from tests.support.machine import Machine, Vault, transcript, turn


@pytest.fixture
def house(vault: Vault) -> Vault:
    vault.add()
    vault.settle()
    return vault


def lose_state(machine: Machine) -> None:
    for path in (machine.home / "state").glob("state.db*"):
        path.unlink()


def again(house: Vault, machine: Machine) -> str:
    code = house.code()
    told = machine.call("pair", "--code", "-", "--relay", house.relay.url, typed=code + "\n")
    return told.out + told.err


def test_what_waited_there_arrives_after_all(house: Vault) -> None:
    laptop = house.nodes[0]
    laptop.call("remember", "The lantern oil is in the shed.")
    transcript(laptop, "Where does the ladder stand?")
    laptop.call("capture")
    lose_state(laptop)
    assert laptop.call("sync", check=False).code != 0
    again(house, laptop)
    counted = laptop.call("status", "--json").json["outbox"]
    assert counted["pending"] >= 2
    house.settle()
    assert "The lantern oil is in the shed." in house.core.found("lantern oil")
    assert "Where does the ladder stand?" in house.core.found("ladder")
    counted = laptop.call("status", "--json").json["outbox"]
    assert counted["pending"] + counted["stored"] == 0
    assert len(house.digests()) == 1


def test_private_mode_is_as_it_was(house: Vault) -> None:
    laptop = house.nodes[0]
    laptop.call("private", "on")
    transcript(laptop, "Nobody may hear of the surprise party.")
    lose_state(laptop)
    assert "Private mode is on" in again(house, laptop)
    laptop.call("capture")
    laptop.call("private", "off")
    transcript(laptop, "The tide table hangs by the door.")
    laptop.call("capture")
    house.settle()
    assert laptop.found("surprise party") == []
    assert laptop.found("tide table") == ["The tide table hangs by the door."]


def test_without_the_record_of_what_was_private_nothing_is_recorded_until_somebody_says_so(
    house: Vault,
) -> None:
    laptop = house.nodes[0]
    laptop.call("private", "on")
    transcript(laptop, "Nobody may hear of the surprise party.")
    laptop.call("private", "off")
    lose_state(laptop)
    (laptop.home / "state" / "private").unlink()
    told = again(house, laptop)
    assert "Private mode is on" in told and "lost its record" in told
    laptop.call("capture")
    assert laptop.found("surprise party") == []
    laptop.call("private", "off")
    laptop.call("capture")
    assert laptop.found("surprise party") == []
    path = transcript(laptop)
    path.write_text(
        path.read_text() + turn("The tide table hangs by the door.", moment="2126-01-05T09:00:00.000Z")
    )
    laptop.call("capture")
    assert laptop.found("tide table") == ["The tide table hangs by the door."]


def test_a_machine_that_never_was_private_goes_on_recording(house: Vault) -> None:
    laptop = house.nodes[0]
    lose_state(laptop)
    assert "Private mode" not in again(house, laptop)
    transcript(laptop, "The ladder stands behind the barn.")
    laptop.call("capture")
    assert laptop.found("ladder") == ["The ladder stands behind the barn."]


def test_a_home_of_an_earlier_version_gets_a_record_of_what_was_private(house: Vault) -> None:
    laptop = house.nodes[0]
    laptop.call("private", "on")
    record = laptop.home / "state" / "private"
    written = record.read_bytes()
    record.unlink()
    laptop.call("sync")
    assert record.read_bytes() == written
    laptop.call("private", "off")
    written = record.read_bytes()
    record.unlink()
    laptop.call("sync")
    assert record.read_bytes() == written
    lose_state(laptop)
    assert "Private mode" not in again(house, laptop)
