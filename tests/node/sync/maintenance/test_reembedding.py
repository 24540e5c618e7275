"""``crystal embed migrate``: after another version's model, everything gets vectors again; the others follow."""

import apsw

from tests.support.machine import Machine, Vault

OTHER = b"another-model/1"


def _pretend_another_model(machine: Machine) -> None:
    """As if all vectors had been made by another version."""
    connection = apsw.Connection(str(machine.home / "memory" / "crystal.db"))
    try:
        connection.execute("UPDATE meta SET value = ? WHERE name = 'model'", (OTHER,))
    finally:
        connection.close()


def test_vectors_of_another_model_are_made_anew_and_the_others_follow(vault: Vault) -> None:
    laptop = vault.add()
    for number in range(3):
        vault.core.call("remember", f"the anchor chain has {number + 5} shackles")
    vault.settle()
    for machine in vault.machines:
        _pretend_another_model(machine)
    vault.core.call("remember", "a new rope was bought")
    vault.settle()
    assert "vectors-of-another-model" in _concerns(vault.core)
    assert vault.core.call("embed", "migrate", typed="no\n", check=False).code == 2
    assert "new rope was bought" in laptop.found("rope")[0]
    done = vault.core.call("embed", "migrate", "--yes", "--json").json
    assert done["former"] == OTHER.decode()
    assert done["embedded"] == 4
    vault.settle()
    models = {machine.call("status", "--json").json["memory"]["model"] for machine in vault.machines}
    assert models == {done["model"]}
    assert len(vault.digests()) == 1
    assert "vectors-of-another-model" not in _concerns(vault.core)
    assert vault.core.call("embed", "migrate", "--json").json["embedded"] == 0
    assert "Nothing to do" in vault.core.call("embed", "migrate").out


def _concerns(machine: Machine) -> list[str]:
    return [each["name"] for each in machine.call("status", "--json").json["concerns"]]
