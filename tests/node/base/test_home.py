"""The home: who may read it, and what a crash can leave behind."""

import os
import stat
from pathlib import Path

import pytest

from crystal_node.base.errors import LocalStorage
from crystal_node.base.home import Home, write_private


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_all_folders_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        home = Home(tmp_path / "home")
        home.create()
        write_private(home.config_file, b"{}")
    finally:
        os.umask(before)
    folders = [home.root, *(path for path in home.root.rglob("*") if path.is_dir())]
    assert {home.state, home.secrets, home.nudge_folder, home.logs, home.database.parent} <= set(folders)
    assert {_mode(folder) for folder in folders} == {0o700}
    assert _mode(home.config_file) == 0o600


def test_a_home_that_others_could_read_is_closed(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.root.mkdir(mode=0o755)
    home.root.chmod(0o755)
    home.create()
    assert _mode(home.root) == 0o700


def test_a_home_of_another_user_is_refused(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    root = tmp_path / "home"
    root.mkdir()
    os.chown(root, 12345, 12345)
    with pytest.raises(LocalStorage, match="another user"):
        Home(root).create()


def test_the_database_can_be_elsewhere(tmp_path: Path) -> None:
    home = Home(tmp_path / "home", tmp_path / "data")
    home.create()
    assert home.database == tmp_path / "data" / "crystal.db"
    assert _mode(tmp_path / "data") == 0o700


def test_a_file_is_replaced_as_a_whole_and_a_failure_leaves_the_old_one_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.json"
    write_private(path, b"old")

    def fail(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        write_private(path, b"new and longer")
    assert path.read_bytes() == b"old"
    assert [found.name for found in tmp_path.iterdir()] == ["config.json"]


def test_nudging_a_home_without_a_watcher_is_no_error(tmp_path: Path) -> None:
    Home(tmp_path / "nowhere").nudge()
