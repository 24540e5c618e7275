"""Two that change the device log at once, driven request by request so that one of them really loses its slot, in both orders.

The order of the log decides; whoever lost reads on and decides again, by what the log says now.
"""

from typing import Any

import pytest

from crystal_mirror.errors import NotAllowed, NotAMember, RootHeld, Superseded, Unready, WrongVault
from crystal_mirror.membership.administration import add_device, renew_generation, revoke, rotate_root
from crystal_mirror.membership.founding import join
from crystal_mirror.membership.member import Member, load_log
from crystal_mirror.replication.claim import claim
from crystal_mirror.requests import Flow, PutNew
from crystal_node.device.journal import SqliteJournal
from tests.mirror.household import Household, newcomer
from tests.mirror.support import DETAILS, new_device, new_root, seeded

ORDERS = pytest.mark.parametrize("first", ["one", "other"])
"""Which of the two named in a test is first."""


class Racing(Household):
    """``core`` and ``keeper`` both may administer: the Core by its lead, the keeper by the root. None of the others may."""

    def __init__(self) -> None:
        super().__init__()
        self.laptop, self.lost, self.keeper = self.add("laptop"), self.add("lost"), self.by_kit("keeper")
        self.sync(self.core, self.keeper, self.laptop, self.lost)

    def race(self, first: str, one: Flow[Any], other: Flow[Any]) -> tuple[Any, Any]:
        """Stops one flow at its write to the device log, runs the other to its end, then lets the write go and fail.

        Gives what ``one`` and ``other`` came to: a result or an error.
        """
        winner, loser = (one, other) if first == "one" else (other, one)
        reply: Any = None
        while not isinstance(request := loser.send(reply), PutNew) or "/devlog/" not in request.key:
            reply = self.store.answer(request)
        won = outcome(self, winner)
        assert request.key in self.store, "the winner took the slot that the loser was about to write"
        try:
            lost: Any = self.store.run(_going_on(loser, self.store.answer(request)))
        except Exception as error:  # noqa: BLE001  (given to the test, which asks for exactly one)
            lost = error
        return (won, lost) if first == "one" else (lost, won)

    def newest(self) -> Member:
        """The Core, having read the whole log; nothing in it is void."""
        self.read(self.core, self.keeper, self.laptop)
        assert self.core.log.void_slots == 0
        assert self.core.log.head == self.keeper.log.head == self.laptop.log.head
        return self.core


def outcome(racing: Racing, flow: Flow[Any]) -> Any:
    try:
        return racing.store.run(flow)
    except Exception as error:  # noqa: BLE001  (given to the test, which asks for exactly one)
        return error


def _going_on(flow: Flow[Any], reply: Any) -> Flow[Any]:
    while True:
        try:
            request = flow.send(reply)
        except StopIteration as stop:
            return stop.value
        reply = yield request


@pytest.fixture
def racing() -> Racing:
    return Racing()


@ORDERS
def test_an_add_against_a_revoke_leaves_the_newcomer_in_with_the_newest_keys(
    racing: Racing, first: str
) -> None:
    identity = new_device("newcomer")
    added, revoked = racing.race(
        first,
        add_device(racing.core, newcomer(identity), name="new", system="", now_ms=3),
        revoke(racing.keeper, racing.lost.device_id, now_ms=3),
    )
    assert added.fresh
    assert revoked.fresh
    log = racing.newest().log
    assert log.is_active(identity.id)
    assert not log.is_active(racing.lost.device_id)
    assert log.generation == 2
    late = racing.add("newcomer")
    assert late.generation_key.number == 2
    assert late.key_for(1) is not None
    assert racing.laptop.generation_key.secret == late.generation_key.secret


@ORDERS
def test_two_revokes_of_one_device_are_one(racing: Racing, first: str) -> None:
    one, other = racing.race(
        first,
        revoke(racing.core, racing.lost.device_id, now_ms=3),
        revoke(racing.keeper, racing.lost.device_id, now_ms=3),
    )
    assert (one.fresh, other.fresh) == (first == "one", first == "other")
    assert (one.generation, other.generation) == (2, 2)
    assert racing.newest().log.generation == 2


@ORDERS
def test_two_revokes_of_two_devices_both_count_and_neither_gets_the_last_keys(
    racing: Racing, first: str
) -> None:
    one, other = racing.race(
        first,
        revoke(racing.core, racing.lost.device_id, now_ms=3),
        revoke(racing.keeper, racing.laptop.device_id, now_ms=3),
    )
    assert one.fresh
    assert other.fresh
    log = racing.newest().log
    assert [info.device for info in log.active()] == [racing.core.device_id, racing.keeper.device_id]
    racing.read(racing.lost)
    assert log.generation == 3
    assert racing.lost.key_for(3) is racing.laptop.key_for(3) is None
    assert racing.core.generation_key.secret == racing.keeper.generation_key.secret


@ORDERS
def test_two_generations_at_once_are_one(racing: Racing, first: str) -> None:
    one, other = racing.race(
        first, renew_generation(racing.core, now_ms=3), renew_generation(racing.keeper, now_ms=3)
    )
    assert (one, other) == (2, 2)
    core = racing.newest()
    assert core.log.generation == 2
    assert core.generation_key.secret == racing.laptop.generation_key.secret


