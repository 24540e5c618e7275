"""Two devices and their files: what is the same afterwards, what is kept, and what moves."""

import os
import random
import shutil
from typing import Any

import pytest

from crystal_mirror.files.tree import DeletionDirection
from crystal_mirror.history.control_entries import write_control_entry
from crystal_mirror.replication.publish import publish
from tests.support.desks import Desk, Desks, settle

MIB = 1024 * 1024


def big(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def test_a_file_of_each_kind_arrives_as_it_was(core: Desk, laptop: Desk) -> None:
    core.write("notes/plan.md", "a plan")
    core.write("empty", b"")
    core.write("tools/run.sh", "#!/bin/sh\n", mode=0o700)
    core.write("big.bin", big(5 * MIB))
    laptop.write("Grüße/日本.txt", "from the laptop")
    settle(core, laptop)
    assert core.tree() == laptop.tree()
    assert len(core.tree()) == 5
    assert (laptop.root / "tools/run.sh").stat().st_mode & 0o777 == 0o600
    assert (laptop.root / "notes/plan.md").stat().st_mode & 0o777 == 0o600
    assert (laptop.root / "notes/plan.md").stat().st_mtime_ns // 10**6 == (
        core.root / "notes/plan.md"
    ).stat().st_mtime_ns // 10**6


def test_one_changed_byte_in_a_big_file_moves_at_most_a_few_parts(core: Desk, laptop: Desk) -> None:
    data = bytearray(big(64 * MIB))
    core.write("big.bin", bytes(data))
    settle(core, laptop)
    data[32 * MIB] ^= 1
    core.write("big.bin", bytes(data))
    store = core.store
    store.blobs_put = store.blobs_got = store.bytes_put = 0
    settle(core, laptop)
    assert (laptop.root / "big.bin").read_bytes() == bytes(data)
    assert 1 <= store.blobs_put <= 3
    assert 1 <= store.blobs_got <= 3
    assert store.bytes_put < 12 * MIB


def test_of_a_big_file_that_changed_the_relay_is_asked_about_its_new_parts_alone(
    core: Desk, laptop: Desk
) -> None:
    data = bytearray(big(16 * MIB))
    core.write("big.bin", bytes(data))
    settle(core, laptop)
    data[8 * MIB] ^= 1
    core.write("big.bin", bytes(data))
    core.store.requests = 0
    core.files()
    assert 1 <= core.store.requests <= 3


def test_bytes_put_in_at_the_beginning_of_a_big_file_move_at_most_a_few_parts(
    core: Desk, laptop: Desk
) -> None:
    data = big(32 * MIB)
    core.write("big.bin", data)
    settle(core, laptop)
    core.store.blobs_put = core.store.blobs_got = 0
    core.write("big.bin", b"a few bytes more" + data)
    settle(core, laptop)
    assert (laptop.root / "big.bin").read_bytes() == b"a few bytes more" + data
    assert core.store.blobs_put <= 3
    assert core.store.blobs_got <= 3


def test_a_rename_moves_no_parts(core: Desk, laptop: Desk) -> None:
    core.write("before/big.bin", big(8 * MIB))
    settle(core, laptop)
    core.store.blobs_put = core.store.blobs_got = 0
    (core.root / "before").rename(core.root / "after")
    settle(core, laptop)
    assert list(laptop.tree()) == ["after/big.bin"]
    assert (core.store.blobs_put, core.store.blobs_got) == (0, 0)
    assert not (laptop.root / "before").exists()


def test_a_rename_that_changes_only_the_case_arrives(core: Desk, laptop: Desk) -> None:
    core.write("Plan.md", "a plan")
    settle(core, laptop)
    (core.root / "Plan.md").rename(core.root / "plan.md")
    settle(core, laptop)
    assert core.tree() == laptop.tree() == {"plan.md": b"a plan"}


