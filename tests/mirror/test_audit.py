"""Single bytes that rot at the relay, and slots that are lost there, while every device has read past them."""

import pytest

from crystal_mirror.entries.control_state import newest_snapshot
from crystal_mirror.membership.cursors import About, read_cursors
from crystal_mirror.membership.member import Member
from crystal_mirror.notices import Notice
from crystal_mirror.repair.audit import AUDIT_MS, LIST_PAGE_AT_REST, META, newcomer_is_stuck, restore_slots
from crystal_mirror.replication.claim import claim
from crystal_mirror.replication.rebuild import rebuild_pending
from crystal_mirror.requests import List, Listing, Poll, Put, Request, StoreFailure
from crystal_mirror.retention.gc import snapshot_due
from crystal_mirror.retention.pruning import prune_now
from crystal_mirror.round import FULL_CHECK_ROUNDS, sync_round
from crystal_mirror.snapshots.blobs import BlobDamaged, blob_key
from crystal_mirror.snapshots.creation import read_manifest
from tests.mirror.household import MODEL, Household, has, same
from tests.mirror.support import driven
from tests.mirror.test_snapshots import house, remember, snapshot

NOW = 1_700_000_000_000


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def living() -> tuple[Household, Member]:
    """A vault in which a laptop has read everything."""
    home = Household()
    laptop = home.add("laptop")
    for number in range(8):
        remember(home.core, f"remark {number}")
        home.sync(home.core)
    home.sync(laptop)
    round_at(home, home.core, NOW)
    round_at(home, laptop, NOW)
    return home, laptop


def round_at(home: Household, member: Member, now_ms: int, *, full: bool = True) -> None:
    member.rounds = FULL_CHECK_ROUNDS if full else 1
    home.store.run(sync_round(member, MODEL, about=About(now_ms)))


@pytest.mark.parametrize("where", ["header", "public part", "signature"])
def test_every_slot_of_the_device_log_is_named_by_whoever_sees_it_and_put_back_by_the_core(
    where: str,
) -> None:
    home, laptop = living()
    later = NOW
    for slot in range(home.core.log.next_slot):
        key = home.core.keys.log(slot)
        whole = home.store[key]
        at = {"header": 10, "public part": 190, "signature": len(whole) - 1}[where]
        home.store[key] = flipped(whole, at)
        later += AUDIT_MS
        round_at(home, laptop, later)
        assert Notice.LOG_DAMAGED in laptop.notices.current()
        round_at(home, laptop, later + 1000, full=False)
        assert Notice.LOG_DAMAGED in laptop.notices.current(), "it is named until it is put back"
        round_at(home, home.core, later)
        assert home.store[key] == whole
        round_at(home, laptop, later + 2000, full=False)
        assert Notice.LOG_DAMAGED not in laptop.notices.current()


def test_another_signed_history_is_a_fork_and_is_not_written_over() -> None:
    home, _ = living()
    first, second = (home.core.keys.log(slot) for slot in (1, 2))
    home.store[first], home.store[second] = home.store[second], home.store[first]
    shown = dict(home.store)
    round_at(home, home.core, NOW + AUDIT_MS)
    assert Notice.LOG_FORKED in home.core.notices.current()
    assert {key: home.store[key] for key in (first, second)} == {key: shown[key] for key in (first, second)}


