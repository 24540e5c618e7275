"""Names of blobs over the generations: whose keys make them, what an old program left, and what a hostile maker may state."""

from hashlib import sha256
from unittest.mock import patch

import msgspec
import pytest

from crystal_core.snapshots.parts import decode_part
from crystal_core.state.files import pack_parts, unpack_parts
from crystal_crypto.errors import Malformed, TooLarge
from crystal_mirror.entries.batches import Announced
from crystal_mirror.entries.control_state import newest_snapshot, packs_of
from crystal_mirror.membership.administration import renew_generation
from crystal_mirror.membership.member import Member
from crystal_mirror.operations import (
    FILE_PART_BYTES_MAX,
    FILE_PARTS_MAX,
    OPERATION_BYTES_MAX,
    PUT_BYTES_MAX,
    FilePart,
    PutFile,
    blob_name,
    decode_operation,
    encode_operation,
)
from crystal_mirror.retention.pruning import condemn_others, prune_now, seal_files_anew
from crystal_mirror.snapshots import packs as packing
from crystal_mirror.snapshots.blobs import BlobDamaged, BlobRef, get_blob, name_of, put_blob
from crystal_mirror.snapshots.creation import make_snapshot, read_manifest
from crystal_mirror.snapshots.packs import make_packs
from crystal_mirror.streams.outbox import other_name
from crystal_mirror.types import Origin
from tests.mirror.household import Household, another_process, same
from tests.mirror.test_two_devices import capture

NOW = 1_800_000_000_000
NAME = bytes(range(32))


def old_names(_self: Member, _content: bytes, turn: int) -> int:
    """As a program named blobs that knew of no other names."""
    return turn


@pytest.fixture
def home() -> Household:
    home = Household()
    home.laptop = home.add("laptop")
    home.lost = home.add("lost")
    home.sync(home.core, home.laptop, home.lost)
    return home


def put_file(home: Household, member: Member, path: str, content: bytes) -> None:
    ref = home.store.run(put_blob(member, content, compress=True))
    member.accept(PutFile(path, None, False, 5, (FilePart(ref.content, ref.length, ref.named),)))
    home.sync(member, home.core, home.laptop)


def part_of(member: Member, path: str) -> FilePart:
    row = member.replica.file(path)
    assert row is not None
    return row.parts[0]


def snapshot(home: Household) -> Announced:
    home.store.run(make_snapshot(home.core))
    home.sync(home.core)
    newest = newest_snapshot(home.core.replica)
    assert newest is not None
    return newest


def renew(home: Household) -> None:
    home.store.run(renew_generation(home.core, now_ms=NOW))
    home.sync(home.core, home.laptop)


def test_names_are_of_the_secret_in_generation_one_and_of_the_generation_in_force_later(
    home: Household,
) -> None:
    core, digest = home.core, sha256(b"content").digest()
    assert core.named(digest, 3) == 3
    assert blob_name(core.secret, digest, 3) == core.secret.blob_name(digest, 3)
    seen: set[int | bytes] = set()
    for _ in range(3):
        renew(home)
        named = core.named(digest, 3)
        assert named == home.laptop.named(digest, 3) == core.generation_key.blob_name(core.vault, digest, 3)
        assert named not in seen
        assert named != core.named(digest, 4)
        seen.add(named)
    assert core.secret.blob_name(digest, 3) not in seen


def test_a_vault_that_an_old_program_filled_goes_on_without_sending_anything_again(home: Household) -> None:
    """Several generations, all of them named by the vault's secret, and a floor: newcomers read it, nothing is lost."""
    with patch.object(Member, "named", old_names):
        for number in range(3):
            home.core.accept(capture(f"text {number} " * 20))
            put_file(home, home.laptop, f"{number}.md", b"as before %d" % number)
            renew(home)
        old = snapshot(home)
    blobs = {key for key in home.store if "/blob/" in key}
    assert isinstance(old.named, int)
    put_file(home, home.laptop, "new.md", b"under a new name")
    new = snapshot(home)
    assert isinstance(new.named, bytes)
    before, after = (home.store.run(read_manifest(home.core, each)).parts for each in (old, new))
    assert set(before) & set(after), "parts that did not change are taken as they are"
    assert blobs <= home.store.keys()
    home.store.run(prune_now(home.core, NOW))
    home.sync(home.core)
    late = home.add("late")
    home.sync(late, home.laptop, home.core)
    assert same(home.core, home.laptop, late)
    for row in late.replica.files():
        for part in row.parts:
            assert home.store.run(get_blob(late, BlobRef.of(part)))
    assert part_of(late, "0.md").named == 0
    assert isinstance(part_of(late, "new.md").named, bytes)


