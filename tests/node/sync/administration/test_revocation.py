"""Revoking a device: what it loses, what it keeps, and what happens to the root that it was given."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from crystal_crypto.hierarchy import Root
from crystal_crypto.kit import encode_kit
from crystal_crypto.pairing import encode
from crystal_mirror.ports import OutboxState
from crystal_node.device.device import Device, opened
from crystal_node.device.relay import open_http
from crystal_relay.errors import Unauthorized
from crystal_relay.tokens import Preset, new_token, token_hash
from tests.node.sync.administration.test_devices import device_id, listed
from tests.support.invited import invite, settings_of
from tests.support.machine import Machine, Vault


@contextmanager
def device_of(machine: Machine) -> Generator[Device]:
    with opened(settings_of(machine)) as device:
        yield device


def root_of(machine: Machine) -> Root:
    with device_of(machine) as device:
        assert device.root is not None
        return device.root


def kit_text(machine: Machine) -> str:
    """What a recovery kit of the machine's root says."""
    with device_of(machine) as device:
        assert device.root is not None
        return "\n".join(encode_kit(device.root, device.member.vault))


def concerns(machine: Machine) -> set[str]:
    return {each["name"] for each in machine.call("status", "--json").json["concerns"]}


def lets_in(machine: Machine, secret: bytes) -> bool:
    """Whether the relay takes this recovery secret."""

    async def ask() -> bool:
        with device_of(machine) as device:
            async with device.at_relay() as relay:
                stray = bytes(16)
                try:
                    await relay.revoke_token(device=stray, recovery=secret)
                except Unauthorized:
                    return False
                return True

    return asyncio.run(ask())


def test_an_ex_device_reads_nothing_new_writes_nothing_and_keeps_what_it_had(vault: Vault) -> None:
    phone = invite(vault, "phone")
    phone.call("remember", "Stored before it was revoked.")
    phone.call("sync")
    phone.call("remember", "Never sent.")
    report = vault.core.call("devices", "revoke", "phone", "--yes", "--json").json
    assert (report["fresh"], report["generation"], report["entries_that_count"]) == (True, 2, 1)
    assert (report["root_replaced"], report["relay_told"]) == (False, True)
    vault.core.call("remember", "Said afterwards.")
    vault.core.call("sync")
    refused = phone.call("sync", "--json", check=False)
    assert refused.code == 5
    assert "revoked" in refused.error["hint"]
    assert "pair" in refused.error["hint"]
    words = "stored before never sent said afterwards"
    assert set(phone.found(words)) == {"Stored before it was revoked.", "Never sent."}
    assert set(vault.core.found(words)) == {"Stored before it was revoked.", "Said afterwards."}
    assert concerns(phone) == {"refused"}
    outcome = phone.call("search", "stored")
    assert outcome.code == 0
    assert "was revoked" in outcome.err
    assert phone.call("search", "stored", "--json").err == ""


def test_the_device_log_tells_an_ex_device_even_where_a_relay_lets_it_in(vault: Vault) -> None:
    """A relay that was restored, or that is in league with it, takes its token; it still reads that it is out."""
    phone = invite(vault, "phone")
    vault.settle()
    vault.core.call("devices", "revoke", "phone", "--yes")
    admit_again(vault, phone)
    refused = phone.call("sync", "--json", check=False)
    assert refused.code == 7
    assert "revoked" in refused.error["error"]
    assert concerns(phone) == {"revoked"}
    assert "This device was revoked" in phone.call("search", "anything").err
    assert phone.call("remember", "More.", "--json", check=False).code == 7
    watch = phone.run("sync", "--watch", check=False)
    assert watch.code == 7
    assert "revoked" in watch.err


