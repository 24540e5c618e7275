"""Moving the Core against whatever may come between: deaths at any write, two askers, revocations, clones, a freeze."""

import pytest

from crystal_mirror.errors import BehindTheFloor, ProtocolError, Revoked, Superseded
from crystal_mirror.handover.core import freeze
from crystal_mirror.handover.successor import HandoverStage, stage_of, take
from crystal_mirror.handover.terms import COURTESY_MS, LEASE_MS
from crystal_mirror.history.slots import SlotKind, judge_slot
from crystal_mirror.membership.administration import revoke
from crystal_mirror.replication.claim import claim
from crystal_mirror.requests import Flow, PutNew, Request
from crystal_mirror.round import sync_round
from crystal_mirror.types import START
from tests.mirror.handover import CoreStage, Moving, core_stage, killed_at_write
from tests.mirror.household import MODEL, has
from tests.mirror.test_two_devices import capture


@pytest.fixture
def home() -> Moving:
    return Moving()


def asked(home: Moving) -> None:
    home.ask(home.laptop)
    home.round(home.core)
    assert home.look(home.laptop) is HandoverStage.DRAINED


def agreed(home: Moving, *texts: str) -> None:
    """All devices come to the same state, with these texts, and nothing waits any more. One Core is left."""
    for _ in range(3):
        home.settle()
    assert len(home.digests()) == 1
    assert all(has(member, text) for member in home.devices for text in texts)
    assert all(not member.journal.names() for member in home.devices)
    assert sum(member.is_core for member in home.devices) == 1
    one_core_for_each_epoch(home)


def one_core_for_each_epoch(home: Moving) -> None:
    """P4, of the relay's mirror: each epoch's entries are signed by its one Core, and nothing counts behind a seal."""
    for member in home.devices:
        position = START
        while (data := home.store.get(member.keys.mirror(*position[:2]))) is not None:
            slot = judge_slot(data, position, member.log)
            if slot.kind is SlotKind.BATCH:
                lead = member.log.lead_of(position.epoch)
                assert slot.entry is not None
                assert lead is not None
                assert slot.entry.header.sender == lead.device
            position = slot.after(position)
        assert position[:2] == member.replica.position()[:2]


def test_two_askers_get_it_one_after_the_other_and_one_wins(home: Moving) -> None:
    home.ask(home.laptop)
    home.ask(home.desk)
    home.round(home.core)
    stages = [home.look(member) for member in (home.laptop, home.desk)]
    assert sorted(stage.value for stage in stages) == ["asked", "drained"]
    first, second = (
        (home.laptop, home.desk) if stages[0] is HandoverStage.DRAINED else (home.desk, home.laptop)
    )
    home.take(first)
    assert home.look(second) is HandoverStage.READER, "its request is overtaken"
    agreed(home)
    assert first.is_core


def test_two_askers_that_both_take_it_are_decided_by_the_log(home: Moving) -> None:
    home.ask(home.laptop)
    home.ask(home.desk)
    home.round(home.core)
    home.desk.accept(capture("of the loser"))
    home.take(home.laptop)
    with pytest.raises(Superseded):
        home.take(home.desk)
    agreed(home, "of the loser")
    assert home.laptop.is_core


def test_a_core_that_dies_while_it_holds_comes_back_as_a_node(home: Moving) -> None:
    asked(home)
    home.core.accept(capture("in the dead Core's outbox"))
    home.core = home.restarted(home.core)
    home.take(home.laptop)
    home.round(home.laptop)
    home.now += 3_600_000
    home.round(home.core)
    assert core_stage(home.core) is CoreStage.NODE
    agreed(home, "in the dead Core's outbox")


def test_a_core_that_comes_back_before_the_lead_is_taken_holds_on_or_resumes(home: Moving) -> None:
    asked(home)
    home.core = home.restarted(home.core)
    home.round(home.core)
    assert core_stage(home.core) is CoreStage.HOLDING
    home.core = home.restarted(home.core)
    home.now += COURTESY_MS
    home.core.accept(capture("after it resumed"))
    home.round(home.core)
    assert core_stage(home.core) is CoreStage.CORE
    assert has(home.core, "after it resumed")
    home.take(home.laptop)  # late, and right all the same
    agreed(home, "after it resumed")
    assert home.laptop.is_core


@pytest.mark.parametrize("where", ["devlog", "mirror"])
def test_an_asker_that_dies_right_after_a_write_leads_when_it_comes_back(home: Moving, where: str) -> None:
    home.tablet.accept(capture("under way"))
    home.round(home.tablet)
    asked(home)
    prefix = home.laptop.keys.log_prefix if where == "devlog" else home.laptop.keys.mirror_prefix
    killed_at_write(home, take(home.laptop, None, home.about), prefix)
    home.laptop = home.restarted(home.laptop)
    home.round(home.core)
    assert core_stage(home.core) is CoreStage.NODE
    home.round(home.laptop)
    assert home.laptop.is_core
    agreed(home, "under way")
    assert stage_of(home.laptop) is HandoverStage.LEADING


def test_an_asker_that_dies_before_the_log_entry_is_forgotten_by_all(home: Moving) -> None:
    asked(home)
    home.laptop = home.restarted(home.laptop)
    home.now += max(COURTESY_MS, LEASE_MS)
    home.core.accept(capture("the Core went on"))
    agreed(home, "the Core went on")
    assert home.core.is_core
    assert stage_of(home.laptop) is HandoverStage.READER


