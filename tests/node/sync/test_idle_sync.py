"""A `crystal sync` that finds nothing to do costs little, however large the memory and however many the devices are."""

from tests.support.machine import Machine, Vault, transcript


def idle(machine: Machine) -> tuple[int, int]:
    """Bytes fetched and requests of a sync, the one before which has settled everything."""
    told = machine.call("sync", "--json").json
    assert (told["collected"], told["applied"], told["restored"]) == (0, 0, 0)
    return told["bytes_down"], told["requests"]


def test_an_idle_sync_costs_the_same_in_a_large_memory_and_with_many_devices(vault: Vault) -> None:
    vault.add()
    vault.core.call("remember", "the first")
    vault.settle()
    vault.settle()
    before = {role: idle(machine) for role, machine in (("core", vault.core), ("node", vault.nodes[0]))}
    transcript(vault.core, *(f"remark {number}: " + "herring and eel " * 20 for number in range(300)))
    vault.core.call("capture")
    for _ in range(3):
        vault.add()
    vault.settle()
    vault.settle()
    after = {role: idle(machine) for role, machine in (("core", vault.core), ("node", vault.nodes[0]))}
    for role in ("core", "node"):
        assert after[role][1] <= before[role][1], f"requests of the {role}"
        assert after[role][0] < 4096, f"bytes of the {role}"
        assert after[role][1] <= 3 + (role == "core"), "the Core may list a page of the mirror as well"