def test_what_an_ex_device_writes_all_the_same_is_held_until_the_owner_decides(vault: Vault) -> None:
    phone, tablet = invite(vault, "phone"), invite(vault, "tablet")
    vault.settle()
    for machine in (phone, tablet):
        machine.call("remember", f"By {listed(machine)[machine.root.name.removeprefix('invited-')]['name']}.")
    for name in ("phone", "tablet"):
        vault.core.call("devices", "revoke", name, "--yes")
    for machine in (phone, tablet):
        admit_again(vault, machine)
        smuggle(machine)
    vault.core.call("sync")
    assert vault.core.found("by phone by tablet") == []
    status = vault.core.call("status", "--json").json
    assert "revoked-device-held" in {notice["name"] for notice in status["notices"]}
    assert vault.core.call("devices", "held", "phone", "--json").json["on_relay"] == 1
    assert vault.core.call("devices", "held", "phone", "--drop", typed="no\n", check=False).code == 2
    assert vault.core.call("devices", "held", "phone", "--drop", "--yes", "--json").json["dropped"] == 1
    assert vault.core.call("devices", "held", "tablet", "--accept", "--yes", "--json").json["accepted"] == 1
    vault.core.call("sync")
    assert vault.core.found("by phone by tablet") == ["By tablet."]
    assert vault.core.call("status", "--json").json["notices"] == []
    assert vault.core.call("devices", "held", "phone", "--json").json["on_relay"] == 0


def test_a_revoked_root_holder_takes_the_old_root_with_it(vault: Vault) -> None:
    thief, laptop = vault.add(), vault.add()
    before = root_of(vault.core)
    code = encode(before)
    report = vault.core.call("devices", "revoke", device_id(thief), "--yes", "--json").json
    assert (report["root_replaced"], report["new_kit_needed"], report["relay_told"]) == (True, True, True)
    after = root_of(vault.core)
    assert after != before
    assert (lets_in(vault.core, before.relay_secret), lets_in(vault.core, after.relay_secret)) == (
        False,
        True,
    )
    stranger = Machine(vault.folder / "stranger")
    stranger.root.mkdir()
    refused = stranger.call("pair", "--code", "-", "--relay", vault.relay.url, typed=code + "\n", check=False)
    assert refused.code != 0
    laptop.call("sync")
    assert "root-replaced" in concerns(laptop)
    assert laptop.call("status", "--json").json["holds_root"] is False
    assert laptop.call("pair", "--offline", "--yes", check=False).code == 7, (
        "a code without power is not shown"
    )
    newcomer = vault.add()
    newcomer.call("remember", "Joined with the new code.")
    newcomer.call("sync")
    vault.core.call("sync")
    assert vault.core.found("joined with the new code") == ["Joined with the new code."]
    rows = {row["id"]: row for row in vault.core.call("devices", "--json", "--all").json["devices"]}
    assert rows[device_id(thief)]["revoked"]["by"] == device_id(vault.core)
    assert rows[device_id(laptop)]["root"]["by_log"] is None
    assert rows[device_id(newcomer)]["root"]["by_log"] == "joined-with-it"
    assert "recovery-kit" in concerns(vault.core)


def test_a_core_that_was_stolen_is_revoked_by_a_device_that_takes_the_lead(vault: Vault) -> None:
    laptop, phone = vault.add(), invite(vault, "phone")
    vault.core.call("remember", "From the old Core.")
    vault.settle()
    core = device_id(vault.core)
    refused = laptop.call("devices", "revoke", core, "--yes", "--json", check=False)
    assert refused.code == 3
    assert "--claim" in refused.error["hint"]
    report = laptop.call("devices", "revoke", core, "--claim", "--yes", "--json").json
    assert (report["root_replaced"], report["relay_told"]) == (True, True)
    assert laptop.call("role", "--json").json["role"] == "core"
    assert vault.core.call("sync", check=False).code == 5
    phone.call("remember", "Under the new Core.")
    for machine in (phone, laptop, phone):
        machine.call("sync")
    assert phone.call("status", "--json").json["outbox"]["pending"] == 0
    assert set(laptop.found("from under the core")) == {"From the old Core.", "Under the new Core."}


def test_a_device_without_power_revokes_with_the_recovery_kit(vault: Vault) -> None:
    """All that is left of a stolen household is a phone and the kit."""
    phone = invite(vault, "phone")
    vault.settle()
    kit, core = kit_text(vault.core), device_id(vault.core)
    refused = phone.call("devices", "revoke", core, "--yes", "--json", check=False)
    assert (refused.code, "--claim" in refused.error["hint"]) == (3, True), "nobody is sent to the lost Core"
    refused = phone.call("devices", "revoke", core, "--claim", "--yes", "--json", check=False)
    assert refused.code == 7
    assert "recovery kit" in refused.error["hint"]
    report = phone.call("devices", "revoke", core, "--claim", "--kit", "-", "--yes", "--json", typed=kit).json
    assert (report["root_replaced"], report["relay_told"]) == (True, True)
    assert phone.call("role", "--json").json["role"] == "core"
    assert vault.core.call("sync", check=False).code == 5
    assert phone.call("status", "--json").json["holds_root"] is True


