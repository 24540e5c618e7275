"""Snapshots: read back before they count, restored part by part, and the log below them let go of without losing anything."""

from collections import Counter
from hashlib import sha256

import pytest

from crystal_core.replica import Replica
from crystal_crypto.blob import parse_blob_header
from crystal_mirror.entries.control_state import newest_snapshot, published_floor, read_base
from crystal_mirror.errors import RelayMisbehaves
from crystal_mirror.history.control_entries import write_control_entry
from crystal_mirror.membership.cursors import About
from crystal_mirror.membership.member import Member
from crystal_mirror.notices import Notice
from crystal_mirror.operations import Forget, Remember, blob_name
from crystal_mirror.replication.publish import publish
from crystal_mirror.requests import GetBlob, PutBlob
from crystal_mirror.retention.forgets import DAY_MS, pending_forgets
from crystal_mirror.retention.gc import retain, snapshot_due
from crystal_mirror.round import sync_round
from crystal_mirror.snapshots.blobs import BlobDamaged
from crystal_mirror.snapshots.creation import make_snapshot
from crystal_mirror.snapshots.manifest import UnreadableSnapshot, decode_manifest
from crystal_mirror.snapshots.restore import restore_pending
from crystal_mirror.types import START
from tests.mirror.household import MODEL, Household, has, same

NOW = 1_800_000_000_000


def remember(member: Member, text: str) -> None:
    member.accept(Remember(text, "fact", "agent", 1))


def snapshot(home: Household, member: Member | None = None) -> None:
    """Makes one, and has it announced."""
    member = member or home.core
    assert home.store.run(make_snapshot(member)) is not None
    home.sync(member)
    assert newest_snapshot(member.replica) is not None


def house(home: Household, days: float = 0, *, force: bool = True) -> None:
    """The Core looks after the relay: once to publish, once to ask."""
    now = NOW + int(days * DAY_MS)
    for _ in range(3):
        home.store.run(sync_round(home.core, MODEL, about=About(now_ms=0)))
        home.store.run(retain(home.core, now, force=force))
    home.sync(home.core)


def mirror_slots(home: Household) -> list[str]:
    return sorted(key for key in home.store if "/mirror/" in key)


@pytest.fixture
def home() -> Household:
    home = Household()
    for number in range(40):
        remember(home.core, f"fact number {number}")
    home.sync(home.core)
    return home


def test_a_new_device_starts_from_the_snapshot_and_follows_the_log_behind_it(home: Household) -> None:
    snapshot(home)
    remember(home.core, "after the snapshot")
    home.sync(home.core)
    laptop = home.add("laptop")
    home.sync(laptop)
    assert read_base(laptop.replica) == newest_snapshot(home.core.replica)
    assert same(home.core, laptop)
    assert has(laptop, "fact number 7")
    assert has(laptop, "after the snapshot")


def test_the_log_below_the_floor_goes_and_a_new_device_comes_in_all_the_same(home: Household) -> None:
    laptop = home.add("laptop")
    home.sync(laptop, home.core)
    snapshot(home)
    home.sync(laptop)
    before = len(mirror_slots(home))
    house(home)
    assert published_floor(home.core.replica) > (0, 0)
    assert len(mirror_slots(home)) < before + 2
    assert home.core.replica.oldest_kept() == published_floor(home.core.replica)
    remember(laptop, "from the laptop")
    home.sync(laptop, home.core, laptop)
    late = home.add("late")
    home.sync(late)
    assert same(home.core, laptop, late)


def test_a_device_that_was_away_below_the_floor_reads_a_snapshot_and_loses_nothing(home: Household) -> None:
    laptop = home.add("laptop")
    home.sync(laptop, home.core)
    remember(laptop, "made while away")
    for number in range(100):
        remember(home.core, f"meanwhile {number}")
        home.sync(home.core)
    snapshot(home)
    house(home)
    home.sync(laptop)
    assert Notice.FLOOR_PASSED in laptop.notices.current()
    home.sync(home.core, laptop)
    assert same(home.core, laptop)
    assert has(home.core, "made while away")


def test_a_slow_reader_keeps_the_floor_down_until_it_was_away_for_thirty_days(home: Household) -> None:
    laptop = home.add("laptop")
    home.sync(laptop, home.core)
    stands = laptop.replica.position()[:2]
    for number in range(100):
        remember(home.core, f"meanwhile {number}")
        home.sync(home.core)
    snapshot(home)
    house(home, 2, force=False)
    house(home, 20, force=False)
    assert published_floor(home.core.replica) < stands
    house(home, 40, force=False)
    assert published_floor(home.core.replica) > stands


