"""The files of the memory home, when a vault comes back from its kit and another device's home."""

import os
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from crystal_node.safekeeping.recovery import files as restored_files
from tests.support.machine import Machine, Outcome, Vault
from tests.support.recovery import fresh_machine, home_bytes, kit_of, lost_copy
from tests.support.relay_process import RelayProcess, running_relay


@pytest.fixture(scope="module")
def another_relay(tmp_path_factory: pytest.TempPathFactory) -> Generator[RelayProcess]:
    """Where the vault goes after its own relay was lost."""
    with running_relay(tmp_path_factory.mktemp("another-relay") / "store") as running:
        yield running


def _restore(machine: Machine, home: Path, relay: RelayProcess, kit: str, *, check: bool = True) -> Outcome:
    return machine.call(
        *("recovery", "restore", "--from", str(home), "--relay", relay.url, "--enroll-token", "-", "--json"),
        typed=f"{relay.enroll_token}\n{kit}",
        check=check,
    )


def _write(machine: Machine, path: str, text: str) -> Path:
    file = machine.home / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def _conflicts(machine: Machine) -> list[Path]:
    return list((machine.home / "notes").glob("*conflict*"))


def test_files_come_back_from_a_home_when_the_relay_is_gone_and_the_new_relay_gets_them(
    vault: Vault, another_relay: RelayProcess, tmp_path: Path
) -> None:
    core, laptop = vault.core, vault.add()
    _write(core, "notes/plan.md", "First the roof.\n")
    _write(core, "tools/run.sh", "#!/bin/sh\n").chmod(0o700)
    vault.settle()
    (laptop.home / "tools/run.sh").chmod(0o700)
    _write(laptop, "notes/unsynced.md", "Written on the train.\n")
    kit, home = kit_of(core), lost_copy(laptop, tmp_path)
    before, new = home_bytes(home), fresh_machine(tmp_path)
    told = _restore(new, home, another_relay, kit).json
    assert home_bytes(home) == before, "the other home is only read"
    assert told["files"] == {"copied": 3, "home_gone": False, "left_out": []}
    assert (new.home / "notes/plan.md").read_text() == "First the roof.\n"
    assert (new.home / "notes/unsynced.md").read_text() == "Written on the train.\n"
    assert os.access(new.home / "tools/run.sh", os.X_OK)
    for _ in range(2):
        new.call("sync")
    assert new.call("verify", "--deep").code == 0, "the relay has each part again"
    assert not _conflicts(new)
    # Who comes next finds them at the relay.
    second = fresh_machine(tmp_path, "second")
    second.call("recovery", "restore", "--relay", another_relay.url, typed=kit)
    second.call("sync")
    assert (second.home / "notes/unsynced.md").read_text() == "Written on the train.\n"


def test_what_the_vault_did_to_files_since_then_holds_for_those_of_an_old_home(
    vault: Vault, tmp_path: Path
) -> None:
    core, laptop = vault.core, vault.add()
    for name in ("changed", "deleted", "same"):
        _write(core, f"notes/{name}.md", f"{name}, at first\n")
    vault.settle()
    kit, home = kit_of(core), lost_copy(laptop, tmp_path)
    (home / "notes/unsynced.md").write_text("Never sent.\n")
    _write(core, "notes/changed.md", "changed, later\n")
    (core.home / "notes/deleted.md").unlink()
    core.call("sync")
    new = fresh_machine(tmp_path)
    assert _restore(new, home, vault.relay, kit).json["files"]["copied"] == 4
    for machine in (new, core, new):
        machine.call("sync")
    for machine in (new, core):
        assert sorted(path.name for path in (machine.home / "notes").iterdir()) == [
            *("changed.md", "same.md", "unsynced.md")
        ]
        assert (machine.home / "notes/changed.md").read_text() == "changed, later\n"


def test_what_the_lost_device_left_out_stays_out_and_a_link_is_named(vault: Vault, tmp_path: Path) -> None:
    core, laptop = vault.core, vault.add()
    laptop.call("files", "exclude", "cache")
    _write(laptop, "cache/big.bin", "much\n")
    _write(laptop, "notes/plan.md", "First the roof.\n")
    (laptop.home / "notes/link.md").symlink_to("/etc/hostname")
    vault.settle()
    kit, home = kit_of(core), tmp_path / "old-home"
    laptop.home.rename(home)
    new = fresh_machine(tmp_path)
    told = _restore(new, home, vault.relay, kit).json["files"]
    assert told["copied"] == 1
    assert [each["path"] for each in told["left_out"]] == ["notes/link.md"]
    assert not (new.home / "cache").exists()
    assert not (new.home / "notes/link.md").is_symlink()


def test_files_of_a_restore_that_was_interrupted_are_deleted_nowhere_and_come_with_the_next_try(
    vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core, laptop = vault.core, vault.add()
    for number in range(5):
        _write(core, f"notes/{number}.md", f"note {number}\n")
    vault.settle()
    kit, home = kit_of(core), lost_copy(laptop, tmp_path)
    new = fresh_machine(tmp_path)
    copy_file: Callable[..., object] = vars(restored_files)["copy_file"]

    def breaks_off(root: Path, path: str, target: Path, meter: object) -> object:
        copied = copy_file(root, path, target, meter)
        if path == "notes/2.md":
            target.write_text("no")
            raise OSError(5, "the disk was pulled out")
        return copied

    with monkeypatch.context() as patch:
        patch.setattr(restored_files, "copy_file", breaks_off)
        assert _restore(new, home, vault.relay, kit, check=False).code != 0
    assert sorted(path.name for path in (new.home / "notes").iterdir()) == ["0.md", "1.md"]
    new.call("sync", check=False)
    core.call("sync")
    assert len(list((core.home / "notes").iterdir())) == 5
    assert _restore(new, home, vault.relay, kit).json["files"]["copied"] == 3
    for machine in (new, core, new):
        machine.call("sync")
        assert [path.read_text() for path in sorted((machine.home / "notes").iterdir())] == [
            f"note {number}\n" for number in range(5)
        ]


def test_a_home_that_is_gone_before_its_files_were_copied_is_told_and_the_restore_ends(
    vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core, laptop = vault.core, vault.add()
    _write(core, "notes/plan.md", "First the roof.\n")
    vault.settle()
    kit, home = kit_of(core), lost_copy(laptop, tmp_path)
    new = fresh_machine(tmp_path)

    def breaks_off(*_: object) -> bool:
        raise OSError(5, "the disk was pulled out")

    with monkeypatch.context() as patch:
        patch.setattr(restored_files, "copy_file", breaks_off)
        assert _restore(new, home, vault.relay, kit, check=False).code != 0
    home.rename(tmp_path / "elsewhere")
    told = new.call("recovery", "restore", "--relay", vault.relay.url, "--json", typed=kit).json
    assert told["files"] == {"copied": 0, "home_gone": True, "left_out": []}
    for machine in (new, core):
        machine.call("sync")
        assert (machine.home / "notes/plan.md").read_text() == "First the roof.\n"
