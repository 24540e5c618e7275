"""Random worlds in which the membership changes all the time: added, revoked, renewed, rotated, granted, claimed, restored.

Devices that were revoked go on: honest ones are told so and stop, others act with their old keys as if they had heard of
nothing, and the relay, where it colludes, takes what they write.
"""

from crystal_mirror.notices import Notice
from crystal_mirror.replication.claim import claim
from tests.sim.administering import (
    accept_left,
    add,
    call,
    condone,
    drop_left,
    go_on_regardless,
    grant,
    put_out,
    renew,
    replace_root,
)
from tests.sim.chaos import HOMES_MAX, STEPS, Chaos, Mood
from tests.sim.device import Home
from tests.sim.model import Violation
from tests.sim.world import World

MOODS: tuple[Mood, ...] = (
    Mood("crashes", crash=0.02, administer=0.05),
    Mood("rogues", administer=0.05, colludes=1.0),
    Mood("claims", claim=0.015, administer=0.05, colludes=0.5),
    Mood("backups", restore=0.01, administer=0.05, colludes=0.5),
    Mood("lies", lie=0.02, administer=0.04, colludes=0.5),
    Mood("harm", harm=0.008, administer=0.04, colludes=0.5),
    Mood(
        "everything",
        restore=0.004,
        clone=0.003,
        claim=0.008,
        lie=0.008,
        harm=0.004,
        administer=0.05,
        colludes=0.5,
    ),
)
ROGUES_ACT = 0.15
REVOKED_MAX = 4


class MembersChaos(Chaos):
    """One random world with a restless membership."""

    kind = "members"
    moods = MOODS

    def __init__(self, seed: int, *, steps: int = STEPS) -> None:
        super().__init__(seed, steps=steps)
        self._met: list[str] = []
        self._waiting: list[str] = []
        """Who is to administer next; the first one as soon as its process is idle."""
        self._under_way = False

    def run(self) -> World:
        """A Core that a lying relay shows junk in the device log writes behind it: a fork, which is named and not healed."""
        try:
            return super().run()
        except Violation as error:
            members = [member for home in self.world.homes if (member := home.open()) is not None]
            forked = [m for m in members if not self.world.outsiders.truth.knows_head(m.log.head)]
            named = {name for member in members for name in member.notices.raised()}
            named &= {Notice.PEER_AHEAD, Notice.LOG_FORKED}
            if not str(error).startswith("P10") or not self.world.deceived or not forked or not named:
                raise
            self.world.faults["forked device log"] += 1
            return self.world

    def _trouble(self) -> None:
        super()._trouble()
        draw, world = self.draw, self.world
        self._meet_former()
        if draw.random() < self.mood.administer:
            self._waiting.append(draw.choice(world.homes).name)
        # Who administers does not do so in the middle of a round, and does it faster than rounds go by.
        acting = next((home for home in world.homes if home.name in self._waiting[:1]), None)
        if acting is not None and acting.busy:
            world.step(acting)
        elif acting is not None and not self._under_way and acting.open() is not None:
            self._administer(acting)
            self._under_way = True
        elif self._waiting:
            self._waiting.pop(0)
            self._under_way = False
        if world.former and draw.random() < ROGUES_ACT:
            home = draw.choice(world.former)
            if draw.random() < 0.3:
                self._write(home)
            else:
                world.step(home)

    def _write(self, home: Home) -> None:
        member = home.open()
        if member is not None and member.log.is_active(home.identity.id):
            self.world.accept(home, self.world.new_operation(self.draw))

    def _meet_former(self) -> None:
        """Of who is newly out: does it know, and does the relay still let it in?"""
        world = self.world
        for home in world.former[len(self._met) :]:
            self._met.append(home.name)
            if self.draw.random() < self.mood.colludes:
                world.say(f"{home.name} goes on regardless")
                go_on_regardless(world, home)
            elif self.draw.random() < 0.5:
                world.store.refused.add(home.name)

    def _administer(self, actor: Home) -> None:
        draw, world = self.draw, self.world
        other = draw.choice(world.homes)
        device, kit = other.identity.id, world.root
        match draw.randrange(9):
            case 0 if len(world.homes) < HOMES_MAX:
                self._invite(actor)
            case 0 | 1 | 2 if other is not actor and len(world.former) < REVOKED_MAX:
                self._say(actor, "revokes", other)
                new = world.new_root()
                if actor.keeps_root:
                    actor.roots.append(new)
                world.step(actor, lambda member: put_out(member, device, kit, new))
            case 3:
                self._say(actor, "renews the generation")
                world.step(actor, lambda member: renew(member, kit))
            case 4:
                self._say(actor, "replaces the root")
                new = world.new_root()
                if actor.keeps_root:
                    actor.roots.append(new)
                world.step(actor, lambda member: replace_root(member, kit, new))
            case 5:
                self._say(actor, "grants the lead to", other)
                world.step(actor, lambda member: grant(member, device))
            case 6:
                self._say(actor, "renames", other)
                name = f"{other.name} {draw.randrange(100)}"
                world.step(actor, lambda member: call(member, device, name))
            case 7:
                self._say(actor, "claims by its grant")
                world.step(actor, lambda member: claim(member, member.root, force=True))
            case _ if world.former:
                self._settle(actor)
            case _:
                return

    def _invite(self, actor: Home) -> None:
        world, draw = self.world, self.draw
        name = f"guest-{sum(world.faults[what] for what in ('joins by the root', 'adds'))}"
        if draw.random() < 0.4:
            self._say(actor, "joins by the root")
            world.add_home(name, keeps_root=draw.random() < 0.5)
            return
        newcomer = world.add_home(name, has_kit=False)
        self._say(actor, "adds", newcomer)
        granted = draw.random() < 0.3
        world.step(actor, lambda member: add(member, newcomer, grant=granted))

    def _settle(self, actor: Home) -> None:
        """The owner decides on what a revoked device left."""
        out = self.draw.choice(self.world.former)
        device = out.identity.id
        if self.draw.random() < 0.5:
            self._say(actor, "drops what is left of", out)
            self.world.step(actor, lambda member: drop_left(self.world, member, device))
        else:
            self._say(actor, "accepts what is left of", out)
            condone(self.world, device)
            self.world.step(actor, lambda member: accept_left(member, device))

    def _say(self, actor: Home, does: str, other: Home | None = None) -> None:
        self.world.faults[does] += 1
        self.world.say(f"{actor.name} {does}{f' {other.name}' if other else ''}")
