"""Guards that a second one stands behind in most runs: each is shown to matter by itself (docs/mutations.md)."""

from dataclasses import replace
from pathlib import Path

import pytest

from crystal_core.replica import Replica
from crystal_crypto.entry import Kind, parse
from crystal_mirror.entries.batches import seal_mirror
from crystal_mirror.entries.control_state import newest_snapshot, packs_of, packs_slot, snapshot_slot
from crystal_mirror.errors import BehindTheFloor, TransactionStale
from crystal_mirror.handover.core import heed
from crystal_mirror.history.control_entries import write_control_entry
from crystal_mirror.history.slots import SEAL_PUBLIC_BYTES, SlotKind, judge_slot
from crystal_mirror.history.void_slots import Fork
from crystal_mirror.membership.cursors import About, read_cursors
from crystal_mirror.membership.member import Member
from crystal_mirror.notices import Notice
from crystal_mirror.replication.claim import claim
from crystal_mirror.replication.collect import collect
from crystal_mirror.replication.publish import publish
from crystal_mirror.replication.pull import (
    PullOutcome,
    SlotResult,
    pull,
    raise_floor,
    read_floor,
    tail_agrees,
    take_slot,
)
from crystal_mirror.replication.rebuild import begin_rebuild
from crystal_mirror.requests import Flow
from crystal_mirror.snapshots.blobs import BlobDamaged
from crystal_mirror.snapshots.creation import make_snapshot
from crystal_mirror.streams.outbox import push, restart_stream, settle
from crystal_mirror.types import START, EntryState, KeptEntry
from crystal_node.device.journal import SqliteJournal
from tests.mirror.handover import CoreStage, Moving, core_stage
from tests.mirror.household import MODEL, Household, has, same
from tests.mirror.support import seeded
from tests.mirror.test_snapshots import remember, snapshot


@pytest.fixture
def home() -> Household:
    home = Household()
    home.laptop = home.add("laptop")
    remember(home.core, "the first fact")
    home.sync(home.core, home.laptop)
    return home


def unsent(home: Household) -> KeptEntry:
    """An entry that the Core has sealed and applied, and that has not gone to the relay yet."""
    remember(home.core, "not sent yet")
    home.store.run(push(home.core))
    home.store.run(collect(home.core, MODEL))
    (waiting,) = home.core.replica.kept(EntryState.UNSENT)
    return waiting


def places(member: Member) -> list[str]:
    """The keys of what stands in this device's outbox, in order."""
    return [
        member.keys.conversation(member.device_id, name.incarnation, name.sequence)
        for name in member.journal.names()
    ]


def slot_key(member: Member, back: int = 0) -> str:
    """The key of this device's next slot, or of one before it."""
    position = member.replica.position()
    return member.keys.mirror(position.epoch, position.sequence - back)


def with_journal(member: Member, image: bytes, path: Path) -> Member:
    """The device after its `state.db` was put back from a backup, while its memory was not."""
    path.write_bytes(image)
    return Member.open(
        member.identity,
        member.vault,
        SqliteJournal.open(path),
        member.replica,
        seeded("put back"),
        member.root,
    )


def test_a_slot_that_another_process_took_in_meanwhile_is_not_taken_again(home: Household) -> None:
    data = home.store[home.laptop.keys.mirror(1, 0)]
    slot = judge_slot(data, START, home.laptop.log)
    assert slot.kind is SlotKind.BATCH
    stands = home.laptop.replica.position()
    assert stands > START
    assert take_slot(home.laptop, slot, data, START) == SlotResult(PullOutcome.CAUGHT_UP)
    assert home.laptop.replica.position() == stands


def test_junk_ahead_does_not_stand_for_the_slot_that_the_relay_lost(home: Household) -> None:
    del home.store[slot_key(home.laptop, 1)]
    assert home.store.run(tail_agrees(home.laptop)) is PullOutcome.LOG_BEHIND
    home.store[slot_key(home.laptop)] = b"junk" * 50
    assert home.store.run(tail_agrees(home.laptop)) is PullOutcome.LOG_BEHIND


def test_a_rebuild_does_not_take_unsent_entries_for_sent(home: Household) -> None:
    waiting = unsent(home)
    home.store.run(begin_rebuild(home.core, None))
    assert home.core.replica.kept(EntryState.UNSENT) == [waiting]
    assert home.core.replica.position()[:2] == (waiting.epoch, waiting.sequence)
    home.sync(home.core, home.laptop)
    assert same(home.core, home.laptop)
    assert has(home.laptop, "not sent yet")


def test_the_floor_ends_before_what_was_not_sent(home: Household) -> None:
    before = read_floor(home.core)
    waiting = unsent(home)
    raise_floor(home.core)
    assert read_floor(home.core) == before == (waiting.epoch, waiting.sequence)