def test_what_both_sides_edit_is_kept_of_both(core: Desk, laptop: Desk) -> None:
    core.write("plan.md", "a plan")
    settle(core, laptop)
    core.write("plan.md", "the core's plan")
    laptop.write("plan.md", "the laptop's plan")
    settle(core, laptop)
    assert core.tree() == laptop.tree()
    assert sorted(core.tree().values()) == [b"the core's plan", b"the laptop's plan"]
    names = sorted(core.tree())
    assert names[0].startswith("plan (conflict ")
    assert names[1] == "plan.md"


def test_what_is_typed_on_while_a_conflict_is_settled_goes_along(core: Desk, laptop: Desk) -> None:
    core.write("plan.md", "a plan")
    settle(core, laptop)
    core.write("plan.md", "the core's plan")
    laptop.write("plan.md", "the laptop's plan")
    laptop.sync()  # offered
    core.sync()
    laptop.write("plan.md", "the laptop's plan, and more")
    settle(core, laptop)
    assert core.tree() == laptop.tree()
    assert sorted(core.tree().values()) == [b"the core's plan", b"the laptop's plan, and more"]


def test_the_same_file_made_on_both_sides_is_one(core: Desk, laptop: Desk) -> None:
    core.write("plan.md", "one plan")
    laptop.write("plan.md", "one plan")
    settle(core, laptop)
    assert core.tree() == laptop.tree() == {"plan.md": b"one plan"}


def test_an_edit_beats_a_deletion(core: Desk, laptop: Desk) -> None:
    for name in ("one", "two"):
        core.write(name, "first")
    settle(core, laptop)
    (core.root / "one").unlink()
    laptop.write("one", "edited")
    (laptop.root / "two").unlink()
    core.write("two", "edited")
    settle(core, laptop)
    assert core.tree() == laptop.tree() == {"one": b"edited", "two": b"edited"}


def test_what_was_deleted_elsewhere_is_in_the_trash_and_comes_back_for_everybody(
    core: Desk, laptop: Desk
) -> None:
    core.write("notes/plan.md", "a plan")
    core.write("notes/other.md", "another")
    settle(core, laptop)
    (core.root / "notes/plan.md").unlink()
    settle(core, laptop)
    assert list(laptop.tree()) == ["notes/other.md"]
    item = next(iter(laptop.disk.trash.items()))
    assert item.record.path == "notes/plan.md"
    assert laptop.disk.trash.restore(item) == "notes/plan.md"
    settle(core, laptop)
    assert core.tree() == laptop.tree()
    assert core.tree()["notes/plan.md"] == b"a plan"
    assert list(laptop.disk.trash.items()) == []


def test_thirty_days_in_the_trash_are_counted_by_a_clock_that_does_not_jump(core: Desk, laptop: Desk) -> None:
    core.write("plan.md", "a plan")
    settle(core, laptop)
    (core.root / "plan.md").unlink()
    settle(core, laptop)
    day, start = 24 * 60 * 60 * 1000, laptop.now()
    laptop.disk.now = lambda: start + 400 * day  # the machine's clock is set a year ahead
    laptop.disk.tidy()
    assert len(list(laptop.disk.trash.items())) == 1
    for passed in range(401, 433):
        laptop.disk.now = lambda passed=passed: start + passed * day  # type: ignore[misc]
        laptop.disk.tidy()
    assert list(laptop.disk.trash.items()) == []


def test_the_clock_of_the_trash_loses_nothing_though_it_is_written_once_an_hour(laptop: Desk) -> None:
    laptop.write("plan.md", "a plan")
    laptop.sync()
    minute, start = 60 * 1000, laptop.now()
    written: list[tuple[int, int]] = []
    for passed in range(0, 301, 10):
        laptop.disk.now = lambda passed=passed: start + passed * minute  # type: ignore[misc]
        laptop.disk.tidy()
        kept = laptop.book.meta_get("trash.clock")
        assert kept is not None
        written.append((int(kept.split()[0]), int(kept.split()[1])))
    (first, began), (last, ended) = written[0], written[-1]
    assert ended - began == last - first
    assert start + 300 * minute - last < 60 * minute
    assert len(set(written)) <= 6