@pytest.mark.parametrize("killed", range(0, 60, 3))
def test_a_giving_core_killed_at_any_step_resumes_or_lets_go(home: Moving, killed: int) -> None:
    home.tablet.accept(capture("collected while draining"))
    home.round(home.tablet)
    home.ask(home.laptop)
    flow = sync_round(home.core, MODEL, about=home.about, heed_cursors=True)
    reply = None
    for _ in range(killed):
        try:
            reply = home.store.answer(flow.send(reply))
        except StopIteration:
            break
    flow.close()
    home.core = home.restarted(home.core)
    home.round(home.core)
    assert home.look(home.laptop) is HandoverStage.DRAINED
    home.take(home.laptop)
    agreed(home, "collected while draining")
    assert home.laptop.is_core


def test_a_device_that_is_revoked_while_it_asks_is_held_for_no_longer(home: Moving) -> None:
    asked(home)
    home.run(revoke(home.core, home.laptop.device_id, now_ms=home.now))
    home.round(home.core)
    assert core_stage(home.core) is CoreStage.CORE
    with pytest.raises(Revoked):
        home.look(home.laptop)
    with pytest.raises(ProtocolError):
        home.take(home.laptop)
    home.round(home.core)
    assert home.core.is_core
    assert home.core.log.lead is not None
    assert home.core.log.lead.epoch == 1


def test_a_frozen_vault_is_ended_by_one_of_two_claimants(home: Moving) -> None:
    home.core.accept(capture("before the freeze"))
    home.round(home.core)
    home.freeze()
    home.laptop.accept(capture("by the laptop"))
    home.desk.accept(capture("by the desk"))
    killed_at_write(home, claim(home.laptop, None), home.laptop.keys.log_prefix)
    # The desk's claim comes second; it may lead after it, which the log allows, and both epochs end well.
    home.run(claim(home.desk, None, force=True))
    home.laptop = home.restarted(home.laptop)
    agreed(home, "before the freeze", "by the laptop", "by the desk")
    assert home.desk.is_core


def test_two_claimants_at_the_same_head_of_a_frozen_log_are_decided_by_it(home: Moving) -> None:
    home.round(home.core)
    home.freeze()
    slow = claim(home.desk, None)
    request = up_to_its_write(home, slow)
    home.run(claim(home.laptop, None))
    with pytest.raises(Superseded):
        rest(home, slow, home.store.answer(request))
    agreed(home)
    assert home.laptop.is_core


def up_to_its_write(home: Moving, flow: Flow[object]) -> Request:
    """The flow's first create-only write, which is not done yet."""
    request = next(flow)
    while not isinstance(request, PutNew):
        request = flow.send(home.store.answer(request))
    return request


def rest(home: Moving, flow: Flow[object], reply: object) -> None:
    while True:
        reply = home.store.answer(flow.send(reply))


def test_a_core_that_is_overtaken_cannot_freeze_the_vault_any_more(home: Moving) -> None:
    home.run(claim(home.laptop, None))
    with pytest.raises(Superseded):
        home.run(freeze(home.core, home.now))
    agreed(home)
    assert home.laptop.is_core


def test_what_a_core_wrote_after_its_freeze_stands_before_the_seal_or_comes_again(home: Moving) -> None:
    """A copy of the Core that did not read of the freeze goes on for a while: that is its epoch still, which is not sealed."""
    copy = home.clone(home.core)
    home.freeze()
    before = home.slots()
    home.tablet.accept(capture("taken by the copy"))
    home.round(home.tablet)
    home.store.run(sync_round(copy, MODEL))
    assert home.slots() == before, "it has read the log, so it publishes nothing"
    home.run(claim(home.laptop, None))
    agreed(home, "taken by the copy")


def test_a_clone_of_the_asker_does_not_lead_beside_it(home: Moving) -> None:
    clone = home.clone(home.laptop)
    asked(home)
    home.take(home.laptop)
    home.store.run(sync_round(clone, MODEL, about=home.about))
    assert not clone.is_core, "it does not know the claim"
    agreed(home)


def test_a_clone_that_knows_the_claim_is_found_out_by_the_mirror(home: Moving) -> None:
    home.ask(home.laptop)
    clone = home.clone(home.laptop)
    home.round(home.core)
    home.look(home.laptop)
    home.take(home.laptop)
    home.laptop.accept(capture("by the device"))
    home.round(home.laptop)
    home.store.run(sync_round(clone, MODEL, about=home.about))
    clone.accept(capture("by its clone"))
    for _ in range(3):
        home.store.run(sync_round(clone, MODEL, about=home.about))
        home.settle()
    one_core_for_each_epoch(home)
    assert home.laptop.is_core != clone.is_core


def test_a_lead_is_not_taken_while_another_device_has_applied_more_than_is_shown(home: Moving) -> None:
    home.core.accept(capture("only the tablet has it"))
    home.round(home.core)
    home.round(home.tablet)
    lost = home.tablet.replica.position()
    home.store.pop(home.tablet.keys.mirror(lost.epoch, lost.sequence - 1))
    home.ask(home.laptop)
    with pytest.raises(BehindTheFloor, match="has applied epoch 1"):
        home.take(home.laptop)
    assert home.leader(home.laptop) == "core"
