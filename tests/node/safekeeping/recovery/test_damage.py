"""A home that is brought back may have rotted, been put together from two, or been overtaken: what its Cores signed decides."""

import shutil
import sqlite3
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.machine import Machine, Outcome, Vault
from tests.support.recovery import (
    device_of,
    digest_of,
    fresh_machine,
    kit_of,
    lived_in,
    lost_copy,
)
from tests.support.relay_process import RelayProcess, running_relay

_TEXTS = ("The boiler is serviced in October.", "The spare key hangs behind the archive's door.")


@pytest.fixture(scope="module")
def another_relay(tmp_path_factory: pytest.TempPathFactory) -> Generator[RelayProcess]:
    with running_relay(tmp_path_factory.mktemp("another-relay") / "store") as running:
        yield running


def _restore(machine: Machine, home: Path, relay: RelayProcess, kit: str, *, check: bool = True) -> Outcome:
    return machine.call(
        *("recovery", "restore", "--from", str(home), "--relay", relay.url, "--enroll-token", "-", "--json"),
        typed=f"{relay.enroll_token}\n{kit}",
        check=check,
    )


def _change(home: Path, statement: str) -> None:
    connection = sqlite3.connect(home / "memory" / "crystal.db")
    try:
        assert connection.execute(statement).rowcount >= 1
        connection.commit()
    finally:
        connection.close()


@pytest.mark.parametrize(
    "rot",
    [
        "UPDATE mirror_log SET data = CAST(substr(data, 1, 300) || X'00' || substr(data, 302) AS BLOB) WHERE sequence = 0",
        "DELETE FROM mirror_log WHERE sequence = 0",
    ],
    ids=["changed", "missing"],
)
def test_a_log_that_rotted_is_refused_before_a_relay_hears_of_it(
    vault: Vault, another_relay: RelayProcess, tmp_path: Path, rot: str
) -> None:
    core, *_ = lived_in(vault, _TEXTS)
    core.call("remember", "A second batch.")
    core.call("sync")
    kit, home = kit_of(core), lost_copy(core, tmp_path)
    good = lost_copy(core, tmp_path / "good")
    _change(home, rot)
    new = fresh_machine(tmp_path)
    refused = _restore(new, home, another_relay, kit, check=False)
    assert (refused.code, "epoch 1, slot 0" in refused.error["error"]) == (8, True)
    assert not (new.home / "memory" / "crystal.db").exists()
    # Nothing of it stands in the way: neither of a good home nor of the relay alone.
    assert _restore(new, good, another_relay, kit).json["digest"] == digest_of(core)
    other = fresh_machine(tmp_path, "other")
    assert _restore(other, home, vault.relay, kit, check=False).code == 8
    other.call("recovery", "restore", "--relay", vault.relay.url, typed=kit)
    assert digest_of(other) == digest_of(core)


def test_rows_that_rotted_are_made_again_from_the_log(
    vault: Vault, another_relay: RelayProcess, tmp_path: Path
) -> None:
    core, *_ = lived_in(vault, _TEXTS)
    kit, digest, home = kit_of(core), digest_of(core), lost_copy(core, tmp_path)
    _change(home, "UPDATE memories SET created_at = created_at + 1")
    new = fresh_machine(tmp_path)
    told = _restore(new, home, another_relay, kit).json
    assert told["digest"] == digest
    assert digest_of(new) == digest
    for text in _TEXTS:
        assert text in new.found(text)


def test_a_home_put_together_from_two_vaults_is_refused(
    vault: Vault, relay: RelayProcess, another_relay: RelayProcess, tmp_path: Path
) -> None:
    lived_in(vault, _TEXTS)
    kit, home = kit_of(vault.core), lost_copy(vault.core, tmp_path)
    other = Vault(relay, tmp_path / "other-vault")
    other.core.call("remember", "Of another vault.")
    other.core.call("sync")
    shutil.rmtree(home / "memory")
    shutil.copytree(other.core.home / "memory", home / "memory")
    refused = _restore(fresh_machine(tmp_path), home, another_relay, kit, check=False)
    assert (refused.code, "two vaults" in refused.error["error"]) == (8, True)


def test_a_core_that_was_followed_since_does_not_take_the_lead_back(vault: Vault, tmp_path: Path) -> None:
    core, laptop, _ = lived_in(vault, _TEXTS)
    kit, home = kit_of(core), lost_copy(core, tmp_path)
    laptop.call("role", "--claim", "--yes")
    told = _restore(fresh_machine(tmp_path), home, vault.relay, kit).json
    assert (told["role"], told["core"]["id"]) == ("node", device_of(laptop))
