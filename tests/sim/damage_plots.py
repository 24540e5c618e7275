"""Short runs in each of which one disk fails in one way. See `damage_mistakes`."""

from unittest.mock import patch

from crystal_crypto.identity import DeviceIdentity
from crystal_mirror.devicelog.damage import unread_place
from crystal_mirror.devicelog.sync import META_OWN, own_slots
from crystal_mirror.entries.control_state import newest_snapshot
from crystal_mirror.handover.successor import HandoverStage, ask, follow_up, take
from crystal_mirror.membership import founding
from crystal_mirror.membership.cursors import About
from crystal_mirror.membership.member import load_log
from crystal_mirror.notices import Notice
from crystal_mirror.repair.audit import AUDIT_MS
from crystal_mirror.requests import Flow
from crystal_mirror.snapshots.creation import read_manifest
from crystal_mirror.streams.outbox import restart_stream
from tests.mirror.support import seeded
from tests.sim.administering import call
from tests.sim.damage import cut_power, lose, rot
from tests.sim.device import Home
from tests.sim.mixed_script import MixedStage, let_go_of_the_beginning
from tests.sim.store import CALM, Weather
from tests.sim.thief import member_of
from tests.support.constant import always

IN_THE_MIDDLE = 3
"""A slot of the device log that is neither its first nor its last: the laptop's `add`, behind the Core's `lead`."""
VERY_BUSY = Weather(throttles=0.03, conflicts=0.5)
ROUNDS_MAX = 12
ACCUSES = {
    Notice.LOG_ROLLED_BACK,
    Notice.LOG_FORKED,
    Notice.LOG_DAMAGED,
    Notice.MIRROR_ROLLED_BACK,
    Notice.MIRROR_FORKED,
    Notice.MIRROR_TAMPERED,
    Notice.MIRROR_DAMAGED,
    Notice.STREAM_TAMPERED,
    Notice.STREAM_LOST,
    Notice.SNAPSHOT_LOST,
}
"""What an honest relay is never said to have done."""


def log_rots(stage: MixedStage, seen_by: frozenset[str] | None = None) -> str:
    world = stage.world
    stage.act(stage.core, lambda member: call(member, stage.laptop.identity.id, "the laptop's new name"))
    stage.busy_days(1)
    key = member_of(stage.core).keys.log(IN_THE_MIDDLE)
    assert key != world.store.keys("devlog")[-1]
    rot(world, key, stage.draw, seen_by=seen_by)
    return key


def a_byte_of_the_device_log_rots() -> None:
    """All have read past it. A tablet wants to join at once, and another device when some hours have gone by."""
    stage = MixedStage("byte of the device log")
    log_rots(stage)
    tablet = stage.world.add_home("tablet")
    stage.world.run_round(tablet)
    stage.world.agree()
    assert Notice.LOG_DAMAGED.value in member_of(stage.core).notices.raised()


def a_part_of_a_snapshot_rots() -> None:
    """The log's beginning is gone, so that a newcomer needs each part."""
    stage = MixedStage("part of a snapshot")
    let_go_of_the_beginning(stage)
    world, member = stage.world, member_of(stage.core)
    newest = newest_snapshot(member.replica)
    assert newest is not None
    world.run(stage.core, lambda member: read_manifest(member, newest))
    part = stage.core.result.parts[-1]
    rot(world, member.keys.blob(member.secret.blob_name(part.content, part.named)), stage.draw)
    world.agree()