def test_a_rotten_slot_of_the_mirror_is_put_back_without_a_new_epoch() -> None:
    home, laptop = living()
    for sequence in (0, 3, 6):
        key = home.core.keys.mirror(1, sequence)
        whole = home.store[key]
        home.store[key] = flipped(whole, len(whole) // 2)
    epoch = home.core.replica.position().epoch
    round_at(home, laptop, NOW + AUDIT_MS)
    assert Notice.MIRROR_DAMAGED in laptop.notices.current()
    round_at(home, home.core, NOW + AUDIT_MS)
    late = home.add("late")
    home.sync(late)
    assert same(home.core, late)
    assert home.core.replica.position().epoch == epoch and not rebuild_pending(home.core)


def test_a_newcomer_that_stands_before_a_rotten_slot_gets_it_back_in_the_next_full_check() -> None:
    home, _ = living()
    key = home.core.keys.mirror(1, 4)
    home.store[key] = flipped(home.store[key], 300)
    late = home.add("late")
    round_at(home, late, NOW)
    assert not has(late, "remark 7")
    round_at(home, home.core, NOW + 1000)
    round_at(home, late, NOW + 2000, full=False)
    assert same(home.core, late)
    assert home.core.replica.position().epoch == 1


def test_a_slot_lost_in_the_middle_is_back_after_the_next_idle_round() -> None:
    home, _ = living()
    lost = {home.core.keys.mirror(1, sequence) for sequence in (2, 5)}
    before = {key: home.store.pop(key) for key in lost}
    round_at(home, home.core, NOW + 300_000, full=False)
    assert {key: home.store.get(key) for key in lost} == before
    assert Notice.MIRROR_DAMAGED in home.core.notices.current()


def test_a_core_at_rest_goes_through_its_slots_in_short_pages() -> None:
    """Pages of a thousand slots were 62 KB in each round of a large vault in which nothing happened."""
    home, _ = living()
    for number in range(LIST_PAGE_AT_REST):
        remember(home.core, f"further remark {number}")
        home.sync(home.core)
    rounds = 4
    now = NOW
    for _ in range(rounds):
        now += 300_000
        round_at(home, home.core, now, full=False)
    lost = home.core.keys.mirror(1, LIST_PAGE_AT_REST + 4)
    before = home.store.pop(lost)
    listed: list[int] = []

    def answer(request: Request) -> object:
        if isinstance(request, Poll):
            return request.token  # nothing was written, whatever the relay has lost
        reply = home.store.answer(request)
        if isinstance(request, List) and request.prefix == home.core.keys.epoch_prefix(1):
            assert isinstance(reply, Listing)
            listed.append(len(reply.keys))
        return reply

    for _ in range(rounds):
        now += 300_000
        home.core.rounds = 1
        driven(sync_round(home.core, MODEL, about=About(now)), answer)
    assert home.store.get(lost) == before
    assert max(listed[:2]) == LIST_PAGE_AT_REST


def test_a_core_at_rest_notes_once_an_hour_that_it_listed_its_slots() -> None:
    home, _ = living()
    noted: set[bytes | None] = set()
    for minutes in range(5, 60, 5):
        round_at(home, home.core, NOW + minutes * 60_000, full=False)
        noted.add(home.core.journal.meta_get(META))
    assert len(noted) == 1
    lost = home.core.keys.mirror(1, 3)
    before = home.store.pop(lost)
    round_at(home, home.core, NOW + 56 * 60_000, full=False)
    assert lost not in home.store, "it was listed a minute ago"
    round_at(home, home.core, NOW + 58 * 60_000, full=False)
    assert home.store.get(lost) == before
    round_at(home, home.core, NOW + 61 * 60_000, full=False)
    round_at(home, home.core, NOW + 122 * 60_000, full=False)
    assert home.core.journal.meta_get(META) not in noted


def test_a_relay_on_which_an_audit_finds_losses_may_have_lost_files_as_well() -> None:
    home, _ = living()
    home.core.rounds = FULL_CHECK_ROUNDS
    whole = home.store.run(sync_round(home.core, MODEL, about=About(NOW + AUDIT_MS)))
    assert not whole.relay_lost
    del home.store[home.core.keys.mirror(1, 3)]
    home.core.rounds = FULL_CHECK_ROUNDS
    report = home.store.run(sync_round(home.core, MODEL, about=About(NOW + 3 * AUDIT_MS)))
    assert report.restored
    assert report.relay_lost, "so that their parts are put back too"


@pytest.mark.parametrize("at", [9, 400])
def test_a_rotten_part_of_the_snapshot_is_found_and_another_one_made(at: int) -> None:
    """Byte 9 of a blob's header is part of its generation."""
    home, _ = living()
    snapshot(home)
    key = _part(home)
    home.store[key] = flipped(home.store[key], at)
    assert snapshot_due(home.core, NOW) is None
    round_at(home, home.core, NOW + AUDIT_MS)
    assert Notice.SNAPSHOT_LOST in home.core.notices.current()
    assert snapshot_due(home.core, NOW + AUDIT_MS) is not None
    snapshot(home)
    round_at(home, home.core, NOW + AUDIT_MS + 1)
    assert snapshot_due(home.core, NOW + AUDIT_MS + 1) is None
    assert Notice.SNAPSHOT_LOST not in home.core.notices.current()


@pytest.mark.parametrize("at", [9, 400])
def test_a_newcomer_that_cannot_read_the_snapshot_makes_the_core_look_at_once(at: int) -> None:
    home, _ = living()
    snapshot(home)
    house(home, 2)
    key = _part(home)
    home.store[key] = flipped(home.store[key], at)
    late = home.add("late")
    with pytest.raises(BlobDamaged):
        round_at(home, late, NOW)
    home.store.run(read_cursors(home.core))
    assert newcomer_is_stuck(home.core)
    round_at(home, home.core, NOW + 1000, full=False)
    assert not newcomer_is_stuck(home.core)
    assert snapshot_due(home.core, NOW + 1000) is not None
    snapshot(home)
    round_at(home, late, NOW + 2000)
    assert same(home.core, late)


class Refused(StoreFailure):
    """What a relay of an earlier version says to a write over what is there."""

    exit_code = 6


def round_refused(home: Household, member: Member, now_ms: int, *, full: bool = True) -> None:
    """A round at a relay that writes over cursors only."""
    member.rounds = FULL_CHECK_ROUNDS if full else 1
    flow = sync_round(member, MODEL, about=About(now_ms))
    try:
        request = next(flow)
        while True:
            if isinstance(request, Put) and "cursor" not in request.key:
                request = flow.throw(Refused("written once"))
            else:
                request = flow.send(home.store.answer(request))
    except StopIteration:
        return


@pytest.mark.parametrize("slot", [1, 2, -1], ids=["middle", "middle", "head"])
def test_a_relay_that_lets_no_slot_of_the_device_log_be_replaced_does_not_end_the_round(slot: int) -> None:
    home, _ = living()
    key = home.core.keys.log(slot % home.core.log.next_slot)
    home.store[key] = damaged = flipped(home.store[key], 10)
    remember(home.core, "said meanwhile")
    round_refused(home, home.core, NOW + AUDIT_MS)
    assert home.store[key] == damaged
    assert Notice.LOG_DAMAGED in home.core.notices.current()
    assert has(home.core, "said meanwhile")


def test_a_relay_that_lets_no_slot_of_the_mirror_be_replaced_does_not_end_the_round() -> None:
    home, _ = living()
    key = home.core.keys.mirror(1, 2)
    home.store[key] = flipped(home.store[key], 10)
    for moment in (NOW + AUDIT_MS, NOW + AUDIT_MS + 5):
        round_refused(home, home.core, moment)
        assert Notice.MIRROR_DAMAGED in home.core.notices.current()


def test_at_a_relay_that_replaces_nothing_a_damaged_last_slot_makes_the_core_begin_an_epoch() -> None:
    home, laptop = living()
    place = home.core.replica.position()
    key = home.core.keys.mirror(place.epoch, place.sequence - 1)
    home.store[key] = flipped(home.store[key], -1 % len(home.store[key]))
    for later in (5000, 6000, 7000):
        round_refused(home, home.core, NOW + later, full=False)
    assert home.core.replica.position().epoch > place.epoch
    home.sync(laptop, home.core, laptop)
    assert same(home.core, laptop) and has(laptop, "remark 7")


def test_slots_that_were_deleted_below_a_raised_floor_are_no_damage() -> None:
    home, laptop = living()
    snapshot(home)
    home.sync(laptop)
    for number in range(4):
        remember(home.core, f"more {number}")
        home.sync(home.core)
    home.sync(laptop, home.core)
    home.store.run(prune_now(home.core, NOW + 5))
    assert home.core.keys.mirror(1, 0) not in home.store
    round_at(home, laptop, NOW + AUDIT_MS)
    assert Notice.MIRROR_DAMAGED not in laptop.notices.current()


def test_a_core_that_was_followed_by_another_one_replaces_nothing() -> None:
    home = Household()
    heir = home.by_kit("heir")
    for number in range(3):
        remember(home.core, f"remark {number}")
        home.sync(home.core)
    home.sync(heir)
    key = home.core.keys.mirror(1, 1)
    home.store[key] = damaged = flipped(home.store[key], 300)
    home.store.run(claim(heir, home.root))
    assert home.store.run(restore_slots(home.core, [(1, 1)])) == []
    assert not home.core.is_core
    assert home.store[key] == damaged


def _part(home: Household) -> str:
    newest = newest_snapshot(home.core.replica)
    assert newest is not None
    manifest = home.store.run(read_manifest(home.core, newest))
    return blob_key(home.core, manifest.parts[0])