def test_an_entry_behind_a_gap_in_its_stream_waits_until_the_gap_is_closed(home: Household) -> None:
    for number in range(3):
        remember(home.laptop, f"message {number}")
    keys = places(home.laptop)
    home.store.run(push(home.laptop))
    lost = home.store.pop(keys[1])
    home.sync(home.core)
    assert [has(home.core, f"message {number}") for number in range(3)] == [True, False, False]
    assert Notice.STREAM_LOST in home.core.notices.current()
    home.store[keys[1]] = lost
    home.sync(home.core)
    assert all(has(home.core, f"message {number}") for number in range(3))


def test_an_entry_that_does_not_name_the_one_before_it_is_held(home: Household) -> None:
    remember(home.laptop, "stands in its chain")
    with home.laptop.journal.transaction() as transaction:
        stream = transaction.stream()
        assert stream is not None
        transaction.set_stream(replace(stream, previous=b"\1" * 32))
    remember(home.laptop, "follows something else")
    home.store.run(push(home.laptop))
    home.sync(home.core)
    assert has(home.core, "stands in its chain")
    assert not has(home.core, "follows something else")
    assert Notice.STREAM_TAMPERED in home.core.notices.current()


def test_no_second_batch_is_made_before_the_first_is_sent(home: Household) -> None:
    waiting = unsent(home)
    remember(home.laptop, "comes too soon")
    home.store.run(push(home.laptop))
    with pytest.raises(TransactionStale):
        home.store.run(collect(home.core, MODEL))
    assert home.core.replica.kept(EntryState.UNSENT) == [waiting]


def test_a_device_whose_memory_was_put_back_does_not_seal_below_what_it_had_verified() -> None:
    home = Household()
    laptop = home.by_kit("laptop")
    remember(home.core, "before the backup")
    home.sync(home.core, laptop)
    assert isinstance(laptop.replica, Replica)
    memory, relay = laptop.replica.clone(), dict(home.store)
    remember(home.core, "after the backup")
    home.sync(home.core, laptop)
    device_log = {key: data for key, data in home.store.items() if "/mirror/" not in key}
    home.store.clear()
    home.store.update(relay | device_log)
    restored = Member.open(
        laptop.identity, laptop.vault, laptop.journal, memory, seeded("restored"), home.root
    )
    before = {key for key in home.store if "/mirror/" in key}
    with pytest.raises(BehindTheFloor):
        home.store.run(claim(restored, home.root, force=True))
    assert {key for key in home.store if "/mirror/" in key} == before


def test_a_snapshot_of_rows_that_differ_from_their_digest_is_not_announced(home: Household) -> None:
    assert isinstance(home.core.replica, Replica)
    home.core.replica.database.run("UPDATE memories SET confidence = confidence - 1")
    with pytest.raises(BlobDamaged, match="does not come back"):
        home.store.run(make_snapshot(home.core))
    home.sync(home.core)
    assert newest_snapshot(home.core.replica) is None


def test_a_snapshot_that_the_fork_itself_announces_is_forgotten(home: Household) -> None:
    snapshot(home)
    place = snapshot_slot(home.core.replica)
    assert place is not None
    home.store.run(begin_rebuild(home.core, Fork(*place)))
    assert newest_snapshot(home.core.replica) is None


def test_packs_that_the_fork_itself_lists_are_forgotten(home: Household) -> None:
    place = home.core.replica.position()[:2]
    write_control_entry(home.core, packs=(), condemned=[b"\1" * 32])
    home.store.run(publish(home.core))
    assert packs_slot(home.core.replica) == place
    home.store.run(begin_rebuild(home.core, Fork(*place)))
    assert packs_slot(home.core.replica) is None
    assert packs_of(home.core.replica) == ()


def late_reader(home: Household) -> Member:
    """A device whose memory is made from a snapshot, with entries behind it."""
    snapshot(home)
    remember(home.core, "after the snapshot")
    home.sync(home.core)
    late = home.add("late")
    home.sync(late)
    assert snapshot_slot(late.replica) is not None
    return late


def test_a_base_that_the_fork_itself_announces_has_no_slot_any_more(home: Household) -> None:
    late = late_reader(home)
    place = snapshot_slot(late.replica)
    assert place is not None
    home.store.run(begin_rebuild(late, Fork(*place)))
    assert snapshot_slot(late.replica) is None


def test_a_fork_right_behind_the_base_is_rebuilt_from_it(home: Household) -> None:
    late = late_reader(home)
    base = newest_snapshot(late.replica)
    assert base is not None
    home.store.run(begin_rebuild(late, Fork(base.epoch, base.sequence)))
    assert late.replica.position() == base.position
    home.sync(late)
    assert same(home.core, late)


