"""Devices that stand where the log was let go of: a free slot there is not the end, and nobody writes at it."""

import pytest

from crystal_core.replica import Replica
from crystal_mirror.entries.control_state import published_floor
from crystal_mirror.errors import BehindTheFloor
from crystal_mirror.membership.member import Member
from crystal_mirror.replication.claim import claim
from crystal_node.device.journal import SqliteJournal
from tests.mirror.household import Household, has, same
from tests.mirror.support import seeded
from tests.mirror.test_snapshots import house, mirror_slots, remember, snapshot


def copy_of(member: Member) -> Member:
    """The same device as of now, as a backup keeps it."""
    assert isinstance(member.journal, SqliteJournal)
    assert isinstance(member.replica, Replica)
    journal = SqliteJournal.open(":memory:")
    journal.connection.deserialize("main", member.journal.connection.serialize("main"))
    return Member.open(
        member.identity,
        member.vault,
        journal,
        member.replica.clone(),
        seeded("from the backup"),
        member.root,
    )


@pytest.fixture
def home() -> Household:
    """A vault whose log was let go of up to a snapshot; ``home.backup`` is the Core as it was long before."""
    home = Household()
    remember(home.core, "before the backup")
    home.sync(home.core)
    return home


def go_on(home: Household, *others: Member) -> None:
    for number in range(100):
        remember(home.core, f"after the backup {number}")
        home.sync(home.core)
    home.sync(*others)
    snapshot(home)
    house(home)
    assert published_floor(home.core.replica)[1] > 50


def test_a_core_restored_from_a_backup_below_the_floor_writes_nothing_there(home: Household) -> None:
    laptop = home.add("laptop")
    home.sync(laptop)
    backup = copy_of(home.core)
    remember(backup, "only in the backup")
    go_on(home, laptop)
    before = set(mirror_slots(home))
    home.sync(backup)
    new = set(mirror_slots(home)) - before
    assert all(key > max(before) for key in new), "nothing was written in a slot that was let go of"
    home.sync(backup, laptop, backup, laptop)
    assert same(backup, laptop)
    assert has(laptop, "only in the backup")
    assert has(backup, "after the backup 99")


def test_a_device_with_nothing_but_the_kit_takes_the_lead_at_the_true_end(home: Household) -> None:
    laptop = home.add("laptop")
    home.sync(laptop)
    go_on(home, laptop)
    fresh = home.by_kit("fresh")
    home.store.run(claim(fresh, home.root, force=True))
    home.sync(fresh, laptop)
    assert fresh.is_core
    assert same(fresh, laptop)


def test_a_claimant_to_whom_no_snapshot_is_shown_does_not_seal_where_the_log_was_let_go_of(
    home: Household,
) -> None:
    go_on(home)
    for key in [key for key in home.store if "/blob/" in key]:
        del home.store[key]
    before = set(mirror_slots(home))
    fresh = home.by_kit("fresh")
    with pytest.raises(BehindTheFloor):
        home.store.run(claim(fresh, home.root, force=True))
    assert set(mirror_slots(home)) == before


def test_a_node_restored_from_a_backup_below_the_floor_repeats_and_loses_nothing(home: Household) -> None:
    laptop = home.add("laptop")
    home.sync(laptop)
    remember(laptop, "said before the backup")
    home.sync(laptop, home.core)
    backup = copy_of(laptop)
    remember(laptop, "said after the backup")
    home.sync(laptop, home.core, laptop)
    remember(backup, "said in the backup's life")
    go_on(home, laptop)
    home.sync(backup, home.core, backup, home.core, backup)
    assert same(home.core, backup)
    for text in ("said before the backup", "said after the backup", "said in the backup's life"):
        assert has(home.core, text)
    assert not backup.journal.names()


def test_a_device_whose_next_slot_is_the_floor_just_goes_on(home: Household) -> None:
    laptop = home.add("laptop")
    home.sync(laptop)
    go_on(home, laptop)
    home.sync(laptop)
    position = laptop.replica.position()
    remember(home.core, "one more")
    home.sync(home.core)
    for key in mirror_slots(home):
        if key < home.core.keys.mirror(position.epoch, position.sequence):
            del home.store[key]
    home.sync(laptop)
    assert same(home.core, laptop)


def test_junk_in_the_next_slot_below_the_floor_does_not_keep_a_device_from_the_snapshot(
    home: Household,
) -> None:
    laptop = home.add("laptop")
    home.sync(laptop)
    remember(laptop, "made while away")
    go_on(home)
    position = laptop.replica.position()
    home.store[home.core.keys.mirror(position.epoch, position.sequence)] = b"junk"
    home.sync(laptop, home.core, laptop)
    assert same(home.core, laptop)
    assert has(home.core, "made while away")