def test_sealing_anew_takes_the_old_names_away_also_from_what_is_sealed_in_force(home: Household) -> None:
    renew(home)
    with patch.object(Member, "named", old_names):
        put_file(home, home.laptop, "plan.md", b"sealed in force, named by the secret")
        snapshot(home)
    there = {bytes.fromhex(key.rpartition("/")[2]) for key in home.store if "/blob/" in key}
    report = home.store.run(seal_files_anew(home.core))
    assert (report.files, report.parts) == (1, 1)
    home.sync(home.core)
    home.store.run(make_snapshot(home.core, anew=True))
    home.sync(home.core)
    home.store.run(condemn_others(home.core, there))
    home.store.run(prune_now(home.core, NOW))
    home.sync(home.core, home.laptop)
    left = {bytes.fromhex(key.rpartition("/")[2]) for key in home.store if "/blob/" in key}
    assert not left & there
    assert home.store.run(get_blob(home.laptop, BlobRef.of(part_of(home.laptop, "plan.md"))))
    assert home.store.run(seal_files_anew(home.core)).files == 0


def test_packs_have_names_of_the_generation_in_force_and_are_read(home: Household) -> None:
    renew(home)
    with patch.multiple(packing, PACK_SLOTS_MIN=2, PACK_SLOTS_MAX=4):
        for number in range(6):
            home.core.accept(capture(f"one of many {number}"))
            home.sync(home.core)
        packs = home.store.run(make_packs(home.core))
    assert packs
    assert all(isinstance(pack.named, bytes) for pack in packs)
    for pack in packs:
        assert home.store.run(get_blob(home.laptop, BlobRef(pack.content, pack.length, pack.named)))
    assert packs_of(home.core.replica) == ()


def test_a_name_that_is_condemned_or_taken_gives_way_to_the_next_turns(home: Household) -> None:
    renew(home)
    content = b"comes twice"
    ref = home.store.run(put_blob(home.core, content))
    with home.core.replica.transaction() as transaction:
        transaction.condemn([name_of(home.core, ref)])
    again = home.store.run(put_blob(home.core, content))
    digest = sha256(content).digest()
    key = home.core.generation_key
    assert [ref.named, again.named] == [key.blob_name(home.core.vault, digest, turn) for turn in (0, 1)]


def test_a_put_that_names_a_condemned_blob_is_of_no_effect_whatever_made_the_name(home: Household) -> None:
    renew(home)
    ref = home.store.run(put_blob(home.laptop, b"condemned meanwhile"))
    with home.core.replica.transaction() as transaction:
        transaction.condemn([name_of(home.core, ref)])
        origin = Origin(home.laptop.device_id, b"someones", 0)
        put = PutFile("a.md", None, False, 5, (FilePart(ref.content, ref.length, ref.named),))
        transaction.apply(origin, put, lambda _text: [])
        assert transaction.file("a.md") is None


def test_a_file_that_states_a_false_name_is_lacking_and_harms_nothing_else(home: Household) -> None:
    renew(home)
    put_file(home, home.laptop, "good.md", b"as it should be")
    good = part_of(home.core, "good.md")
    content = sha256(b"something else").digest()
    for path, named in (("other.md", good.named), ("none.md", NAME)):
        home.laptop.accept(PutFile(path, None, False, 5, (FilePart(content, 14, named),)))
    home.sync(home.laptop, home.core, home.laptop)
    for path in ("other.md", "none.md"):
        with pytest.raises(BlobDamaged):
            home.store.run(get_blob(home.core, BlobRef.of(part_of(home.core, path))))
    assert home.store.run(get_blob(home.core, BlobRef.of(good))) == b"as it should be"
    snapshot(home)
    late = home.add("late")
    home.sync(late)
    assert same(home.core, home.laptop, late)