def test_many_deletions_at_once_wait_for_a_person(core: Desk, laptop: Desk) -> None:
    for number in range(40):
        core.write(f"file-{number}", f"{number}")
    settle(core, laptop)
    for number in range(25):
        (core.root / f"file-{number}").unlink()
    report = core.sync()
    assert {direction for _, direction in report.withheld} == {DeletionDirection.EVERYWHERE}
    assert len(report.withheld) == 25
    settle(core, laptop)
    assert len(laptop.tree()) == 40
    assert core.book.confirm() == 25
    for _ in range(3):
        core.sync()
        report = laptop.sync()
    # The other side asks too: it did not hear the person say yes.
    assert {direction for _, direction in report.withheld} == {DeletionDirection.HERE}
    assert len(laptop.tree()) == 40
    laptop.book.confirm()
    settle(core, laptop)
    assert len(laptop.tree()) == len(core.tree()) == 15
    assert len(list(laptop.disk.trash.items())) == 25


def folder_of(desk: Desk, name: str, files: int) -> None:
    for number in range(files):
        desk.write(f"{name}/note-{number}.md", f"note {number // 2}")


def moved_away(desk: Desk, old: str, new: str) -> bool:
    return not any(path.startswith(f"{old}/") for path in desk.tree()) and any(
        path.startswith(f"{new}/") for path in desk.tree()
    )


def test_a_renamed_folder_is_renamed_everywhere_and_nothing_is_sent(core: Desk, laptop: Desk) -> None:
    folder_of(core, "drafts", 100)
    settle(core, laptop)
    before = laptop.tree()
    (core.root / "drafts").rename(core.root / "essays")
    core.store.blobs_put = core.store.blobs_got = 0
    report = core.sync()
    assert (report.dropped, report.put, report.withheld) == (100, 100, [])
    settle(core, laptop)
    assert moved_away(laptop, "drafts", "essays")
    assert laptop.tree() == core.tree()
    assert len(laptop.tree()) == len(before) == 100
    assert (core.store.blobs_put, core.store.blobs_got) == (0, 0)
    assert core.book.waiting() == laptop.book.waiting() == []
    # A move is no deletion: three more may go without anybody being asked.
    for number in range(3):
        (core.root / f"essays/note-{number}.md").unlink()
    settle(core, laptop)
    assert len(laptop.tree()) == len(core.tree()) == 97


def test_a_renamed_folder_that_is_gone_before_it_is_offered_is_a_deletion(core: Desk, laptop: Desk) -> None:
    folder_of(core, "drafts", 100)
    settle(core, laptop)
    (core.root / "drafts").rename(core.root / "essays")
    withhold = core.book.withhold

    def taken_away(*arguments: Any) -> None:
        withhold(*arguments)
        shutil.rmtree(core.root / "essays")

    core.book.withhold = taken_away  # type: ignore[assignment]
    assert core.files().dropped == 0
    core.book.withhold = withhold  # type: ignore[method-assign]
    assert len(core.sync().withheld) == 100
    settle(core, laptop)
    assert len(laptop.tree()) == 100
    assert laptop.book.waiting() == []


def test_a_copy_accounts_for_one_deletion_only(core: Desk, laptop: Desk) -> None:
    for number in range(40):
        core.write(f"file-{number}", "the same")
    settle(core, laptop)
    for number in range(25):
        (core.root / f"file-{number}").unlink()
    core.write("one-of-them", "the same")
    report = core.sync()
    assert len(report.withheld) == 24
    settle(core, laptop)
    assert len(laptop.tree()) == 40


