"""What other devices, other processes and odd disks put in the way: nothing is followed, nothing is written outside."""

import errno
import os
import socket
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from crystal_crypto.errors import Malformed
from crystal_mirror.files.ports import FileTrouble, LocalFile
from crystal_mirror.files.transfers import WINDOW_PARTS
from crystal_mirror.operations import DropFile, FilePart, PutFile
from crystal_mirror.ports import FileRow
from crystal_mirror.requests import GetBlobs, Request
from crystal_mirror.types import Origin
from crystal_node.sync.files import incoming_file as incoming_module
from crystal_node.sync.files.parts import Cutter
from tests.support.desks import Desk, Desks, settle

CONTENT = b"not yours"


def offer(desk: Desk, path: str, content: bytes = CONTENT) -> None:
    """Another device's put of any path that its encoding lets through."""
    part = FilePart(sha256(content).digest(), len(content))
    desk.member.accept(PutFile(path, None, False, 0, (part,)))
    desk.memory()


@pytest.mark.parametrize(
    "path",
    [
        "/etc/cron.d/x",
        "../outside",
        "a/../../outside",
        "a//b",
        "./a",
        "a/",
        "",
        "con",
        "aux.txt",
        "a/nul.log",
        "what?",
        "a:b",
        "back\\slash",
        "dot.",
        "space ",
        "line\nbreak",
        "e\u0301",
        "x" * 201,
        "/".join("d" * 33),
    ],
)
def test_no_device_can_even_offer_a_path_that_some_system_takes_for_something_else(
    core: Desk, path: str
) -> None:
    with pytest.raises(Malformed):
        core.member.accept(PutFile(path, None, False, 0, ()))
    with pytest.raises(FileTrouble):
        core.disk.look(path)
    with pytest.raises(FileTrouble):
        core.disk.incoming(row(path))


@pytest.mark.parametrize(
    "path",
    [
        "config.json",
        "Config.JSON",
        "state/state.db",
        "STATE/secrets/identity",
        "state/secrets/x",
        "memory/crystal.db",
        "Memory/Crystal.DB-wal",
        "memory/new.db",
        "bin/crystal",
        "keys/root",
        "secrets/root",
        ".trash/x.json",
        ".crystal-root",
        ".Crystal-Root",
        "notes/.crystal-tmp-1234",
        ".crystal-tmp-dir/file",
        "logs/x",
        "staging/x",
    ],
)
def test_no_device_writes_or_removes_what_is_crystals_own(core: Desk, laptop: Desk, path: str) -> None:
    laptop.write("config.json", "{}")
    laptop.sync()
    before = own_files(laptop)
    offer(core, path)
    laptop.memory()
    report = laptop.files()
    assert path in report.refused
    assert own_files(laptop) == before
    current = core.replica.file(path)
    assert current is not None
    core.member.accept(DropFile(path, current.version))
    core.memory()
    laptop.memory()
    laptop.files()
    assert own_files(laptop) == before


def test_a_link_is_named_and_neither_synced_nor_followed(core: Desk, laptop: Desk, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "private").write_text("private")
    (core.root / "folder").symlink_to(outside)
    (core.root / "file").symlink_to(outside / "private")
    (core.root / "broken").symlink_to("nowhere")
    report = core.sync()
    assert set(report.refused) == {"folder", "file", "broken"}
    settle(core, laptop)
    assert laptop.tree() == {}