def test_a_kit_from_before_has_no_power(vault: Vault) -> None:
    thief, phone, tablet = vault.add(), invite(vault, "phone"), invite(vault, "tablet")
    kit = kit_text(vault.core)
    vault.core.call("devices", "revoke", device_id(thief), "--yes")
    path = vault.folder / "kit.txt"
    path.write_text(kit)
    refused = phone.call("devices", "revoke", "tablet", "--kit", str(path), "--yes", "--json", check=False)
    assert refused.code == 7
    assert "replaced" in refused.error["error"]
    tablet.call("sync")


def test_nothing_is_done_before_the_person_confirmed_what_it_means(vault: Vault) -> None:
    thief = vault.add()
    refused = vault.core.call("devices", "revoke", device_id(thief), typed="yes\n", check=False)
    assert refused.code == 2
    for said in ("keeps", "loses", "new kit"):
        assert said in refused.err
    assert vault.core.call("devices", "revoke", device_id(thief), "--kit", "-", check=False).code == 2
    thief.call("sync")
    confirmed = vault.core.call("devices", "revoke", device_id(thief), typed="revoke\n")
    assert "recovery show" in confirmed.out
    again = vault.core.call("devices", "revoke", device_id(thief))
    assert "was revoked before" in again.out


@pytest.mark.parametrize("option", ["--all", ""])
def test_revoked_devices_are_counted_and_listed_when_asked_for(vault: Vault, option: str) -> None:
    invite(vault, "phone")
    vault.core.call("devices", "revoke", "phone", "--yes")
    options = [option] if option else []
    document = vault.core.call("devices", "--json", *options).json
    assert (len(document["devices"]), document["revoked_not_listed"]) == ((2, 0) if option else (1, 1))
    assert ("revoked" in vault.core.call("devices", *options).out) is True


def test_the_core_cannot_revoke_itself(vault: Vault) -> None:
    assert vault.core.call("devices", "revoke", device_id(vault.core), "--yes", check=False).code == 7


def test_a_revoked_machine_that_is_paired_again_is_another_device(vault: Vault) -> None:
    phone = invite(vault, "phone")
    phone.call("remember", "Written while it was out.")
    vault.core.call("devices", "revoke", "phone", "--yes")
    before = device_id(phone)
    assert phone.call("sync", check=False).code == 5
    assert "revoked" in phone.call("search", "written").err
    pairing = ("pair", "--code", "-", "--relay", vault.relay.url)
    refused = phone.call(*pairing, "--json", typed=vault.code() + "\n", check=False)
    assert refused.code == 7
    assert "--new-keys" in refused.error["hint"]
    phone.call(*pairing, "--new-keys", typed=vault.code() + "\n")
    assert device_id(phone) != before
    assert "revoked" not in phone.call("search", "written").err, "it is let in again"
    vault.settle()
    assert vault.core.found("written while it was out") == ["Written while it was out."]
    assert concerns(phone) <= {"recovery-kit"}


def admit_again(vault: Vault, machine: Machine) -> None:
    """The relay takes a token of the machine's again, whatever the vault says."""

    async def admit() -> None:
        with device_of(machine) as device, device_of(vault.core) as core:
            token = new_token(device.identity.id)
            async with core.at_relay() as relay:
                await relay.register_token(
                    device=device.identity.id, token_hash=token_hash(token), preset=Preset.DEVICE
                )
            device.keys.keep_token(token)

    asyncio.run(admit())


def smuggle(machine: Machine) -> None:
    """Puts what waits in the outbox where it belongs, past the program's own check."""

    async def put() -> None:
        with device_of(machine) as device:
            row = device.journal.first_row(OutboxState.PENDING)
            assert row is not None
            token = device.keys.token(device.identity.id)
            assert token is not None
            keys = device.member.keys
            async with open_http(device.settings, vault=device.member.vault, token=token) as store:
                key = keys.conversation(device.identity.id, row.incarnation, row.sequence)
                await store.put_new(key, row.sealed)

    asyncio.run(put())
