"""Files over a change of the vault's keys: where they are cut and how their parts are named afterwards, and what stays."""

from contextlib import suppress
from itertools import pairwise

from crystal_crypto.blob import parse_blob_header
from crystal_mirror.membership.administration import renew_generation
from crystal_mirror.operations import FilePart
from crystal_node.sync.files.parts import Cutter
from tests.node.sync.files.test_two_devices import MIB, big
from tests.support.desks import Desk, Desks, settle

OLD = b"written in the first generation"


def renewed(core: Desk, *others: Desk) -> None:
    before = core.member.log.generation
    core.store.run(renew_generation(core.member, now_ms=core.now()))
    for desk in (core, *others):
        desk.memory()
        assert desk.member.log.generation == before + 1
    core.store.blobs_put = core.store.blobs_got = 0


def blobs(desk: Desk) -> set[str]:
    return {key for key in list(desk.store.keys()) if "/blob/" in key}


def parts(desk: Desk, path: str) -> tuple[FilePart, ...]:
    row = desk.replica.file(path)
    assert row is not None
    assert not row.gone
    return row.parts


def cuts(desk: Desk, path: str, seed: int) -> list[int]:
    """Where whoever has that seed would cut the file."""
    local = desk.disk.look(path)
    assert local is not None
    return [part.length for part in Cutter(desk.root, seed).cut(local)]


def test_who_has_the_keys_of_before_cannot_tell_where_a_file_is_cut(core: Desk, laptop: Desk) -> None:
    old = core.member.cut_seed()[0]
    renewed(core, laptop)
    assert core.member.cut_seed() == laptop.member.cut_seed() != (old, 1)
    core.write("known.bin", big(24 * MIB))
    settle(core, laptop)
    stored = [part.length for part in parts(core, "known.bin")]
    assert stored == cuts(core, "known.bin", core.member.cut_seed()[0])
    foreseen = cuts(core, "known.bin", old)
    # Two sizes in a row: among so many parts some have the same size by chance.
    assert not set(pairwise(stored)) & set(pairwise(foreseen))
    assert laptop.tree() == core.tree()


def test_a_file_that_was_read_and_not_sent_before_the_keys_changed_is_cut_anew(
    core: Desk, laptop: Desk
) -> None:
    settle(core, laptop)
    laptop.write("waiting.bin", big(8 * MIB))
    old = laptop.member.cut_seed()[0]
    local = laptop.disk.look("waiting.bin")
    assert local is not None
    laptop.store.before = _refuse_puts
    with suppress(ConnectionError):
        laptop.files()
    laptop.store.before = None
    assert [part.length for part in laptop.book.parts_of("waiting.bin")] == cuts(laptop, "waiting.bin", old)
    renewed(core, laptop)
    settle(laptop, core)
    stored = [part.length for part in parts(core, "waiting.bin")]
    assert stored == cuts(laptop, "waiting.bin", laptop.member.cut_seed()[0])
    assert stored != cuts(laptop, "waiting.bin", old)
    assert core.tree() == laptop.tree()


def test_the_first_change_in_a_generation_sends_a_large_file_whole_and_the_next_one_a_few_parts(
    core: Desk, laptop: Desk
) -> None:
    data = bytearray(big(24 * MIB))
    core.write("big.bin", bytes(data))
    settle(core, laptop)
    renewed(core, laptop)
    sent: list[int] = []
    stood: list[int] = []  # a changed byte may make or end a cut
    for place in (3 * MIB, 20 * MIB):
        data[place] ^= 1
        core.write("big.bin", bytes(data))
        core.store.blobs_put = 0
        settle(core, laptop)
        sent.append(core.store.blobs_put)
        stood.append(len(parts(core, "big.bin")))
        assert (laptop.root / "big.bin").read_bytes() == bytes(data)
    assert sent[0] == stood[0] > 10
    assert 1 <= sent[1] <= 3


def test_nothing_that_stands_is_sent_again_because_the_keys_changed(core: Desk, laptop: Desk) -> None:
    core.write("big.bin", big(8 * MIB))
    core.write("small.txt", OLD)
    settle(core, laptop)
    before, versions = blobs(core), [row.version for row in core.replica.files()]
    renewed(core, laptop)
    (core.root / "big.bin").touch()
    (laptop.root / "big.bin").touch()
    settle(core, laptop)
    assert blobs(core) == before
    assert [row.version for row in core.replica.files()] == versions
    assert core.store.blobs_put == core.store.blobs_got == 0


def test_a_moved_and_an_executable_file_of_before_are_not_sent_again_and_nobody_asks_for_them(
    core: Desk, laptop: Desk
) -> None:
    core.write("before/big.bin", big(8 * MIB))
    core.write("run.sh", OLD)
    settle(core, laptop)
    names = [part.named for part in parts(core, "before/big.bin")]
    before = blobs(core)
    renewed(core, laptop)
    (core.root / "before").rename(core.root / "after")
    (core.root / "run.sh").chmod(0o700)
    asked: list[str] = []
    core.store.before = lambda request: asked.append(str(request))
    settle(core, laptop)
    assert [part.named for part in parts(laptop, "after/big.bin")] == names
    assert (laptop.root / "run.sh").stat().st_mode & 0o100 == 0, "the bit is set by a person of each device"
    assert (core.store.blobs_put, core.store.blobs_got) == (0, 0)
    assert not [request for request in asked for key in before if key in request and "Listing" not in request]
    assert laptop.tree() == core.tree()


def test_a_home_that_lost_its_list_of_files_makes_no_conflicts_of_files_of_before(
    desks: Desks, core: Desk
) -> None:
    laptop = desks.open("laptop")
    core.write("big.bin", big(8 * MIB))
    settle(core, laptop)
    renewed(core, laptop)
    laptop.close()
    for file in (laptop.root / "state").glob("files.db*"):
        file.unlink()
    laptop = desks.open("laptop")
    settle(laptop, core)
    assert list(core.tree()) == list(laptop.tree()) == ["big.bin"]
    assert (core.store.blobs_put, core.store.blobs_got) == (0, 0)
    laptop.close()


def test_of_files_of_before_only_the_one_that_changed_is_sent_under_the_new_key(
    desks: Desks, core: Desk
) -> None:
    laptop = desks.open("laptop")
    for number in range(3):
        core.write(f"{number}.bin", big(2 * MIB, number))
    settle(core, laptop)
    renewed(core, laptop)
    laptop.close()
    laptop = desks.open("laptop")
    laptop.write("1.bin", big(2 * MIB, 9))
    settle(laptop, core)
    assert core.tree() == laptop.tree()
    assert all(isinstance(part.named, bytes) for part in parts(core, "1.bin"))
    assert {part.named for path in ("0.bin", "2.bin") for part in parts(core, path)} == {0}
    sealed = {parse_blob_header(core.store.get(key) or b"").generation for key in blobs(core)}
    assert sealed == {1, 2}
    laptop.close()


def _refuse_puts(request: object) -> None:
    if type(request).__name__ in ("PutBlob", "PutBlobs"):
        raise ConnectionError("the line is cut")
