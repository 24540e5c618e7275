"""Cursors: a device's word on itself. Counted, told again in time, and a sign of the device log that its writer was shown."""

from dataclasses import replace

import msgspec
import pytest

from crystal_core.replica import Replica
from crystal_crypto.entry import Channel, Frame, Kind, parse, seal
from crystal_mirror.entries.control_state import META_SNAPSHOT_SLOT
from crystal_mirror.membership.cursors import (
    META_ASKS,
    META_DRAINED,
    META_OFFERS,
    TOLD_AGAIN_MS,
    About,
    Cursor,
    put_cursor,
    read_cursors,
    seen_cursors,
)
from crystal_mirror.membership.member import Member
from crystal_mirror.membership.status import devices
from crystal_mirror.notices import Notice
from crystal_node.device.journal import SqliteJournal
from tests.mirror.household import Household
from tests.mirror.support import Objects, seeded
from tests.mirror.test_hidden_log import without_log_from
from tests.mirror.test_two_devices import capture

HOUR_MS = 3_600_000


@pytest.fixture
def home() -> Household:
    home = Household()
    home.laptop = home.add("laptop")
    home.read(home.core)
    return home


def tell(home: Household, member: Member, now_ms: int = 0, version: str = "", *, look: bool = False) -> int:
    """Tells, and returns the count of the cursor that the relay has now."""
    home.store.run(put_cursor(member, About(now_ms, version), look=look))
    return parse(home.store[member.keys.cursor(member.device_id)]).header.sequence


def read(home: Household, member: Member, store: Objects | None = None) -> dict[bytes, Cursor]:
    found = (store or home.store).run(read_cursors(member))
    return {cursor.device: cursor for cursor in found}


def test_a_cursor_tells_where_a_device_is_and_what_it_is(home: Household) -> None:
    home.laptop.accept(capture("waits"))
    tell(home, home.laptop, 7, "1.2.3")
    tell(home, home.core, 8)
    told = read(home, home.core)
    laptop, core = told[home.laptop.device_id], told[home.core.device_id]
    assert (laptop.pending, laptop.told_at, laptop.version, laptop.holds_root) == (1, 7, "1.2.3", False)
    assert (core.pending, core.holds_root) == (0, True)
    position = home.laptop.replica.position()
    assert (laptop.epoch, laptop.sequence) == position[:2]
    assert laptop.digest == home.laptop.replica.digest().to_bytes()
    assert laptop.log_head_known
    assert {c.device: c for c in seen_cursors(home.core)} == told
    assert [entry.cursor for entry in devices(home.core)] == [core, laptop]


def test_a_cursor_tells_of_the_newest_snapshot_and_of_a_change_of_the_core(home: Household) -> None:
    asks, drained, offers = bytes([1] * 16), bytes([2] * 16), bytes([3] * 16)
    with home.laptop.journal.transaction() as transaction:
        for name, value in ((META_ASKS, asks), (META_DRAINED, drained), (META_OFFERS, offers)):
            transaction.meta_set(name, value)
    with home.laptop.replica.transaction() as replica:
        replica.meta_set(META_SNAPSHOT_SLOT, msgspec.msgpack.encode([1, 5]))
    tell(home, home.laptop)
    told = read(home, home.core)[home.laptop.device_id]
    assert (told.snapshot, told.asks, told.drained_for, told.offers) == ((1, 5), asks, drained, offers)


def test_a_cursor_without_the_newer_fields_is_read(home: Household) -> None:
    tell(home, home.laptop)
    key = home.laptop.keys.cursor(home.laptop.device_id)
    good = parse(home.store[key])
    body = msgspec.msgpack.decode(good.open(home.laptop.generation_key)[0])
    home.store[key] = seal(
        replace(good.header, sequence=9),
        [Frame(msgspec.msgpack.encode(body[:8]))],
        key=home.laptop.generation_key,
        signer=home.laptop.identity.signing,
        salt=bytes(24),
    )
    told = read(home, home.core)[home.laptop.device_id]
    assert (told.count, told.snapshot, told.asks, told.drained_for, told.offers) == (9, None, b"", b"", b"")


def test_a_root_that_was_replaced_is_told_of_as_none(home: Household) -> None:
    from crystal_crypto.hierarchy import Root
    from crystal_mirror.membership.administration import rotate_root

    new = Root.from_bytes(bytes(range(32)))
    home.store.run(rotate_root(home.core, home.root, new, now_ms=1))
    tell(home, home.core)
    assert not read(home, home.core)[home.core.device_id].holds_root
    home.core.root = new
    tell(home, home.core)
    assert read(home, home.core)[home.core.device_id].holds_root


def test_what_did_not_change_is_not_told_before_six_hours_are_over(home: Household) -> None:
    assert tell(home, home.laptop, HOUR_MS) == 0
    assert tell(home, home.laptop, 2 * HOUR_MS) == 0
    assert tell(home, home.laptop, HOUR_MS + TOLD_AGAIN_MS - 1) == 0
    assert tell(home, home.laptop, HOUR_MS + TOLD_AGAIN_MS) == 1
    assert TOLD_AGAIN_MS == 6 * HOUR_MS


def test_a_clock_that_was_set_back_for_long_is_told_and_not_waited_for(home: Household) -> None:
    assert tell(home, home.laptop, 1000 * HOUR_MS) == 0
    assert tell(home, home.laptop, 10 * HOUR_MS) == 1


def test_what_changed_is_told_at_once(home: Household) -> None:
    assert tell(home, home.laptop) == 0
    assert tell(home, home.laptop, version="2") == 1
    home.laptop.accept(capture("waits"))
    assert tell(home, home.laptop, version="2") == 2
    home.add("another")
    home.read(home.laptop)
    assert tell(home, home.laptop, version="2") == 3, "it has verified more of the device log"


