"""News reaches the person once: on a terminal beside any everyday command, and whenever status or the list is asked for."""

from tests.node.sync.administration.test_devices import device_id
from tests.support.invited import invite
from tests.support.machine import Machine, Vault
from tests.support.terminal import Terminal


def pending(machine: Machine) -> list[tuple[str, str]]:
    return [(piece["event"], piece["name"]) for piece in machine.call("status", "--json").json["news"]]


def on_terminal(machine: Machine, *arguments: str) -> str:
    terminal = Terminal(machine, *arguments)
    assert terminal.end() == 0
    return terminal.shown


def test_a_person_at_a_terminal_is_told_once_that_a_device_was_added_and_revoked(vault: Vault) -> None:
    tablet = invite(vault, "tablet")
    vault.core.call("devices", "rename", device_id(vault.core), "desktop")
    vault.settle()
    assert pending(tablet) == [], "its own coming is no news to it"
    invite(vault, "phone")
    vault.core.call("devices", "revoke", "phone", "--yes")
    tablet.call("sync")
    assert "phone" not in tablet.call("search", "anything").err, "nobody looks there"
    assert pending(tablet) == [("added", "phone"), ("revoked", "phone")]
    shown = on_terminal(tablet, "search", "anything")
    assert "was added by desktop" in shown
    assert "was revoked by desktop" in shown
    assert "phone" not in on_terminal(tablet, "search", "anything")
    assert pending(tablet) == []
    assert pending(vault.core) == [], "what a device did itself is no news to it"


def test_status_and_the_list_tell_it_wherever_they_are_asked_and_json_does_not_use_it_up(
    vault: Vault,
) -> None:
    tablet, watch = invite(vault, "tablet"), invite(vault, "watch")
    vault.settle()
    invite(vault, "phone")
    for machine in (tablet, watch):
        machine.call("sync")
        assert pending(machine)[-1] == ("added", "phone")
        assert pending(machine)[-1] == ("added", "phone")
    assert "phone" in tablet.call("status").out
    assert "* " not in tablet.call("status").out
    assert watch.call("devices").out.startswith("* Device phone")
    assert not watch.call("devices").out.startswith("*")


def test_who_stole_the_code_and_joined_with_it_is_seen_on_every_device(vault: Vault) -> None:
    tablet = invite(vault, "tablet")
    vault.settle()
    thief = vault.add()
    for machine in (tablet, vault.core):
        machine.call("sync")
        told = machine.call("status").out
        assert f"({device_id(thief)[:8]}) joined with the vault's code" in told


def test_a_grant_and_another_core_are_told_in_words_and_in_json(vault: Vault) -> None:
    tablet, phone = invite(vault, "tablet"), invite(vault, "phone")
    vault.settle()
    for machine in vault.machines:
        machine.call("status")
    vault.core.call("devices", "grant", "phone")
    phone.call("sync")
    phone.call("role", "--claim", "--yes")
    tablet.call("sync")
    vault.core.call("sync")
    assert pending(tablet) == [("granted", "phone"), ("new-core", "phone")]
    assert pending(vault.core) == [("new-core", "phone")]
    assert pending(phone) == [("granted", "phone")]
    assert "This device was allowed by " in phone.call("status").out
    told = tablet.call("status").out
    core, named = device_id(vault.core)[:8], f"Device phone ({device_id(phone)[:8]})"
    assert f"{named} was allowed by " in told
    assert f"({core}) (" in told, "by whom, and when"
    assert f"{named} took the lead (" in told
    assert "): it became the vault's Core." in told


def test_a_machine_that_takes_the_lead_with_the_root_is_seen_on_every_other(vault: Vault) -> None:
    keeper = vault.add()
    vault.settle()
    for machine in vault.machines:
        machine.call("status")
    keeper.call("role", "--claim", "--yes")
    vault.core.call("sync")
    told = vault.core.call("status").out
    assert f"({device_id(keeper)[:8]}) took the lead with the vault's root (" in told
    assert pending(keeper) == []
