"""A vault's root has it deleted at the relay: each device says so, and the Core or the root calls it off."""

import re
import time
from datetime import UTC, datetime, timedelta

from crystal_node.device.planned_deletion import keep_planned
from tests.node.sync.administration.test_revocation import concerns, device_of, kit_text
from tests.support.invited import invite
from tests.support.machine import Vault


def test_each_device_says_that_a_deletion_waits_until_it_is_called_off(vault: Vault) -> None:
    laptop = invite(vault, "laptop")
    vault.settle()
    short = vault.core.call("status", "--json").json["vault"][:8]
    kit = kit_text(vault.core)

    refused = laptop.call("vault", "delete", "--yes", check=False)  # a device without the root
    assert (refused.code, "--kit" in refused.err) == (7, True)
    unconfirmed = vault.core.call("vault", "delete", typed="delete\n", check=False)
    assert unconfirmed.code == 2
    for words in ("the memory on every device", "2 devices", short, "crystal vault keep"):
        assert words in unconfirmed.err
    assert vault.core.call("vault", "delete", "--yes", "--days", "91", check=False).code == 2
    assert "Nothing to call off" in vault.core.call("vault", "keep").out

    asked = vault.core.call("vault", "delete", typed=f"{short}\n")
    found = re.search(r"deletes the vault on (.*) UTC", asked.out)
    assert found is not None
    left = datetime.strptime(found[1] + "+0000", "%Y-%m-%d %H:%M%z") - datetime.now(UTC)
    assert timedelta(days=6, hours=12) < left <= timedelta(days=7)
    assert vault.core.call("vault", "delete", "--yes", "--json").json["fresh"] is False
    assert "vault-deletion" in concerns(vault.core)
    assert "vault-deletion" not in concerns(laptop)
    assert "crystal vault keep" in laptop.call("sync").out
    assert "vault-deletion" in concerns(laptop)
    assert "! The relay deletes this vault on " in laptop.call("status").out

    refused = laptop.call("vault", "keep", check=False)
    assert (refused.code, "on the Core" in refused.err) == (7, True)
    laptop.call("vault", "keep", "--kit", "-", typed=kit)
    assert "vault-deletion" not in concerns(laptop)
    assert vault.core.call("sync", "--json").json["deletion_due"] is None

    again = laptop.call("vault", "delete", "--yes", "--kit", "-", "--json", typed=kit).json
    assert (again["number"], again["fresh"]) == (2, True)
    assert vault.core.call("vault", "keep", "--json").json == {"called_off": True}
    assert "vault-deletion" not in concerns(vault.core)


def test_a_replaced_root_deletes_nothing_and_the_new_one_does(vault: Vault) -> None:
    vault.settle()
    kit = kit_text(vault.core)
    vault.core.call("recovery", "replace", "--yes")
    laptop = invite(vault, "laptop")
    refused = laptop.call("vault", "delete", "--yes", "--kit", "-", typed=kit, check=False)
    assert "was replaced" in refused.err
    assert vault.core.call("vault", "delete", "--yes", "--json").json["number"] == 1


def test_a_deletion_whose_time_is_over_is_not_announced(vault: Vault) -> None:
    """A device that has not reached its relay since does not know whether the vault was deleted."""
    vault.settle()
    vault.core.call("vault", "delete", "--yes")
    with device_of(vault.core) as device:
        keep_planned(device.journal, 1, int(time.time()) - 60)
    shown = vault.core.call("status").out
    assert "was to be deleted" not in shown
    assert "The relay was to delete this vault on " in shown
    assert "deletes this vault" not in shown