def test_a_cursor_that_the_relay_lost_or_exchanged_is_told_again(home: Household) -> None:
    tell(home, home.laptop)
    key = home.laptop.keys.cursor(home.laptop.device_id)
    del home.store[key]
    assert tell(home, home.laptop, look=True) == 1
    home.store[key] = b"junk"
    assert tell(home, home.laptop, look=True) == 2


def test_the_count_goes_on_from_the_relays_after_a_restore_from_a_backup(home: Household) -> None:
    tell(home, home.laptop)
    assert isinstance(home.laptop.journal, SqliteJournal)
    image = home.laptop.journal.connection.serialize("main")
    for version in "abc":
        tell(home, home.laptop, version=version)
    assert read(home, home.core)[home.laptop.device_id].count == 3
    restored = restored_from(image, home.laptop)
    assert tell(home, restored, version="restored", look=True) == 4
    assert read(home, home.core)[home.laptop.device_id].version == "restored"


def restored_from(image: bytes, member: Member) -> Member:
    journal = SqliteJournal.open(":memory:")
    journal.connection.deserialize("main", image)
    assert isinstance(member.replica, Replica)
    return Member.open(member.identity, member.vault, journal, member.replica.clone(), seeded("restored"))


def test_a_report_that_is_older_than_one_that_was_seen_is_not_believed(home: Household) -> None:
    key = home.laptop.keys.cursor(home.laptop.device_id)
    tell(home, home.laptop, version="first")
    old = home.store[key]
    tell(home, home.laptop, version="second")
    assert read(home, home.core)[home.laptop.device_id].version == "second"
    for shown in (old, b"junk", home.store[home.core.keys.log(1)]):
        home.store[key] = shown
        assert read(home, home.core)[home.laptop.device_id].version == "second"


def test_another_devices_cursor_is_not_passed_off_as_this_ones(home: Household) -> None:
    tell(home, home.laptop)
    tell(home, home.core)
    home.store[home.core.keys.cursor(home.laptop.device_id)] = home.store[
        home.core.keys.cursor(home.core.device_id)
    ]
    assert set(read(home, home.core)) == {home.core.device_id}


@pytest.mark.parametrize("forged", ["sender", "vault", "kind", "signature", "body", "text"])
def test_what_is_no_cursor_of_this_device_is_left_out(home: Household, forged: str) -> None:
    tell(home, home.laptop, version="version")
    key = home.laptop.keys.cursor(home.laptop.device_id)
    good = parse(home.store[key])
    body = good.open(home.laptop.generation_key)[0]
    changes = {
        "sender": {"sender": home.core.device_id},
        "vault": {"vault": b"another vault..."},
        "kind": {"kind": Kind.OFFER, "channel": Channel.CONVERSATIONS},
    }.get(forged, {})
    forged_bodies = {"body": body + b"!", "text": body.replace(b"version", b"\xffersion")}
    assert body not in forged_bodies.values()
    home.store[key] = seal(
        replace(good.header, sequence=9, **changes),  # type: ignore[arg-type]
        [Frame(forged_bodies.get(forged, body))],
        key=home.laptop.generation_key,
        signer=(home.core if forged == "signature" else home.laptop).identity.signing,
        salt=bytes(24),
    )
    assert read(home, home.core) == {}
    count = tell(home, home.laptop, look=True)
    assert count == (1 if forged in {"signature", "kind"} else 10), "only its own reports count"


def test_a_copy_of_a_device_that_uses_up_all_counts_keeps_it_from_nothing(home: Household) -> None:
    tell(home, home.laptop)
    key = home.laptop.keys.cursor(home.laptop.device_id)
    good = parse(home.store[key])
    home.store[key] = seal(
        replace(good.header, sequence=2**64 - 1),
        [Frame(good.open(home.laptop.generation_key)[0])],
        key=home.laptop.generation_key,
        signer=home.laptop.identity.signing,
        salt=bytes(24),
    )
    assert read(home, home.core) == {}
    home.laptop.rounds = 0
    home.sync(home.laptop)
    assert home.laptop.device_id in read(home, home.core)


def test_a_revoked_device_is_asked_no_more_and_tells_nothing_new(home: Household) -> None:
    tell(home, home.laptop)
    assert home.laptop.device_id in read(home, home.core)
    home.revoke(home.laptop)
    tell(home, home.laptop, version="after it was out")
    assert set(read(home, home.core)) == {home.core.device_id}


def test_a_cursor_whose_writer_was_shown_another_device_log_is_named(home: Household) -> None:
    hidden_from = home.core.log.next_slot
    home.add("late", by=home.core)
    home.read(home.laptop)
    tell(home, home.laptop)
    third = home.core
    victim = Member.open(
        third.identity, third.vault, journal_before(third, hidden_from), third.replica, seeded("victim")
    )
    shown = without_log_from(home.store, hidden_from)
    victim.notices.begin()
    assert not read(home, victim, shown)[home.laptop.device_id].log_head_known
    victim.notices.save()
    assert Notice.PEER_AHEAD in victim.notices.current()
    victim.notices.begin()
    assert read(home, victim)[home.laptop.device_id].log_head_known, (
        "the log is read before anything is named"
    )
    victim.notices.save()
    assert victim.notices.current() == {}


def journal_before(member: Member, slot: int) -> SqliteJournal:
    """A journal that has read the device log up to ``slot`` and nothing else."""
    journal = SqliteJournal.open(":memory:")
    with journal.transaction() as transaction:
        for number, data, void in member.journal.log_entries()[:slot]:
            transaction.keep_log_entry(number, data, void=void)
    return journal
