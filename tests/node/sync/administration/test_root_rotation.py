"""`crystal recovery replace`: a kit or code that somebody saw is made worthless, and no device is put out for it."""

import asyncio
from pathlib import Path

import pytest

from crystal_crypto.kit import encode_kit
from crystal_crypto.pairing import encode
from crystal_node.device.keys.roots import prepare_next
from crystal_node.device.relay import open_http
from crystal_node.sync.members.duties_due import META_REVOKING
from crystal_relay.errors import Unauthorized
from crystal_relay.tokens import Preset, new_token, token_hash
from tests.node.sync.administration.test_devices import device_id
from tests.node.sync.administration.test_revocation import concerns, device_of, kit_text, lets_in, root_of
from tests.support.invited import invite
from tests.support.machine import Machine, Vault


def test_a_kit_that_was_seen_is_worthless_after_the_root_was_replaced(vault: Vault) -> None:
    vault.core.call("remember", "Before it was replaced.")
    vault.settle()
    old = root_of(vault.core)
    report = vault.core.call("recovery", "replace", "--yes", "--json").json
    assert (report["root_number"], report["relay_told"]) == (1, True)
    new = root_of(vault.core)
    assert new != old
    assert (lets_in(vault.core, old.relay_secret), lets_in(vault.core, new.relay_secret)) == (False, True)
    assert "recovery-kit" in concerns(vault.core)
    stranger = Machine(vault.folder / "stranger")
    stranger.root.mkdir()
    refused = stranger.call(
        "pair", "--code", "-", "--relay", vault.relay.url, typed=encode(old) + "\n", check=False
    )
    assert refused.code != 0
    with device_of(vault.core) as device:
        code = encode(new, device.member.vault)
    heir = Machine(vault.folder / "heir")
    heir.root.mkdir()
    heir.call("pair", "--code", "-", "--relay", vault.relay.url, typed=code + "\n")
    heir.call("sync")
    assert heir.found("before it was replaced") == ["Before it was replaced."]


@pytest.mark.parametrize("under", ["a stranger's id", "the Core's id"])
def test_a_token_that_was_let_in_by_a_kit_that_was_seen_goes_with_the_root(vault: Vault, under: str) -> None:
    """No entry of the log tells of it: with the old root's secret a token is let in at the relay alone."""
    vault.settle()
    old = root_of(vault.core)
    with device_of(vault.core) as device:
        member, settings = device.member, device.settings
        owner = bytes(range(16)) if under == "a stranger's id" else member.device_id
    token = new_token(owner)

    async def at_relay() -> bool:
        async with open_http(settings, vault=member.vault, token=token) as relay:
            try:
                await relay.list(member.keys.log_prefix)
            except Unauthorized:
                return False
            return True

    async def let_in() -> None:
        async with open_http(settings, vault=member.vault, token=token) as relay:
            await relay.register_token(
                device=owner, token_hash=token_hash(token), preset=Preset.LEAD, recovery=old.relay_secret
            )

    asyncio.run(let_in())
    assert asyncio.run(at_relay())
    assert vault.core.call("recovery", "replace", "--yes", "--json").json["relay_told"] is True
    assert not asyncio.run(at_relay())
    vault.core.call("sync")


def test_a_device_without_the_root_replaces_it_with_the_kit_and_only_with_the_kit_in_force(
    vault: Vault, tmp_path: Path
) -> None:
    node = invite(vault, "laptop")
    vault.settle()
    kit = tmp_path / "kit.txt"
    with device_of(vault.core) as device:
        assert device.root is not None
        kit.write_text("\n".join(encode_kit(device.root, device.member.vault)))
    refused = node.call("recovery", "replace", "--yes", check=False)
    assert refused.code == 7
    assert "--kit" in refused.err
    assert node.call("recovery", "replace", "--yes", "--json", "--kit", str(kit)).json["relay_told"] is True
    vault.core.call("sync")
    with device_of(vault.core) as device:
        assert not device.holds_root
    again = node.call("recovery", "replace", "--yes", "--json", "--kit", str(kit)).json
    assert again["root_number"] == 2, "it holds the root now; the kit is not needed"
    outdated = vault.core.call("recovery", "replace", "--yes", "--kit", str(kit), check=False)
    assert outdated.code == 7
    assert "newest" in outdated.err


def test_who_was_second_to_replace_the_root_keeps_nothing_of_its_own_and_can_take_and_remove_the_first_ones(
    vault: Vault,
) -> None:
    laptop, lost = vault.add(), vault.add()
    vault.settle()
    with device_of(laptop) as device:  # it has read the log, made a new root, and was killed
        prepare_next(device.keys, device.member.log)
        with device.journal.transaction() as transaction:
            transaction.meta_set(META_REVOKING, bytes.fromhex(device_id(lost)))
    vault.core.call("devices", "revoke", device_id(lost)[:8], "--yes")
    laptop.call("sync")
    secrets = laptop.home / "state" / "secrets"
    assert not (secrets / "root.next").exists()
    kit = kit_text(vault.core)
    laptop.call("recovery", "restore", "--relay", vault.relay.url, "--kit", "-", typed=kit)
    laptop.call("recovery", "verify", "--remove-root", "--yes", typed=kit)
    assert not (secrets / "root").exists()


def test_a_root_that_never_came_into_force_goes_when_the_one_in_force_is_taken(vault: Vault) -> None:
    laptop = vault.add()
    vault.settle()
    with device_of(laptop) as device:
        prepare_next(device.keys, device.member.log)
    vault.core.call("recovery", "replace", "--yes")
    laptop.call("pair", "--code", "-", typed=vault.code() + "\n")
    assert root_of(laptop) == root_of(vault.core)
    assert not (laptop.home / "state" / "secrets" / "root.next").exists()
