"""Moving the Core on purpose: nothing is lost, nothing waits for ever, and who may not lead is not even drained for."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from crystal_mirror.errors import NotAllowed, NotAMember, Superseded, Unready
from crystal_mirror.handover.core import freeze, look_for_calls, offer
from crystal_mirror.handover.successor import HandoverStage, stage_of
from crystal_mirror.handover.terms import COURTESY_MS, LEASE_MS, due_in_ms
from crystal_mirror.membership.administration import revoke
from crystal_mirror.membership.member import Member
from crystal_mirror.replication.claim import claim
from crystal_mirror.requests import GetMany, Poll, Request, StoreFailure
from crystal_mirror.round import sync_round
from tests.mirror.handover import CoreStage, Moving, core_stage
from tests.mirror.household import MODEL, has
from tests.mirror.test_two_devices import capture


@pytest.fixture
def home() -> Moving:
    return Moving()


def moved(home: Moving) -> None:
    home.ask(home.laptop)
    home.round(home.core)
    home.look(home.laptop)
    home.take(home.laptop)


def test_the_lead_moves_and_everybody_has_everything(home: Moving) -> None:
    for member in home.devices:
        member.accept(capture(f"before {member.device_id.hex()}"))
    home.ask(home.laptop)
    assert stage_of(home.laptop) is HandoverStage.ASKED
    home.round(home.core)
    assert core_stage(home.core) is CoreStage.HOLDING
    assert home.look(home.laptop) is HandoverStage.DRAINED
    home.core.accept(capture("recorded while the Core held"))
    report = home.take(home.laptop)
    assert (report.epoch, stage_of(home.laptop)) == (2, HandoverStage.SEALED)
    home.round(home.laptop)
    assert stage_of(home.laptop) is HandoverStage.LEADING
    home.round(home.core)
    assert core_stage(home.core) is CoreStage.NODE
    home.settle()
    home.settle()
    assert home.leader(home.tablet) == "laptop"
    assert len(home.digests()) == 1
    for text in (
        "recorded while the Core held",
        *(f"before {each.device_id.hex()}" for each in home.devices),
    ):
        assert all(has(member, text) for member in home.devices)
    assert all(not member.journal.names() for member in home.devices)


def test_while_it_holds_the_core_takes_what_is_recorded_and_publishes_nothing(home: Moving) -> None:
    home.ask(home.laptop)
    home.round(home.core)
    before = home.slots()
    home.core.accept(capture("waits in the outbox"))
    home.tablet.accept(capture("waits on the relay"))
    for member in (home.tablet, home.core, home.core):
        home.round(member)
    assert home.slots() == before
    assert len(home.core.journal.names()) == 1
    home.now += COURTESY_MS
    home.round(home.core)
    assert home.slots() > before
    assert has(home.core, "waits in the outbox")
    assert has(home.core, "waits on the relay")


def test_what_was_sent_right_before_the_ask_is_drained_although_no_round_had_seen_it(home: Moving) -> None:
    home.tablet.accept(capture("at the last moment"))
    home.round(home.tablet)
    home.ask(home.laptop)
    home.round(home.core)
    assert has(home.core, "at the last moment")
    home.look(home.laptop)
    home.take(home.laptop)
    assert has(home.laptop, "at the last moment")


def test_a_device_that_never_comes_is_waited_for_no_longer_than_the_courtesy_time(home: Moving) -> None:
    home.ask(home.laptop)
    home.round(home.core)
    assert due_in_ms(home.core, home.now) == COURTESY_MS
    home.now += COURTESY_MS - 1
    home.round(home.core)
    assert core_stage(home.core) is CoreStage.HOLDING
    home.now += 1
    home.round(home.core)
    assert core_stage(home.core) is CoreStage.CORE
    for _ in range(3):
        home.round(home.core)
        assert core_stage(home.core) is CoreStage.CORE, "one claim is held for once"


@pytest.mark.parametrize("jump", [-3_600_000, 10**12])
def test_a_clock_that_is_set_while_the_core_holds_ends_it(home: Moving, jump: int) -> None:
    home.ask(home.laptop)
    home.round(home.core)
    home.now += jump
    home.round(home.core)
    assert core_stage(home.core) is CoreStage.CORE


def test_a_clock_that_stands_still_holds_nobody_for_ever(
    home: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crystal_mirror.handover.core.HOLDING_ROUNDS_MAX", 5)
    home.ask(home.laptop)
    home.round(home.core)
    rounds = 0
    while core_stage(home.core) is CoreStage.HOLDING:
        home.round(home.core)
        rounds += 1
    assert rounds == 6


def test_a_request_that_is_withdrawn_ends_the_hold_at_once(home: Moving) -> None:
    home.ask(home.laptop)
    home.round(home.core)
    home.withdraw(home.laptop)
    assert stage_of(home.laptop) is HandoverStage.READER
    home.round(home.core)
    assert core_stage(home.core) is CoreStage.CORE
    home.ask(home.laptop)
    home.round(home.core)
    assert home.look(home.laptop) is HandoverStage.DRAINED, "a new request is a new claim"


def test_a_request_that_nobody_pursues_is_withdrawn_by_the_next_round(home: Moving) -> None:
    home.ask(home.laptop)
    home.now += LEASE_MS - 1
    home.look(home.laptop)
    home.now += LEASE_MS - 1
    home.round(home.laptop)
    assert stage_of(home.laptop) is HandoverStage.ASKED, "somebody looked in between"
    home.laptop = home.restarted(home.laptop)
    home.now += LEASE_MS
    home.round(home.laptop)
    assert stage_of(home.laptop) is HandoverStage.READER
    home.round(home.core)
    assert core_stage(home.core) is CoreStage.CORE


def test_a_stolen_node_without_a_grant_is_never_drained_for(home: Moving) -> None:
    with pytest.raises(Unready):
        home.ask(home.tablet)
    # The thief changes its program, and has its cursor say whatever it likes.
    with home.tablet.journal.transaction() as transaction:
        transaction.meta_set("handover.asks", bytes(range(16)))
        transaction.meta_set("handover.warrant", bytes(64))
    home.tablet.root = home.root  # what it says of the root is its own word
    home.round(home.tablet)
    home.round(home.core)
    assert core_stage(home.core) is CoreStage.CORE
    assert home.leader(home.core) == "core"


def test_the_kit_in_force_lets_a_device_without_a_grant_ask(home: Moving) -> None:
    home.ask(home.tablet, root=home.root)
    home.round(home.core)
    assert home.look(home.tablet) is HandoverStage.DRAINED
    home.take(home.tablet, root=home.root)
    home.settle()
    assert home.leader(home.core) == "tablet"


def test_a_warrant_is_good_for_one_claim_and_one_epoch(home: Moving) -> None:
    home.ask(home.tablet, root=home.root)
    warrant = home.tablet.journal.meta_get("handover.warrant")
    home.withdraw(home.tablet)
    with home.tablet.journal.transaction() as transaction:
        transaction.meta_set("handover.asks", bytes(range(16)))
        transaction.meta_set("handover.warrant", warrant)
    home.round(home.tablet)
    home.round(home.core)
    assert core_stage(home.core) is CoreStage.CORE
    home.withdraw(home.tablet)
    home.ask(home.tablet, root=home.root)
    asks = home.tablet.journal.meta_get("handover.asks")
    warrant = home.tablet.journal.meta_get("handover.warrant")
    moved(home)
    home.settle()
    with home.tablet.journal.transaction() as transaction:
        transaction.meta_set("handover.asks", asks)
        transaction.meta_set("handover.warrant", warrant)
    home.round(home.tablet)
    home.round(home.laptop)
    assert core_stage(home.laptop) is CoreStage.CORE, "that warrant was for the epoch before"


def test_the_core_gives_the_lead_to_a_device_that_has_no_grant(home: Moving) -> None:
    home.tablet.accept(capture("on its way"))
    home.offer(home.tablet)
    assert core_stage(home.core) is CoreStage.OFFERING
    home.round(home.tablet)
    assert stage_of(home.tablet) is HandoverStage.ASKED
    home.round(home.core)
    assert core_stage(home.core) is CoreStage.NODE
    home.round(home.tablet)
    home.settle()
    assert home.leader(home.core) == "tablet"
    assert home.tablet.is_core
    assert len(home.digests()) == 1
    assert all(has(member, "on its way") for member in home.devices)


def test_the_lead_is_not_signed_before_the_relay_lets_the_device_write_as_a_core(home: Moving) -> None:
    home.offer(home.tablet, ready=False)
    home.round(home.tablet)
    home.round(home.core)
    assert home.leader(home.core) == "core"
    assert core_stage(home.core) is CoreStage.OFFERING
    home.offer(home.tablet)
    home.round(home.core)
    assert home.leader(home.core) == "tablet"


def test_an_offer_that_is_called_off_or_left_alone_is_let_go_of_by_both(home: Moving) -> None:
    for end in ("called off", "left alone"):
        home.offer(home.tablet)
        home.round(home.tablet)
        assert stage_of(home.tablet) is HandoverStage.ASKED
        if end == "called off":
            home.call_off()
        else:
            home.now += LEASE_MS
        home.round(home.core)
        assert core_stage(home.core) is CoreStage.CORE
        home.round(home.tablet)
        assert stage_of(home.tablet) is HandoverStage.READER
        home.round(home.core)
        assert home.leader(home.core) == "core"


def test_only_the_core_gives_the_lead_away_and_only_to_another_device_of_the_vault(home: Moving) -> None:
    with pytest.raises(NotAllowed):
        home.run(offer(home.laptop, home.desk.device_id, home.about, ready=True))
    with pytest.raises(NotAllowed):
        home.run(freeze(home.laptop, home.now))
    for nobody in (home.core.device_id, bytes(16), b"?" * 16):
        with pytest.raises(NotAMember):
            home.run(offer(home.core, nobody, home.about, ready=True))


def test_a_frozen_vault_records_on_and_the_next_core_takes_all_of_it_in(home: Moving) -> None:
    home.core.accept(capture("before the freeze"))
    home.round(home.core)
    assert home.freeze() == 2
    before = home.slots()
    for member in home.devices:
        member.accept(capture(f"frozen {member.device_id.hex()}"))
    home.settle()
    assert home.slots() == before
    assert home.leader(home.desk) is None
    assert [member.is_core for member in home.devices] == [False] * 4
    assert all(member.notices.current() == {} for member in home.devices)
    home.run(claim(home.laptop, None, now_ms=home.now))
    home.settle()
    home.settle()
    assert home.laptop.log.lead is not None
    assert home.laptop.log.lead.epoch == 3
    assert home.leader(home.core) == "laptop"
    assert len(home.digests()) == 1
    for member in home.devices:
        assert all(has(member, f"frozen {each.device_id.hex()}") for each in home.devices)
        assert not member.journal.names()


def test_in_a_frozen_vault_nobody_is_asked_and_the_device_that_led_is_not_revoked(home: Moving) -> None:
    home.round(home.core)
    home.freeze()
    home.settle()
    with pytest.raises(Unready):
        home.ask(home.laptop)
    heir = home.by_kit("heir")
    home.sync(heir)
    with pytest.raises(Unready, match="nobody leads"):
        home.run(revoke(heir, home.core.device_id, now_ms=home.now))
    home.run(claim(heir, home.root))
    home.run(revoke(heir, home.tablet.device_id, now_ms=home.now))
    assert not heir.log.is_active(home.tablet.device_id)


def test_who_asks_twice_and_who_takes_without_asking(home: Moving) -> None:
    with pytest.raises(Unready):
        home.take(home.laptop)
    with pytest.raises(Unready):
        home.ask(home.core)
    home.ask(home.laptop)
    home.round(home.core)
    home.look(home.laptop)
    claimed = home.laptop.journal.meta_get("handover.asks")
    home.laptop = home.restarted(home.laptop)
    home.ask(home.laptop)
    assert home.laptop.journal.meta_get("handover.asks") == claimed, "what is held for is gone on with"
    home.run(claim(home.desk, None, force=True))
    with pytest.raises(Superseded):
        home.take(home.laptop)


def test_only_a_cursor_that_asks_something_of_a_device_calls_it(home: Moving) -> None:
    def called(member: Member) -> bool:
        return bool(home.run(look_for_calls(member)))

    for member in home.devices:
        member.accept(capture("moves its cursor"))
        home.round(member, heed=False)
    assert not any(called(member) for member in home.devices)
    home.ask(home.laptop)
    assert [called(member) for member in home.devices] == [True, False, False, False]
    home.round(home.core)
    assert not called(home.core), "it holds for it"
    home.withdraw(home.laptop)
    assert called(home.core)
    home.round(home.core)
    assert not called(home.core)
    home.offer(home.tablet)
    assert [called(member) for member in home.devices] == [False, False, False, True]
    home.round(home.tablet)
    assert not called(home.tablet)
    assert called(home.core), "the lead is to be signed"


def test_a_core_under_load_that_has_enough_of_a_round_hears_who_asks(home: Moving) -> None:
    for number in range(200):
        home.tablet.accept(capture(f"load {number}"))
    home.round(home.tablet)
    home.ask(home.laptop)
    report = home.store.run(sync_round(home.core, MODEL, about=home.about, enough=lambda: True))
    assert report.more
    assert core_stage(home.core) is CoreStage.HOLDING, "what it has not taken is left to its successor"
    home.look(home.laptop)
    home.take(home.laptop)
    home.settle()
    home.settle()
    assert all(has(member, f"load {number}") for member in home.devices for number in (0, 199))
    assert len(home.digests()) == 1


def test_devices_that_sync_now_and_then_hand_the_lead_over(home: Moving) -> None:
    """Each round is of another process, as with `crystal sync`: nothing wakes it, and a full check was made just now."""

    def sync(member: Member) -> Member:
        home.now += 1000
        again = home.restarted(member)
        home.round(again, heed=False)
        return again

    home.core, home.laptop = sync(sync(home.core)), sync(sync(home.laptop))
    home.ask(home.laptop)
    home.core = sync(home.core)
    assert core_stage(home.core) is CoreStage.HOLDING
    home.withdraw(home.laptop)
    home.core = sync(home.core)
    assert core_stage(home.core) is CoreStage.CORE
    home.offer(home.laptop)
    home.laptop = sync(home.laptop)
    assert stage_of(home.laptop) is HandoverStage.ASKED
    home.core = sync(home.core)
    assert core_stage(home.core) is CoreStage.NODE
    home.laptop = sync(sync(home.laptop))
    assert stage_of(home.laptop) is HandoverStage.LEADING


def test_cursors_are_read_where_the_store_cannot_tell_whether_any_was_written(home: Moving) -> None:
    """A poll that fails, and a process that dies before it has heeded what the poll told of."""

    def fails(request: Request) -> Any:
        if isinstance(request, Poll):
            raise StoreFailure("too many waits at once")
        return home.store.answer(request)

    def dies(request: Request) -> Any:
        if isinstance(request, GetMany) and any("/cursor/" in key for key in request.keys):
            raise KeyboardInterrupt
        return home.store.answer(request)

    def run(member: Member, answer: Callable[[Request], Any]) -> None:
        home.now += 1000
        flow, reply = sync_round(member, MODEL, about=home.about), None
        with suppress(StopIteration):
            request = next(flow)
            while True:
                try:
                    reply = answer(request)
                except StoreFailure as failure:
                    request = flow.throw(failure)
                else:
                    request = flow.send(reply)

    for _ in range(2):
        run(home.restarted(home.core), home.store.answer)
    home.ask(home.laptop)
    with pytest.raises(KeyboardInterrupt):
        run(home.restarted(home.core), dies)
    core = home.restarted(home.core)
    run(core, fails)
    assert core_stage(core) is CoreStage.HOLDING
    home.withdraw(home.laptop)
    core = home.restarted(home.core)
    run(core, home.store.answer)
    assert core_stage(core) is CoreStage.CORE
    home.ask(home.laptop)
    with pytest.raises(KeyboardInterrupt):
        run(home.restarted(home.core), dies)
    core = home.restarted(home.core)
    run(core, home.store.answer)
    assert core_stage(core) is CoreStage.HOLDING