def test_a_killed_restore_goes_on_where_it_was_and_reads_one_part_again_at_most(home: Household) -> None:
    for number in range(40):
        remember(home.core, f"{number} " + "long words that fill a part of a snapshot " * 1400)
    home.sync(home.core)
    snapshot(home)
    parts = sum("/blob/" in key for key in home.store)
    laptop = home.add("laptop")
    fetched: list[str] = []
    for stop_after in range(1, parts + 2):
        flow, reply, gets = sync_round(laptop, MODEL), None, 0
        try:
            while gets <= stop_after:
                request = flow.send(reply)
                if isinstance(request, GetBlob):
                    gets += 1
                    fetched.append(request.key)
                reply = home.store.answer(request)
        except StopIteration:
            break
        flow.close()
    home.sync(laptop)
    assert not restore_pending(laptop)
    newest = newest_snapshot(home.core.replica)
    assert newest is not None
    manifest = home.core.keys.blob(blob_name(home.core.secret, newest.manifest, newest.named))
    times = Counter(key for key in fetched if key != manifest)
    assert len(times) == parts - 1 >= 2
    assert max(times.values()) <= 2
    assert same(home.core, laptop)


def test_what_the_relay_does_not_give_back_is_not_announced(home: Household) -> None:
    def forgetful() -> None:
        flow, reply = make_snapshot(home.core), None
        while True:
            request = flow.send(reply)
            # It says that it has it.
            reply = True if isinstance(request, PutBlob) else home.store.answer(request)

    with pytest.raises(RelayMisbehaves):
        forgetful()
    home.sync(home.core)
    assert newest_snapshot(home.core.replica) is None


def test_junk_under_a_parts_name_makes_the_core_take_another_name(home: Household) -> None:
    flow, reply, first = make_snapshot(home.core), None, True
    while True:
        try:
            request = flow.send(reply)
        except StopIteration:
            break
        if isinstance(request, PutBlob) and first:
            home.store[request.key], first = b"junk", False
        reply = home.store.answer(request)
    home.sync(home.core)
    laptop = home.add("laptop")
    home.sync(laptop)
    assert read_base(laptop.replica) is not None
    assert same(home.core, laptop)


def test_a_relay_that_lost_a_part_is_noticed_and_the_next_snapshot_mends_it(home: Household) -> None:
    snapshot(home)
    house(home)
    for key in [key for key in home.store if "/blob/" in key]:
        del home.store[key]
    laptop = home.add("laptop")
    home.sync(laptop)
    assert laptop.replica.position() == START
    assert Notice.SNAPSHOT_LOST in laptop.notices.current()
    house(home, 3)
    assert snapshot_due(home.core, NOW + 3 * DAY_MS) is not None
    remember(home.core, "one more")
    home.sync(home.core)
    snapshot(home)
    home.sync(laptop)
    assert same(home.core, laptop)


def test_a_damaged_part_replaces_nothing(home: Household) -> None:
    laptop = home.add("laptop")
    snapshot(home)
    manifest = newest_snapshot(home.core.replica)
    assert manifest is not None
    name = blob_name(home.core.secret, manifest.manifest, manifest.named)
    for key in [key for key in home.store if "/blob/" in key and not key.endswith(name.hex())]:
        data = bytearray(home.store[key])
        data[-20] ^= 1
        home.store[key] = bytes(data)
    with pytest.raises(BlobDamaged):
        home.sync(laptop)
    assert laptop.replica.position() == START


def test_a_manifest_of_another_version_says_what_makes_one_that_can_be_read(home: Household) -> None:
    snapshot(home)
    announced = newest_snapshot(home.core.replica)
    assert announced is not None
    with pytest.raises(UnreadableSnapshot) as refused:
        decode_manifest(b"\x97\x01\x01\x01\xa0\xa0\xa0\x90", announced)
    assert "`crystal snapshot`" in refused.value.hint


