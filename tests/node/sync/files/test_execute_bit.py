"""The execute bit of another device is not set here, and everybody still agrees on what the tree holds."""

import os
from pathlib import Path

import pytest

from crystal_mirror.files.ports import LocalFile
from crystal_node.sync.files.disk import HomeDisk
from tests.support.desks import Desk, Desks, settle

SCRIPT = "#!/bin/sh\necho run\n"


def is_executable(desk: Desk, path: str = "run.sh") -> bool:
    return os.access(desk.root / path, os.X_OK)


def is_executable_in_the_tree(desk: Desk, path: str = "run.sh") -> bool:
    row = desk.replica.file(path)
    assert row is not None
    return row.executable


def test_a_new_file_arrives_without_the_bit_and_takes_it_from_nobody(core: Desk, laptop: Desk) -> None:
    core.write("run.sh", SCRIPT, mode=0o700)
    settle(core, laptop)
    assert not is_executable(laptop)
    assert is_executable(core)
    assert is_executable_in_the_tree(core)
    assert laptop.book.bits_withheld() == {"run.sh"}
    assert laptop.files().put == 0


def test_an_edit_here_leaves_the_bit_to_those_who_have_it(core: Desk, laptop: Desk) -> None:
    core.write("run.sh", SCRIPT, mode=0o700)
    settle(core, laptop)
    edited = laptop.root / "edited"
    edited.write_text(SCRIPT + "echo more\n")
    edited.replace(laptop.root / "run.sh")  # as editors do it
    settle(core, laptop)
    assert (core.root / "run.sh").read_text() == SCRIPT + "echo more\n"
    assert is_executable(core)
    assert not is_executable(laptop)
    assert is_executable_in_the_tree(laptop)


def test_who_has_set_the_bit_keeps_it_with_later_versions(core: Desk, laptop: Desk) -> None:
    core.write("run.sh", SCRIPT, mode=0o700)
    settle(core, laptop)
    (laptop.root / "run.sh").chmod(0o700)
    settle(core, laptop)
    assert laptop.book.bits_withheld() == frozenset()
    core.write("run.sh", SCRIPT + "echo more\n", mode=0o700)
    settle(core, laptop)
    assert (laptop.root / "run.sh").read_text() == SCRIPT + "echo more\n"
    assert is_executable(laptop)
    (laptop.root / "run.sh").chmod(0o600)
    settle(core, laptop)
    assert not is_executable(core)
    assert not is_executable_in_the_tree(core)


def test_a_version_with_the_bit_does_not_give_it_to_a_file_without(core: Desk, laptop: Desk) -> None:
    laptop.write("notes.txt", "notes")
    settle(core, laptop)
    core.write("notes.txt", SCRIPT, mode=0o700)
    settle(core, laptop)
    assert (laptop.root / "notes.txt").read_text() == SCRIPT
    assert not is_executable(laptop, "notes.txt")


def test_a_device_that_lost_its_database_makes_no_second_file(core: Desk, laptop: Desk) -> None:
    core.write("run.sh", SCRIPT, mode=0o700)
    settle(core, laptop)
    laptop.book.forget_everything()
    assert laptop.book.bits_withheld() == frozenset()
    settle(core, laptop)
    assert laptop.book.bits_withheld() == {"run.sh"}
    assert list(core.tree()) == list(laptop.tree()) == ["run.sh"]
    assert is_executable_in_the_tree(core)
    assert not is_executable(laptop)


def test_a_death_between_the_file_and_the_note_of_its_bit_is_made_good(
    core: Desk, laptop: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    laptop.write("run.sh", "first")
    settle(core, laptop)
    core.write("run.sh", SCRIPT, mode=0o700)
    core.sync()
    noted = HomeDisk._without_bit  # pyright: ignore[reportPrivateUsage]

    def dies(self: HomeDisk, local: LocalFile, executable: bool) -> LocalFile:
        raise KeyboardInterrupt

    monkeypatch.setattr(HomeDisk, "_without_bit", dies)
    with pytest.raises(KeyboardInterrupt):
        laptop.sync()
    assert (laptop.root / "run.sh").read_text() == SCRIPT
    monkeypatch.setattr(HomeDisk, "_without_bit", noted)
    settle(core, laptop)
    assert list(core.tree()) == list(laptop.tree()) == ["run.sh"]
    assert laptop.book.bits_withheld() == {"run.sh"}
    assert is_executable(core)
    assert not is_executable(laptop)


def test_a_conflict_copy_keeps_what_is_noted(tmp_path: Path) -> None:
    desks = Desks(tmp_path, "laptop", "desktop")
    core, laptop, desktop = (desks.open(name) for name in ("core", "laptop", "desktop"))
    try:
        core.write("run.sh", SCRIPT, mode=0o700)
        settle(core, laptop, desktop)
        laptop.write("run.sh", "the laptop's")
        desktop.write("run.sh", "the desktop's")
        settle(core, laptop, desktop)
        trees = [desk.tree() for desk in (core, laptop, desktop)]
        assert trees[0] == trees[1] == trees[2]
        assert sorted(trees[0].values()) == [b"the desktop's", b"the laptop's"]
        assert all(is_executable_in_the_tree(core, path) for path in trees[0])
        assert not any(is_executable(desk, path) for desk in (laptop, desktop) for path in trees[0])
    finally:
        for desk in (core, laptop, desktop):
            desk.close()


def test_a_file_of_the_same_name_made_after_a_deletion_is_an_ordinary_one(core: Desk, laptop: Desk) -> None:
    core.write("run.sh", SCRIPT, mode=0o700)
    settle(core, laptop)
    (core.root / "run.sh").unlink()
    settle(core, laptop)
    laptop.write("run.sh", "a note")
    settle(core, laptop)
    assert not is_executable_in_the_tree(core)
    assert not is_executable(core)
