"""With a real keyring: keys go there when it truly works, and when it is locked or gone the reason is said."""

import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.machine import Machine
from tests.support.relay_process import RelayProcess, running_relay
from tests.support.secret_service import SecretService, missing_programs, secret_service

pytestmark = pytest.mark.skipif(
    bool(missing_programs()),
    reason=f"no {' and no '.join(missing_programs())} here (python -m scripts.install_test_servers)",
)


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Generator[RelayProcess]:
    with running_relay(tmp_path_factory.mktemp("relay") / "store") as running:
        yield running


@pytest.fixture
def service(tmp_path: Path) -> Generator[SecretService]:
    with secret_service(tmp_path / "session") as service:
        yield service


@pytest.fixture
def machine(tmp_path: Path, service: SecretService) -> Machine:
    """A machine in that session, where nothing says which key store to take."""
    (tmp_path / "person").mkdir()
    return Machine(tmp_path / "person", {"CRYSTAL_KEY_STORE": "auto"} | service.variables)


def set_up(machine: Machine, relay: RelayProcess) -> dict[str, object]:
    return machine.run(
        *("init", "--role", "core", "--relay", relay.url, "--yes", "--json"),
        CRYSTAL_RELAY_ENROLL_TOKEN=relay.enroll_token,
    ).json


def test_a_keyring_that_works_gets_the_keys_and_gives_them_back_after_a_new_login(
    service: SecretService, machine: Machine, relay: RelayProcess
) -> None:
    service.unlock()
    made = set_up(machine, relay)
    assert made["keys"] == "keyring"
    assert list((machine.home / "state" / "secrets").iterdir()) == []
    service.unlock()
    assert machine.run("status", "--json").json["device"] == made["device"]
    machine.run("sync")
    doctor = machine.run("doctor", "--offline", "--json").json["checks"]
    assert {check["name"]: check["state"] for check in doctor}["key store"] == "ok"


def test_a_locked_keyring_is_told_within_seconds_and_nothing_is_lost(
    service: SecretService, machine: Machine, relay: RelayProcess
) -> None:
    service.unlock()
    made = set_up(machine, relay)
    assert made["keys"] == "keyring"
    service.lock()
    refused = machine.run("status", "--json", check=False)
    assert refused.code == 8
    assert "locked" in refused.error["error"] or "did not answer" in refused.error["error"]
    assert "Unlock" in refused.error["hint"]
    service.unlock()
    assert machine.run("status", "--json").json["device"] == made["device"]


def test_a_keyring_that_is_gone_is_told_and_a_new_machine_uses_files(
    service: SecretService, machine: Machine, relay: RelayProcess, tmp_path: Path
) -> None:
    service.unlock()
    set_up(machine, relay)
    service.stop()
    refused = machine.run("status", "--json", check=False)
    assert refused.code == 8
    assert "keyring cannot be reached" in refused.error["error"]
    assert refused.error["hint"]
    (tmp_path / "another").mkdir()
    another = Machine(tmp_path / "another", machine.extra)
    assert set_up(another, relay)["keys"] == "file"


def test_what_is_stored_without_the_keyring_library_is_what_the_library_stores(
    service: SecretService, tmp_path: Path
) -> None:
    """In a process of its own, which has that session's bus."""
    program = """
from keyring.backends.SecretService import Keyring
from crystal_crypto.keystore.system_keyring import SecretServiceKeyring
ours, theirs = SecretServiceKeyring(), Keyring()
assert ours.get_password("service", "a") is None
ours.set_password("service", "a", "by ours")
theirs.set_password("service", "b", "by theirs")
assert (theirs.get_password("service", "a"), ours.get_password("service", "b")) == ("by ours", "by theirs")
theirs.set_password("service", "a", "replaced")
assert ours.get_password("service", "a") == "replaced"
ours.set_password("service", "a", "again")
assert theirs.get_password("service", "a") == "again"
theirs.delete_password("service", "a")
ours.delete_password("service", "b")
ours.delete_password("service", "b")
assert ours.get_password("service", "a") is None
assert theirs.get_password("service", "b") is None
"""
    service.unlock()
    subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **service.variables, "HOME": str(tmp_path)},
        timeout=60,
        check=True,
    )


def test_keys_move_into_a_real_keyring_and_out_again(
    service: SecretService, machine: Machine, relay: RelayProcess
) -> None:
    service.unlock()
    machine.extra["CRYSTAL_KEY_STORE"] = "file"
    made = set_up(machine, relay)
    assert made["keys"] == "file"
    machine.run("keys", "move", "--to", "keyring")
    report = machine.run("keys", "--json").json
    assert report["where"] == "the system's keyring (keyring.backends.SecretService.Keyring)"
    assert machine.run("status", "--json").json["device"] == made["device"]
    machine.run("keys", "move", "--to", "file")
    service.stop()
    assert machine.run("status", "--json").json["device"] == made["device"]
