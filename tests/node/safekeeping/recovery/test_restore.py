"""All devices are gone; what is left is the recovery kit and the relay."""

import shutil
from pathlib import Path

import pytest

from crystal_crypto.hierarchy import Root
from crystal_crypto.kit import decode_kit
from crystal_mirror.devicelog.keyring import KeyRing
from crystal_mirror.membership.member import load_log
from crystal_node.base.settings import read_config
from crystal_node.device.journal import SqliteJournal
from crystal_node.device.recovery_kit import KitPage
from tests.support.machine import Machine, Vault
from tests.support.recovery import device_of, digest_of, fresh_machine, kit_of, lived_in
from tests.support.relay_process import RelayProcess, running_relay
from tests.support.terminal import Terminal

_TEXTS = (
    "The boiler is serviced in October.",
    "The spare key hangs behind the archive's door.",
    "Invoices are numbered by year.",
)


def test_a_vault_comes_back_from_the_kit_and_the_relay(vault: Vault, tmp_path: Path) -> None:
    core, *_ = lived_in(vault, _TEXTS)
    kit, digest, old = kit_of(core), digest_of(core), device_of(core)
    for machine in vault.machines:
        shutil.rmtree(machine.root)
    new = fresh_machine(tmp_path)
    told = new.call("recovery", "restore", "--relay", vault.relay.url, "--claim", "--json", typed=kit).json
    assert (told["fresh"], told["role"], told["digest"]) == (True, "core", digest)
    assert told["device"] != old
    assert len(told["others"]) == 3
    assert digest_of(new) == digest
    for text in _TEXTS:
        assert text in new.found(text)
    assert read_config(new.home / "config.json").kit_verified, "it was typed and it opened the vault"
    new.call("remember", "Life goes on.")
    new.call("sync")
    assert new.call("status", "--json").json["outbox"]["pending"] == 0
    for other in told["others"]:
        new.call("devices", "revoke", other["id"], "--yes")
    assert [entry["id"] for entry in new.call("devices", "--json").json["devices"]] == [told["device"]]


def test_without_claim_the_machine_is_a_node_and_says_how_to_take_the_lead(
    vault: Vault, tmp_path: Path
) -> None:
    kit = kit_of(vault.core)
    vault.core.call("sync")
    new = fresh_machine(tmp_path)
    said = new.run("recovery", "restore", "--relay", vault.relay.url, typed=kit).out
    assert "crystal promote --force" in said
    assert "crystal devices revoke" in said
    assert new.call("role", "--json").json["role"] == "node"
    assert new.call("role", "--claim", "--yes", "--json").json["role"] == "core"


@pytest.mark.parametrize(("answer", "role"), [("yes", "core"), ("no", "node")])
def test_a_core_that_was_never_seen_is_asked_about(
    vault: Vault, tmp_path: Path, answer: str, role: str
) -> None:
    kit = tmp_path / "kit.txt"
    kit.write_text(kit_of(vault.core))
    new = fresh_machine(tmp_path)
    terminal = Terminal(new, "recovery", "restore", "--relay", vault.relay.url, "--kit", str(kit))
    terminal.until("Make this machine the Core?")
    terminal.type(answer + "\n")
    assert terminal.end() == 0
    assert new.call("role", "--json").json["role"] == role


def test_the_code_of_the_kits_qr_does_as_well_and_running_it_again_changes_nothing(
    vault: Vault, tmp_path: Path
) -> None:
    code = vault.core.call("recovery", "show", "--yes", "--json").json["code"]
    new = fresh_machine(tmp_path)
    first = new.call("recovery", "restore", "--relay", vault.relay.url, "--json", typed=code).json
    again = new.call("recovery", "restore", "--relay", vault.relay.url, "--json", typed=code).json
    assert (first["fresh"], again["fresh"]) == (True, False)
    assert again["device"] == first["device"]
    assert len(new.call("devices", "--json").json["devices"]) == 2


def test_after_a_root_was_replaced_the_new_kit_brings_everything_back_and_the_old_one_is_told_apart(
    vault: Vault, tmp_path: Path
) -> None:
    core, laptop, tablet = lived_in(vault, _TEXTS)
    old_kit, revoked = kit_of(core), device_of(laptop)
    core.call("devices", "revoke", revoked, "--yes")
    core.call("remember", "Sealed under the second generation.")
    core.call("devices", "revoke", device_of(tablet), "--yes")
    core.call("remember", "Sealed under the third.")
    core.call("sync")
    kit, digest = kit_of(core), digest_of(core)
    outdated = fresh_machine(tmp_path, "outdated")
    refused = outdated.call(
        "recovery", "restore", "--relay", vault.relay.url, "--json", typed=old_kit, check=False
    )
    assert refused.code == 7
    assert "that kit is outdated" in refused.error["error"]
    assert outdated.call("status", "--json", check=False).code == 3
    outdated.call("recovery", "restore", "--relay", vault.relay.url, typed=kit)
    new = fresh_machine(tmp_path)
    new.call("recovery", "restore", "--relay", vault.relay.url, "--claim", typed=kit)
    assert digest_of(new) == digest
    for text in (*_TEXTS, "Sealed under the second generation.", "Sealed under the third."):
        assert text in new.found(text)
    listed = {entry["id"]: entry for entry in new.call("devices", "--all", "--json").json["devices"]}
    assert listed[revoked]["revoked"]
    laptop_again = laptop.call("sync", "--json", check=False)
    assert laptop_again.code != 0
    _opens_every_generation(new, kit, generations=3)


