"""A machine's name is unique in its vault, is said where it is not the one that was wanted, and changes everywhere at once."""

from tests.support.machine import Machine, Vault
from tests.support.pairing import members, pair


def _name(machine: Machine) -> str:
    return str(machine.call("status", "--json").json["name"])


def test_a_taken_name_gets_a_number_which_both_sides_say(vault: Vault, machine: Machine) -> None:
    taken = _name(vault.core)
    machine.extra["CRYSTAL_DEVICE_NAME"] = taken.upper()
    inviter, newcomer = pair(vault.core, machine)
    arrived = next(event for event in inviter.events if event["event"] == "newcomer")
    assert (arrived["name"], arrived["called"]) == (taken.upper(), f"{taken.upper()}-2")
    assert newcomer.events[-1]["name"] == _name(machine) == f"{taken.upper()}-2"
    assert [entry["name"] for entry in members(machine)] == [taken, f"{taken.upper()}-2"]
    again, _ = pair(vault.core, machine)
    assert again.events[-1]["called"] == f"{taken.upper()}-2", "a machine that is paired again keeps its name"


def test_by_the_code_of_the_vault_it_is_the_same_and_a_person_is_told(vault: Vault, machine: Machine) -> None:
    taken = _name(vault.core)
    outcome = machine.call(
        *("up", "--code", "-", "--relay", vault.relay.url, "--name", taken, "--capture", "none"),
        *("--no-service", "--yes"),
        typed=f"{vault.code()}\n",
    )
    assert f"this machine ({taken}-2) is a Node of it" in outcome.out
    assert f"{taken}-2 is a Node of vault" in outcome.out
    assert f"The vault calls this machine {taken}-2: another device is called {taken}." in outcome.err


def test_a_new_name_is_everywhere_after_one_round(vault: Vault) -> None:
    laptop = vault.add()
    laptop.call("remember", "The tide turns at noon.")
    laptop.call("sync")
    vault.core.call("sync")
    old = _name(laptop)
    renamed = vault.core.call("devices", "rename", old, _name(vault.core), "--json", check=False)
    assert (renamed.code, "another device is called" in renamed.error["error"]) == (2, True)
    vault.core.call("devices", "rename", old, "bench")
    hit = vault.core.call("search", "tide", "--json").json["results"][0]
    assert hit["device_name"] == "bench", "at once, on the machine that renamed it"
    laptop.call("sync")
    assert _name(laptop) == "bench"
    assert laptop.call("search", "tide", "--json").json["results"][0]["device_name"] == "bench"
    assert [entry["name"] for entry in members(laptop)] == [_name(vault.core), "bench"]
    assert "bench is a Node of vault" in laptop.call("up", "--no-service", "--no-hooks", "--no-mcp").out
