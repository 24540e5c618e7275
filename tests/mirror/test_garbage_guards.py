"""What garbage collection leaves alone, and until when: each limit is shown by itself (docs/mutations.md)."""

from hashlib import sha256

import pytest

from crystal_core.snapshots import export
from crystal_mirror.entries.control_state import newest_snapshot, packs_of, published_floor
from crystal_mirror.history.control_entries import write_control_entry
from crystal_mirror.membership.member import Member
from crystal_mirror.operations import Forget
from crystal_mirror.replication.publish import publish
from crystal_mirror.retention.forgets import DAY_MS, HOUR_MS, note_forgets
from crystal_mirror.retention.gc import KeptSnapshot, read_state, retain
from crystal_mirror.snapshots import packs
from crystal_mirror.snapshots.creation import is_whole
from crystal_mirror.snapshots.packs import dead_packs, pack_name
from tests.mirror.household import Household
from tests.mirror.test_packs import away, counted_sync, pack, week
from tests.mirror.test_snapshots import NOW, remember, snapshot


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Household:
    """A small memory, of which a snapshot has many small parts all the same."""
    monkeypatch.setattr(export, "PART_BYTES_MIN", 700)
    monkeypatch.setattr(export, "_CUT_MASK", 1)
    home = Household()
    assert note_forgets(home.core, NOW) == (), "who looks for the first time later assumes that there was one"
    for number in range(40):
        remember(home.core, f"fact number {number}")
    home.sync(home.core)
    return home


def collected(home: Household, after_ms: int) -> None:
    """One pass of garbage collection, so long after the first one; what it publishes is on the relay."""
    assert home.store.run(retain(home.core, NOW + after_ms))
    home.store.run(publish(home.core))


def two_snapshots(home: Household) -> tuple[KeptSnapshot, KeptSnapshot]:
    """An older and a newer one, both kept, which share parts; a hundred slots lie between them."""
    snapshot(home)
    collected(home, 0)
    for number in range(100):
        write_control_entry(home.core, condemned=[number.to_bytes(32, "big")])
        home.store.run(publish(home.core))
    remember(home.core, "between the snapshots")
    home.sync(home.core)
    snapshot(home)
    collected(home, HOUR_MS)
    older, newer = read_state(home.core).snapshots
    assert set(older.names) & set(newer.names), "what they share is what the tests are about"
    assert set(older.names) - set(newer.names)
    return older, newer


def there(home: Household, names: list[bytes]) -> list[bool]:
    return [home.core.keys.blob(name) in home.store for name in names]


def test_the_floor_stays_below_the_oldest_snapshot_that_is_kept(home: Household) -> None:
    older, newer = two_snapshots(home)
    assert newer.announced.sequence - older.announced.sequence > 100
    assert published_floor(home.core.replica) <= older.announced.position[:2]


def test_an_older_snapshot_stays_for_a_day_and_what_the_newest_shares_with_it_for_good(
    home: Household,
) -> None:
    older, newer = two_snapshots(home)
    collected(home, 24 * HOUR_MS)
    assert all(there(home, older.names))
    collected(home, 26 * HOUR_MS)
    collected(home, 28 * HOUR_MS)
    left = dict(zip(older.names, there(home, older.names), strict=True))
    assert left == {name: name in newer.names for name in older.names}
    assert all(there(home, newer.names))
    newest = newest_snapshot(home.core.replica)
    assert newest is not None and home.store.run(is_whole(home.core, newest))


def test_while_the_newest_snapshot_is_lost_the_older_one_is_left_alone(home: Household) -> None:
    older, newer = two_snapshots(home)
    for name in set(newer.names) - set(older.names):
        del home.store[home.core.keys.blob(name)]
    for day in range(1, 40):
        collected(home, HOUR_MS + day * DAY_MS)
    assert read_state(home.core).lost
    assert all(there(home, older.names))


def test_packs_that_are_listed_are_no_lone_blobs() -> None:
    home = Household()
    week(home)
    pack(home)
    names = [pack_name(home.core, each) for each in packs_of(home.core.replica)]
    assert names and all(there(home, names))
    for day in range(1, 40):
        collected(home, day * DAY_MS)
    assert all(there(home, names))


def test_conversations_stay_for_a_day_after_they_were_acknowledged(home: Household) -> None:
    laptop = home.add("laptop")
    remember(laptop, "from the laptop")
    home.sync(laptop, home.core, laptop)
    prefix = f"{home.core.keys.conversations_prefix}{laptop.device_id.hex()}"
    assert any(key.startswith(prefix) for key in home.store)
    collected(home, 0)
    for hours in (2, 12, 23):
        collected(home, hours * HOUR_MS)
        assert any(key.startswith(prefix) for key in home.store), hours
    collected(home, 25 * HOUR_MS)
    assert not any(key.startswith(prefix) for key in home.store)


def floor_at(member: Member, home: Household, sequence: int) -> None:
    write_control_entry(member, floor=(1, sequence))
    home.store.run(publish(member))


def test_a_pack_is_of_no_use_from_the_slot_behind_its_last_on() -> None:
    home = Household()
    week(home)
    pack(home)
    snapshot(home)
    (one,) = packs_of(home.core.replica)
    floor_at(home.core, home, one.first + one.count - 1)
    assert dead_packs(home.core) == []
    floor_at(home.core, home, one.first + one.count)
    assert dead_packs(home.core) == [one]


def test_packs_of_two_passes_follow_each_other_and_each_is_fetched_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packs, "PACK_SLOTS_MAX", 128)
    home = Household()
    laptop = away(home, 200)
    pack(home)
    week(home, 200)
    home.core.rounds = 0
    home.store.run(retain(home.core, NOW + 2 * HOUR_MS))
    home.sync(home.core)
    listed = packs_of(home.core.replica)
    assert len(listed) >= 3
    ends = [each.first + each.count for each in listed]
    assert [each.first for each in listed[1:]] == ends[:-1]
    assert counted_sync(home, laptop)["blobs"] == len(listed)


def test_what_was_lone_when_a_core_first_looked_counts_from_the_first_forget_on(home: Household) -> None:
    """The Core before it may have seen it lone since then; if it holds what was forgotten it has to go in time."""
    remember(home.core, "to be forgotten")
    home.sync(home.core)
    target = home.core.secret.forget_hash(sha256(b"to be forgotten").digest())
    home.core.accept(Forget((target,)))
    home.sync(home.core)
    (forget,) = note_forgets(home.core, NOW)
    assert forget.since == NOW
    lone = home.core.keys.blob(b"\7" * 32)
    home.store[lone] = b"left by the Core before"
    collected(home, 4 * DAY_MS)
    assert lone in home.store
    collected(home, 5 * DAY_MS + HOUR_MS)
    collected(home, 5 * DAY_MS + 3 * HOUR_MS)
    assert lone not in home.store


def test_a_lone_blob_stays_for_thirty_days_where_nothing_was_forgotten(home: Household) -> None:
    lone = home.core.keys.blob(b"\7" * 32)
    home.store[lone] = b"of no file"
    for day in (0, 10, 20, 29):
        collected(home, day * DAY_MS)
        assert lone in home.store, day
    collected(home, 30 * DAY_MS)
    collected(home, 30 * DAY_MS + 2 * HOUR_MS)
    assert lone not in home.store
