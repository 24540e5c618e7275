"""Short runs with one thing in each that goes wrong if a certain rule is not kept. See `mixed_mistakes`."""

import re
from collections.abc import Callable, Iterator
from hashlib import sha256
from unittest.mock import patch

from crystal_core.snapshots.export import StateExport
from crystal_mirror.handover.successor import ask
from crystal_mirror.membership.administration import revoke
from crystal_mirror.membership.cursors import About
from crystal_mirror.notices import Notice
from crystal_mirror.operations import Capture, Forget, Operation, Piece, Remember
from crystal_mirror.requests import Has
from crystal_mirror.retention.gc import retain, snapshot_due
from crystal_mirror.snapshots.creation import make_snapshot
from crystal_mirror.types import EntryState
from tests.sim.administering import NOW_MS, add, renew
from tests.sim.bloblies import SwallowsBlobs
from tests.sim.lies import roll_back
from tests.sim.mixed import DAY_MS, SECOND_MS
from tests.sim.mixed_script import MixedStage, play
from tests.sim.remains import holders
from tests.sim.smallness import small
from tests.sim.thief import member_of
from tests.sim.tree import GRAIN
from tests.sim.writing import TEXTS


def a_reader_is_behind() -> None:
    """The laptop has not looked for some days; nobody forces anything."""
    stage = MixedStage("reader behind")
    stage.busy_days()
    stage.sync(stage.laptop, stage.core)
    for _ in range(6):
        stage.write(stage.core)
        stage.sync(stage.core)
    stage.snapshot(stage.core)
    stage.write(stage.core)
    for _ in range(3):
        stage.world.clock.now_ms += DAY_MS
        stage.sync(stage.core)
    stage.meet(stage.laptop, stage.core)
    stage.world.agree()


def a_relay_swallows_the_parts() -> None:
    stage = MixedStage("swallowed parts")
    stage.busy_days()
    stage.world.store.lie = SwallowsBlobs()
    stage.snapshot(stage.core)
    stage.world.store.lie = None
    stage.snapshot(stage.core)
    stage.world.agree()


def a_batch_waits_while_a_snapshot_is_made() -> None:
    """It is sealed anew before it is sent, because the keys have changed."""
    stage = MixedStage("waiting batch")
    core, world = stage.core, stage.world
    stage.busy_days(1)
    stage.write(core)
    kept = member_of(core)
    while not kept.replica.kept(EntryState.UNSENT):
        world.step(core)
    stage.snapshot_only(core)
    core.die()
    kit = world.root
    stage.act(core, lambda member: renew(member, kit))
    stage.sync(core, core)
    stage.meet(stage.laptop, core)
    world.agree()


def the_core_leaves_rows_out() -> None:
    """A defective Core announces a snapshot without its last part, which it has not read back. Nobody may take it over."""
    stage = MixedStage("defective core")
    world, core = stage.world, stage.core
    whole = StateExport.parts

    def cut(self: StateExport) -> Iterator[bytes]:
        yield from list(whole(self))[:-1]

    class Blind:
        """Sums of whatever was stated."""

        def __init__(self, sums: object) -> None:
            self.sums = sums

        def add(self, part: bytes) -> None:
            return None

        def digest(self) -> object:
            return member_of(core).replica.digest()

    stage.busy_days()
    world.checks.histories.on_announced = lambda _announced: None
    world.needs.strict = False
    member = member_of(core)
    with (
        patch.object(StateExport, "parts", cut),
        patch.object(member.replica, "part_sums", lambda: Blind(None)),
    ):
        stage.snapshot(core)
        stage.busy_days(1)
    phone = world.add_home("phone")
    stage.sync(phone, phone)
    raised = member_of(phone).notices.raised()
    assert Notice.SNAPSHOT_DAMAGED.value in raised or not raised, raised
    world.agree(newcomer=False)


def what_was_condemned_comes_back() -> None:
    """A file is deleted, its parts are condemned, and the same file is written once more."""
    stage = MixedStage("comes back")
    world, core = stage.world, stage.core
    data = b"a list that was thrown away, and wanted back after all"
    stage.file(core, "list", data)
    stage.file(core, "notes.md", b"some notes that nobody throws away, of several parts")
    stage.meet(core, stage.laptop)
    stage.file(core, "list", None)
    stage.meet(core, stage.laptop)
    stage.snapshot(core)
    for _ in range(3):
        world.clock.now_ms += 31 * DAY_MS
        stage.act(core, lambda member: retain(member, core.now_ms))
        stage.meet(stage.laptop, core)
    assert any(row.gone for row in member_of(core).replica.files())
    assert world.store.counts["swept"], "the parts of the file are deleted"
    stage.file(stage.laptop, "list", data)
    stage.meet(stage.laptop, core)
    world.agree()


def who_asked_for_the_lead_goes_away() -> None:
    """The Core drained and holds for it; it does not come back."""
    stage = MixedStage("goes away")
    world, core, laptop = stage.world, stage.core, stage.laptop
    stage.busy_days(1)
    stage.act(laptop, lambda member: ask(member, member.root, About(laptop.now_ms)))
    stage.sync(core, core)
    laptop.die()
    stage.write(core)
    world.clock.now_ms += 120 * SECOND_MS
    stage.sync(core, core)
    assert not member_of(core).journal.names(), "the Core goes on"
    world.agree()


