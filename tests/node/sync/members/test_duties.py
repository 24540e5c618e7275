"""The relay is told what the device log says by whichever device may, however the one that wrote the log ended."""

import asyncio
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from crystal_mirror.membership.administration import grant_lead, revoke
from crystal_mirror.requests import Flow
from crystal_node.base.clock import now_ms
from crystal_node.device.device import Device, opened
from crystal_node.device.runner import Runner
from crystal_relay.client.http import HttpStore
from crystal_relay.errors import Forbidden, StoreUnavailable, Unauthorized
from tests.node.sync.administration.test_devices import device_id
from tests.node.sync.administration.test_revocation import concerns
from tests.support.invited import invite, settings_of
from tests.support.machine import Machine, Vault

FlowOf = Callable[[Device], Flow[object]]


def write_log(machine: Machine, flow_of: FlowOf) -> None:
    """What a process does that dies between the log and the relay."""

    async def write(device: Device) -> None:
        async with device.online() as store:
            await Runner(store, None).run(flow_of(device))

    with opened(settings_of(machine)) as device:
        asyncio.run(write(device))


def revoking(machine: Machine) -> FlowOf:
    target = bytes.fromhex(device_id(machine))
    return lambda device: revoke(device.member, target, now_ms=now_ms())


def granting(machine: Machine) -> FlowOf:
    target = bytes.fromhex(device_id(machine))
    return lambda device: grant_lead(device.member, target, now_ms=now_ms())


def reads(machine: Machine) -> bool:
    """Whether the relay still takes the machine's token."""

    async def read(device: Device) -> bool:
        async with device.at_relay() as relay:
            await relay.list(device.member.keys.log_prefix)
        return True

    with opened(settings_of(machine)) as device:
        try:
            return asyncio.run(read(device))
        except Unauthorized:
            return False


@pytest.mark.parametrize("teller", ["the Core", "another device that holds the root"])
def test_an_ex_device_does_not_keep_its_token_because_a_process_died(vault: Vault, teller: str) -> None:
    laptop, phone = vault.add(), invite(vault, "phone")
    vault.settle()
    write_log(vault.core, revoking(phone))
    assert reads(phone), "nobody has told the relay yet"
    assert "relay-not-told" in concerns(vault.core)
    (vault.core if teller == "the Core" else laptop).call("sync")
    assert not reads(phone)
    for machine in (vault.core, laptop):
        machine.call("sync")
        assert "relay-not-told" not in concerns(machine)


def may_lead(machine: Machine) -> bool:
    """Whether the relay lets the machine write what a Core writes."""

    async def write(device: Device) -> bool:
        async with device.at_relay() as relay:
            try:
                await relay.put_new(f"v/{device.member.vault.hex()}/mirror/junk/{secrets.token_hex(8)}", b"")
            except Forbidden:
                return False
            return True

    with opened(settings_of(machine)) as device:
        return asyncio.run(write(device))


def raise_by_stolen_token(owner: Machine, target: Machine) -> None:
    """The log says nothing of it."""

    async def raised(device: Device) -> None:
        async with device.at_relay() as relay:
            await relay.raise_token(device_id(target))

    with opened(settings_of(owner)) as device:
        asyncio.run(raised(device))


@pytest.mark.parametrize("teller", ["the Core", "another device that holds the root"])
def test_a_plain_member_that_a_thief_raised_at_the_relay_leads_no_more_after_a_revocation(
    vault: Vault, teller: str
) -> None:
    laptop, granted = vault.add(), invite(vault, "studio", grant=True)
    tablet = invite(vault, "tablet")
    invite(vault, "phone")
    vault.settle()
    raise_by_stolen_token(vault.core, tablet)
    assert may_lead(tablet)
    (vault.core if teller == "the Core" else laptop).call("devices", "revoke", "phone", "--yes")
    assert [may_lead(each) for each in (vault.core, laptop, granted, tablet)] == [True, True, True, False]
    assert reads(tablet)
    tablet.call("remember", "Written as a plain member.")
    tablet.call("sync")
    vault.core.call("sync")
    assert vault.core.found("written as a plain") == ["Written as a plain member."]


