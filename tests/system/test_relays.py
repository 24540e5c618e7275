"""What may happen to a relay while its devices go on: put back to a backup, emptied. All come together again, texts and files,
and are told what happened; the log's beginning may have been let go of by then.
"""

import os
import shutil
from pathlib import Path

import pytest

from tests.support import programs
from tests.support.agreement import check_agreement, settle_until, text_ids
from tests.support.machine import Machine, Vault, transcript
from tests.support.relay_process import START_SECONDS_MAX, RelayProcess, first_slot, sweep
from tests.support.watchers import until, watchers

_FILE = "notes/heading.txt"


def _say(machine: Machine, text: str) -> str:
    transcript(machine, text, name=machine.root.name)
    machine.call("capture")
    return text


def _write(machine: Machine, text: str) -> None:
    path = machine.home / _FILE
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def _has(machine: Machine, text: str) -> bool:
    path = machine.home / _FILE
    return path.exists() and path.read_text() == text


def _lived_in(vault: Vault) -> list[str]:
    """Two Nodes, texts, a file; a snapshot stands for the log's beginning, which the relay has deleted."""
    vault.add()
    vault.add()
    said = [_say(machine, f"From the beginning, by {machine.root.name}.") for machine in vault.machines]
    _write(vault.core, "north by east")
    for machine in vault.machines:
        settle_until(vault, lambda: _has(machine, "north by east"), "the file")  # noqa: B023
    vault.core.call("snapshot")
    vault.settle()
    vault.core.call("prune", "--now", "--yes")
    sweep(vault.relay)
    vault.settle()
    assert first_slot(vault.relay) > 0, "the log's beginning is gone"
    return said


def _newcomer_has_all(vault: Vault, said: list[str], file: str, forgotten: tuple[str, ...] = ()) -> None:
    late = vault.add()
    settle_until(vault, lambda: _has(late, file), "the file on a newcomer")
    check_agreement(vault, said, forgotten=forgotten)


@pytest.mark.slow
def test_a_relay_put_back_to_a_backup_under_running_devices_gets_back_all_that_it_lost(
    vault: Vault, relay: RelayProcess, tmp_path: Path
) -> None:
    said = _lived_in(vault)
    core, laptop, _ = vault.machines
    relay.stop()
    shutil.copytree(relay.directory, tmp_path / "backup")
    relay.start()
    with watchers(*vault.machines):
        said += [_say(machine, f"After the backup, by {machine.root.name}.") for machine in vault.machines]
        laptop.call("forget", text_ids(laptop)[said[0]])
        _write(core, "south by west")
        for machine in vault.machines:
            until(lambda: said[-1] in text_ids(machine), f"the last text on {machine.root.name}")  # noqa: B023
            until(lambda: said[0] not in text_ids(machine), f"the forget on {machine.root.name}")  # noqa: B023
            until(lambda: _has(machine, "south by west"), f"the file on {machine.root.name}")  # noqa: B023
        relay.kill()
        shutil.rmtree(relay.directory)
        shutil.copytree(tmp_path / "backup", relay.directory)
        relay.start()
        said += [
            _say(machine, f"After it was put back, by {machine.root.name}.") for machine in vault.machines
        ]
        for machine in vault.machines:
            until(lambda: set(said[1:]) <= text_ids(machine).keys(), f"all on {machine.root.name}")  # noqa: B023
    vault.settle()
    assert any(_named(machine) for machine in vault.machines), "and people are told"
    _newcomer_has_all(vault, said[1:], "south by west", (said[0],))


@pytest.mark.slow
def test_a_relay_emptied_after_the_logs_beginning_was_let_go_of_gets_the_whole_vault_back(
    vault: Vault, relay: RelayProcess
) -> None:
    said = _lived_in(vault)
    laptop = vault.nodes[0]
    said.append(_say(laptop, "Recorded, and not sent yet."))
    relay.kill()
    shutil.rmtree(relay.directory)
    relay.start()
    assert laptop.call("sync", check=False).code == 5
    vault.core.call(
        "init", "--role", "core", "--relay", relay.url, "--yes", CRYSTAL_RELAY_ENROLL_TOKEN=relay.enroll_token
    )
    for node in vault.nodes:
        node.call("pair", "--code", "-", typed=vault.code())
    vault.settle()
    check_agreement(vault, said)
    assert any(_named(machine) for machine in vault.machines), "and people are told"
    _newcomer_has_all(vault, said, "north by east")


def _named(machine: Machine) -> set[str]:
    """What status says that the relay has lost."""
    status = machine.call("status", "--json").json
    seen = {notice["name"] for notice in status["notices"]} | set(status["noticed"])
    return {name for name in seen if "lost" in name or "rolled" in name}


@pytest.mark.slow
def test_a_relay_restored_from_its_backup_loses_nothing_and_shuts_out_again_who_was_removed(
    vault: Vault, relay: RelayProcess, tmp_path: Path
) -> None:
    """By the operator's commands: the copy is made beside a running relay, and is older than a revocation."""
    tablet, laptop = vault.add(), vault.add()
    core = vault.core
    said = [_say(machine, f"Before the backup, by {machine.root.name}.") for machine in vault.machines]
    vault.settle()
    _operate(relay, "backup", str(tmp_path / "backup"))
    said += [_say(machine, f"After the backup, by {machine.root.name}.") for machine in (core, laptop)]
    _write(core, "west by north")
    vault.settle()
    removed = tablet.root.name
    core.call("devices", "revoke", removed, "--yes")
    _settled(core, laptop)
    assert tablet.call("sync", check=False).code != 0

    relay.kill()
    shutil.rmtree(relay.directory)
    told = _operate(relay, "restore", str(tmp_path / "backup"))
    assert "devices that were removed are let in again: remove them once more" in told
    relay.start()
    said.append(_say(laptop, "After it was restored."))
    _settled(core, laptop)
    assert set(said) <= text_ids(core).keys()
    assert set(said) <= text_ids(laptop).keys()
    core.call("devices", "revoke", removed, "--yes")
    assert tablet.call("sync", check=False).code != 0
    late = vault.add()
    _settled(core, laptop, late)
    assert _has(late, "west by north")
    assert set(said) <= text_ids(late).keys()


def _settled(core: Machine, *nodes: Machine) -> None:
    for machine in (*nodes, core, *nodes, core, *nodes):
        machine.call("sync")


def _operate(relay: RelayProcess, *words: str) -> str:
    """What an operator's command says."""
    address = relay.directory.absolute().as_uri()
    done = programs.run(
        "crystal_relay", (*words, "--store", address), env=os.environ, timeout=START_SECONDS_MAX
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr
