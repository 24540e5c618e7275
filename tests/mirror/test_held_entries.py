"""What a revoked device left behind the end of its streams: held, and then accepted or dropped by the owner."""

import pytest

from crystal_mirror.errors import NotAllowed, NotAMember, Revoked, TransactionStale
from crystal_mirror.membership.administration import revoke
from crystal_mirror.membership.member import Member
from crystal_mirror.notices import Notice
from crystal_mirror.replication.claim import claim
from crystal_mirror.replication.held_entries import Accepted, accept_held, drop_held, held_places
from crystal_mirror.requests import PutNew
from crystal_mirror.streams.outbox import push, restart_stream
from crystal_mirror.types import Origin
from tests.mirror.household import Household, has, same
from tests.mirror.test_two_devices import capture


class Left(Household):
    """``lost`` was revoked after its first word, and has put two more on the relay, which lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.laptop, self.lost = self.add("laptop"), self.add("lost")
        self.lost.accept(capture("before"))
        self.sync(self.lost, self.core, self.laptop)
        self.revoke(self.lost)
        self.later("after, one")
        self.later("after, two")

    def later(self, text: str) -> None:
        self.lost.accept(capture(text))
        self.store.run(push(self.lost))

    def held(self, member: Member | None = None) -> list[Origin]:
        return self.store.run(held_places(member or self.core, self.lost.device_id))

    def accept(self, member: Member | None = None) -> Accepted:
        return self.store.run(accept_held(member or self.core, self.lost.device_id))

    def drop(self, member: Member | None = None) -> int:
        return self.store.run(drop_held(member or self.core, self.lost.device_id))

    def rounds(self) -> None:
        for _ in range(3):
            self.sync(self.laptop, self.core)


@pytest.fixture
def left() -> Left:
    return Left()


def test_what_a_revoked_device_writes_is_held_and_named_and_read_by_nobody(left: Left) -> None:
    left.rounds()
    for member in (left.core, left.laptop):
        assert has(member, "before")
        assert not has(member, "after, one")
        assert len(left.held(member)) == 2
    assert Notice.HELD_REVOKED in left.core.notices.current()


def test_what_was_stored_before_the_revocation_is_not_held() -> None:
    home = Household()
    lost = home.add("lost")
    home.read(home.core)
    lost.accept(capture("stored, and not yet taken in"))
    home.store.run(push(lost))
    home.store.run(revoke(home.core, lost.device_id, now_ms=2))
    assert home.store.run(held_places(home.core, lost.device_id)) == []
    home.sync(home.core)
    assert has(home.core, "stored, and not yet taken in")


def test_what_is_accepted_comes_in_once_under_its_own_name(left: Left) -> None:
    places = left.held()
    assert left.accept() == Accepted(operations=2, unreadable=0)
    assert left.accept() == Accepted(operations=0, unreadable=0)
    assert [name.origin for name in left.core.journal.names()] == places
    left.rounds()
    assert left.accept(left.laptop) == left.accept() == Accepted(0, 0)
    left.rounds()
    assert has(left.laptop, "after, one")
    assert has(left.laptop, "after, two")
    assert same(left.core, left.laptop)
    assert left.held() == []
    rows = {table.name: table.count for table in left.core.replica.digest().tables}
    assert rows["occurrences"] == 3
    assert left.core.journal.names() == [], "it is durable, and nothing waits for it"
    assert Notice.HELD_REVOKED not in left.core.notices.current()


def test_two_devices_that_accept_the_same_take_it_in_once(left: Left) -> None:
    left.read(left.laptop)
    assert left.accept(left.laptop).operations == left.accept().operations == 2
    left.rounds()
    assert same(left.core, left.laptop)
    assert {t.name: t.count for t in left.core.replica.digest().tables}["occurrences"] == 3
    assert left.core.journal.names() == left.laptop.journal.names() == []


def test_what_is_dropped_counts_as_done_and_comes_in_on_no_way_later(left: Left) -> None:
    assert left.drop() == 2
    assert left.drop() == 0
    left.rounds()
    for member in (left.core, left.laptop):
        assert left.held(member) == []
        assert not has(member, "after, one")
    assert left.accept() == Accepted(0, 0)
    assert same(left.core, left.laptop)
    assert Notice.HELD_REVOKED not in left.core.notices.current()
    left.later("after, three")
    left.rounds()
    assert Notice.HELD_REVOKED in left.core.notices.current()
    assert len(left.held()) == 1, "what came after the drop is held anew"


def test_what_cannot_be_read_stays_held(left: Left) -> None:
    first, second = (left.core.keys.conversation(*place) for place in left.held())
    good = left.store[first]
    for junk in (b"junk", left.store[second], good[:-1] + bytes([good[-1] ^ 1])):
        left.store[first] = junk
        assert left.accept().unreadable == 1
    assert len(left.held()) == 1
    left.rounds()
    left.store[first] = good
    assert left.accept() == Accepted(operations=1, unreadable=0)
    left.rounds()
    assert has(left.laptop, "after, one")


def test_an_operation_that_stands_in_another_place_than_its_name_says_comes_in_once_too(left: Left) -> None:
    """The device had lost its place and offered the same again in a new incarnation: two places, one operation."""
    with left.lost.journal.transaction() as transaction:
        restart_stream(left.lost, transaction)
    left.store.run(push(left.lost))
    assert len(left.held()) == 5, "two, and all three that the device never saw durable once more"
    assert left.accept() == Accepted(operations=2, unreadable=0)
    left.rounds()
    assert {t.name: t.count for t in left.core.replica.digest().tables}["occurrences"] == 3
    assert left.held() == []
    assert same(left.core, left.laptop)
    assert Notice.HELD_REVOKED not in left.core.notices.current()


def test_only_the_core_drops_and_only_what_a_revoked_device_left(left: Left) -> None:
    left.read(left.laptop)
    with pytest.raises(NotAllowed):
        left.drop(left.laptop)
    for device in (left.laptop.device_id, bytes(16)):
        for flow in (held_places(left.core, device), drop_held(left.core, device)):
            with pytest.raises(NotAMember):
                left.store.run(flow)
        with pytest.raises(NotAMember):
            left.store.run(accept_held(left.core, device))


def test_a_device_that_is_out_itself_accepts_nothing(left: Left) -> None:
    left.read(left.lost)
    with pytest.raises(Revoked):
        left.accept(left.lost)


def test_a_drop_is_published_behind_junk_in_its_slot(left: Left) -> None:
    epoch, slot, _ = left.core.replica.position()
    left.store[left.core.keys.mirror(epoch, slot)] = b"junk that came first"
    assert left.drop() == 2
    left.rounds()
    assert left.held(left.laptop) == []
    assert same(left.core, left.laptop)


def test_a_core_that_does_not_know_that_it_leads_no_more_drops_nothing(left: Left) -> None:
    left.sync(left.laptop)
    left.store.run(claim(left.laptop, left.root))
    position = left.core.replica.position()
    with pytest.raises(TransactionStale):
        left.drop()
    assert left.core.replica.position() == position
    left.rounds()
    assert len(left.held(left.laptop)) == 2
    assert left.drop(left.laptop) == 2
    left.rounds()
    assert same(left.core, left.laptop)
    assert left.held(left.core) == []


def test_a_core_whose_epoch_has_not_begun_drops_nothing(left: Left) -> None:
    left.sync(left.laptop)
    flow, reply = claim(left.laptop, left.root), None
    while not isinstance(request := flow.send(reply), PutNew) or "/mirror/" not in request.key:
        reply = left.store.answer(request)
    flow.close()
    assert left.laptop.is_core
    with pytest.raises(TransactionStale):
        left.drop(left.laptop)
    left.rounds()
    assert left.drop(left.laptop) == 2