def test_the_new_name_of_an_operation_is_the_same_on_all_copies_and_told_by_nobody_else(
    home: Household,
) -> None:
    """The relay is asked for what stands under that name, and to delete it: a hash without a key would tell it the words."""
    used, digest = Origin(home.laptop.device_id, b"used up!", 7), sha256(b"an operation").digest()
    name = other_name(home.laptop, used, digest)
    assert name == other_name(another_process(home.laptop), used, digest)
    plain = used.device + used.incarnation + used.sequence.to_bytes(8, "big") + digest
    for guess in (plain, b"crystal/v2/renamed" + plain, b"crystal/v2/renamed\x00" + plain):
        assert sha256(guess).digest()[:8] != name.incarnation
    others = {other_name(member, used, digest) for member in (home.laptop, home.core, home.lost)}
    assert len(others) == 3
    assert other_name(home.laptop, used._replace(sequence=8), digest) != name


def test_the_parts_of_the_largest_file_fit_an_operation_with_their_names() -> None:
    parts = tuple(
        FilePart(sha256(bytes([number % 256])).digest(), FILE_PART_BYTES_MAX, sha256(b"%d" % number).digest())
        for number in range(FILE_PARTS_MAX)
    )
    operation = PutFile("p" * 200, None, True, 2**53, parts)
    data = encode_operation(operation)
    assert len(data) > OPERATION_BYTES_MAX
    assert decode_operation(data) == operation
    assert unpack_parts(pack_parts(parts)) == parts


def test_no_other_operation_may_be_as_long_as_a_put() -> None:
    texts = ["x" * 2000] * 200
    data = msgspec.msgpack.encode(["pd", "s", "p", bytes(32), 0, "text", 0, 200, texts, [""] * 200])
    assert OPERATION_BYTES_MAX < len(data) < PUT_BYTES_MAX
    with pytest.raises(TooLarge):
        decode_operation(data)


@pytest.mark.parametrize("named", [-1, 256, b"", bytes(31), bytes(33), None, "0"])
def test_a_part_refers_to_a_turn_or_a_name_and_to_nothing_else(named: object) -> None:
    data = msgspec.msgpack.encode(["p", "a.md", None, False, 5, [[bytes(32), 1, named]]])
    with pytest.raises(Malformed):
        decode_operation(data)


def test_parts_with_turns_are_packed_as_they_were_before_there_were_names() -> None:
    turned = FilePart(bytes(31) + b"\x01", 0x400000, 255)
    assert pack_parts((turned,)) == turned.content + b"\x00\x40\x00\x00\xff"
    mixed = (turned, FilePart(NAME, 5, NAME), turned)
    packed = pack_parts(mixed)
    assert packed[37 : 37 + 68] == NAME + b"\x80\x00\x00\x05" + NAME
    assert unpack_parts(packed) == mixed


def test_a_snapshot_whose_files_have_parts_that_are_none_is_malformed(home: Household) -> None:
    put_file(home, home.laptop, "a.md", b"a")
    with home.core.replica.export() as export:
        parts = [msgspec.msgpack.decode(part) for part in export.parts()]
    wire = next(part for part in parts if part[24])
    good = wire[24][0][7]
    for packed in (
        good[:-1],
        good + b"\x00",
        good[:32] + b"\x80\x00\x00\x01" + NAME[:-1],
        NAME + b"\x80\x00\x00\x00" + NAME,
    ):
        wire[24][0][7] = packed
        with pytest.raises(Malformed):
            decode_part(msgspec.msgpack.encode(wire))
    wire[24][0][7] = NAME + b"\x80\x00\x00\x01" + NAME
    assert decode_part(msgspec.msgpack.encode(wire)).files[0].parts == wire[24][0][7]
