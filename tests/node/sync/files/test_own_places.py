"""What is Crystal's own stays out of the tree wherever a person has put it, and however another system would spell it."""

import os
import stat
from pathlib import Path

import pytest

from crystal_mirror.files.ports import FileTrouble
from crystal_node.base.file_rules import TreeRules
from crystal_node.base.home import Home
from crystal_node.sync.files import incoming_file as incoming_module
from crystal_node.sync.files.database import FileDatabase
from crystal_node.sync.files.rules import own_places
from crystal_node.sync.files.trash import Trash, Trashed, TrashRecord
from tests.node.sync.files.test_hostile import offer
from tests.support.desks import Desk, settle


@pytest.mark.parametrize("data", [".", "notes/data", "link/data"])
def test_a_database_stays_out_of_the_tree_wherever_in_the_home_it_lies(tmp_path: Path, data: str) -> None:
    root = tmp_path / "home"
    (root / "notes/data").mkdir(parents=True)
    (root / "link").symlink_to("notes")
    databases, _ = own_places(Home(root, root / data))
    rules = TreeRules((), databases)
    inside = {".": "crystal.db", "notes/data": "notes/data/crystal.db", "link/data": "notes/data/crystal.db"}
    for suffix in ("", "-wal", "-shm"):
        assert rules.fault(inside[data] + suffix) is not None
    assert rules.fault(f"{inside[data].removesuffix('crystal.db')}.restoring/crystal.db") is not None


@pytest.mark.parametrize("name", [".env", ".env.local", ".ENV", ".env~", "..env.swp"])
def test_keys_of_language_models_beside_the_database_stay_on_their_machine(tmp_path: Path, name: str) -> None:
    root = tmp_path / "home"
    (root / "notes/data").mkdir(parents=True)
    rules = TreeRules((), own_places(Home(root, root / "notes/data"))[0])
    assert rules.fault(f"notes/data/{name}") is not None
    assert rules.fault(f"memory/{name}") is not None
    assert rules.fault("notes/environment.md") is None


def test_a_passphrase_file_is_secret_by_every_path_that_leads_to_it(tmp_path: Path) -> None:
    root = tmp_path / "home"
    (root / "private").mkdir(parents=True)
    (root / "private/pass").write_text("secret")
    (tmp_path / "elsewhere").symlink_to(root / "private/pass")
    for path in (root / "private/pass", tmp_path / "elsewhere"):
        _, secrets = own_places(Home(root, None, path))
        assert "private/pass" in secrets


def test_a_secret_in_a_folder_of_the_tree_is_neither_read_nor_named_in_the_book(
    core: Desk, laptop: Desk
) -> None:
    core.disk.tree = TreeRules(secrets=frozenset({"private/pass"}))
    core.write("private/pass", "secret")
    core.write("private/plan.md", "a plan")
    report = core.sync()
    assert core.book.seen_at("private/pass") is None
    assert report.refused == {}
    settle(core, laptop)
    assert laptop.tree() == {"private/plan.md": b"a plan"}


@pytest.mark.parametrize(
    "path",
    [
        "sta\u200cte/state.db",
        "config\ufeff.json",
        ".tra\u200dsh/x.json",
        ".crystal-\u202eroot",
        "memory/crystal.\u2060db",
        "memory/crystal.d\u00adb",
        "notes/.crystal\u200b-tmp-1234",
        "..crystal-root.0123456789ab",
    ],
)
def test_what_some_systems_leave_out_of_a_name_hides_no_path_of_ours(
    core: Desk, laptop: Desk, path: str
) -> None:
    offer(core, path)
    laptop.memory()
    assert path in laptop.files().refused
    assert not (laptop.root / path).exists()


def test_a_book_that_is_begun_anew_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "files.db"
    path.write_bytes(b"no database, but as long as the header of one has to be" * 10)
    path.chmod(0o600)
    before = os.umask(0)
    try:
        book = FileDatabase.open(path)
        book.meta_set("a", b"b")
        modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()}
        book.close()
    finally:
        os.umask(before)
    assert len(modes) >= 2
    assert set(modes.values()) == {0o600}, modes


def test_odd_things_called_like_temporary_files_stop_no_round(core: Desk, laptop: Desk) -> None:
    (core.root / "notes").mkdir()
    (core.root / "notes/.crystal-tmp-link").symlink_to("nowhere")
    os.mkfifo(core.root / "notes/.crystal-tmp-pipe")
    (core.root / ".crystal-tmp-folder").mkdir()
    core.sync()
    core.write("plan.md", "a plan")
    settle(core, laptop)
    assert laptop.tree() == {"plan.md": b"a plan"}


def test_a_file_for_which_there_is_no_room_is_not_begun_and_the_others_come(
    core: Desk, laptop: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    core.write("0-large", os.urandom(3_000_000))
    core.write("plan.md", "a plan")
    core.sync()
    laptop.memory()
    real = os.fstatvfs

    def nearly_full(descriptor: int) -> os.statvfs_result:
        fields = list(real(descriptor))
        fields[0], fields[1] = 4096, 4096
        fields[4] = (incoming_module.DISK_SPACE_BYTES_MIN + 1_000_000) // 4096
        fields[2] = fields[4] * 100
        return os.statvfs_result(fields)

    monkeypatch.setattr(os, "fstatvfs", nearly_full)
    got = laptop.store.blobs_got
    report = laptop.files()
    assert list(report.lacking) == ["0-large"]
    assert laptop.store.blobs_got == got + 1
    assert laptop.tree() == {"plan.md": b"a plan"}
    monkeypatch.undo()
    laptop.files()
    assert len(laptop.tree()) == 2


@pytest.mark.parametrize(
    "path", ["../outside", "/outside", "a/../../outside", "state/secrets/x", "config.json"]
)
def test_the_trash_puts_nothing_where_no_file_of_the_tree_may_be(tmp_path: Path, path: str) -> None:
    root = tmp_path / "home"
    (root / ".trash/1").mkdir(parents=True)
    (root / ".trash/1/x").write_text("x")
    trash = Trash(root)
    with pytest.raises(FileTrouble):
        trash.restore(Trashed("1", TrashRecord(path, 0, 0, 1), root / ".trash/1/x"))
    assert (root / ".trash/1/x").exists()
    assert sorted(each.name for each in root.iterdir()) == [".trash"]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["home"]


@pytest.mark.parametrize("pattern", ["*-" * 15 + "*.log", "*?-" * 15 + "*.log", "a/" + "*-" * 14 + "*x/**"])
def test_no_name_that_another_device_chooses_keeps_a_rule_busy(pattern: str) -> None:
    rules = TreeRules(("-" + pattern,))
    for path in ("-" * 200, "a/" + "-" * 200, "a/" + "-" * 199 + "y/z"):
        assert not rules.excluded(path)  # it took longer than a day
    assert TreeRules(("-*-*-*.log",)).excluded("a-b--c-d.log")