def a_slot_of_the_mirror_rots() -> None:
    """In the middle, and every device has read it."""
    stage = MixedStage("slot of the mirror")
    stage.busy_days()
    keys = stage.world.store.keys("mirror")
    rot(stage.world, keys[len(keys) // 2], stage.draw)
    stage.world.agree()


def only_the_laptop_is_shown_damage() -> None:
    """The relay has copies of its objects, and one of them is damaged. The laptop keeps the root."""
    stage = MixedStage("shown to the laptop")
    world, laptop = stage.world, stage.laptop
    key = log_rots(stage, frozenset({laptop.name}))
    world.clock.now_ms += AUDIT_MS
    for home in (stage.core, laptop):
        home.die()
        stage.sync(home)
    assert Notice.LOG_DAMAGED.value in member_of(laptop).notices.raised()
    assert Notice.LOG_DAMAGED.value not in member_of(stage.core).notices.raised()
    assert world.store.stored(laptop.name, key) == world.store.objects[key], "it was put back"
    world.agree()


def the_journal_is_lost() -> None:
    """With operations in it that nobody else has. The device pairs again."""
    stage = MixedStage("lost journal")
    stage.busy_days(1)
    for _ in range(3):
        stage.write(stage.laptop)
    lose(stage.world, stage.laptop, "journal")
    stage.meet(stage.laptop, stage.core)
    stage.world.agree()
    assert not stage.world.lost


def the_cores_journal_is_lost() -> None:
    """And with it the claim by which it leads: it follows until a person has it claim again."""
    stage = MixedStage("lost journal of the Core")
    stage.busy_days(1)
    stage.write(stage.core)
    lose(stage.world, stage.core, "journal")
    stage.sync(stage.core, stage.core)
    assert Notice.CLAIM_LOST.value in member_of(stage.core).notices.current()
    stage.world.agree()
    assert not stage.world.lost


def the_memory_is_lost() -> None:
    """The Core's, with a batch in it that nobody has seen, and then the laptop's."""
    stage = MixedStage("lost memory")
    stage.busy_days(1)
    for home in (stage.core, stage.laptop):
        stage.write(home)
        lose(stage.world, home, "replica")
        stage.meet(stage.laptop, stage.core)
    stage.world.agree()
    assert not stage.world.lost


def the_power_is_cut() -> None:
    """Right after a person was told that something is kept."""
    stage = MixedStage("power cut")
    stage.busy_days(1)
    for home in (stage.laptop, stage.core, stage.laptop):
        stage.write(home)
        cut_power(stage.world, home)
        stage.sync(home)
    stage.world.agree()
    assert not stage.world.lost


def a_relay_asks_to_wait() -> None:
    """By 429 and 409, and nothing else is wrong with it: it is accused of nothing."""
    stage = MixedStage("busy relay")
    world = stage.world
    for _ in range(5):
        world.store.weather = VERY_BUSY
        for home in (stage.laptop, stage.core, stage.laptop, stage.core):
            stage.write(home)
            world.run_round(home)
            home.die()
            world.run_round(home)
        stage.snapshot(stage.core)
    counts = world.store.counts
    assert min(counts["throttled"], counts["conflict"]) > 10
    world.store.weather = CALM
    world.agree()
    for home in world.homes:
        accused = member_of(home).notices.raised().keys() & {notice.value for notice in ACCUSES}
        assert not accused, f"{home.name} accuses an honest relay: {accused}"


def devices_sync_now_and_then() -> None:
    """Each round is of a process of its own, and a full check was made a moment ago: the laptop asks for the lead."""
    stage = MixedStage("now and then")
    world, core, laptop = stage.world, stage.core, stage.laptop

    def sync(home: Home) -> None:
        home.die()
        stage.sync(home)

    stage.busy_days(1)
    for home in (core, laptop, core, laptop):
        sync(home)
    stage.write(core)
    stage.act(laptop, lambda member: ask(member, member.root, About(laptop.now_ms)))
    for _ in range(ROUNDS_MAX):
        sync(core)
        stage.act(laptop, lambda member: follow_up(member, About(laptop.now_ms)))
        if laptop.result is HandoverStage.DRAINED:
            break
    assert laptop.result is HandoverStage.DRAINED, "the Core heard of it"
    stage.act(laptop, lambda member: take(member, member.root, About(laptop.now_ms)))
    sync(laptop)
    sync(core)
    assert member_of(laptop).is_core
    world.agree()


def a_device_is_alone_on_a_branch() -> None:
    """A tablet joined, with an older program, while the device log was damaged. It pairs again when the log is whole."""
    stage = MixedStage("alone on a branch")
    world, core = stage.world, stage.core
    log_rots(stage)
    tablet = world.add_home("tablet")

    def nobody(*_values: object) -> Flow[None]:
        yield from ()

    with (
        patch.object(founding, "check_shown", always(None)),
        patch.object(founding, "_ahead", nobody),
    ):
        world.run_round(tablet)
    assert tablet.open() is not None, "it thinks that it has joined"
    stage.write(tablet)
    world.run_round(tablet)
    assert member_of(core).log.member(tablet.identity.id) is None, "nobody else does"
    world.clock.now_ms += AUDIT_MS
    core.die()
    stage.sync(core)
    pair_again(stage, tablet)
    stage.meet(tablet, core)
    world.agree()
    assert not world.lost


def pair_again(stage: MixedStage, home: Home) -> None:
    """What `crystal pair` does on a home that is alone on a branch (``device/enrolment.py``): another device joins, by the log
    as it is shown now, and offers what waits here."""
    world, journal = stage.world, member_of(home).journal
    log = load_log(journal, world.vault)
    place = unread_place(log, journal)
    assert place is not None, "it can tell"
    own = own_slots(journal)
    assert any(event.slot in own and event.slot > place for event in log.events), "and that it is alone"
    home.restores += 1  # its device log is another one
    waiting = world.checks.released(home)
    with journal.transaction() as transaction:
        transaction.meta_set(META_OWN, None)
        member_of(home).journal.drop_log()  # type: ignore[attr-defined]
    home.die()
    home.identity = DeviceIdentity.generate(seeded(f"{world.seed}/{home.name}/identity again"))
    world.secrecy.plant_identity(home.identity)
    stage.sync(home)
    member = member_of(home)
    with member.journal.transaction() as transaction:
        restart_stream(member, transaction)
    for operation in waiting:
        world.checks.accepted(home, operation)