def test_a_grant_that_came_while_the_relay_was_told_who_leads_is_not_lost(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    tablet, laptop = invite(vault, "tablet"), vault.add()
    phone = invite(vault, "phone")
    vault.settle()
    write_log(vault.core, revoking(phone))
    retain = HttpStore.retain_tokens

    async def overtaken(store: HttpStore, *devices: object, **rest: object) -> int:
        with monkeypatch.context() as patched:
            patched.setattr(HttpStore, "retain_tokens", retain)
            await asyncio.to_thread(laptop.call, "devices", "grant", "tablet")
        assert may_lead_now(), "it was granted and raised before the relay was told who leads"
        return await retain(store, *devices, **rest)  # type: ignore[arg-type]

    def may_lead_now() -> bool:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(may_lead, tablet).result()

    with monkeypatch.context() as patched:
        patched.setattr(HttpStore, "retain_tokens", overtaken)
        vault.core.call("sync")
    assert may_lead(tablet)
    assert not reads(phone)


def test_a_device_that_holds_the_root_unknown_to_the_log_leads_again_after_its_next_sync(
    vault: Vault,
) -> None:
    tablet = invite(vault, "tablet")
    invite(vault, "phone")
    vault.settle()
    tablet.call("pair", "--code", "-", "--relay", vault.relay.url, typed=vault.code() + "\n")
    tablet.call("sync")
    assert may_lead(tablet)
    vault.core.call("devices", "revoke", "phone", "--yes")
    tablet.call("sync")
    assert may_lead(tablet)
    tablet.call("devices", "rename", "tablet", "slate")


def test_a_device_without_the_right_tells_the_relay_nothing(vault: Vault) -> None:
    tablet, phone = invite(vault, "tablet"), invite(vault, "phone")
    vault.settle()
    write_log(vault.core, revoking(phone))
    outcome = tablet.call("sync")
    assert "could not" not in outcome.err
    assert reads(phone)
    assert "relay-not-told" not in concerns(tablet)


def test_a_grant_that_the_relay_was_not_told_of_works_after_the_next_sync(vault: Vault) -> None:
    phone = invite(vault, "phone")
    vault.settle()
    write_log(vault.core, granting(phone))
    vault.core.call("sync")
    assert phone.call("role", "--claim", "--yes", "--json").json["role"] == "core"


def test_a_granted_device_that_the_relay_does_not_know_leaves_nothing_to_tell(vault: Vault) -> None:
    """A relay that was emptied has no token to raise; pairing again makes one that may lead."""
    phone = invite(vault, "phone")
    vault.settle()
    write_log(vault.core, granting(phone))

    async def forget(device: Device) -> None:
        async with device.at_relay() as relay:
            await relay.revoke_token(device=bytes.fromhex(device_id(phone)))

    with opened(settings_of(vault.core)) as device:
        asyncio.run(forget(device))
    assert "relay-not-told" in concerns(vault.core)
    assert vault.core.call("sync", "--json").json["problem"] is None
    assert "relay-not-told" not in concerns(vault.core)


def test_a_relay_that_cannot_be_told_is_no_reason_for_a_round_to_fail(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    phone = invite(vault, "phone")
    vault.settle()
    write_log(vault.core, revoking(phone))
    vault.core.call("remember", "Sent all the same.")

    async def away(*_: object, **__: object) -> int:
        raise StoreUnavailable("the relay went away")

    with monkeypatch.context() as patched:
        patched.setattr(HttpStore, "retain_tokens", away)
        outcome = vault.core.call("sync")
        assert "went away" in outcome.err
        assert "tries again" in outcome.err
    assert reads(phone)
    assert vault.core.call("sync", "--json").json["problem"] is None
    assert not reads(phone)


def test_a_revocation_that_the_relay_could_not_be_told_of_says_so_and_ends_with_its_exit_code(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    phone = invite(vault, "phone")
    vault.settle()

    async def away(*_: object, **__: object) -> int:
        raise StoreUnavailable("the relay went away")

    with monkeypatch.context() as patched:
        patched.setattr(HttpStore, "retain_tokens", away)
        outcome = vault.core.call("devices", "revoke", "phone", "--yes", check=False)
    assert outcome.code == 4
    assert "phone" in outcome.out
    assert "still lets it in" in outcome.out
    again = vault.core.call("devices", "revoke", "phone", "--yes", "--json").json
    assert (again["fresh"], again["relay_told"]) == (False, True)
    assert not reads(phone)
