"""What moves between two devices: many small files in few requests, a little change of a large file in little."""

import random
from itertools import accumulate, pairwise

import pytest

from crystal_mirror.files import transfers
from crystal_mirror.files.shared import FilesReport
from crystal_mirror.membership.member import Member
from crystal_mirror.requests import GetBlobs, PutBlobs, Request
from crystal_mirror.snapshots.blobs import BlobRef, sealed_blob
from tests.support.desks import Desk, settle

MIB = 1024 * 1024


def big(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def test_many_files_travel_in_few_requests_and_entries(core: Desk, laptop: Desk) -> None:
    settle(core, laptop)
    for number in range(100):
        laptop.write(f"notes/{number % 7}/note-{number}.md", f"note {number}")
    core.store.requests = 0
    entries = entries_of(core)
    for desk in (laptop, core, laptop):
        desk.sync()
    assert core.tree() == laptop.tree()
    assert len(core.tree()) == 100
    assert entries_of(core) == entries + 1
    assert core.store.requests < 60
    for number in range(90):
        (laptop.root / f"notes/{number % 7}/note-{number}.md").unlink()
    laptop.sync()
    laptop.book.confirm()
    for desk in (laptop, core):
        desk.sync()
    core.book.confirm()
    core.files(scan=False)
    assert core.tree() == laptop.tree()
    assert len(core.tree()) == 10
    assert entries_of(core) == entries + 2


def test_files_of_one_operation_that_came_second_are_told_apart(core: Desk, laptop: Desk) -> None:
    """The names of the last two are cut short for the mark of a conflict, and are one file then."""
    stem = "name " * 38
    names = ["a.md", "b.md", "c.md", f"{stem}1.md", f"{stem}2.md"]
    for desk in (core, laptop):
        for name in names:
            desk.write(name, f"{name[-6:]} of {desk.root.name}")
    settle(core, laptop)
    assert core.tree() == laptop.tree()
    assert len(core.tree()) == 2 * len(names)
    for name in names:
        assert core.tree()[name].endswith(b" of core")
    kept = {content for path, content in core.tree().items() if "conflict" in path}
    assert kept == {f"{name[-6:]} of laptop".encode() for name in names}
    for path in list(core.tree()):
        if path.startswith("a (conflict"):
            core.write(path, "changed later")
    settle(core, laptop)
    assert core.tree() == laptop.tree()


def test_a_file_that_cannot_be_placed_holds_up_no_other_of_its_group(core: Desk, laptop: Desk) -> None:
    for number in range(5):
        core.write(f"notes/{number}.md", f"note {number}")
    core.sync()
    laptop.memory()
    laptop.write("notes/2.md/here.txt", "a folder stands in its place")
    laptop.files()
    assert sorted(laptop.tree()) == [
        "notes/0.md",
        "notes/1.md",
        "notes/2.md/here.txt",
        "notes/3.md",
        "notes/4.md",
    ]
    assert all(laptop.book.agreed_at(f"notes/{number}.md") for number in (0, 1, 3, 4))


def test_a_kilobyte_changed_in_a_large_file_moves_a_few_hundred_kilobytes(core: Desk, laptop: Desk) -> None:
    data = bytearray(big(32 * MIB))
    core.write("big.bin", bytes(data))
    settle(core, laptop)
    data[16 * MIB : 16 * MIB + 1024] = big(1024, 2)
    core.write("big.bin", bytes(data))
    before = {key: len(core.store.get(key) or b"") for key in keys_of(core)}
    settle(core, laptop)
    assert (laptop.root / "big.bin").read_bytes() == bytes(data)
    after = {key: len(core.store.get(key) or b"") for key in keys_of(core)}
    assert sum(size for key, size in after.items() if key not in before) < 900_000


def test_what_can_be_compressed_is_found_again_behind_what_cannot(
    core: Desk, laptop: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = list[bool]()

    def noted(member: Member, ref: BlobRef, content: bytes, *, compress: bool) -> tuple[str, bytes]:
        tried.append(compress)
        return sealed_blob(member, ref, content, compress=compress)

    monkeypatch.setattr(transfers, "sealed_blob", noted)
    text = "".join(f"line {number} of the log\n" for number in range(200_000)).encode()
    film = big(4 * MIB)
    for name, content in {"log.txt": text, "disk.img": film + text}.items():
        core.store.bytes_put = 0
        tried.clear()
        core.write(name, content[::-1] if name == "log.txt" else content)
        core.sync()
        row = core.replica.file(name)
        assert row is not None
        assert len(tried) == len(row.parts)
        ends = accumulate(part.length for part in row.parts)
        noise = sum(end <= len(film) for end in ends) if name == "disk.img" else 0
        assert sum(tried[:noise]) == (4 + (noise - 1) // 8 if noise else 0), "one of eight, after four"
        assert sum(not each for each in tried[noise:]) <= 7, "as soon as one gets smaller, each of them"
        sealed = core.store.bytes_put - (4 * MIB if name == "disk.img" else 0)
        assert sealed < len(text) / 2.5, name
    settle(core, laptop)
    assert laptop.tree() == core.tree()


def test_a_file_that_was_cut_into_larger_parts_keeps_them(
    core: Desk, laptop: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = big(16 * MIB)
    with monkeypatch.context() as before:
        before.setattr("crystal_node.sync.files.parts.PART_BYTES_MEANS", (MIB,))
        core.write("big.bin", data)
        settle(core, laptop)
    core.store.blobs_put = core.store.bytes_put = 0
    core.write("big.bin", data + b"one line more")
    settle(core, laptop)
    assert (laptop.root / "big.bin").read_bytes() == data + b"one line more"
    assert core.store.blobs_put <= 2
    row = laptop.replica.file("big.bin")
    assert row is not None
    assert len(row.parts) < 64


def test_what_a_stopped_round_has_sent_is_not_sent_again(core: Desk, laptop: Desk) -> None:
    core.write("big.bin", big(12 * MIB))

    def cut(request: object) -> None:
        if core.store.blobs_put > 64:
            raise ConnectionError("the line is cut")

    core.memory()
    core.store.before = cut
    with pytest.raises(ConnectionError):
        core.files()
    core.store.before = None
    sent = core.store.blobs_put
    settle(core, laptop)
    row = core.replica.file("big.bin")
    assert row is not None
    assert sent > 64
    assert core.store.blobs_put == len({part.content for part in row.parts})


def test_a_file_is_offered_only_once_all_of_its_parts_are_durable(core: Desk, laptop: Desk) -> None:
    core.write("big.bin", big(12 * MIB))
    core.memory()
    asked: list[Request] = []

    def look(request: Request) -> None:
        assert not core.book.offers(), "nothing is asked of the store any more once the file is offered"
        asked.append(request)

    core.store.before = look
    core.files()
    core.store.before = None
    written = [request for request in asked if isinstance(request, PutBlobs)]
    assert len(written) > 3
    assert all(request.behind for request in written[:-1])
    assert not written[-1].behind, "waits for those before it"
    assert [offer.path for offer in core.book.offers()] == ["big.bin"]
    settle(core, laptop)
    assert laptop.tree() == core.tree()


def test_parts_that_are_fetched_next_are_asked_for_ahead_unless_they_are_here(
    core: Desk, laptop: Desk
) -> None:
    content = big(12 * MIB)
    core.write("big.bin", content)
    settle(core, laptop)
    core.write("other.bin", big(9 * MIB, 2) + content)
    core.sync()
    asked, _ = fetched(laptop, core)
    assert len(asked) > 2
    assert sum(len(request.keys) for request in asked) < 9 * 1024 / 64 * 2, "the rest is on the disk"
    assert laptop.tree() == core.tree()


def test_while_small_files_are_put_into_their_places_the_next_ones_are_asked_for(
    core: Desk, laptop: Desk
) -> None:
    for number in range(200):
        core.write(f"notes/note-{number:03}.md", f"note {number}")
    core.sync()
    asked, report = fetched(laptop, core)
    assert len(asked) == 4
    assert report.parts_fetched == 200
    assert laptop.tree() == core.tree()


def fetched(desk: Desk, other: Desk) -> tuple[list[GetBlobs], FilesReport]:
    """The requests for blobs with which a desk fetches its files. Each names the next one's blobs."""
    asked: list[GetBlobs] = []

    def look(request: Request) -> None:
        if isinstance(request, GetBlobs):
            asked.append(request)

    desk.memory()
    other.store.before = look
    report = desk.files()
    other.store.before = None
    assert asked[-1].ahead is None
    for before, after in pairwise(asked):
        assert before.ahead is not None
        assert before.ahead.keys == after.keys
    return asked, report


def keys_of(desk: Desk) -> list[str]:
    return desk.store.keys()


def entries_of(desk: Desk) -> int:
    return sum("/conversations/" in key for key in keys_of(desk))
