"""When a look at a file says enough, when it is read once more, and what a round of files tells while it goes on."""

import errno
import os
import random
import threading
import time
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from crystal_mirror.files.ports import FileMoved, FileTrouble, LocalFile, SeenFile
from crystal_mirror.files.round import files_round
from crystal_node.sync.files import incoming_file, parts, scan
from crystal_node.sync.files.disk import FLUSH_PAUSE_SECONDS, FLUSHES_AT_ONCE
from crystal_node.sync.files.incoming_file import IncomingFile
from crystal_node.sync.files.scan import QUIET_COARSE_NS, QUIET_NS, local_of
from tests.support.desks import Desk, settle

SECOND_NS = 1_000_000_000


def looked_at(changed_ns: int, modified_ns: int, *, after_ns: int) -> bool:
    """Whether a file with these times is quiet so long after its change."""
    times = {"st_mtime_ns": modified_ns, "st_ctime_ns": changed_ns}
    info = os.stat_result((0o100600, 1, 1, 1, 0, 0, 5, 0, 0, 0), times)
    return local_of("plan.md", info, changed_ns + after_ns).quiet


def test_a_file_is_read_again_as_long_as_its_file_system_may_hide_a_change() -> None:
    fine, coarse = 1_700_000_000 * SECOND_NS + 123_456_789, 1_700_000_000 * SECOND_NS
    old = coarse - 3600 * SECOND_NS
    assert not looked_at(fine, old, after_ns=QUIET_NS)
    assert looked_at(fine, old, after_ns=QUIET_NS + 1)
    assert not looked_at(coarse, old, after_ns=QUIET_COARSE_NS)
    assert looked_at(coarse, old, after_ns=QUIET_COARSE_NS + 1)
    assert not looked_at(fine, fine + QUIET_NS, after_ns=2 * QUIET_NS), "a time that is about to come"
    # The time that programs may set says nothing about what the file system counts in.
    assert not looked_at(coarse, fine - SECOND_NS, after_ns=SECOND_NS)


