"""A relay that lies is named, or what it does has no effect; and when it stops, all is well again."""

from collections.abc import Callable
from random import Random

import pytest

from crystal_mirror.notices import Notice
from tests.sim.lies import (
    CrossesChannels,
    CutsListings,
    Jumbles,
    LooksEmpty,
    RefusesWrites,
    Reorders,
    Replays,
    RollsBack,
    SwallowsWrites,
    Tampers,
    Truncates,
    Withholds,
    WithholdsOne,
    damage_an_entry,
    drop_newest,
    empty,
    junk_in_next_slot,
    roll_back,
)
from tests.sim.measure import note_lie
from tests.sim.script import Stage
from tests.sim.store import Lie, SimStore

pytestmark = pytest.mark.timeout(400)
"""How long a world takes is no property: it is a minute of processor time, on a machine that others use more."""

LYING_ROUNDS = 2
STREAM, LOST = Notice.STREAM_TAMPERED, Notice.STREAM_LOST
FORKED, DAMAGED, TAMPERED = Notice.MIRROR_FORKED, Notice.MIRROR_DAMAGED, Notice.MIRROR_TAMPERED
LOG_FORKED, LOG_DAMAGED = Notice.LOG_FORKED, Notice.LOG_DAMAGED
BACK, LOG_BACK = Notice.MIRROR_ROLLED_BACK, Notice.LOG_ROLLED_BACK

NAMED: dict[str, tuple[Callable[[dict[str, bytes]], Lie], Notice]] = {
    "flips a bit of conversations": (lambda _: Tampers("conversations", 0.5), STREAM),
    "flips a bit of the mirror": (lambda _: Tampers("mirror", 0.5), TAMPERED),
    "flips a bit of the device log": (lambda _: Tampers("devlog", 0.5), LOG_DAMAGED),
    "changes a header": (lambda _: Tampers("mirror", 0.05), TAMPERED),
    "changes a signature": (lambda _: Tampers("conversations", 0.99), STREAM),
    "truncates entries": (lambda _: Truncates(), LOG_DAMAGED),
    "replays conversations": (lambda _: Replays("conversations"), STREAM),
    "replays the mirror": (lambda _: Replays("mirror"), DAMAGED),
    "replays the device log": (lambda _: Replays("devlog"), LOG_FORKED),
    "reorders conversations": (lambda _: Reorders("conversations"), STREAM),
    "reorders the mirror": (lambda _: Reorders("mirror"), FORKED),
    "reorders the device log": (lambda _: Reorders("devlog"), LOG_FORKED),
    "rolls back for everybody": (RollsBack, BACK),
    "rolls back for one device": (lambda before: RollsBack(before, "laptop"), BACK),
    "looks empty": (lambda _: LooksEmpty(), LOG_BACK),
    "withholds conversations": (lambda _: Withholds("conversations", 1), LOST),
    "withholds the mirror": (lambda _: Withholds("mirror", 3), BACK),
    "withholds the device log": (lambda _: Withholds("devlog", 1), LOG_BACK),
    "swallows conversations": (lambda _: SwallowsWrites("conversations"), LOST),
    "swallows the mirror": (lambda _: SwallowsWrites("mirror"), BACK),
    "calls free places taken": (lambda _: RefusesWrites(), STREAM),
    "shows conversations as mirror entries": (lambda _: CrossesChannels(), Notice.MIRROR_TAMPERED),
}
WITHOUT_EFFECT: dict[str, Callable[[dict[str, bytes]], Lie]] = {
    "jumbles listings": lambda _: Jumbles(),
    "cuts listings": lambda _: CutsListings(),
    "leaves a gap among old conversations": lambda _: WithholdsOne("conversations"),
    "leaves a gap in the old device log": lambda _: WithholdsOne("devlog"),
}


def lie(make: Callable[[dict[str, bytes]], Lie]) -> set[str]:
    """Two devices that have worked for a while are lied to. Returns what they noticed."""
    stage = Stage("lies")
    stage.sync(stage.core, stage.laptop, stage.laptop)
    before: dict[str, bytes] = {}
    for _ in range(4):
        before = dict(stage.world.store.objects)
        stage.write(stage.laptop)
        stage.write(stage.core)
        stage.sync(stage.laptop, stage.core, stage.laptop)
    stage.world.store.lie = told = make(before)
    note_lie(told.name)
    stage.write(stage.laptop)
    stage.write(stage.core)
    for _ in range(LYING_ROUNDS):
        stage.world.run_round(stage.laptop)
        stage.world.run_round(stage.core)
    for home in stage.world.homes:
        home.die()  # a process begins with a full check
        stage.world.run_round(home)
    raised: set[str] = set()
    for home in stage.world.homes:
        member = home.open()
        assert member is not None
        raised |= member.notices.raised().keys()
    stage.world.agree()
    return raised


@pytest.mark.parametrize("attack", NAMED)
def test_a_relay_that_lies_is_named(attack: str) -> None:
    make, notice = NAMED[attack]
    assert notice.value in lie(make)


@pytest.mark.parametrize("attack", WITHOUT_EFFECT)
def test_a_lie_that_is_not_named_has_no_effect(attack: str) -> None:
    lie(WITHOUT_EFFECT[attack])


@pytest.mark.parametrize("harm", [empty, roll_back, drop_newest, junk_in_next_slot, damage_an_entry])
@pytest.mark.parametrize("seed", range(3))
def test_a_relay_that_was_harmed_is_healed(
    harm: Callable[[SimStore, Random, dict[str, bytes]], None], seed: int
) -> None:
    stage = Stage("harm")
    stage.sync(stage.core, stage.laptop, stage.laptop)
    stage.write(stage.laptop)
    stage.sync(stage.laptop, stage.core, stage.laptop)
    before = dict(stage.world.store.objects)
    stage.write(stage.core)
    stage.write(stage.laptop)
    stage.sync(stage.laptop, stage.core, stage.laptop)
    stage.write(stage.laptop)
    stage.sync(stage.laptop)
    stage.world.harm(lambda: harm(stage.world.store, Random(seed), before))
    stage.write(stage.core)
    stage.sync(stage.laptop, stage.core)
    stage.world.agree()
    assert not stage.world.lost
