"""Acks, kept mirror entries, the position and named values."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal_mirror.types import START, EntryState, KeptEntry, Origin, Position
from tests.core.builders import DEVICE, INCARNATION, new_replica, origin


@given(st.sets(st.integers(0, 30), max_size=20), st.randoms(use_true_random=False))
def test_acks_depend_on_what_is_done_and_not_on_the_order(numbers: set[int], order: random.Random) -> None:
    one, two = new_replica(), new_replica()
    shuffled = sorted(numbers)
    order.shuffle(shuffled)
    for replica, sequence in ((one, sorted(numbers)), (two, shuffled + shuffled[:3])):
        with replica.transaction() as transaction:
            for number in sequence:
                transaction.mark_done(origin(number))
    assert one.digest() == two.digest() == two.recompute_digest()
    expected = next(number for number in range(40) if number not in numbers) - 1
    assert two.ack(DEVICE, INCARNATION) == expected
    assert two.acks() == ([(DEVICE, INCARNATION, expected)] if expected >= 0 else [])
    assert all(two.done(origin(number)) == (number in numbers) for number in range(40))


def test_streams_do_not_mix() -> None:
    replica = new_replica()
    with replica.transaction() as transaction:
        transaction.mark_done(Origin(b"a" * 16, b"1" * 8, 0))
        transaction.mark_done(Origin(b"a" * 16, b"2" * 8, 1))
        assert transaction.ack(b"a" * 16, b"1" * 8) == 0
    assert replica.ack(b"a" * 16, b"2" * 8) == -1
    assert replica.ack(b"b" * 16, b"1" * 8) == -1
    assert not replica.done(Origin(b"a" * 16, b"1" * 8, 1))


def test_a_negative_sequence_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"), new_replica().transaction() as transaction:
        transaction.mark_done(origin(-1))


def test_entries_are_kept_replaced_moved_and_dropped() -> None:
    replica = new_replica()
    with replica.transaction() as transaction:
        transaction.keep_entry(1, 1, b"one", EntryState.UNSENT)
        transaction.keep_entry(1, 0, b"zero", EntryState.SENT)
        transaction.keep_entry(2, 0, b"next epoch", EntryState.UNSENT)
        transaction.keep_entry(1, 2, b"junk", EntryState.VOID)
        transaction.keep_entry(1, 1, b"one again", EntryState.UNSENT)
        assert transaction.last_entry(1) == KeptEntry(1, 2, b"junk", EntryState.VOID)
    assert [entry.data for entry in replica.entries(1, 0, 10)] == [b"zero", b"one again", b"junk"]
    assert [entry.data for entry in replica.entries(1, 1, 1)] == [b"one again"]
    assert [(entry.epoch, entry.data) for entry in replica.kept(EntryState.UNSENT)] == [
        (1, b"one again"),
        (2, b"next epoch"),
    ]
    with replica.transaction() as transaction:
        transaction.set_entry_state(1, 1, EntryState.SENT)
        transaction.drop_entry(1, 2)
    assert replica.entries(1, 1, 9) == [KeptEntry(1, 1, b"one again", EntryState.SENT)]
    assert replica.last_entry(3) is None


def test_the_position_starts_at_the_start_and_moves() -> None:
    replica = new_replica()
    assert replica.position() == START
    for position in (Position(1, 1, b"a" * 32), Position(2, 0, b"b" * 32)):
        with replica.transaction() as transaction:
            transaction.set_position(position)
        assert replica.position() == position


def test_named_values_come_and_go() -> None:
    replica = new_replica()
    for value in (b"", b"value", None, None):
        with replica.transaction() as transaction:
            transaction.meta_set("name", value)
            assert transaction.meta_get("name") == value
        assert replica.meta_get("name") == value
