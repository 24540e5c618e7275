"""A source is brought up to what stands there, exactly and once, and never to less because something was out of sight."""

import asyncio
import errno
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from crystal_core.documents import titles
from crystal_node.base.errors import UsageError
from crystal_node.capture.redaction import Redacted, redact
from crystal_node.derive.sources import reader, scan, syncer
from crystal_node.derive.sources.database import SourceDatabase
from crystal_node.derive.sources.filetypes import Skipped
from crystal_node.derive.sources.service import add_source, remove_source, sources_status, sync_sources
from crystal_node.derive.sources.syncer import PIECES_AT_ONCE
from crystal_node.device.privacy import PrivateNow, read_privacy, write_privacy
from tests.node.agent.daemon.running import children
from tests.node.derive.sources.conftest import Folder
from tests.support.constant import always


def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if some seconds had gone by since a test wrote its files."""
    monkeypatch.setattr(reader, "QUIET_NS", -1)


async def test_new_changed_moved_and_deleted_files_are_followed(folder: Folder) -> None:
    folder.write("a.md", "# One\n\nThe first.")
    folder.write("deep/b.py", "def second():\n    return 2\n")
    folder.write("c.txt", "The third.")
    synced = await folder.sync()
    assert (synced.new, synced.changed, synced.removed) == (3, 0, 0)
    assert folder.texts("a.md") == ["# One\n\nThe first."]
    folder.write("a.md", "# One\n\nThe first, changed.")
    (folder.root / "deep" / "b.py").rename(folder.root / "moved.py")
    (folder.root / "c.txt").unlink()
    synced = await folder.sync()
    assert (synced.new, synced.changed, synced.removed) == (1, 1, 2)
    assert folder.documents().keys() == {"a.md", "moved.py"}
    assert folder.texts("a.md") == ["# One\n\nThe first, changed."]


async def test_progress_counts_the_files_of_all_sources(folder: Folder, tmp_path: Path) -> None:
    folder.write("a.md", "One.")
    (tmp_path / "more").mkdir()
    for number in range(3):
        (tmp_path / "more" / f"{number}.md").write_text(f"Number {number}.")
    more = add_source(folder.device, tmp_path / "more", name=f"{folder.name}-z").name
    told: list[tuple[str, int, int]] = []
    await sync_sources(folder.device, progress=lambda name, done, total: told.append((name, done, total)))
    assert {total for _, _, total in told} == {4}
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
    assert told[-1] == (more, 4, 4)


async def test_an_unchanged_tree_is_not_read_and_sends_nothing(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet(monkeypatch)
    for number in range(30):
        folder.write(f"{number}.md", f"Number {number}.")
    await folder.sync()
    before = folder.device.journal.outbox_count()

    def refuse(root: Path, path: str) -> None:
        raise AssertionError(f"{path} was opened")

    monkeypatch.setattr(reader, "read_file", refuse)
    synced = await folder.sync()
    assert (synced.new, synced.changed, synced.removed, synced.files) == (0, 0, 0, 30)
    assert folder.device.journal.outbox_count() == before


async def test_a_file_that_was_touched_is_read_and_not_sent_again(folder: Folder) -> None:
    folder.write("a.md", "Something.")
    await folder.sync()
    before = folder.device.journal.outbox_count()
    os.utime(folder.root / "a.md")
    synced = await folder.sync()
    assert (synced.new, synced.changed) == (0, 0)
    assert folder.device.journal.outbox_count() == before


async def test_a_change_within_the_same_stamp_right_after_a_sync_is_seen(folder: Folder) -> None:
    path = folder.write("a.md", "one", at=int(time.time()))
    await folder.sync()
    path.write_text("two")
    info = path.stat()
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
    await folder.sync()
    assert folder.texts("a.md") == ["two"]


async def test_a_root_that_is_not_there_removes_nothing(folder: Folder) -> None:
    folder.write("a.md", "Something.")
    await folder.sync()
    folder.root.rename(folder.root.with_name("away"))
    synced = await folder.sync(confirmed=True)
    assert "is not there" in synced.problem
    assert folder.documents().keys() == {"a.md"}
    folder.root.with_name("away").rename(folder.root)
    assert not (await folder.sync()).problem


async def test_an_empty_folder_in_the_place_of_a_disk_removes_nothing_until_confirmed(folder: Folder) -> None:
    folder.write("a.md", "Something.")
    folder.write("b.md", "Something else.")
    await folder.sync()
    folder.root.rename(folder.root.with_name("disk"))
    folder.root.mkdir()
    synced = await folder.sync()
    assert (synced.removed, synced.waiting, set(synced.waiting_paths)) == (0, 2, {"a.md", "b.md"})
    assert len(folder.documents()) == 2
    (status,) = [each for each in sources_status(folder.device).sources if each.name == folder.name]
    assert status.waiting == 2
    assert (await folder.sync(confirmed=True)).removed == 2
    assert not folder.documents()


async def test_most_files_gone_at_once_wait_for_a_person_and_what_comes_back_needs_none(
    folder: Folder,
) -> None:
    for number in range(40):
        folder.write(f"{number}.md", f"Number {number}.")
    await folder.sync()
    for number in range(30):
        (folder.root / f"{number}.md").rename(folder.root.parent / f"{number}.md")
    assert (await folder.sync()).waiting == 30
    assert len(folder.documents()) == 40
    for number in range(30):
        (folder.root.parent / f"{number}.md").rename(folder.root / f"{number}.md")
    synced = await folder.sync()
    assert (synced.waiting, synced.removed, synced.new, synced.changed) == (0, 0, 0, 0)


async def test_a_link_in_the_place_of_the_root_removes_nothing(folder: Folder) -> None:
    folder.write("a.md", "Something.")
    await folder.sync()
    folder.root.rename(folder.root.with_name("moved"))
    folder.root.symlink_to(folder.root.with_name("moved"))
    synced = await folder.sync()
    assert "link" in synced.problem
    assert folder.documents().keys() == {"a.md"}


async def test_names_that_are_no_text_are_counted_and_stop_nothing(folder: Folder) -> None:
    for name in (b"\xff\xfe.md", b"line\nbreak.md", b"escape\x1b[31m.md"):
        (folder.root / os.fsdecode(name)).write_text("Something.")
    folder.write("a.md", "Something.")
    synced = await folder.sync()
    assert folder.documents().keys() == {"a.md"}
    assert synced.skipped[Skipped.ODD_NAME.value] == 3
    assert len(synced.skipped_paths) == 3
    shown = folder.machine.call("sources", "status")
    assert "\x1b" not in shown.out
    assert folder.machine.call("sources", "status", "--json").json["sources"]


async def test_what_a_new_rule_leaves_out_goes_without_a_question(folder: Folder) -> None:
    for number in range(30):
        folder.write(f"drafts/{number}.md", f"Number {number}.")
    folder.write("kept.md", "Kept.")
    await folder.sync()
    folder.write(".gitignore", "drafts/\n")
    assert (await folder.sync()).removed == 30
    assert folder.documents().keys() == {"kept.md"}


async def test_what_is_in_a_folder_that_cannot_be_listed_is_not_gone(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write("bad/a.md", "Something.")
    folder.write("good.md", "Something else.")
    await folder.sync()
    damaged, listed = (folder.root / "bad").stat().st_ino, os.scandir

    def failing(descriptor: int) -> object:
        """A disk that fails to read one folder."""
        if os.fstat(descriptor).st_ino == damaged:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return listed(descriptor)

    with monkeypatch.context() as failure:
        failure.setattr(os, "scandir", failing)
        synced = await folder.sync()
    assert (synced.removed, synced.waiting) == (0, 0)
    assert synced.skipped[Skipped.UNREADABLE.value] == 1
    assert len(folder.documents()) == 2


async def test_a_sync_that_is_killed_anywhere_goes_on_where_it_was(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet(monkeypatch)
    monkeypatch.setattr(reader, "BATCH_FILES", 3)
    for number in range(10):
        folder.write(f"{number}.md", f"Number {number}.")

    class Killed(BaseException):
        pass

    note, left = SourceDatabase.note, [1]

    def dying(database: SourceDatabase, *arguments: object, **more: object) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        note(database, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(SourceDatabase, "note", dying)
    for allowed in range(3):
        left[0] = allowed
        with pytest.raises(Killed):
            await folder.sync()
    monkeypatch.setattr(SourceDatabase, "note", note)
    await folder.sync()
    assert len(folder.documents()) == 10
    again = await folder.sync()
    assert (again.new, again.changed, again.removed) == (0, 0, 0)
    assert all(folder.texts(f"{number}.md") == [f"Number {number}."] for number in range(10))


async def test_a_lost_book_is_made_again_from_the_vault_and_nothing_is_sent_twice(folder: Folder) -> None:
    folder.write("a.md", "Something.")
    folder.write("gone.md", "Something else.")
    await folder.sync()
    before = folder.device.journal.outbox_count()
    folder.device.settings.home.sources_database.unlink()
    with pytest.raises(UsageError, match="no longer knows where"):
        await folder.sync()
    add_source(folder.device, folder.root, name=folder.name)
    (folder.root / "gone.md").unlink()
    synced = await folder.sync()
    assert (synced.new, synced.changed, synced.removed) == (0, 0, 1)
    assert folder.device.journal.outbox_count() == before + 1


async def test_a_document_that_the_memory_lost_comes_back(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet(monkeypatch)
    folder.write("a.md", "Something.")
    await folder.sync()
    remove_source(folder.device, folder.name)
    add_source(folder.device, folder.root, name=folder.name)
    assert (await folder.sync()).new == 1
    assert folder.texts("a.md") == ["Something."]


async def test_a_file_that_is_no_text_any_more_loses_its_document(folder: Folder) -> None:
    folder.write("a.txt", "Something.")
    await folder.sync()
    folder.write("a.txt", b"\0\1\2 no text")
    synced = await folder.sync()
    assert synced.removed == 1
    assert synced.skipped[Skipped.BINARY.value] == 1
    assert not folder.documents()


async def test_a_forgotten_passage_never_leaves_again_though_the_file_still_has_it(folder: Folder) -> None:
    from hashlib import sha256

    from crystal_mirror.operations import Forget

    secret = "# Private\n\n" + "The thing that nobody shall ever read again. " * 12
    public = "# Public\n\n" + "The thing that everybody may read at any time. " * 12
    folder.write("a.md", f"{secret}\n\n{public}")
    await folder.sync()
    forgotten = folder.texts("a.md")[0]
    content = sha256(forgotten.encode()).digest()
    target = folder.device.member.secret.forget_hash(content)
    folder.device.accept([Forget((target,))])
    folder.write("a.md", f"{secret}\n\n{public}\n\nOne line more.")
    await folder.sync()
    texts = folder.texts("a.md")
    assert forgotten not in texts
    assert any("everybody" in text for text in texts)
    for name in folder.device.journal.names()[-1:]:
        row = folder.device.journal.row(name.incarnation, name.sequence)
        assert row is not None
        assert b"nobody shall ever" not in row.operation


async def test_nothing_is_read_while_private_mode_is_on(folder: Folder) -> None:
    folder.write("a.md", "Something.")
    journal = folder.device.journal
    before = read_privacy(journal)
    with journal.transaction():
        write_privacy(journal, before.turned_on(1, 1))
    try:
        with pytest.raises(PrivateNow):
            await folder.sync()
    finally:
        with journal.transaction():
            write_privacy(journal, before)
    assert not folder.documents()


async def test_a_large_document_travels_in_several_operations_and_is_whole(folder: Folder) -> None:
    paragraphs = [
        f"Paragraph {number} says that the value is {number * number}. " * 12 for number in range(900)
    ]
    folder.write("large.md", "\n\n".join(paragraphs))
    assert (await folder.sync()).pieces > 256
    document = folder.documents()["large.md"]
    assert document.complete
    assert document.total > 256 > PIECES_AT_ONCE


async def test_a_sync_that_runs_out_of_time_goes_on_the_next_time_and_removes_nothing_before(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet(monkeypatch)
    monkeypatch.setattr(reader, "BATCH_FILES", 2)
    folder.write("old.md", "Old.")
    await folder.sync()
    (folder.root / "old.md").unlink()
    for number in range(6):
        folder.write(f"{number}.md", f"Number {number}.")
    first = await folder.sync(seconds=0.0)
    assert not first.complete
    assert (first.new, first.removed) == (2, 0)
    second = await folder.sync()
    assert second.complete
    assert (second.new, second.removed) == (4, 1)


def test_the_memory_home_is_no_source_and_is_left_out_of_one_that_holds_it(folder: Folder) -> None:
    home = folder.device.settings.home.root
    with pytest.raises(UsageError, match="memory home"):
        add_source(folder.device, home / "state", name="own")
    look = scan.SourceScan(home.parent, kept_out=home)
    assert not [path for path, _ in look.files() if path.startswith(f"{home.name}/")]


async def test_a_sync_that_is_stopped_leaves_no_process_behind_and_goes_on_later(folder: Folder) -> None:
    folder.write("a.html", b"<div>" * 400_000)
    folder.write("b.md", "Something.")

    def extractors() -> list[int]:
        found: list[int] = []
        for pid in children(os.getpid()):
            with suppress(OSError):  # it has ended meanwhile
                if (
                    b"crystal_node.derive.sources.extraction_child"
                    in Path(f"/proc/{pid}/cmdline").read_bytes()
                ):
                    found.append(pid)
        return found

    task = asyncio.create_task(folder.sync())
    deadline = time.monotonic() + 30
    while not extractors():
        assert time.monotonic() < deadline, "no extractor was started"
        await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not extractors()
    (folder.root / "a.html").unlink()
    assert (await folder.sync()).files == 1
    assert folder.documents().keys() == {"b.md"}


async def test_a_title_that_newer_redaction_rules_blank_is_put_again_once(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet(monkeypatch)
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"
    folder.write("a.md", f"# The robot has {secret}\n\nIt signs in every night.\n")
    folder.write("b.md", "# Foxes\n\nThe arctic fox changes its coat in October.\n")
    with monkeypatch.context() as before:
        before.setattr(reader, "redact", _unredacted)
        before.setattr(syncer, "RULES_VERSION", 0)
        await folder.sync()

    def kept() -> dict[str, str]:
        return dict(titles(folder.device.replica.database, folder.name))

    assert secret in kept()["a.md"]
    synced = await folder.sync()
    assert (synced.new, synced.changed, synced.removed) == (0, 1, 0)
    assert secret not in kept()["a.md"]
    assert "[redacted:" in kept()["a.md"]
    assert kept()["b.md"] == "Foxes"
    opened: list[str] = []
    with monkeypatch.context() as watched:
        watched.setattr(reader, "read_file", _noting(opened))
        await folder.sync()
    assert opened == [], "once is enough"


async def test_what_was_read_before_it_counted_as_a_secret_is_looked_at_again_and_removed(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet(monkeypatch)
    folder.write("codes.txt", "\n".join(f"a1b{n}c-d2e{n}f" for n in range(8)))
    folder.write("a.md", "The arctic fox changes its coat in October.")
    with monkeypatch.context() as before:
        before.setattr(reader, "secret_form", always(None))
        before.setattr(syncer, "FORM_RULES", 0)
        await folder.sync()
    assert set(folder.documents()) == {"a.md", "codes.txt"}
    synced = await folder.sync()
    assert (synced.removed, synced.new, synced.changed) == (1, 0, 0)
    assert set(folder.documents()) == {"a.md"}
    assert synced.skipped_paths == {"codes.txt": "secret by what it holds"}
    opened: list[str] = []
    with monkeypatch.context() as watched:
        watched.setattr(reader, "read_file", _noting(opened))
        await folder.sync()
    assert opened == [], "once is enough"


def _unredacted(text: str) -> Redacted:
    """As by rules that find nothing."""
    return Redacted(text, redact("").counts)


def _noting(opened: list[str]) -> Callable[[Path, str], None]:
    """A reader for which every file is gone, and that notes which were asked for."""

    def read(_root: Path, path: str) -> None:
        opened.append(path)

    return read
