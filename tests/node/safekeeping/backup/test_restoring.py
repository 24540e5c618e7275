"""A backup that is brought back: an older copy of its device, which loses nothing and sends nothing twice, or a new device."""

import shutil
from pathlib import Path

import pytest

from crystal_node.device.device import opened
from crystal_node.sync.files.rounds import open_file_database
from tests.support.backups import backed_up
from tests.support.invited import settings_of
from tests.support.machine import Machine, Vault
from tests.support.recovery import device_of, digest_of, fresh_machine, home_bytes, kit_of
from tests.support.relay_process import running_relay

_BEFORE = "Recorded before the backup, and sent."
_UNSENT = "Recorded before the backup, and not sent then."
_AFTER = "Recorded after the backup, and sent."
_LOST = "Recorded after the backup, and never sent."
_ANEW = "Recorded after the restore."


def _restored(machine: Machine, folder: Path, *more: str, typed: str = "") -> dict[str, object]:
    return machine.call("backup", "restore", str(folder), "--json", "--yes", *more, typed=typed).json


def _everywhere(vault: Vault, *machines: Machine) -> set[str]:
    for _ in range(3):
        for machine in machines:
            machine.call("sync")
    return {digest_of(machine) for machine in machines}


def _count(machine: Machine, text: str) -> int:
    return machine.found(text, "-n", "50").count(text)


@pytest.mark.parametrize("whose", ["core", "node"])
def test_a_restored_backup_syncs_and_loses_or_doubles_nothing(
    vault: Vault, tmp_path: Path, whose: str
) -> None:
    other = vault.add()
    lost = vault.core if whose == "core" else other
    stays = other if whose == "core" else vault.core
    lost.call("remember", _BEFORE)
    vault.settle()
    lost.call("remember", _UNSENT)
    folder = backed_up(lost, tmp_path / "destination", "--with-keys")
    before = home_bytes(folder)
    lost.call("sync")
    lost.call("remember", _AFTER)
    vault.settle()
    lost.call("remember", _LOST)
    shutil.rmtree(lost.home)
    new = fresh_machine(tmp_path)
    told = _restored(new, folder)
    assert (told["new_device"], told["unsent"]) == (False, 1)
    assert home_bytes(folder) == before, "a backup is only read"
    new.call("remember", _ANEW)
    assert len(_everywhere(vault, new, stays)) == 1
    for machine in (new, stays):
        for text in (_BEFORE, _UNSENT, _AFTER, _ANEW):
            assert _count(machine, text) == 1, text
        assert _count(machine, _LOST) == 0, "it was in no backup and nowhere else"
        status = machine.call("status", "--json").json
        assert (status["outbox"]["pending"], status["quarantined"]) == (0, 0)
    role = new.call("role", "--json").json
    assert (role["role"], role["device"]) == (whose, told["device"])


def test_a_restored_backup_beside_the_living_device_hurts_neither(vault: Vault, tmp_path: Path) -> None:
    """Nobody should do that; who does it all the same loses nothing."""
    laptop = vault.add()
    laptop.call("remember", _BEFORE)
    vault.settle()
    folder = backed_up(laptop, tmp_path / "destination", "--with-keys")
    clone = fresh_machine(tmp_path)
    _restored(clone, folder)
    for number in range(3):
        laptop.call("remember", f"The living one says {number}.")
        clone.call("remember", f"The restored one says {number}.")
        if number:
            laptop.call("sync")
            clone.call("sync")
    assert len(_everywhere(vault, laptop, clone, vault.core)) == 1
    for machine in (laptop, clone, vault.core):
        for number in range(3):
            assert _count(machine, f"The living one says {number}.") == 1
            assert _count(machine, f"The restored one says {number}.") == 1


def test_without_keys_it_takes_those_that_are_here_and_else_asks_for_the_kit(
    vault: Vault, tmp_path: Path
) -> None:
    core = vault.core
    core.call("remember", _BEFORE)
    core.call("sync")
    folder = backed_up(core, tmp_path / "destination")
    new = fresh_machine(tmp_path)
    refused = new.call("backup", "restore", str(folder), "--json", check=False)
    assert (refused.code, "--kit" in refused.error["hint"]) == (3, True)
    assert not new.home.exists()
    (new.home / "state").mkdir(parents=True, mode=0o700)
    new.home.chmod(0o700)
    shutil.copytree(core.home / "state" / "secrets", new.home / "state" / "secrets")
    shutil.rmtree(core.home)
    _restored(new, folder)
    new.call("sync")
    assert _count(new, _BEFORE) == 1


def test_a_home_that_holds_something_is_not_overwritten(vault: Vault, tmp_path: Path) -> None:
    folder = backed_up(vault.core, tmp_path / "destination", "--with-keys")
    laptop = vault.add()
    noted = fresh_machine(tmp_path)
    (noted.home / "notes").mkdir(parents=True)
    (noted.home / "notes" / "mine.md").write_text("mine")
    for machine in (vault.core, laptop, noted):
        before = home_bytes(machine.home)
        refused = machine.call("backup", "restore", str(folder), "--yes", "--json", check=False)
        assert refused.code == 2, refused.err
        assert home_bytes(machine.home) == before


