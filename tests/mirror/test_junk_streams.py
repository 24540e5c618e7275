"""Who stole a device's relay token, and no key, writes junk where entries belong: that holds up nobody for long."""

import pytest

from crystal_mirror.devicelog.sync import VOIDS_AT_ONCE_MAX
from crystal_mirror.membership.member import Member
from crystal_mirror.replication.collect import NEW_STREAMS_MAX, OFFERS_MAX
from crystal_mirror.streams.outbox import push, restart_stream
from tests.mirror.household import Household, has
from tests.mirror.test_two_devices import capture


def pair(home: Household) -> list[Member]:
    """Two devices, in the order in which the relay lists them, of both of which something was taken."""
    both = [home.add("one"), home.add("two")]
    for member in both:
        member.accept(capture("before"))
    home.sync(*both, home.core)
    return sorted(both, key=lambda member: member.device_id)


@pytest.mark.parametrize("junk", [OFFERS_MAX + 50, 20 * NEW_STREAMS_MAX])
def test_junk_under_one_device_keeps_no_message_from_the_core(junk: int) -> None:
    home = Household()
    robbed, other = pair(home)
    for number in range(junk):
        home.store[robbed.keys.conversation(robbed.device_id, number.to_bytes(8, "big"), 0)] = b"junk"
    robbed.accept(capture("of the one that was robbed"))
    other.accept(capture("of another one"))
    home.sync(robbed, other, home.core)
    assert has(home.core, "of another one")
    assert has(home.core, "of the one that was robbed")


def test_a_device_with_many_new_streams_is_taken_in_within_one_round() -> None:
    home = Household()
    _, other = pair(home)
    texts = [f"stream {number}" for number in range(NEW_STREAMS_MAX + 20)]
    for text in texts:
        other.accept(capture(text))
        home.store.run(push(other))
        with other.journal.transaction() as transaction:
            for name in transaction.names():
                transaction.remove_row(name.incarnation, name.sequence)
            restart_stream(other, transaction)
    home.sync(home.core)
    assert all(has(home.core, text) for text in texts)


def test_much_junk_ahead_of_the_device_log_keeps_no_revocation_out() -> None:
    """By the token of a device that may write the log."""
    home = Household()
    robbed, other = pair(home)
    home.read(robbed, other)
    for number in range(5 * VOIDS_AT_ONCE_MAX):
        home.store[home.core.keys.log(home.core.log.next_slot + number)] = b"junk %d" % number
    home.revoke(robbed)
    for _ in range(6):
        home.read(other)
    assert not other.log.is_active(robbed.device_id)
    assert other.log.trailing_voids == 0


def test_a_device_that_was_shown_much_junk_takes_the_log_that_is_shown_afterwards() -> None:
    home = Household()
    robbed, other = pair(home)
    home.read(other)
    first = other.log.next_slot
    for number in range(100):
        home.store[other.keys.log(first + number)] = b"junk %d" % number
    home.read(other)
    assert other.log.trailing_voids == 100
    for number in range(70, 100):
        del home.store[other.keys.log(first + number)]
    home.revoke(robbed)
    home.read(other)
    assert (other.log.is_active(robbed.device_id), other.log.next_slot) == (False, first + 71)