@pytest.mark.parametrize("leads_to", [0, 1])
def test_a_seal_leads_to_no_epoch_but_a_later_one(home: Household, leads_to: int) -> None:
    core = home.core
    position = core.replica.position()
    sealed = seal_mirror(
        Kind.SEAL,
        [],
        position=position,
        vault=core.vault,
        sender=core.device_id,
        incarnation=bytes(8),
        log_head=core.log.head,
        key=core.generation_key,
        signer=core.identity.signing,
        salt=core.salt(),
        public=leads_to.to_bytes(SEAL_PUBLIC_BYTES, "big"),
    )
    assert judge_slot(sealed, position, core.log).kind is SlotKind.VOID


def test_a_place_of_the_stream_that_others_took_does_not_count_as_stored(home: Household) -> None:
    remember(home.laptop, "has to go elsewhere")
    (key,) = places(home.laptop)
    home.store[key] = b"junk" * 50
    home.sync(home.laptop)
    (other,) = places(home.laptop)
    assert other != key and other in home.store
    assert Notice.STREAM_TAMPERED in home.laptop.notices.current()
    home.sync(home.core, home.laptop)
    assert has(home.core, "has to go elsewhere")
    assert home.laptop.journal.names() == []


def test_nothing_is_settled_while_the_core_has_unsent_entries(home: Household) -> None:
    unsent(home)
    (name,) = home.core.journal.names()
    assert home.core.replica.done(name.origin)
    assert settle(home.core) == 0
    assert home.core.journal.names() == [name]
    home.sync(home.core)
    assert home.core.journal.names() == []


def test_a_row_stays_while_its_place_in_the_stream_is_open(home: Household) -> None:
    remember(home.laptop, "came another way")
    home.store.run(push(home.laptop))
    with home.laptop.journal.transaction() as transaction:
        restart_stream(home.laptop, transaction)
    home.sync(home.core)
    home.store.run(pull(home.laptop))
    (name,) = home.laptop.journal.names()
    assert home.laptop.replica.done(name.origin)
    assert settle(home.laptop) == 0
    assert home.laptop.journal.names() == [name]
    home.sync(home.laptop, home.core, home.laptop)
    assert home.laptop.journal.names() == []


def test_a_copy_of_an_own_entry_at_another_place_is_no_other_copy_of_the_device(home: Household) -> None:
    remember(home.laptop, "the first")
    home.store.run(push(home.laptop))
    remember(home.laptop, "the second")
    first, second = places(home.laptop)
    names = [name.origin for name in home.laptop.journal.names()]
    home.store[second] = home.store[first]
    home.sync(home.laptop)
    assert Notice.STREAM_TAMPERED in home.laptop.notices.current()
    assert Notice.RESTORED not in home.laptop.notices.current()
    assert [name.origin for name in home.laptop.journal.names()] == names


def test_a_stream_of_which_more_is_done_than_was_made_here_is_left(home: Household, tmp_path: Path) -> None:
    remember(home.laptop, "before the backup")
    home.sync(home.laptop, home.core, home.laptop)
    assert isinstance(home.laptop.journal, SqliteJournal)
    image = home.laptop.journal.connection.serialize("main")
    remember(home.laptop, "after the backup")
    home.sync(home.laptop, home.core, home.laptop)
    laptop = with_journal(home.laptop, image, tmp_path / "state.db")
    before = laptop.journal.stream()
    settle(laptop)
    after = laptop.journal.stream()
    assert before is not None and after is not None
    assert after.incarnation != before.incarnation


def test_all_that_the_relay_lost_of_a_stream_is_put_back_at_once(home: Household) -> None:
    for number in range(3):
        remember(home.laptop, f"message {number}")
    home.store.run(push(home.laptop))
    keys = places(home.laptop)
    for key in keys:
        del home.store[key]
    home.store.run(push(home.laptop))
    assert [key in home.store for key in keys] == [True, True, True]


def test_a_core_that_could_not_drain_does_not_say_that_it_has() -> None:
    home = Moving()
    home.ask(home.laptop)
    home.run(read_cursors(home.core))
    drains: list[bool] = []

    def drain(could: bool) -> Flow[bool]:
        yield from ()
        drains.append(could)
        return could

    home.run(heed(home.core, About(home.now), lambda: drain(False)))
    assert (drains, core_stage(home.core)) == ([False], CoreStage.CORE)
    home.run(heed(home.core, About(home.now), lambda: drain(True)))
    assert (drains, core_stage(home.core)) == ([False, True], CoreStage.HOLDING)


def test_batches_that_are_sealed_again_behind_junk_leave_the_core_at_their_end(home: Household) -> None:
    waiting = unsent(home)
    home.store[home.core.keys.mirror(waiting.epoch, waiting.sequence)] = b"junk" * 50
    home.store.run(publish(home.core))
    position = home.core.replica.position()
    assert position[:2] == (waiting.epoch, waiting.sequence + 2)
    last = home.store[slot_key(home.core, 1)]
    assert position.previous == parse(last).hash
    remember(home.core, "after the junk")
    home.sync(home.core, home.laptop)
    assert same(home.core, home.laptop)
    assert has(home.laptop, "after the junk")
