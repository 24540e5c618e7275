"""When the Core is gone: a Node takes its place, and the old Core comes back as a Node without having lost
anything."""

from tests.support.machine import Vault


def test_a_node_takes_the_place_of_a_lost_core_and_what_that_one_held_back_is_taken_in(vault: Vault) -> None:
    laptop, tablet = vault.add(), vault.add()
    laptop.call("remember", "From before the loss.")
    vault.settle()
    vault.core.call("remember", "Never sent by the lost Core.")
    refused = laptop.call("promote", "--force", "--json", typed="no\n", check=False)
    assert refused.code == 2
    assert laptop.call("role", "--json").json["role"] == "node"
    promoted = laptop.call("promote", "--force", "--yes", "--json").json
    assert (promoted["way"], promoted["epoch"]) == ("forced", 2)
    role = laptop.call("role", "--json").json
    assert (role["role"], role["epoch"], role["core"]["id"]) == ("core", 2, role["device"])
    tablet.call("remember", "Under the new Core.")
    for machine in (tablet, laptop, tablet):
        machine.call("sync")
    assert tablet.call("status", "--json").json["outbox"]["pending"] == 0
    assert tablet.call("role", "--json").json["core"]["id"] == role["device"]
    for machine in (vault.core, laptop, vault.core, tablet, laptop):
        machine.call("sync")
    assert vault.core.call("role", "--json").json["role"] == "node"
    for machine in vault.machines:
        assert {"From before the loss.", "Never sent by the lost Core.", "Under the new Core."} <= set(
            machine.found("before never sent under the new core", "-n", "9")
        )
        status = machine.call("status", "--json").json
        assert (status["epoch"], status["outbox"]["pending"], status["quarantined"]) == (2, 0, 0)
    assert len(vault.digests()) == 1


def test_role_claim_is_promote_by_force_and_says_so(vault: Vault) -> None:
    laptop = vault.add()
    vault.settle()
    claimed = laptop.call("role", "--claim", "--yes")
    assert "promote --force" in claimed.err
    assert laptop.call("role", "--json").json["role"] == "core"
    again = laptop.call("role", "--claim", "--yes", "--json")
    assert again.json["role"] == "core"
    assert "promote --force" not in again.err, "with --json nothing but an error's document stands there"


def test_the_core_that_is_promoted_stays_the_core(vault: Vault) -> None:
    assert vault.core.call("promote", "--json").json["way"] == "already"
    assert vault.core.call("role", "--claim", "--json").json["epoch"] == 1
    assert vault.core.call("promote", "--force", "--json").json["way"] == "already"


def test_force_alone_means_nothing(vault: Vault) -> None:
    assert vault.core.call("role", "--force", "--json", check=False).code == 2
    assert vault.core.call("promote", "--accept-loss", "--json", check=False).code == 2
    assert vault.core.call("promote", "--force", "--wait", "3", "--json", check=False).code == 2
    assert vault.core.call("demote", "--json", check=False).code == 2
    assert vault.core.call("demote", "--freeze", "--to", "x", "--json", check=False).code == 2