def test_a_damaged_backup_is_not_brought_back(vault: Vault, tmp_path: Path) -> None:
    folder = backed_up(vault.core, tmp_path / "destination", "--with-keys")
    path = folder / "home" / "state" / "state.db"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    new = fresh_machine(tmp_path)
    refused = new.call("backup", "restore", str(folder), "--yes", "--json", check=False)
    assert (refused.code, "home/state/state.db" in refused.error["error"]) == (8, True)
    assert not new.home.exists()


def test_files_come_back_and_none_is_taken_for_deleted(vault: Vault, tmp_path: Path) -> None:
    core, laptop = vault.core, vault.add()
    (core.home / "notes").mkdir()
    for name in ("kept", "changed", "unread", "deleted"):
        (core.home / "notes" / f"{name}.md").write_text(f"{name}, first\n")
    vault.settle()
    (core.home / "notes" / "unread.md").rename(tmp_path / "unread.md")
    folder = backed_up(core, tmp_path / "destination", "--with-keys")
    (tmp_path / "unread.md").rename(core.home / "notes" / "unread.md")
    (core.home / "notes" / "changed.md").write_text("changed, second\n")
    (core.home / "notes" / "deleted.md").unlink()
    (core.home / "notes" / "new.md").write_text("new\n")
    vault.settle()
    before = {path.name: path.read_text() for path in (laptop.home / "notes").iterdir()}
    assert sorted(before) == ["changed.md", "kept.md", "new.md", "unread.md"]
    shutil.rmtree(core.home)
    new = fresh_machine(tmp_path)
    _restored(new, folder)
    assert (new.home / "notes" / "changed.md").read_text() == "changed, first\n"
    _everywhere(vault, new, laptop)
    for machine in (new, laptop):
        assert {path.name: path.read_text() for path in (machine.home / "notes").iterdir()} == before
    assert not new.call("files", "status", "--json").json["halted"]


@pytest.mark.parametrize("relay_lost", [False, True])
def test_with_the_kit_it_is_a_new_device_that_has_the_files_and_what_was_not_sent(
    vault: Vault, tmp_path: Path, relay_lost: bool
) -> None:
    core = vault.core
    core.call("remember", _BEFORE)
    (core.home / "notes").mkdir()
    (core.home / "notes" / "plan.md").write_text("First the roof.\n")
    core.call("sync")
    core.call("remember", _UNSENT)
    kit, old = kit_of(core), device_of(core)
    folder = backed_up(core, tmp_path / "destination")
    shutil.rmtree(core.home)
    new = fresh_machine(tmp_path)
    with running_relay(tmp_path / "another") as another:
        relay = another if relay_lost else vault.relay
        told = new.call(
            *("backup", "restore", str(folder), "--kit", "-", "--json"),
            *(("--relay", relay.url, "--enroll-token", "-") if relay_lost else ("--claim",)),
            typed=f"{relay.enroll_token}\n{kit}" if relay_lost else kit,
        ).json
        assert (told["new_device"], told["role"]) == (True, "core")
        assert told["device"] != old
        new.call("sync")
        new.call("sync")
        assert [_count(new, text) for text in (_BEFORE, _UNSENT)] == [1, 1]
        assert (new.home / "notes" / "plan.md").read_text() == "First the roof.\n"
        assert sorted(path.name for path in (new.home / "notes").iterdir()) == ["plan.md"]
        status = new.call("files", "status", "--json").json
        assert (status["halted"], status["tree"], status["synced"]) == (None, 1, 1)
        found = new.call("verify", "--deep", "--json", check=False)
        assert found.code == 0, found.out
        wrong = fresh_machine(tmp_path, "wrong")
        another_kit = kit_of(Vault(vault.relay, tmp_path / "other").core)
        refused = wrong.call(
            "backup", "restore", str(folder), "--kit", "-", "--json", typed=another_kit, check=False
        )
        assert (refused.code, wrong.home.exists()) == (7, False)


def test_what_is_known_of_files_that_are_not_in_the_backup_is_given_up(vault: Vault, tmp_path: Path) -> None:
    core = vault.core
    (core.home / "a.md").write_text("a")
    (core.home / "b.md").write_text("b")
    core.call("sync")
    (core.home / "b.md").unlink()
    folder = backed_up(core, tmp_path / "destination", "--with-keys")
    new = fresh_machine(tmp_path)
    shutil.rmtree(core.home)
    _restored(new, folder)
    with opened(settings_of(new)) as device:
        book = open_file_database(device)
        assert [each.path for each in book.agreed()] == ["a.md"]
        book.close()
    new.call("sync")
    assert (new.home / "b.md").read_text() == "b"
