"""The Core's machine is gone, and the relay has lost everything: any machine that is left brings the vault back for all."""

import shutil
from pathlib import Path

import pytest

from tests.support.machine import Machine, Vault
from tests.support.relay_process import RelayProcess, running_relay


def _empty(relay: RelayProcess) -> None:
    relay.stop()
    shutil.rmtree(relay.directory)
    relay.start()


def _lead(machine: Machine, relay: RelayProcess) -> None:
    machine.call(
        "init", "--role", "core", "--relay", relay.url, "--yes", CRYSTAL_RELAY_ENROLL_TOKEN=relay.enroll_token
    )
    machine.call("promote", "--force", "--yes")
    machine.call("sync")


def _join(machine: Machine, by: Machine, relay: RelayProcess) -> None:
    code = str(by.call("pair", "--offline", "--yes", "--json").json["code"])
    machine.call("pair", "--code", "-", "--relay", relay.url, typed=code + "\n")
    machine.call("sync")


@pytest.mark.parametrize("pruned", [False, True])
def test_a_node_rebuilds_a_vault_whose_core_and_relay_are_gone(tmp_path: Path, pruned: bool) -> None:
    with running_relay(tmp_path / "relay" / "store") as relay:
        vault = Vault(relay, tmp_path / "devices")
        laptop, tablet = vault.add(), vault.add()
        for number in range(5):
            vault.core.call("remember", f"star number {number}")
            vault.core.call("sync")
        (vault.core.home / "sky.md").write_text("The sky over the harbour.")
        vault.settle()
        if pruned:
            vault.core.call("prune", "--now", "--yes")
            vault.settle()
        tablet.call("remember", "seen from the tablet, and not sent")
        shutil.rmtree(vault.core.home)
        _empty(relay)
        _lead(laptop, relay)
        assert laptop.call("role", "--json").json["role"] == "core"
        late = Machine(tmp_path / "devices" / "late")
        late.root.mkdir()
        for machine in (tablet, late):
            _join(machine, laptop, relay)
        for machine in (laptop, tablet, late):
            machine.call("sync")
        assert (
            len({machine.call("verify", "--json").json["digest"] for machine in (laptop, tablet, late)}) == 1
        )
        assert "seen from the tablet, and not sent" in late.found("seen from the tablet")
        assert len([text for text in late.found("star number") if text.startswith("star")]) == 5
        assert (late.home / "sky.md").read_text() == "The sky over the harbour."
        repaired = laptop.call("repair", "--json").json
        assert repaired["after"]["ok"] is True
