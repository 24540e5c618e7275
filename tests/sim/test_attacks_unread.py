"""What an ex-device in league with the relay could get in where others have not read to the end yet, and what a false key in a
generation's entry would cost those who come later."""

from crystal_mirror.membership.administration import revoke
from crystal_mirror.notices import Notice
from crystal_mirror.types import Origin
from tests.sim.administering import NOW_MS, renew
from tests.sim.members_script import MembersStage
from tests.sim.test_attacks_core import Hostile, Overthrown
from tests.sim.thief import Thief, member_of


def test_an_ex_device_cannot_swap_what_it_had_stored_and_the_core_has_not_taken_yet() -> None:
    """A Node with the root revokes while the Core is away. The ex-device signs another entry for a place that it had
    filled, and the relay puts it there."""
    stage = MembersStage("swap")
    world, laptop, phone = stage.world, stage.laptop, stage.phone
    stage.write(phone)
    stage.sync(phone)
    stored = [
        place for key in world.store.objects if (place := member_of(phone).keys.parse_stream(key)) is not None
    ]
    kit = world.root
    stage.act(laptop, lambda member: revoke(member, phone.identity.id, now_ms=NOW_MS, root=kit))
    info = member_of(laptop).log.member(phone.identity.id)
    assert info is not None
    assert info.revoked is not None
    incarnation, last = max((place[1:] for place in stored), key=lambda place: place[1])
    assert not info.revoked.counts(incarnation, last), "the Core had not taken it"
    Thief(world, phone.identity).offer(Origin(phone.identity.id, incarnation, last))
    stage.sync(stage.core, laptop)
    world.agree()


def test_an_ex_core_cannot_show_a_newcomer_another_end_of_its_epoch() -> None:
    """The newcomer's device log says that the old Core is out and that another epoch goes on. The relay hides the seal
    and shows it what the old Core has written since, in its own epoch."""
    overthrown = Overthrown()
    world, core = overthrown.world, overthrown.core
    first = overthrown.thief.keys.mirror(*overthrown.end_of_epoch[:2])
    hidden = {key: data for key, data in world.store.objects.items() if "/mirror/" in key and key >= first}
    hidden |= {key: data for key, data in world.store.objects.items() if "/cursor/" in key}
    for key in hidden:
        del world.store.objects[key]
    overthrown.write(core)
    for _ in range(2):
        world.run_round(core)
    assert first in world.store.objects, "it has written where the seal stood"
    late = world.add_home("late")
    for _ in range(2):
        world.run_round(late)
    assert Notice.EPOCH_OPEN in member_of(late).notices.current()
    world.store.objects.update(hidden)
    world.agree()


def test_a_chain_of_keys_that_a_core_cut_once_is_mended_by_the_next_honest_generation() -> None:
    """A Core (hostile, or at fault) puts a false key into one generation's entry. The next carries all that its maker has."""
    hostile = Hostile()
    hostile.seal(lambda _log, _key, bundles: bundles, link=bytes(32))
    hostile.sync(hostile.core, hostile.laptop, hostile.phone)
    kit = hostile.world.root
    hostile.act(hostile.core, lambda member: renew(member, kit))
    hostile.world.agree()