def test_a_rename_that_is_stopped_halfway_ends_without_a_question(core: Desk, laptop: Desk) -> None:
    folder_of(core, "drafts", 60)
    settle(core, laptop)
    (core.root / "drafts").rename(core.root / "essays")
    core.sync()
    core.sync()
    remove, left = laptop.disk.remove, [7]

    class Stopped(Exception):
        pass

    def stop(*arguments: Any) -> None:
        if not left[0]:
            raise Stopped
        left[0] -= 1
        remove(*arguments)

    laptop.disk.remove = stop  # type: ignore[assignment]
    with pytest.raises(Stopped):
        laptop.sync()
    laptop.disk.remove = remove  # type: ignore[method-assign]
    assert len(laptop.tree()) > 100, "all are at their new paths, most at the old ones as well"
    settle(core, laptop)
    assert moved_away(laptop, "drafts", "essays")
    assert len(laptop.tree()) == 60
    assert laptop.book.meta_get("moved") is None


def test_a_folder_stays_until_its_files_are_at_their_new_paths(core: Desk, laptop: Desk) -> None:
    folder_of(core, "drafts", 30)
    settle(core, laptop)
    (core.root / "drafts").rename(core.root / "essays")
    (laptop.root / "essays").write_text("a file where the folder would be")
    core.sync()
    core.sync()
    laptop.sync()
    assert len([path for path in laptop.tree() if path.startswith("drafts/")]) == 30
    (laptop.root / "essays").unlink()
    settle(core, laptop)
    assert moved_away(laptop, "drafts", "essays")


def test_deletions_in_small_bites_are_seen_as_many(core: Desk, laptop: Desk) -> None:
    for number in range(40):
        core.write(f"file-{number}", f"{number}")
    settle(core, laptop)
    for number in range(12):
        (core.root / f"file-{number}").unlink()
        core.sync()
    settle(core, laptop)
    assert len(laptop.tree()) >= 36
    assert core.book.waiting()


def test_deletions_that_were_a_mistake_are_taken_back(core: Desk, laptop: Desk) -> None:
    for number in range(40):
        core.write(f"file-{number}", f"{number}")
    settle(core, laptop)
    for path in list(core.tree()):
        (core.root / path).unlink()
    core.sync()
    assert core.book.keep() == 40
    settle(core, laptop)
    assert len(core.tree()) == len(laptop.tree()) == 40


def test_what_is_excluded_is_deleted_nowhere_and_not_fetched(desks: Desks, core: Desk) -> None:
    laptop = desks.open("laptop")
    core.write("cache/one", "1")
    core.write("keep", "k")
    settle(core, laptop)
    laptop.close()
    laptop = desks.open("laptop", ("-cache",))
    core.write("cache/two", "2")
    settle(core, laptop)
    assert sorted(laptop.tree()) == ["cache/one", "keep"]
    (laptop.root / "cache/one").unlink()  # to make room here
    settle(core, laptop)
    assert sorted(core.tree()) == ["cache/one", "cache/two", "keep"]
    laptop.close()
    laptop = desks.open("laptop")
    settle(core, laptop)
    assert sorted(laptop.tree()) == ["cache/one", "cache/two", "keep"]
    assert laptop.tree() == core.tree()
    laptop.close()


def test_a_lost_book_loses_no_file(desks: Desks, core: Desk) -> None:
    laptop = desks.open("laptop")
    for number in range(5):
        core.write(f"file-{number}", f"{number}")
    settle(core, laptop)
    laptop.close()
    for path in (laptop.root / "state").glob("files.db*"):
        path.unlink()
    (laptop.root / "file-1").unlink()  # nobody remembers that it was here
    core.write("file-2", "changed there")
    laptop.write("file-3", "changed here")
    laptop = desks.open("laptop")
    settle(core, laptop)
    assert core.tree() == laptop.tree()
    assert core.tree()["file-1"] == b"1"
    assert {b"changed there", b"changed here", b"2", b"3"} <= set(core.tree().values())
    laptop.close()


def test_what_the_relay_lost_of_the_files_is_put_back(core: Desk, laptop: Desk, desks: Desks) -> None:
    from crystal_mirror.files.transfers import reput_parts

    core.write("big.bin", big(4 * MIB))
    settle(core, laptop)
    lost = core.store.lose("/blob/")
    assert lost >= 1
    put = core.store.run(reput_parts(laptop.member, laptop.disk, laptop.book))
    assert put == lost
    third = Desks(desks.folder, "third").open("third")
    settle(core, third)
    assert third.tree() == core.tree()
    third.close()


