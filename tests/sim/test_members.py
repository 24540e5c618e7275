"""Random worlds with a restless membership, and what they once found."""

from pathlib import Path

import pytest

from crystal_crypto.entry import parse
from crystal_mirror.membership.administration import revoke
from crystal_mirror.replication.claim import claim
from crystal_mirror.types import EntryState
from tests.sim.administering import NOW_MS, renew, replace_root
from tests.sim.lies import Withholds, flipped
from tests.sim.members_chaos import MOODS, MembersChaos
from tests.sim.script import Stage
from tests.sim.thief import member_of

pytestmark = pytest.mark.timeout(400)
"""How long a world takes is no property: it is a minute of processor time, on a machine that others use more."""

SEEDS = 4 * len(MOODS)
SLICES = 3


def kept_seeds() -> list[int]:
    """The numbers in `members_seeds.txt`; what stands behind one says what it found."""
    lines = (Path(__file__).parent / "members_seeds.txt").read_text(encoding="utf-8").splitlines()
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


def run(seed: int) -> None:
    chaos = MembersChaos(seed)
    try:
        chaos.run()
    except AssertionError as error:
        raise AssertionError(f"members world {seed} ({chaos.mood.name}): {error}") from error


@pytest.mark.parametrize("part", range(SLICES))
def test_whatever_becomes_of_the_membership_the_promises_are_kept(part: int) -> None:
    for seed in range(part, SEEDS, SLICES):
        run(seed)


@pytest.mark.parametrize("seed", kept_seeds())
def test_members_worlds_that_failed_once_do_not_fail_again(seed: int) -> None:
    run(seed)


@pytest.mark.parametrize("seed", range(len(MOODS)))
def test_the_same_seed_gives_the_same_run(seed: int) -> None:
    assert MembersChaos(seed, steps=120).run().trace == MembersChaos(seed, steps=120).run().trace


def test_a_batch_that_waited_while_a_device_was_revoked_is_not_for_that_device() -> None:
    stage = Stage("waiting batch")
    core, laptop, world = stage.core, stage.laptop, stage.world
    stage.sync(core, laptop, laptop)
    stage.write(core)
    kept = core.open()
    assert kept is not None
    while not kept.replica.kept(EntryState.UNSENT):
        world.step(core)
    core.die()
    kit, new = world.root, world.new_root()
    world.run(core, lambda member: replace_root(member, kit, new))
    assert world.run(core, lambda member: revoke(member, laptop.identity.id, now_ms=NOW_MS))
    stage.sync(core)
    for key in world.store.keys("mirror"):
        entry = parse(world.store.objects[key])
        assert entry.header.generation == 2
        assert not world.outsiders.opens(laptop.identity, entry)
    world.agree()


def test_an_old_seal_that_the_relay_damaged_leaves_nobody_behind() -> None:
    stage = Stage("damaged seal")
    core, laptop, world = stage.core, stage.laptop, stage.world
    phone = world.add_home("phone")
    stage.sync(core, laptop, phone, laptop)
    stage.write(phone)
    stage.sync(phone, core, laptop)
    stage.claim(laptop)
    for _ in range(2):
        stage.write(laptop)
        stage.sync(laptop, core, phone)
    seal = [key for key in world.store.keys("mirror") if "/0000000001/" in key][-1]
    whole = world.store.objects[seal]
    world.harm(lambda: world.store.objects.update({seal: flipped(whole, 0.9)}))
    guest = world.add_home("guest")
    stage.sync(guest, guest)
    world.agree()
    member = laptop.open()
    assert member is not None
    assert member.log.lead is not None
    assert world.store.objects[seal] == whole, (
        "the Core found the damage by the guest's cursor, and put it back"
    )
    assert member.log.lead.epoch == 2, "nobody needs a new epoch for that"


def test_names_that_a_restored_device_had_given_before_a_new_generation_are_not_given_again() -> None:
    """What it had recorded after the backup was sealed anew in another stream, so that the place of its name is empty."""
    stage = Stage("restored names")
    core, laptop, world = stage.core, stage.laptop, stage.world
    stage.sync(core, laptop, laptop)
    stage.write(laptop)
    stage.sync(laptop, core, laptop)
    backup = laptop.backup()
    for _ in range(2):
        stage.write(laptop)
    kit = world.root
    world.run(core, lambda member: renew(member, kit))
    stage.sync(laptop)
    world.disaster(laptop, lambda: laptop.restore(backup))
    for _ in range(2):
        stage.write(laptop)
    stage.sync(laptop, core, laptop)
    world.agree()
    assert not world.lost
    assert len(world.accepted) == 5


@pytest.mark.parametrize("number", range(4))
def test_a_name_whose_place_only_the_relay_had_is_not_given_again_for_a_new_generation(number: int) -> None:
    """Which of the two streams the Core takes first is drawn, so it is tried some times."""
    stage = Stage(f"restored name {number}")
    core, laptop, world = stage.core, stage.laptop, stage.world
    stage.sync(core, laptop, laptop)
    stage.write(laptop)
    stage.sync(laptop, core, laptop)
    backup = laptop.backup()
    stage.write(laptop)
    stage.sync(laptop)
    world.disaster(laptop, lambda: laptop.restore(backup))
    stage.write(laptop)
    kit = world.root
    assert world.run(core, lambda member: renew(member, kit))
    stage.sync(laptop)
    world.agree()
    assert not world.lost
    assert len(world.accepted) == 3


def test_a_claimant_is_not_stopped_by_an_entry_that_the_relay_damaged() -> None:
    """It stands before an entry that the others have, and behind one that the relay shows otherwise now."""
    stage = Stage("stopped claimant")
    core, laptop, world = stage.core, stage.laptop, stage.world
    stage.sync(core, laptop, laptop)
    stage.write(core)
    stage.sync(core, laptop)
    stage.write(core)
    stage.sync(core)
    first, *_ = world.store.keys("mirror")
    world.store.lie = Withholds("mirror", 1)
    log = world.store.keys("devlog")
    while world.store.keys("devlog") == log:
        world.step(laptop, lambda member: claim(member, member.root, force=True))
    world.store.lie = None
    world.harm(lambda: world.store.objects.update({first: flipped(world.store.objects[first], 0.9)}))
    laptop.die()
    world.agree()
    assert member_of(laptop).is_core
