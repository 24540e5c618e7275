"""`crystal recovery replace`: a kit or code that somebody saw is made worthless, and no device is put out for it."""

from pathlib import Path

from crystal_crypto.kit import encode_kit
from crystal_crypto.pairing import encode
from tests.node.test_revoking import concerns, device_of, lets_in, root_of
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
