"""Where the streams of a device end that is to be revoked: what it signed in order counts, what a relay only lists does not."""

import pytest

from crystal_crypto.entry import parse
from crystal_mirror.entries.offers import seal_offer
from crystal_mirror.membership import cutoffs
from crystal_mirror.membership.administration import revoke
from crystal_mirror.membership.cutoffs import listed_places, stream_ends
from crystal_mirror.membership.member import Member
from crystal_mirror.operations import encode_operation
from crystal_mirror.ports import Stream
from crystal_mirror.requests import List, Request
from crystal_mirror.streams.outbox import push, restart_stream
from crystal_mirror.types import Origin
from tests.mirror.household import Household
from tests.mirror.support import Objects
from tests.mirror.test_two_devices import capture


class Leaving(Household):
    """``lost`` has one entry that the Core has taken in, and three that are only stored."""

    def __init__(self) -> None:
        super().__init__()
        self.laptop, self.lost = self.add("laptop"), self.add("lost")
        self.lost.accept(capture("0"))
        self.laptop.accept(capture("the laptop's"))
        self.sync(self.lost, self.laptop, self.core)
        for text in "123":
            self.lost.accept(capture(text))
        self.store.run(push(self.lost))
        stream = self.lost.journal.stream()
        assert stream is not None
        self.incarnation = stream.incarnation

    def ends(self) -> dict[bytes, int]:
        return self.store.run(stream_ends(self.core, self.lost.device_id))

    def key(self, sequence: int, incarnation: bytes | None = None) -> str:
        return self.core.keys.conversation(self.lost.device_id, incarnation or self.incarnation, sequence)


@pytest.fixture
def leaving() -> Leaving:
    return Leaving()


def test_all_that_was_stored_in_order_counts_beside_what_was_taken_in(leaving: Leaving) -> None:
    assert leaving.ends() == {leaving.incarnation: 3}


def test_what_was_taken_in_counts_though_the_relay_lists_nothing(leaving: Leaving) -> None:
    for sequence in range(4):
        del leaving.store[leaving.key(sequence)]
    assert leaving.ends() == {leaving.incarnation: 0}


def test_a_relay_that_lists_places_which_nobody_signed_moves_no_end(leaving: Leaving) -> None:
    for sequence in (4, 5, 999_999):
        leaving.store[leaving.key(sequence)] = b"junk"
    leaving.store[leaving.key(0, b"never 1.")] = b"junk"
    leaving.store[leaving.key(10**15, b"never 2.")] = leaving.store[leaving.key(3)]
    leaving.store[leaving.key(0, b"never 3.")] = leaving.store[leaving.key(0)]
    assert leaving.ends() == {leaving.incarnation: 3}


def test_an_entry_behind_a_gap_or_out_of_its_chain_does_not_count(leaving: Leaving) -> None:
    second = leaving.store.pop(leaving.key(1))
    assert leaving.ends() == {leaving.incarnation: 0}
    leaving.store[leaving.key(1)] = second
    third = leaving.store.pop(leaving.key(2))
    assert leaving.ends() == {leaving.incarnation: 1}
    leaving.store[leaving.key(2)] = leaving.store[leaving.key(3)]
    assert leaving.ends() == {leaving.incarnation: 1}, "a copy from another place"
    leaving.store[leaving.key(2)] = third
    assert leaving.ends() == {leaving.incarnation: 3}


def test_an_entry_of_the_device_that_follows_another_one_does_not_count(leaving: Leaving) -> None:
    """A clone's entry at the same place: signed by the device, and no part of this chain."""
    other = Leaving()
    assert other.key(2) == leaving.key(2)
    with other.lost.journal.transaction() as transaction:
        stream = transaction.stream()
        assert stream is not None
        transaction.set_stream(type(stream)(stream.incarnation, 2, bytes(32)))
        for sequence in (2, 3):
            transaction.remove_row(stream.incarnation, sequence)
    other.lost.accept(capture("by the clone"))
    row = other.lost.journal.row(leaving.incarnation, 2)
    assert row is not None
    leaving.store[leaving.key(2)] = row.sealed
    assert leaving.ends() == {leaving.incarnation: 1}


def sealed_by(leaving: Leaving, signer: Member, stream: Stream) -> None:
    """An offer in the lost device's name at that place, signed by ``signer``."""
    key = leaving.core.keys.conversation(leaving.lost.device_id, stream.incarnation, stream.sequence)
    leaving.store[key] = seal_offer(
        encode_operation(capture("forged")),
        origin=None,
        stream=stream,
        device=leaving.lost.device_id,
        vault=leaving.core.vault,
        epoch=1,
        log_head=leaving.core.log.head,
        key=leaving.core.generation_key,
        signer=signer.identity.signing,
        salt=bytes(24),
    )


