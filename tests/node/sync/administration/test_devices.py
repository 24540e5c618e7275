"""`crystal devices`: what the list says of each device, how a device is named, and what one may change of it."""

import asyncio
from typing import Any

import pytest

from crystal_mirror.devicelog.log import DeviceLog
from crystal_mirror.membership.administration import NewDevice, add_device
from crystal_mirror.membership.member import load_log
from crystal_node.base.clock import now_ms
from crystal_node.device.device import opened
from crystal_node.device.runner import Runner
from crystal_node.sync import syncer
from tests.mirror.support import new_device
from tests.support.invited import invite, settings_of
from tests.support.machine import Machine, Outcome, Vault

DAY_MS = 24 * 3600 * 1000


def device_id(machine: Machine) -> str:
    return str(machine.call("status", "--json").json["device"])


def listed(machine: Machine, *options: str) -> dict[str, dict[str, Any]]:
    """What a machine lists, by name."""
    return {row["name"]: row for row in machine.call("devices", "--json", *options).json["devices"]}


def log_of(machine: Machine) -> DeviceLog:
    with opened(settings_of(machine)) as device:
        return load_log(device.journal, device.member.vault)


def test_the_list_says_how_each_device_came_in_and_what_it_holds(vault: Vault) -> None:
    by_code, phone = vault.add(), invite(vault, "phone")
    vault.core.call("devices", "rename", device_id(vault.core), "desktop")
    vault.core.call("devices", "rename", device_id(by_code), "laptop")
    vault.settle()
    rows = listed(phone)
    assert {
        name: (row["role"], row["this"], row["added"]["way"], *row["root"].values())
        for name, row in rows.items()
    } == {
        "desktop": ("core", False, "founder", "made", True),
        "laptop": ("node", False, "code", "joined-with-it", True),
        "phone": ("node", True, "invite", None, False),
    }
    added = rows["phone"]["added"]
    assert (added["by_name"], added["with_root"]) == ("desktop", False)
    assert all(row["last_seen"] and row["added_at"] and row["system"] for row in rows.values())
    people = phone.call("devices").out
    assert {"desktop", "laptop", "founder", "root"} <= set(people.split())


def test_a_device_goes_by_the_name_that_the_vault_gives_it(vault: Vault) -> None:
    vault.core.call("devices", "rename", device_id(vault.core), "desktop")
    assert vault.core.call("status", "--json").json["name"] == "desktop"
    assert vault.core.call("status").out.startswith("desktop is a Core of")
    assert "on desktop" in vault.core.call("recovery", "show", "--yes").out


def test_a_root_that_was_replaced_is_listed_as_nobodys(vault: Vault) -> None:
    by_code = vault.add()
    vault.core.call("devices", "rename", device_id(by_code), "laptop")
    vault.settle()
    assert listed(vault.core)["laptop"]["root"] == {"by_log": "joined-with-it", "by_own_word": True}
    vault.core.call("recovery", "replace", "--yes")
    assert listed(vault.core)["laptop"]["root"] == {"by_log": None, "by_own_word": None}
    by_code.call("sync")
    assert listed(vault.core)["laptop"]["root"] == {"by_log": None, "by_own_word": False}


def test_a_narrow_list_cuts_no_date(vault: Vault) -> None:
    for name in ("phone", "tablet"):
        invite(vault, name)
        vault.core.call("devices", "revoke", name, "--yes")
    shown = vault.core.call("devices", "--all", COLUMNS="80").out
    today = str(listed(vault.core)[next(iter(listed(vault.core)))]["added_at"])[:10]
    assert shown.count(today) == 5
    assert "\u2026" not in shown
    assert "holds the root" in " ".join(shown.split())
    assert "System" not in shown
    assert "System" in vault.core.call("devices", COLUMNS="120").out


def test_the_list_says_how_far_a_device_is_behind_and_what_it_waits_for(vault: Vault) -> None:
    phone = invite(vault, "phone")
    vault.settle()
    for number in range(3):
        vault.core.call("remember", f"The ferry number {number} leaves at noon.")
        vault.core.call("sync")
    assert listed(vault.core)["phone"]["behind"] == 3
    phone.call("remember", "Written on the phone.")
    row = listed(phone)["phone"]
    assert (row["pending"], row["behind"]) == (1, 3)
    phone.call("sync")
    row = listed(vault.core)["phone"]
    assert (row["pending"], row["behind"]) == (1, 0), "it waits until the Core has taken it in"


def test_without_the_relay_the_list_is_what_is_known_and_says_so(vault: Vault) -> None:
    phone = invite(vault, "phone")
    vault.settle()
    known = listed(phone, "--offline")
    nowhere = "http://127.0.0.1:9"
    outcome = phone.call("devices", CRYSTAL_RELAY_URL=nowhere)
    assert outcome.code == 0
    assert "As far as is known here" in outcome.err
    document = phone.call("devices", "--json", CRYSTAL_RELAY_URL=nowhere).json
    assert document["relay"] != "read"
    assert [row["id"] for row in document["devices"]] == [row["id"] for row in known.values()]


