"""The newest root is lost with the one machine that had it: that machine can be put out all the same, and it is said what
that is worth."""

from crystal_node.sync.administration.root_rotation import chosen_root
from tests.node.sync.administration.test_devices import listed
from tests.node.sync.administration.test_revocation import device_of
from tests.support.invited import invite
from tests.support.machine import Vault


def test_a_machine_that_was_lost_with_the_only_root_is_put_out_and_the_rest_goes_on(vault: Vault) -> None:
    holder = vault.add()
    laptop = invite(vault, "laptop")
    vault.settle()
    # The holder replaces the root: from now on it alone has it, and there is no kit of it yet.
    holder.call("recovery", "replace", "--yes")
    for machine in (vault.core, laptop, holder):
        machine.call("sync")
    with device_of(holder) as device:
        name = device.member.device_id.hex()[:8]
    refused = vault.core.call("devices", "revoke", name, "--yes", "--json", check=False)
    assert refused.code == 7
    assert "--leave-root" in refused.error["hint"]
    report = vault.core.call("devices", "revoke", name, "--yes", "--leave-root", "--json").json
    assert (report["fresh"], report["root_replaced"], report["relay_told"]) == (True, False, True)
    assert holder.call("sync", check=False).code != 0
    vault.core.call("remember", "Said after it was put out.")
    for machine in (vault.core, laptop):
        machine.call("sync")
    assert laptop.found("said after it was put out") == ["Said after it was put out."]
    assert holder.found("said after it was put out") == []
    assert len([each for each in listed(vault.core).values() if each.get("revoked_at") is None]) >= 2
    with device_of(vault.core) as device:
        assert chosen_root(device, None) is None


def test_with_the_root_at_hand_it_is_replaced_all_the_same(vault: Vault) -> None:
    holder = vault.add()
    vault.settle()
    with device_of(holder) as device:
        name = device.member.device_id.hex()[:8]
    report = vault.core.call("devices", "revoke", name, "--yes", "--leave-root", "--json").json
    assert report["root_replaced"] is True