@ORDERS
def test_a_generation_against_a_revoke(racing: Racing, first: str) -> None:
    one, other = racing.race(
        first,
        renew_generation(racing.core, now_ms=3),
        revoke(racing.keeper, racing.lost.device_id, now_ms=3),
    )
    assert other.fresh
    log = racing.newest().log
    # Who renews is content with the revocation's generation; who revokes needs one that the device does not get.
    assert (one, log.generation) == ((2, 3) if first == "one" else (2, 2))
    racing.read(racing.lost)
    assert racing.lost.key_for(log.generation) is None


@ORDERS
def test_a_revoke_against_a_claim_of_the_lead_by_that_device(racing: Racing, first: str) -> None:
    heir = racing.add("heir", grant=True)
    racing.sync(racing.core, heir)
    one, other = racing.race(
        first, revoke(racing.core, heir.device_id, now_ms=3), claim(heir, None, force=True)
    )
    log = racing.newest().log
    if first == "one":
        assert one.fresh
        assert not log.is_active(heir.device_id)
        assert isinstance(other, Exception)
        assert log.lead is not None
        assert log.lead.device == racing.core.device_id
    else:
        assert isinstance(one, Unready), "it leads now: another one has to take the lead first"
        assert other.epoch == 2
        assert log.is_active(heir.device_id)


@ORDERS
def test_a_revoke_by_the_core_against_a_claim_by_another_device(racing: Racing, first: str) -> None:
    heir = racing.add("heir", grant=True)
    racing.core.root = None
    racing.sync(racing.core, heir)
    one, other = racing.race(
        first, revoke(racing.core, racing.lost.device_id, now_ms=3), claim(heir, None, force=True)
    )
    assert other.epoch == 2
    log = racing.newest().log
    if first == "one":
        assert one.fresh
        assert not log.is_active(racing.lost.device_id)
    else:
        assert isinstance(one, NotAllowed | Unready), "it does not lead any more"
        assert log.is_active(racing.lost.device_id)
        assert racing.store.run(revoke(heir, racing.lost.device_id, now_ms=4)).fresh


@ORDERS
def test_two_claims_at_once_have_one_winner(racing: Racing, first: str) -> None:
    heir = racing.add("heir", grant=True)
    racing.sync(racing.core, heir)
    one, other = racing.race(
        first, claim(heir, None, force=True), claim(racing.keeper, racing.root, force=True)
    )
    won, lost = (one, other) if first == "one" else (other, one)
    assert won.epoch == 2
    assert isinstance(lost, Superseded)


@ORDERS
def test_a_rotation_against_an_add_by_the_old_root(racing: Racing, first: str) -> None:
    identity, journal = new_device("by the old root"), SqliteJournal.open(":memory:")
    new = new_root("new")
    one, other = racing.race(
        first,
        rotate_root(racing.core, racing.root, new, now_ms=3),
        join(identity, racing.root, journal, seeded("join"), DETAILS),
    )
    assert one is True
    log = racing.newest().log
    assert log.root_number == 1
    if first == "one":
        assert isinstance(other, WrongVault), "its root has no power any more"
        assert log.member(identity.id) is None
    else:
        assert other is None
        assert load_log(journal, racing.core.vault).is_active(identity.id)
        assert not log.held_root(identity.id), "it had a root, which is not in force now"


@ORDERS
def test_two_rotations_at_once_leave_one_root(racing: Racing, first: str) -> None:
    new = {name: new_root(name) for name in ("one", "other")}
    one, other = racing.race(
        first,
        rotate_root(racing.core, racing.root, new["one"], now_ms=3),
        rotate_root(racing.keeper, racing.root, new["other"], now_ms=3),
    )
    won, lost = (one, other) if first == "one" else (other, one)
    assert won is True
    assert isinstance(lost, NotAllowed)
    log = racing.newest().log
    assert log.root is not None
    assert log.root.admin == new[first].admin.public.to_bytes()


@ORDERS
def test_a_rotation_against_a_revoke_of_a_device_that_had_the_root(racing: Racing, first: str) -> None:
    """The thief, with the root it took, revokes others; the Core replaces the root. Then the thief can be put out."""
    one, other = racing.race(
        first,
        rotate_root(racing.core, racing.root, new_root("new"), now_ms=3),
        revoke(racing.keeper, racing.lost.device_id, now_ms=3),
    )
    assert one is True
    log = racing.newest().log
    if first == "one":
        assert isinstance(other, NotAllowed)
        assert log.is_active(racing.lost.device_id)
    else:
        assert other.fresh
    assert racing.store.run(revoke(racing.core, racing.keeper.device_id, now_ms=4)).fresh


@ORDERS
def test_an_add_by_the_kit_against_a_revoke(racing: Racing, first: str) -> None:
    one, other = racing.race(
        first,
        revoke(racing.core, racing.lost.device_id, now_ms=3),
        join(new_device("late"), racing.root, SqliteJournal.open(":memory:"), seeded("late"), DETAILS),
    )
    assert one.fresh
    assert other is None
    assert racing.newest().log.generation == 2
    with pytest.raises(RootHeld):
        racing.store.run(revoke(racing.core, new_device("late").id, now_ms=4))
    with pytest.raises(NotAMember):
        racing.store.run(revoke(racing.core, new_device("never came").id, now_ms=4))