def test_a_folder_swapped_for_a_link_is_never_written_through(
    core: Desk, laptop: Desk, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    core.write("notes/plan.md", "a plan")
    core.write("notes/other.md", "another")
    settle(core, laptop)
    core.write("notes/plan.md", "a new plan")
    core.write("notes/new.md", "new")
    (core.root / "notes/other.md").unlink()
    core.sync()
    laptop.memory()

    def swap(request: Request) -> None:
        if isinstance(request, GetBlobs) and not (laptop.root / "notes").is_symlink():
            (laptop.root / "notes").rename(laptop.root / "elsewhere")
            (laptop.root / "notes").symlink_to(outside)

    laptop.store.before = swap
    laptop.files()
    laptop.store.before = None
    laptop.files()
    assert list(outside.iterdir()) == []
    settle(core, laptop)
    assert list(outside.iterdir()) == []
    assert "notes/plan.md" in core.tree(), "a link in the place of a folder deletes nothing"


def test_files_of_tiny_parts_are_not_asked_for_all_at_once(core: Desk, laptop: Desk) -> None:
    count = 3 * WINDOW_PARTS // 2
    for path in ("one", "other"):
        contents = (f"{path} {number}".encode() for number in range(count))
        parts = tuple(FilePart(sha256(content).digest(), 1) for content in contents)
        core.member.accept(PutFile(path, None, False, 0, parts))
    core.memory()
    laptop.memory()
    asked: list[int] = []

    def note(request: Request) -> None:
        if isinstance(request, GetBlobs):
            asked.append(len(request.keys))

    laptop.store.before = note
    report = laptop.files()
    laptop.store.before = None
    assert set(report.lacking) == {"one", "other"}
    assert asked
    assert max(asked) <= WINDOW_PARTS


def test_a_link_laid_where_the_temporary_file_will_be_is_not_written_through(
    core: Desk, laptop: Desk, tmp_path: Path
) -> None:
    core.write("plan.md", "a plan")
    core.sync()
    laptop.memory()
    target = tmp_path / "target"
    target.write_text("untouched")
    current = laptop.replica.file("plan.md")
    assert current is not None
    (laptop.root / incoming_module.temporary_name(current)).symlink_to(target)
    report = laptop.files()
    assert target.read_text() == "untouched"
    assert "plan.md" in report.refused


def test_a_hard_link_laid_there_is_not_written_through_either(
    core: Desk, laptop: Desk, tmp_path: Path
) -> None:
    core.write("plan.md", "a plan")
    core.sync()
    laptop.memory()
    target = tmp_path / "target"
    target.write_text("untouched")
    current = laptop.replica.file("plan.md")
    assert current is not None
    os.link(target, laptop.root / incoming_module.temporary_name(current))
    laptop.files()
    assert target.read_text() == "untouched"
    assert laptop.tree()["plan.md"] == b"a plan"


def test_pipes_sockets_and_unreadable_files_are_named_and_stay(core: Desk, laptop: Desk) -> None:
    os.mkfifo(core.root / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(core.root / "socket"))
        core.write("plan.md", "a plan")
        report = core.sync()
    assert set(report.refused) == {"pipe", "socket"}
    settle(core, laptop)
    assert list(laptop.tree()) == ["plan.md"]
    (core.root / "plan.md").unlink()
    os.mkfifo(core.root / "plan.md")
    settle(core, laptop)
    assert list(laptop.tree()) == ["plan.md"], "a pipe in a file's place is no deletion"


def test_a_file_that_cannot_be_read_is_named_and_not_taken_for_deleted(
    core: Desk, laptop: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    core.write("folder/plan.md", "a plan")
    settle(core, laptop)
    real = os.open

    def refusing(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if path == "folder":
            raise PermissionError(errno.EACCES, "no")
        return real(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", refusing)  # the tests may run as root, whom no mode keeps out
    report = core.sync()
    monkeypatch.undo()
    assert set(report.refused) == {"folder/", "folder/plan.md"}
    assert report.dropped == 0
    settle(core, laptop)
    assert laptop.tree() == core.tree() == {"folder/plan.md": b"a plan"}


def test_a_file_that_changes_while_it_is_read_is_looked_at_again(
    core: Desk, laptop: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    core.write("growing.log", b"a" * 3_000_000)
    real = Cutter.cut

    def cut(self: Cutter, local: LocalFile, before: Sequence[FilePart] = ()) -> Iterator[FilePart]:
        for part in real(self, local, before):
            with (core.root / local.path).open("ab") as file:
                file.write(b"more")
            yield part

    monkeypatch.setattr(Cutter, "cut", cut)
    core.memory()
    report = core.files()
    assert report.busy == ["growing.log"]
    assert report.put == 0
    monkeypatch.undo()
    settle(core, laptop)
    assert laptop.tree() == core.tree()


def test_a_file_that_changes_while_another_version_is_fetched_is_not_overwritten(
    core: Desk, laptop: Desk
) -> None:
    core.write("plan.md", "a plan")
    settle(core, laptop)
    core.write("plan.md", "a newer plan")
    core.sync()
    laptop.memory()

    def edit(request: Request) -> None:
        if isinstance(request, GetBlobs):
            laptop.write("plan.md", "typed just now")

    laptop.store.before = edit
    laptop.files()
    laptop.store.before = None
    assert laptop.tree()["plan.md"] == b"typed just now"
    settle(core, laptop)
    assert sorted(core.tree().values()) == sorted(laptop.tree().values())
    assert set(core.tree().values()) == {b"a newer plan", b"typed just now"}


def test_a_full_disk_leaves_the_old_file_and_no_half_one(
    core: Desk, laptop: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    core.write("plan.md", "a plan")
    settle(core, laptop)
    core.write("plan.md", "a longer plan")
    core.sync()
    laptop.memory()

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    report = laptop.files()
    monkeypatch.undo()
    assert report.lacking == {"plan.md": "the disk is full"}
    assert laptop.tree() == {"plan.md": b"a plan"}
    assert not list(laptop.root.glob(".crystal-tmp-*"))
    settle(core, laptop)
    assert laptop.tree() == {"plan.md": b"a longer plan"}


def test_names_that_differ_only_in_case_are_one_file_and_the_other_stays_where_it_is(
    core: Desk, laptop: Desk
) -> None:
    core.write("Plan.md", "one")
    core.write("plan.md", "two")
    report = core.sync()
    assert len(report.refused) == 1
    settle(core, laptop)
    assert len(laptop.tree()) == 1
    assert sorted(core.tree().values()) == [b"one", b"two"]


def test_names_that_differ_only_in_case_on_two_devices_are_both_kept(core: Desk, laptop: Desk) -> None:
    core.write("Plan.md", "one")
    laptop.write("plan.md", "two")
    settle(core, laptop)
    assert core.tree() == laptop.tree()
    assert sorted(core.tree().values()) == [b"one", b"two"]
    assert len({path.casefold() for path in core.tree()}) == 2


def test_a_home_without_its_marker_deletes_nothing_until_it_is_adopted(core: Desk, laptop: Desk) -> None:
    for number in range(3):
        core.write(f"file-{number}", f"{number}")
    settle(core, laptop)
    for path in [".crystal-root", *laptop.tree()]:
        (laptop.root / path).unlink()
    report = laptop.sync()
    assert "marker is missing" in report.halted
    settle(core, laptop)
    assert len(core.tree()) == 3
    laptop.disk.adopt()
    settle(core, laptop)
    assert len(core.tree()) == len(laptop.tree()) == 3


def test_a_home_that_is_another_devices_copy_halts(core: Desk, laptop: Desk) -> None:
    core.write("plan.md", "a plan")
    settle(core, laptop)
    (laptop.root / ".crystal-root").write_bytes((core.root / ".crystal-root").read_bytes())
    assert "another device's" in laptop.sync().halted


def test_a_blob_that_the_relay_changed_is_not_written(core: Desk, laptop: Desk, desks: Desks) -> None:
    core.write("plan.md", "a plan")
    core.sync()
    for path in (desks.folder / "relay").iterdir():
        if "/blob/" in bytes.fromhex(path.name).decode():
            data = bytearray(path.read_bytes())
            data[200] ^= 1
            path.write_bytes(bytes(data))
    laptop.memory()
    report = laptop.files()
    assert list(report.lacking) == ["plan.md"]
    assert laptop.tree() == {}


def own_files(desk: Desk) -> dict[str, bytes]:
    """Crystal's own files by path, less what every round writes: databases and their logs."""
    return {
        path.relative_to(desk.root).as_posix(): path.read_bytes()
        for path in desk.root.rglob("*")
        if path.is_file() and path.name.split(".db")[0] not in ("state", "crystal", "files")
    }


def row(path: str) -> FileRow:
    return FileRow(path, Origin(bytes(16), bytes(8), 0), False, 0, (), gone=False)