def _opens_every_generation(machine: Machine, kit: str, *, generations: int) -> None:
    """The root alone has all keys, from what the device log holds."""
    found = decode_kit(kit)
    journal = SqliteJournal.open(machine.home / "state" / "state.db")
    try:
        log = load_log(journal, found.vault)
    finally:
        journal.close()
    ring = KeyRing.of_root(found.root, log)
    assert log.generation == generations
    assert [ring.key(number) is not None for number in range(1, generations + 1)] == [True] * generations


def test_a_restore_killed_after_the_root_was_kept_goes_on_also_with_a_later_root(
    vault: Vault, tmp_path: Path
) -> None:
    laptop = vault.add()
    vault.core.call("devices", "revoke", device_of(laptop), "--yes")
    kit = kit_of(vault.core)
    new = fresh_machine(tmp_path)
    first = new.call("recovery", "restore", "--relay", vault.relay.url, "--json", typed=kit).json
    config = new.home / "config.json"
    config.write_text(config.read_text().replace(first["vault"], ""))  # the last step but one
    again = new.call("recovery", "restore", "--relay", vault.relay.url, "--json", typed=kit).json
    assert (again["fresh"], again["device"]) == (True, first["device"])


def test_a_kit_of_another_vault_and_a_wrong_relay_are_the_wrong_key(vault: Vault, tmp_path: Path) -> None:
    root = Root.generate()
    foreign = KitPage(root, root.vault, "", "2026-03-04", "").text()
    new = fresh_machine(tmp_path)
    refused = new.call(
        "recovery", "restore", "--relay", vault.relay.url, "--json", typed=foreign, check=False
    )
    assert refused.code == 7
    assert "does not know this kit's vault" in refused.error["error"]
    kit = kit_of(vault.core)
    with running_relay(tmp_path / "elsewhere" / "store") as elsewhere:
        refused = new.call("recovery", "restore", "--relay", elsewhere.url, "--json", typed=kit, check=False)
        assert refused.code == 7
        assert "relay's address" in refused.error["hint"]
        assert "--from" in refused.error["hint"]
    unreachable = new.call("recovery", "restore", "--relay", elsewhere.url, "--json", typed=kit, check=False)
    assert unreachable.code == 4
    new.call("recovery", "restore", "--relay", vault.relay.url, typed=kit)
    other = vault.core.call("recovery", "restore", "--json", typed=foreign, check=False)
    assert (other.code, "another vault" in other.error["error"]) == (7, True)


def test_an_emptied_relay_is_told_and_no_vault_is_made_there(
    vault: Vault, relay: RelayProcess, tmp_path: Path
) -> None:
    kit = kit_of(vault.core)
    new = fresh_machine(tmp_path)
    with running_relay(tmp_path / "emptied" / "store") as emptied:
        for _ in range(2):
            refused = new.call(
                *("recovery", "restore", "--relay", emptied.url, "--enroll-token", "-", "--json"),
                typed=f"{emptied.enroll_token}\n{kit}",
                check=False,
            )
            assert refused.code == 7
            assert "--from" in refused.error["hint"]


def test_a_core_whose_root_was_removed_moves_to_another_relay_with_the_kit(
    vault: Vault, tmp_path: Path
) -> None:
    core, laptop, _ = lived_in(vault, _TEXTS)
    kit, digest = kit_of(core), digest_of(core)
    core.call("recovery", "verify", "--remove-root", "--yes", typed=kit)
    with running_relay(tmp_path / "second" / "store") as second:
        refused = core.call(
            *("init", "--role", "core", "--relay", second.url, "--yes", "--json"),
            check=False,
            CRYSTAL_RELAY_ENROLL_TOKEN=second.enroll_token,
        )
        assert "crystal recovery restore" in refused.error["hint"]
        core.call(
            *("recovery", "restore", "--relay", second.url, "--enroll-token", "-"),
            typed=f"{second.enroll_token}\n{kit}",
        )
        core.call("sync")
        laptop.call("recovery", "restore", "--relay", second.url, typed=kit)
        new = fresh_machine(tmp_path)
        new.call("recovery", "restore", "--relay", second.url, typed=kit)
        assert {digest_of(machine) for machine in (core, laptop, new)} == {digest}


def test_a_relay_is_needed(vault: Vault, tmp_path: Path) -> None:
    refused = fresh_machine(tmp_path).call(
        "recovery", "restore", "--json", typed=kit_of(vault.core), check=False
    )
    assert refused.code == 2
    assert "--relay" in refused.error["hint"]