def test_a_file_whose_parts_are_not_on_the_relay_is_named_and_comes_later(core: Desk, laptop: Desk) -> None:
    core.write("plan.md", "a plan")
    core.sync()
    core.store.lose("/blob/")
    laptop.memory()
    report = laptop.files()
    assert list(report.lacking) == ["plan.md"]
    assert laptop.tree() == {}
    core.write("again", "a plan")  # the same content is put back
    settle(core, laptop)
    assert laptop.tree() == core.tree()


def test_a_version_whose_parts_were_condemned_before_it_was_ordered_is_offered_again(
    core: Desk, laptop: Desk
) -> None:
    laptop.write("plan.md", "a plan")
    settle(laptop, core)
    before = laptop.replica.file("plan.md")
    laptop.write("plan.md", "a better plan")
    laptop.files()
    (offer,) = laptop.book.offers()
    assert offer.names
    write_control_entry(core.member, condemned=offer.names)
    core.store.run(publish(core.member))
    laptop.memory()
    core.memory()
    laptop.memory()
    assert laptop.replica.done(offer.origin)
    assert laptop.replica.file("plan.md") == before, "it had no effect"
    settle(laptop, core)
    assert laptop.tree() == core.tree() == {"plan.md": b"a better plan"}


def test_a_folder_becomes_a_file_and_a_file_a_folder(core: Desk, laptop: Desk) -> None:
    core.write("one/inner", "inside")
    core.write("two", "a file")
    settle(core, laptop)
    (core.root / "one/inner").unlink()
    (core.root / "one").rmdir()
    core.write("one", "now a file")
    (core.root / "two").unlink()
    core.write("two/inner", "now a folder")
    settle(core, laptop)
    assert core.tree() == laptop.tree() == {"one": b"now a file", "two/inner": b"now a folder"}


def test_an_empty_folder_is_in_no_files_way(core: Desk, laptop: Desk) -> None:
    (laptop.root / "notes").mkdir()
    core.write("notes", "a file")
    settle(core, laptop)
    assert laptop.tree() == {"notes": b"a file"}


def test_a_mode_alone_travels_without_content(core: Desk, laptop: Desk) -> None:
    core.write("run.sh", "#!/bin/sh\n")
    settle(core, laptop)
    core.store.blobs_put = core.store.blobs_got = 0
    (core.root / "run.sh").chmod(0o700)
    settle(core, laptop)
    assert (laptop.root / "run.sh").stat().st_mode & 0o777 == 0o600
    row = laptop.replica.file("run.sh")
    assert row is not None
    assert row.executable
    assert laptop.book.bits_withheld() == {"run.sh"}
    (core.root / "run.sh").chmod(0o600)
    settle(core, laptop)
    assert laptop.book.bits_withheld() == frozenset()
    assert (core.store.blobs_put, core.store.blobs_got) == (0, 0)


def test_files_that_did_not_change_cost_no_request(core: Desk, laptop: Desk) -> None:
    for number in range(50):
        file = core.write(f"file-{number}", f"{number}")
        os.utime(file, ns=(10**18, 10**18))
    settle(core, laptop)
    core.store.requests = 0
    report = core.files()
    assert report.files == 50
    assert core.store.requests == 0


def test_a_text_file_is_stored_compressed_and_what_does_not_shrink_as_it_is(core: Desk, laptop: Desk) -> None:
    text = b"".join(b"line %d of a long text\n" % n for n in range(60_000))
    core.write("long.txt", text)
    settle(core, laptop)
    assert core.store.bytes_put < len(text) / 4
    core.store.bytes_put = 0
    core.write("picture.bin", big(MIB))
    settle(core, laptop)
    assert MIB < core.store.bytes_put < MIB * 1.1
    assert (laptop.root / "long.txt").read_bytes() == text
    assert core.tree() == laptop.tree()
