"""Packs: who was away for a week reads a few large objects, and believes them no more than it believes the slots."""

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from unittest.mock import patch

from crystal_mirror.entries.control_state import packs_of, published_floor
from crystal_mirror.history.control_entries import write_control_entry
from crystal_mirror.membership.member import Member
from crystal_mirror.replication.publish import publish
from crystal_mirror.requests import Get, GetBlob, GetMany
from crystal_mirror.retention.gc import retain
from crystal_mirror.round import sync_round
from crystal_mirror.snapshots import packs
from tests.mirror.household import MODEL, Household, same
from tests.mirror.test_snapshots import NOW, house, remember, snapshot


def week(home: Household, entries: int = 600) -> None:
    """Many small entries, as a week of messages leaves them."""
    remember(home.core, "the week begins")
    home.sync(home.core)
    for number in range(entries):
        write_control_entry(home.core, condemned=[sha256(b"%d" % number).digest()])
        home.store.run(publish(home.core))


def pack(home: Household) -> None:
    home.store.run(retain(home.core, NOW, force=False))
    home.core.rounds = 0
    home.sync(home.core)


def counted_sync(home: Household, member: Member) -> Counter[str]:
    """One round, with the objects that it fetched."""
    flow, reply, counted = sync_round(member, MODEL), None, Counter[str]()
    while True:
        try:
            request = flow.send(reply)
        except StopIteration:
            return counted
        match request:
            case Get():
                counted["slots"] += 1
            case GetMany(keys):
                counted["slots"] += len(keys)
            case GetBlob():
                counted["blobs"] += 1
            case _:
                pass
        reply = home.store.answer(request)


def away(home: Household, entries: int = 600) -> Member:
    laptop = home.add("laptop")
    home.sync(laptop)
    week(home, entries)
    return laptop


def test_a_node_that_was_away_for_a_week_reads_packs_and_not_every_slot() -> None:
    home = Household()
    laptop = away(home)
    pack(home)
    assert sum(each.count for each in packs_of(home.core.replica)) >= 512
    fetched = counted_sync(home, laptop)
    assert same(home.core, laptop)
    assert fetched["blobs"] <= 2
    assert fetched["slots"] < 350


def test_without_packs_it_reads_every_slot() -> None:
    """What the test above measures is there to be saved."""
    home = Household()
    laptop = away(home)
    assert counted_sync(home, laptop)["slots"] > 600
    assert same(home.core, laptop)


def test_a_pack_that_is_damaged_or_holds_other_bytes_costs_nothing_but_requests() -> None:
    home = Household()
    laptop, other = away(home), home.add("other")
    pack(home)
    blobs = [key for key in home.store if "/blob/" in key]
    for key in blobs:
        home.store[key] = home.store[key][:-1] + b"?"
    home.sync(laptop)
    assert same(home.core, laptop)
    for key in blobs:
        del home.store[key]
    home.sync(other)
    assert same(home.core, other)


def test_a_device_that_packs_other_slots_than_it_lists_is_not_believed() -> None:
    """A Core is trusted with the order, not by way of packs: each slot is judged as if it had been fetched."""
    home = Household()
    laptop = away(home)
    real = packs.packed

    def shifted(slots: Sequence[bytes]) -> bytes:
        return real([b"junk" * 50, *slots[:-1]])

    with patch.object(packs, "packed", shifted):
        pack(home)
    assert packs_of(home.core.replica)
    for _ in range(3):
        home.sync(laptop)
    assert same(home.core, laptop)


def test_packs_below_the_floor_go_and_hold_no_forgotten_text() -> None:
    home = Household()
    week(home)
    pack(home)
    assert packs_of(home.core.replica)
    blobs = {key for key in home.store if "/blob/" in key}
    snapshot(home)
    house(home)
    house(home, 1)
    assert published_floor(home.core.replica) > (1, 512)
    assert packs_of(home.core.replica) == ()
    assert not blobs & set(home.store)
    late = home.add("late")
    home.sync(late)
    assert same(home.core, late)