def test_a_device_is_named_by_name_id_or_the_beginning_of_either(vault: Vault) -> None:
    phone = invite(vault, "phone")
    invite(vault, "phablet")
    core = vault.core
    assert core.call("devices", "rename", "PHONE", "first").code == 0
    assert core.call("devices", "rename", device_id(phone), "second").code == 0
    assert core.call("devices", "rename", device_id(phone)[:7], "phone").code == 0
    assert core.call("devices", "rename", "pho", "phones").code == 0
    several = core.call("devices", "rename", "ph", "x", "--json", check=False)
    assert several.code == 2
    assert "phones" in several.error["hint"]
    assert "phablet" in several.error["hint"]
    nobody = core.call("devices", "rename", "tablet", "x", "--json", check=False)
    assert nobody.code == 10
    assert "phones" in nobody.error["hint"]
    assert core.call("devices", "rename", "", "x", check=False).code == 10


def test_a_new_name_is_on_all_devices(vault: Vault) -> None:
    phone = invite(vault, "phone")
    vault.core.call("devices", "rename", "phone", "pocket")
    phone.call("sync")
    assert "pocket" in listed(phone, "--offline")
    again = vault.core.call("devices", "rename", "pocket", "pocket", "--json").json
    assert again["fresh"] is False
    assert vault.core.call("devices", "rename", "pocket", "\x1b \n", check=False).code == 2


def test_a_device_without_the_right_is_told_which_one_has_it(vault: Vault) -> None:
    phone = invite(vault, "phone")
    vault.core.call("devices", "rename", device_id(vault.core), "desktop")
    refusals: list[Outcome] = [
        phone.call("devices", "rename", "phone", "mine", "--json", check=False),
        phone.call("devices", "grant", "phone", "--json", check=False),
        phone.call("devices", "renew-keys", "--json", check=False),
        phone.call("devices", "revoke", "desktop", "--claim", "--yes", "--json", check=False),
    ]
    assert {refused.code for refused in refusals} == {7}
    assert all("desktop" in refused.error["hint"] for refused in refusals[:3])
    assert "recovery kit" in refusals[3].error["hint"]
    assert len(log_of(vault.core).active()) == 2


def test_a_device_with_a_grant_takes_the_lead_without_the_root(vault: Vault) -> None:
    phone = invite(vault, "phone")
    vault.settle()
    refused = phone.call("role", "--claim", "--yes", "--json", check=False)
    assert refused.code == 3
    assert vault.core.call("devices", "grant", "phone", "--json").json["fresh"] is True
    assert vault.core.call("devices", "grant", "phone", "--json").json["fresh"] is False
    assert phone.call("role", "--claim", "--yes", "--json").json["role"] == "core"
    phone.call("remember", "Under the new Core.")
    phone.call("sync")
    vault.core.call("sync")
    assert vault.core.found("under the new core") == ["Under the new Core."]


def test_new_keys_reach_every_device(vault: Vault) -> None:
    phone = invite(vault, "phone")
    document = vault.core.call("devices", "renew-keys", "--json").json
    assert document == {"generation": 2, "devices": 2}
    phone.call("remember", "Sealed with the new key.")
    vault.settle()
    assert phone.call("status", "--json").json["generation"]["number"] == 2
    assert vault.core.found("sealed with the new key") == ["Sealed with the new key."]


def test_a_core_begins_a_new_generation_by_itself_after_thirty_days(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    phone = invite(vault, "phone")
    for days, generation in ((29, 1), (31, 2), (32, 2), (62, 3)):
        later = now_ms() + days * DAY_MS
        monkeypatch.setattr(syncer, "now_ms", lambda later=later: later)
        vault.core.call("sync")
        assert vault.core.call("status", "--json").json["generation"]["number"] == generation
    phone.call("sync")
    assert phone.call("status", "--json").json["generation"]["number"] == 3


def test_a_newcomer_that_never_arrived_is_named(vault: Vault) -> None:
    stray = new_device("stray")
    newcomer = NewDevice(stray.id, stray.signing.public, stray.exchange.public)

    async def add() -> None:
        with opened(settings_of(vault.core)) as device:
            async with device.online() as store:
                flow = add_device(
                    device.member, newcomer, name="stray", system="", now_ms=now_ms() - 2 * 3600 * 1000
                )
                await Runner(store, None).run(flow)

    asyncio.run(add())
    concerns = vault.core.call("status", "--json").json["concerns"]
    assert [each["name"] for each in concerns if "stray" in each["text"]] == ["never-arrived"]
    invite(vault, "phone")
    assert not any("phone" in each["text"] for each in vault.core.call("status", "--json").json["concerns"])