def a_person_types_on() -> None:
    """The file is changed after the scan, before another version takes its place, and so fast that its stamp stays the same."""
    stage = MixedStage("types on")
    world, core, laptop = stage.world, stage.core, stage.laptop
    assert laptop.disk is not None
    stage.file(core, "list", b"one two three, and nothing behind it")
    stage.sync(core, core)
    laptop.disk.time = 100 * GRAIN - 2
    stage.sync(laptop)
    stage.file(core, "list", b"another list altogether, quite long.")
    stage.sync(core, core)
    assert laptop.disk.files["list"].changed == 100 * GRAIN, "a change now shares its stamp"
    world.step(laptop)
    while not re.search(r"laptop get .*/blob/", world.trace[-1]):
        world.step(laptop)
    stage.file(laptop, "list", b"one two three, and nothing behind IT")
    assert laptop.disk.files["list"].changed // GRAIN == 100
    while laptop.busy:
        world.step(laptop)
    stage.meet(laptop, core)
    world.agree()


def a_part_comes_back() -> None:
    """What is suppressed is the same again as it was in a snapshot whose parts were condemned."""
    stage = MixedStage("part comes back")
    world, core = stage.world, stage.core
    text = TEXTS[1]
    target = world.secret.forget_hash(sha256(text.encode()).digest())
    operations: tuple[Operation, ...] = (
        Forget((target,)),
        Remember(text, "fact", "a", 1),
        Forget((target, target)),
    )
    for number, operation in enumerate(operations):
        world.accept(core, operation)
        stage.sync(core)
        world.clock.now_ms += DAY_MS
        stage.snapshot(core)
        stage.meet(stage.laptop, core)
        if number == 1:
            stage.sweep(core)
            stage.meet(stage.laptop, core)
            assert world.store.counts["swept"]
    stage.sweep(core)
    stage.meet(stage.laptop, core)
    world.agree()


def a_core_is_overtaken() -> None:
    """The relay lost what the Core had published, the laptop has the lead, and its log has let go of the beginning."""
    stage = MixedStage("overtaken")
    world, core, laptop = stage.world, stage.core, stage.laptop
    stage.busy_days(1)
    stage.meet(laptop, core)
    before = dict(world.store.objects)
    stage.write(core)
    stage.sync(core, core)
    world.harm(lambda: roll_back(world.store, stage.draw, before))
    stage.claim(laptop)
    stage.write(laptop)
    stage.sync(laptop)
    world.needs.strict = False
    stage.snapshot(laptop)
    stage.sweep(laptop)
    stage.write(laptop)
    stage.sync(laptop)
    stage.meet(core, laptop)
    world.agree()


def a_text_is_forgotten() -> None:
    """A week later it stands in nothing that the relay holds, though nobody has done anything for that."""
    stage = MixedStage("forgotten")
    world, core, laptop = stage.world, stage.core, stage.laptop
    secret = "the safe opens with nine seven three"
    world.secrecy.plant("a text", secret.encode())
    world.accept(laptop, Capture("agent", "s", "p", "", "x", (Piece(secret, "user", 1, "m", 0),)))
    stage.meet(laptop, core)
    stage.snapshot(core)
    assert len(holders(world, secret)) >= 3, "in a conversation, in the log, and in a snapshot"
    target = world.secret.forget_hash(sha256(secret.encode()).digest())
    world.accept(laptop, Forget((target,)))
    for _ in range(7 * 4):
        stage.sync(laptop, core)
        if snapshot_due(member_of(core), core.now_ms):
            stage.snapshot(core)
        world.clock.now_ms += DAY_MS // 4
    stage.sync(core)
    assert not holders(world, secret), f"the text still stands in {holders(world, secret)}"
    world.agree()


def scripts(*names: str) -> Callable[[], None]:
    def run() -> None:
        for name in names:
            play(name)

    return run


def run(plot: Callable[[], None]) -> None:
    """In small limits. Whatever a plot finds wrong is an error of ours or of the product's tree."""
    with small():
        plot()


def files_go_on_after_a_revocation() -> None:
    """A phone is out. Files are written, changed and copied, old contents among them, and snapshots are made."""
    with small():
        stage = MixedStage("files after a revocation")
        core, laptop, world = stage.core, stage.laptop, stage.world
        phone = world.add_home("phone", has_kit=False)
        stage.act(core, lambda member: add(member, phone))
        stage.file(laptop, "old.txt", b"it was there before the phone was out")
        stage.meet(laptop, core, phone)
        stage.snapshot(core)
        stage.act(core, lambda member: revoke(member, phone.identity.id, now_ms=NOW_MS))
        stage.meet(laptop, core)
        stage.file(laptop, "new.txt", b"something that one can guess")
        stage.file(core, "copy.txt", b"it was there before the phone was out")
        stage.meet(laptop, core)
        stage.file(laptop, "old.txt", b"it was there, and then it was changed")
        stage.busy_days(1)
        stage.snapshot(core)
        stage.sweep(core)
        stage.meet(laptop, core)
        world.agree()
        assert world.guesser.tried


def keys_are_renewed_under_way() -> None:
    """The Core is about to store a part of a snapshot, and has asked whether the relay has it, when the keys are renewed."""
    with small():
        stage = MixedStage("renewed under way")
        core, world, kit = stage.core, stage.world, stage.world.root
        stage.busy_days()
        world.step_beside(core, make_snapshot)
        begun = core.beside
        assert begun is not None
        assert isinstance(begun.request, Has)
        world.run(core, lambda member: renew(member, kit))
        assert member_of(core).log.generation == 2
        while core.beside is begun:
            world.step_beside(core)
        stage.meet(stage.laptop, core)
        world.agree()
        assert world.guesser.tried