def test_a_forgotten_text_leaves_log_snapshots_and_conversations(home: Household) -> None:
    laptop = home.add("laptop")
    home.sync(laptop, home.core)
    snapshot(home)
    home.sync(laptop)
    secret_text = "fact number 7"
    target = home.core.secret.forget_hash(sha256(secret_text.encode()).digest())
    home.core.accept(Forget((target,)))
    home.sync(home.core, laptop)
    house(home, 0, force=False)
    assert pending_forgets(home.core)
    before = {key: home.store[key] for key in home.store if "/blob/" in key or "/mirror/" in key}
    assert snapshot_due(home.core, NOW + 1 * DAY_MS) is None
    assert snapshot_due(home.core, NOW + 3 * DAY_MS) is not None
    snapshot(home)
    for day in (3, 4, 6.1, 6.2, 6.4):
        house(home, day, force=False)
        home.sync(laptop)
    assert not pending_forgets(home.core)
    floor = published_floor(home.core.replica)
    left = {key for key in before if key in home.store and "/blob/" in key}
    assert not left & {key for key in before if "/blob/" in key}, (
        "parts of the snapshot that held it are gone"
    )
    assert all(key >= home.core.keys.mirror(*floor) for key in mirror_slots(home))
    assert same(home.core, laptop)


def test_a_state_that_differs_is_made_anew_from_the_snapshot(home: Household) -> None:
    laptop = home.add("laptop")
    home.sync(laptop, home.core)
    snapshot(home)
    home.sync(laptop)
    house(home)
    home.sync(laptop)
    assert isinstance(laptop.replica, Replica)
    laptop.replica.database.run("DELETE FROM memories WHERE chunk = (SELECT min(chunk) FROM memories)")
    laptop.replica.database.run("DELETE FROM digests WHERE name = 'memories'")
    remember(home.core, "another")
    home.sync(home.core, laptop, home.core)
    home.sync(laptop)
    assert same(home.core, laptop)


def test_an_emptied_relay_gets_log_and_snapshot_back(home: Household) -> None:
    laptop = home.add("laptop")
    home.sync(laptop, home.core)
    snapshot(home)
    home.sync(laptop)
    house(home)
    home.sync(laptop)
    home.store.clear()
    home.core.rounds = 0
    home.sync(home.core)
    house(home, 2)
    remember(home.core, "and on it goes")
    home.sync(home.core)
    snapshot(home)
    late = home.add("late")
    home.sync(laptop, late)
    assert same(home.core, laptop, late)


def test_a_floor_that_rose_over_the_announcement_meanwhile_does_not_make_it_doubtful(home: Household) -> None:
    snapshot(home)
    laptop = home.add("laptop")
    flow, reply = sync_round(laptop, MODEL), None
    while read_base(laptop.replica) is None:
        reply = home.store.answer(flow.send(reply))
    flow.close()
    for number in range(80):
        remember(home.core, f"meanwhile {number}")
        home.sync(home.core)
    snapshot(home)
    kept = dict(home.store)
    house(home)
    assert published_floor(home.core.replica) > laptop.replica.position()[:2]
    for key, data in kept.items():
        home.store.setdefault(key, data)  # the relay has not come to delete yet
    home.sync(laptop)
    assert Notice.SNAPSHOT_DAMAGED not in laptop.notices.current()
    assert same(home.core, laptop)


def test_a_part_that_was_condemned_while_a_snapshot_was_made_is_not_announced(home: Household) -> None:
    first = home.store.run(make_snapshot(home.core))
    assert first is not None
    home.sync(home.core)
    remember(home.core, "one more")
    home.sync(home.core)
    second = home.store.run(make_snapshot(home.core))
    assert second is not None
    name = blob_name(home.core.secret, second.manifest, second.named)
    write_control_entry(home.core, condemned=[name])
    home.store.run(publish(home.core))
    home.sync(home.core)
    assert newest_snapshot(home.core.replica) == first
    snapshot(home)
    late = home.add("late")
    home.sync(late)
    assert same(home.core, late)


def test_parts_of_snapshots_are_not_compressed_across_texts(home: Household) -> None:
    """Their size would tell whether one conversation repeats what another says."""
    for number in range(50):
        remember(home.core, f"the same words in each of many facts, and number {number}")
    home.sync(home.core)
    snapshot(home)
    blobs = [parse_blob_header(home.store[key]) for key in home.store if "/blob/" in key]
    assert any(blob.payload_bytes > 4096 for blob in blobs)
    assert not any(blob.compressed for blob in blobs)
