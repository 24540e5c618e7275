"""Worlds in which everything happens: up to five devices, a restless membership, snapshots, floors, deletions, planned and
forced changes of the Core, clocks that are wrong by years, devices that sleep for weeks, backups, clones, lies and harm.

As in the other worlds a mood says what kinds of trouble a run knows. Where no clock is wrong and nobody was away, the log may
leave no reader behind (``Needs.strict``).
"""

from crystal_mirror.handover.core import call_off, freeze, offer
from crystal_mirror.handover.successor import HandoverStage, ask, follow_up, stage_of, take, withdraw
from crystal_mirror.membership.cursors import About
from crystal_mirror.membership.member import Member
from crystal_mirror.requests import Flow
from crystal_mirror.retention.gc import retain, snapshot_due
from crystal_mirror.snapshots.creation import make_snapshot
from tests.mirror.support import reembed
from tests.sim.bloblies import BLOB_LIES
from tests.sim.chaos import STEPS, Mood
from tests.sim.device import Home
from tests.sim.embedding import MODEL, OTHER_MODEL
from tests.sim.lies import LIES
from tests.sim.members_chaos import MembersChaos
from tests.sim.smallness import small
from tests.sim.world import World

SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
DAY_MS = 24 * 60 * MINUTE_MS
YEAR_MS = 365 * DAY_MS
TICKS_MS = (SECOND_MS, 10 * MINUTE_MS)
"""How fast time goes by: slowly enough for a change of the Core by courtesy, or fast enough for an expiry."""
WAITS_MAX = 40
"""How often who asked for the lead looks for it."""

MOODS: tuple[Mood, ...] = (
    Mood("retention", crash=0.02, snapshot=0.05),
    Mood("files", crash=0.02, snapshot=0.02, files=0.12, storm=0.01),
    Mood(
        "files moved",
        crash=0.01,
        snapshot=0.02,
        files=0.1,
        claim=0.004,
        promote=0.01,
        sweep=0.01,
        sleep=0.006,
    ),
    Mood("sleepers", crash=0.01, snapshot=0.03, sleep=0.012, sweep=0.01),
    Mood("clocks", crash=0.01, snapshot=0.03, clock=0.03, sweep=0.01),
    Mood("handover", crash=0.01, snapshot=0.02, promote=0.03, claim=0.004),
    Mood("members", crash=0.01, snapshot=0.03, administer=0.04, colludes=0.3, promote=0.01, sweep=0.005),
    Mood("backups", restore=0.008, clone=0.004, snapshot=0.03, sleep=0.004, sweep=0.005),
    Mood("lies", lie=0.02, snapshot=0.04, promote=0.008, sweep=0.005),
    Mood("harm", harm=0.008, snapshot=0.04, sweep=0.006, claim=0.003),
    Mood(
        "everything",
        restore=0.003,
        clone=0.002,
        claim=0.004,
        lie=0.006,
        harm=0.003,
        administer=0.03,
        colludes=0.4,
        snapshot=0.03,
        sleep=0.004,
        clock=0.006,
        promote=0.01,
        sweep=0.006,
        reembed=0.003,
        files=0.06,
    ),
)