def test_another_devices_signature_moves_no_end(leaving: Leaving) -> None:
    last = parse(leaving.store[leaving.key(3)]).hash
    sealed_by(leaving, leaving.laptop, Stream(leaving.incarnation, 4, last))
    assert leaving.ends() == {leaving.incarnation: 3}
    sealed_by(leaving, leaving.lost, Stream(leaving.incarnation, 4, last))
    assert leaving.ends() == {leaving.incarnation: 4}


def test_a_stream_whose_first_entry_names_one_before_it_does_not_count(leaving: Leaving) -> None:
    sealed_by(leaving, leaving.lost, Stream(b"from 0..", 0, b"x" * 32))
    assert leaving.ends() == {leaving.incarnation: 3}


def test_a_relay_that_lists_what_it_was_not_asked_for_moves_no_end(leaving: Leaving) -> None:
    class ListsAll(Objects):
        def answer(self, request: Request) -> object:
            if isinstance(request, List):
                request = List(leaving.core.keys.conversations_prefix, request.after, request.limit)
            return super().answer(request)

    leaving.laptop.accept(capture("stored"))
    leaving.store.run(push(leaving.laptop))
    listing = ListsAll(leaving.store)
    assert {place.device for place in listing.run(listed_places(leaving.core, leaving.lost.device_id))} == {
        leaving.lost.device_id
    }
    assert listing.run(stream_ends(leaving.core, leaving.lost.device_id)) == {leaving.incarnation: 3}


def test_a_new_incarnation_counts_from_its_first_entry(leaving: Leaving) -> None:
    with leaving.lost.journal.transaction() as transaction:
        restart_stream(leaving.lost, transaction)
        after = transaction.stream()
    leaving.store.run(push(leaving.lost))
    assert after is not None
    ends = leaving.ends()
    assert ends[leaving.incarnation] == 3
    assert ends[after.incarnation] == after.sequence - 1 >= 3
    del leaving.store[leaving.key(0, after.incarnation)]
    assert leaving.ends() == {leaving.incarnation: 3}


def test_streams_longer_than_a_page_and_than_one_fetch_are_followed_to_their_end(
    leaving: Leaving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cutoffs, "LIST_PAGE", 3)
    monkeypatch.setattr(cutoffs, "FETCH_AT_ONCE", 2)
    for number in range(4, 12):
        leaving.lost.accept(capture(str(number)))
    leaving.store.run(push(leaving.lost))
    assert leaving.ends() == {leaving.incarnation: 11}
    places = leaving.store.run(listed_places(leaving.core, leaving.lost.device_id))
    assert places == [Origin(leaving.lost.device_id, leaving.incarnation, n) for n in range(12)]


def test_what_was_stored_and_not_taken_in_comes_in_by_who_revokes_and_what_comes_behind_is_refused(
    leaving: Leaving,
) -> None:
    report = leaving.store.run(revoke(leaving.core, leaving.lost.device_id, now_ms=3))
    assert (report.accepted, report.fresh) == (4, True)
    info = leaving.core.log.member(leaving.lost.device_id)
    assert info is not None
    assert info.revoked is not None
    assert info.revoked.cutoffs == {leaving.incarnation: 0}, "only what the Core had taken in"
    leaving.lost.accept(capture("behind its end"))
    leaving.store.run(push(leaving.lost))
    leaving.sync(leaving.core)
    acks = {last for device, _, last in leaving.core.replica.acks() if device == leaving.lost.device_id}
    assert acks == {3}


def test_junk_under_a_device_that_is_to_be_revoked_puts_its_revocation_off_by_little(
    leaving: Leaving,
) -> None:
    """Who stole its token, and no key, may write under it as much as the relay takes."""
    for number in range(5 * cutoffs.NEW_STREAMS_MAX):
        leaving.store[leaving.key(0, number.to_bytes(8, "big"))] = b"junk"
    asked: list[Request] = []

    class Counting(Objects):
        def answer(self, request: Request) -> object:
            asked.append(request)
            return leaving.store.answer(request)

    ends = Counting().run(stream_ends(leaving.core, leaving.lost.device_id))
    assert ends == {leaving.incarnation: 3}, "streams of which something was taken come first"
    assert len(asked) < cutoffs.NEW_STREAMS_MAX + 10
