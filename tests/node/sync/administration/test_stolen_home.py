"""A stolen laptop: its home was copied, whole, and somebody else runs the program on the copy, against the same relay."""

import shutil
from pathlib import Path

from crystal_crypto.pairing import decode
from tests.node.device.test_keys import PASSPHRASE, closed, written
from tests.node.sync.administration.test_revocation import concerns
from tests.support.invited import invite
from tests.support.machine import Machine, Vault


def copied(machine: Machine, folder: Path) -> Machine:
    """What a thief makes of the disk: every file of the home, on another machine."""
    folder.mkdir()
    thief = Machine(folder)
    shutil.copytree(machine.home, thief.home)
    return thief


def test_a_stolen_laptop_whose_home_was_copied_reads_nothing_after_it_was_revoked(
    vault: Vault, tmp_path: Path
) -> None:
    laptop = invite(vault, "laptop")
    vault.core.call("remember", "Said before the theft.")
    vault.settle()
    thief = copied(laptop, tmp_path / "thief")
    thief.call("sync")
    vault.core.call("devices", "revoke", "laptop", "--yes")
    vault.core.call("remember", "Said after the theft.")
    vault.core.call("sync")
    for machine in (thief, laptop):
        assert machine.call("sync", "--json", check=False).code == 5
        assert machine.found("said before after theft") == ["Said before the theft."], "what it had, it has"
        assert concerns(machine) == {"refused"}
    thief.call("remember", "Written by the thief.")
    assert thief.call("sync", "--json", check=False).code == 5
    vault.core.call("sync")
    assert "Written by the thief." not in vault.core.found("written by the thief")


def test_a_stolen_home_that_a_passphrase_closes_gives_no_key_and_gets_nothing_from_the_relay(
    vault: Vault, tmp_path: Path
) -> None:
    root = decode(vault.code()).root.to_bytes()
    file = written(tmp_path / "passphrase", PASSPHRASE)
    token = next((vault.core.home / "state" / "secrets").glob("relay-token*")).read_bytes()
    assert shown(vault.core.home, root, token) == {root, token}, "as they are without a passphrase"
    closed(vault.core)
    thief = copied(vault.core, tmp_path / "thief")
    assert shown(thief.home, root, token) == set()
    vault.core.call("sync", CRYSTAL_PASSPHRASE_FILE=file)
    wrong = written(tmp_path / "guess", "a guess of the thief's")
    for command in (("sync",), ("pair", "--offline", "--yes"), ("recovery", "show", "--yes"), ("status",)):
        assert thief.call(*command, check=False).code == 8, "nobody can be asked"
        refused = thief.call(*command, check=False, CRYSTAL_PASSPHRASE_FILE=wrong)
        assert (refused.code, refused.out) == (7, "")


def shown(folder: Path, *secrets: bytes) -> set[bytes]:
    """Which of the secrets stand as they are in any file of the folder."""
    files = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    return {secret for secret in secrets if any(secret in data for data in files)}