class Mixed(MembersChaos):
    """One random world with all of it."""

    kind = "mixed"
    moods = MOODS
    lies = (*LIES, *BLOB_LIES, *BLOB_LIES)

    def __init__(self, seed: int, *, steps: int = STEPS) -> None:
        super().__init__(seed, steps=steps)
        draw, mood = self.draw, self.mood
        self.world.clock.tick_ms = draw.choice(TICKS_MS)
        self.world.has_clocks = True
        self.world.needs.strict = not (mood.sleep or mood.clock or mood.sweep or mood.restore or mood.harm)
        self.world.core.clock = self.world.clock
        self.world.has_files = bool(mood.files)
        if mood.files:
            self.world.give_files(self.world.core)

    def run(self) -> World:
        with small():
            return super().run()

    def _trouble(self) -> None:
        super()._trouble()
        draw, mood, world = self.draw, self.mood, self.world
        home = draw.choice(world.homes)
        member = home.open()
        if member is None:
            return
        if home.beside is not None and draw.random() < 0.7:
            world.step_beside(home)
        elif member.is_core and (draw.random() < mood.snapshot or snapshot_due(member, home.now_ms)):
            world.faults["snapshot begun"] += 1
            world.step_beside(home, make_snapshot)
        if home.disk is not None and draw.random() < mood.files:
            world.filing.act(home, draw)
        if draw.random() < 0.02:
            world.clock.tick_ms = draw.choice(TICKS_MS)
        if draw.random() < mood.sleep:
            self._sleep()
        if draw.random() < mood.clock:
            self._set_clock(home)
        if home.busy:
            return
        if draw.random() < mood.sweep:
            world.faults["retention forced"] += 1
            world.say(f"{home.name} lets go of what it can")
            world.step(home, lambda member: retain_now(member, home.now_ms))
        elif draw.random() < mood.promote:
            self._move(home)
        elif draw.random() < mood.reembed:
            self._change_model(home)

    def _sleep(self) -> None:
        days = self.draw.choice((1, 2, 8, 40))
        self.world.faults["slept"] += 1
        self.world.say(f"{days} days go by")
        self.world.clock.now_ms += days * DAY_MS

    def _set_clock(self, home: Home) -> None:
        home.skew_ms = self.draw.choice((0, -40, 3, 100)) * YEAR_MS + self.draw.randrange(DAY_MS)
        self.world.faults["clock set"] += 1
        self.world.say(f"{home.name} has its clock set")

    def _move(self, home: Home) -> None:
        """The Core is moved on purpose: asked for, offered, withdrawn or frozen."""
        draw, world = self.draw, self.world
        member = home.open()
        assert member is not None, "asked before"
        about = About(home.now_ms)
        if not member.is_core:
            world.faults["promote"] += 1
            world.say(f"{home.name} asks for the lead")
            patient = draw.random() < 0.8
            world.step(home, lambda member: promote(member, about, patient=patient))
        elif draw.random() < 0.15:
            world.faults["frozen"] += 1
            world.say(f"{home.name} freezes the vault")
            world.step(home, lambda member: frozen(member, about.now_ms))
        else:
            other = draw.choice(world.homes)
            if other.identity.id != home.identity.id and other.open() is not None:
                world.faults["demote"] += 1
                world.say(f"{home.name} offers the lead to {other.name}")
                goes_on = draw.random() < 0.8
                world.step(home, lambda member: demote(member, other.identity.id, about, goes_on=goes_on))

    def _change_model(self, home: Home) -> None:
        world = self.world
        member = home.open()
        if member is None or not member.is_core:
            return
        world.faults["model changed"] += 1
        model = OTHER_MODEL if home.model == MODEL else MODEL
        for each in world.homes:
            if each is not home:
                each.die()  # a process has the model that it began with
            each.model = model
        world.say(f"{home.name} embeds anew")
        world.step(home, lambda member: reembed_all(member, model))


def retain_now(member: Member, now_ms: int) -> Flow[None]:
    """As a person asks for it who needs the room: no waiting time counts."""
    if member.is_core:
        yield from retain(member, now_ms, force=True)


def promote(member: Member, about: About, *, patient: bool) -> Flow[None]:
    """Asks, looks a few times, takes the lead when the Core is drained; else withdraws, or (not ``patient``) just goes away."""
    yield from ask(member, member.root, about)
    for _ in range(WAITS_MAX if patient else 2):
        stage = yield from follow_up(member, about)
        if stage in (HandoverStage.DRAINED, HandoverStage.CLAIMED, HandoverStage.SEALED):
            yield from take(member, member.root, about)
            return
        if stage is HandoverStage.LEADING:
            return
    if patient and stage_of(member) is HandoverStage.ASKED:
        yield from withdraw(member, about)


def demote(member: Member, device: bytes, about: About, *, goes_on: bool) -> Flow[None]:
    """Offers the lead; not ``goes_on``: and thinks better of it."""
    yield from offer(member, device, about, ready=goes_on)
    if not goes_on:
        yield from call_off(member, about)


def frozen(member: Member, now_ms: int) -> Flow[None]:
    yield from freeze(member, now_ms)


def reembed_all(member: Member, model: str) -> Flow[None]:
    yield from reembed(member, model)