def test_a_change_that_shows_in_nothing_but_the_content_is_found_by_the_next_look(
    core: Desk, laptop: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a file system counts whole seconds: same size, same times, same inode."""
    core.write("plan.md", "a plan")
    settle(core, laptop)
    real = scan.local_of

    def in_this_second(path: str, info: os.stat_result, now_ns: int) -> object:
        local = real(path, info, now_ns)
        return local._replace(stamp=local.stamp._replace(modified_ns=0, changed_ns=SECOND_NS), quiet=False)

    for module in (scan, parts):
        monkeypatch.setattr(module, "local_of", in_this_second)
    core.write("plan.md", "b plan")
    core.files()
    with (core.root / "plan.md").open("r+b") as file:
        file.write(b"c")
    assert core.sync().put == 1
    monkeypatch.undo()
    settle(core, laptop)
    assert laptop.tree() == {"plan.md": b"c plan"}


def test_a_file_noted_again_with_the_same_content_keeps_its_parts_and_their_places(core: Desk) -> None:
    core.write("large.bin", os.urandom(600_000))
    core.files()
    seen, cut = core.book.seen_at("large.bin"), core.book.parts_of("large.bin")
    assert seen is not None and len(cut) > 1
    stamp = seen.local.stamp._replace(changed_ns=7)
    later = SeenFile(seen.local._replace(stamp=stamp, quiet=True, executable=True), seen.digest)
    core.book.note_seen((later, cut))
    assert core.book.seen_at("large.bin") == later
    assert core.book.parts_of("large.bin") == cut
    assert [place.path for place in core.book.places(cut[1].content)] == ["large.bin"]


def test_what_a_round_has_offered_can_be_sent_while_the_round_goes_on(core: Desk, laptop: Desk) -> None:
    settle(core, laptop)
    for number in range(300):
        laptop.write(f"notes/note-{number}.md", f"note {number}")
    arrived: list[int] = []

    def offered() -> None:
        laptop.memory()
        core.memory()
        core.files(scan=False)
        arrived.append(len(core.tree()))

    flow = files_round(laptop.member, laptop.disk, laptop.book, now_ms=laptop.now(), offered=offered)
    assert laptop.store.run(flow).put == 300
    assert len(arrived) == 2
    assert 0 < arrived[0] < arrived[1] == 300
    settle(core, laptop)
    assert core.tree() == laptop.tree()


def test_the_folder_of_files_that_come_is_listed_once_for_a_group_and_again_for_the_next(
    core: Desk, laptop: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(core, laptop)
    for number in range(100):
        laptop.write(f"notes/note-{number}.md", f"note {number}")
    laptop.sync()
    core.memory()
    listed: list[Path] = []
    real = Path.iterdir

    def counted(folder: Path) -> object:
        listed.append(folder)
        return real(folder)

    monkeypatch.setattr(Path, "iterdir", counted)
    core.files(scan=False)
    assert len(core.tree()) == 100
    assert 1 < listed.count(core.root / "notes") <= 4


def test_an_allowance_that_is_taken_back_holds_from_the_next_round_on(core: Desk, laptop: Desk) -> None:
    """What was found about a folder is not kept longer than a group of files."""
    settle(core, laptop)
    laptop.write("notes/plan.md", "a plan")
    laptop.sync()
    core.sync()
    for name in ("HEAD", "objects/x", "refs/x"):
        core.write(f"notes/{name}", "git's")
    core.disk.tree = replace(core.disk.tree, allowed=())
    laptop.write("notes/other.md", "another plan")
    laptop.sync()
    core.memory()
    report = core.files(scan=False)
    assert report.fetched == 0
    assert not (core.root / "notes/other.md").exists()


def test_a_file_that_changes_while_its_pieces_are_read_is_not_taken_for_what_was_looked_at(
    core: Desk,
) -> None:
    file = core.write("plan.md", b"one two")
    local = core.disk.look("plan.md")
    assert local is not None
    assert list(core.disk.pieces(local, (4, 3))) == [b"one ", b"two"]
    assert list(core.disk.pieces(local, (4, 30))) == [b"one ", b"two"]
    pieces = core.disk.pieces(local, (4, 3))
    assert next(pieces) == b"one "
    file.write_bytes(b"one two three")
    assert next(pieces) == b"two"
    with pytest.raises(FileMoved, match="while it was read"):
        next(pieces)
    with pytest.raises(FileMoved, match="before it was read"):
        next(core.disk.pieces(local, (4,)))


def test_threads_that_make_files_durable_end_with_the_next_round(core: Desk, laptop: Desk) -> None:
    def flushing() -> int:
        return sum(thread.name.startswith("flush") for thread in threading.enumerate())

    before = flushing()
    for number in range(40):
        core.write(f"note-{number}.md", f"note {number}")
    core.sync()
    laptop.memory()
    laptop.files()
    assert len(laptop.tree()) == 40
    assert before < flushing() <= before + FLUSHES_AT_ONCE
    laptop.files(scan=False)
    assert flushing() == before


def test_one_file_that_cannot_be_made_durable_keeps_no_other_from_its_place(
    core: Desk, laptop: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(40):
        core.write(f"note-{number:02}.md", f"note {number}")
    core.sync()
    laptop.memory()
    completed, calls = IncomingFile.complete, count()

    def complete(self: IncomingFile, expected: LocalFile | None) -> None:
        if next(calls) in (7, 40):  # and when it is tried once more
            raise FileTrouble("the disk failed to write it")
        completed(self, expected)

    with monkeypatch.context() as patch:
        patch.setattr(IncomingFile, "complete", complete)
        report = laptop.files()
    (failed,) = report.refused
    assert laptop.tree().keys() == core.tree().keys() - {failed}
    laptop.files()
    assert laptop.tree() == core.tree()


def test_a_file_whose_flush_failed_once_is_fetched_from_the_beginning(
    core: Desk, laptop: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second flush would not tell: the system reports the failure once, and keeps in memory what is not on the disk."""
    data = random.Random(1).randbytes(6 * 1024 * 1024)
    core.write("big.bin", data)
    core.sync()
    laptop.memory()
    flushed, fails, have, had = os.fsync, count(), IncomingFile.have, list[int]()

    def begun(self: IncomingFile) -> int:
        had.append(have(self))
        return had[-1]

    def fsync(descriptor: int) -> None:
        if os.fstat(descriptor).st_size == len(data) and next(fails) == 0:
            raise OSError(errno.EIO, "the disk failed")
        flushed(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        patch.setattr(IncomingFile, "have", begun)
        assert laptop.files().refused.keys() == {"big.bin"}
        laptop.disk.monotonic = lambda: time.monotonic() + FLUSH_PAUSE_SECONDS
        laptop.files()
    assert next(fails) > 0
    assert had == [0, 0]
    assert laptop.tree() == core.tree()


def test_a_file_that_the_disk_never_writes_is_fetched_again_after_growing_pauses_only(
    core: Desk, laptop: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = random.Random(1).randbytes(1024 * 1024)
    core.write("big.bin", data)
    core.sync()
    laptop.memory()
    flushed, now = os.fsync, 0.0
    laptop.disk.monotonic = lambda: now

    def fsync(descriptor: int) -> None:
        if os.fstat(descriptor).st_size == len(data):
            raise OSError(errno.EIO, "the disk failed")
        flushed(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        for pause in (60, 120, 240):
            assert laptop.files().bytes_fetched == len(data), "once in a round"
            now += pause - 1
            report = laptop.files()
            assert report.bytes_fetched == 0
            assert report.refused == {
                "big.bin": "the disk failed to read or write it; it is fetched again later"
            }
            now += 1
        assert laptop.files().bytes_fetched == len(data)
        core.write("big.bin", data[::-1])
        core.sync()
        laptop.memory()
        assert laptop.files().bytes_fetched == len(data), "another content does not wait"
        assert laptop.files().bytes_fetched == 0
    now += 60
    laptop.files()
    assert laptop.tree() == core.tree()
    assert laptop.files().refused == {}


def test_a_file_is_durable_before_it_is_in_its_place_and_the_place_before_it_is_agreed_upon(
    core: Desk, laptop: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    core.write("notes/plan.md", "the plan")
    core.sync()
    laptop.memory()
    (laptop.root / "notes").mkdir()
    file, folder = laptop.root / "notes" / "plan.md", (laptop.root / "notes").stat()
    flushed, steps = os.fsync, list[tuple[str, bool]]()

    def fsync(descriptor: int) -> None:
        info = os.fstat(descriptor)
        if info.st_size == len("the plan"):
            steps.append(("file", file.exists()))
        elif info.st_ino == folder.st_ino:
            steps.append(("folder", file.exists()))
            assert laptop.book.agreed_at("notes/plan.md") is None
        flushed(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        laptop.files()
    assert steps == [("file", False), ("folder", True)]
    assert laptop.book.agreed_at("notes/plan.md") is not None


def test_no_file_is_closed_while_it_is_flushed_though_another_flush_failed_in_an_unforeseen_way(
    core: Desk, laptop: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        core.write(f"note-{number}.md", f"note {number}")
    core.sync()
    laptop.memory()
    flushed, calls, failed, ends = os.fsync, count(), threading.Event(), list[bool]()

    def fsync(descriptor: int) -> None:
        info = os.fstat(descriptor)
        if info.st_size != len("note 0"):
            flushed(descriptor)
        elif next(calls) == 0:
            failed.set()
            raise RuntimeError("nobody foresaw this")
        else:
            failed.wait(5)
            time.sleep(0.2)
            try:
                ends.append(os.fstat(descriptor).st_ino == info.st_ino)
            except OSError:
                ends.append(False)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(RuntimeError, match="foresaw"):
            laptop.files()
        assert ends == [True, True]
    laptop.files()
    assert laptop.tree() == core.tree()


def test_a_large_file_that_the_disk_did_not_keep_is_not_put_into_its_place(
    core: Desk, laptop: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    core.write("big.bin", random.Random(1).randbytes(6 * 1024 * 1024))
    core.sync()
    laptop.memory()
    flushed, spoilt = os.fsync, [5 * 1024 * 1024, 6 * 1024 * 1024 - 7]

    def fsync(descriptor: int) -> None:
        flushed(descriptor)
        if spoilt and os.fstat(descriptor).st_size == 6 * 1024 * 1024:
            os.pwrite(descriptor, b"another", spoilt.pop())

    with monkeypatch.context() as patch:
        patch.setattr(incoming_file, "READ_BY_ONE_BYTES_MAX", 1024 * 1024)
        patch.setattr(os, "fsync", fsync)
        assert laptop.files().refused.keys() == {"big.bin"}
        assert not laptop.tree()
    laptop.files()
    assert laptop.tree() == core.tree()
