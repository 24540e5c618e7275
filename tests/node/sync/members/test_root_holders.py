"""Who has the root: the list, its JSON and the doctor say what is known, and no more."""

from typing import Any

from crystal_node.sync.members.root_holders import ByLog, RootKnowledge
from tests.node.sync.administration.test_devices import device_id, listed
from tests.support.invited import invite
from tests.support.machine import Machine, Vault


def roots(machine: Machine) -> dict[str, tuple[str | None, bool | None]]:
    return {
        name: (row["root"]["by_log"], row["root"]["by_own_word"]) for name, row in listed(machine).items()
    }


def kit_check(machine: Machine) -> str:
    checks: list[dict[str, Any]] = machine.call("doctor", "--json", check=False).json["checks"]
    return next(str(check["what"]) for check in checks if check["name"] == "recovery kit")


def test_a_device_that_the_root_had_a_hand_in_is_not_said_to_have_been_given_it(vault: Vault) -> None:
    """The keeper holds the root and does not lead: what it adds, the root signs, and others cannot know what it handed on."""
    keeper = vault.add()
    vault.core.call("devices", "rename", device_id(vault.core), "desktop")
    vault.core.call("devices", "rename", device_id(keeper), "keeper")
    tablet = invite(vault, "tablet")
    vault.settle()
    invite(vault, "guest", by=keeper)
    assert roots(vault.core)["guest"][0] == "may-have"
    assert roots(keeper)["guest"][0] is None, "it knows that it handed nothing on"
    vault.settle()
    assert roots(tablet) == {
        "desktop": ("made", True),
        "keeper": ("joined-with-it", True),
        "tablet": (None, False),
        "guest": ("may-have", False),
    }
    table = " ".join(tablet.call("devices", COLUMNS="200").out.split())
    for words in ("made the root", "joined with the root", "may have the root"):
        assert table.count(words) == 1
    assert "holds the root" in " ".join(vault.core.call("devices", COLUMNS="200").out.split())
    told = kit_check(tablet)
    assert (
        "desktop made the root; keeper joined with the root; guest may have the root, says it does not"
        in told
    )
    assert "tablet" not in told


def test_what_a_device_says_of_itself_is_called_its_word() -> None:
    assert RootKnowledge(None, True).words == "says it holds the root"
    assert RootKnowledge(ByLog.MAY_HAVE, True).words == "says it holds the root"
    assert RootKnowledge(ByLog.MAY_HAVE, None).words == "may have the root"
    assert RootKnowledge(ByLog.MAY_HAVE, False).words == "may have the root, says it does not"
    assert RootKnowledge(ByLog.MADE, False).words == "made the root, says it holds it no more"
    assert RootKnowledge(ByLog.JOINED, None).words == "joined with the root"
    assert RootKnowledge(None, False).words == RootKnowledge(None, None).words == ""
