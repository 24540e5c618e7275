"""Scripted runs of each act on the membership. The points at which a process can die count from the act on.

Core and laptop keep the root; the phone was added by the Core and has none; the tablet joined by the root.
"""

from collections.abc import Callable
from typing import Any

from crystal_mirror.membership.administration import revoke
from crystal_mirror.membership.member import Member
from crystal_mirror.replication.held_entries import held_places
from crystal_mirror.requests import Flow
from tests.sim.administering import (
    NOW_MS,
    accept_left,
    add,
    condone,
    drop_left,
    go_on_regardless,
    put_out,
    renew,
    replace_root,
)
from tests.sim.device import Home
from tests.sim.script import TRIES_MAX, Stage


class MembersStage(Stage):
    """A vault with a third device. ``arm`` says from where on the points count."""

    def __init__(self, name: str, kill_at: int | None = None) -> None:
        super().__init__(name, None)
        self._kill_at = kill_at
        self.newcomer = kill_at is None
        self.phone = self.world.add_home("phone", has_kit=False)
        self.sync(self.core, self.laptop)
        self.act(self.core, lambda member: add(member, self.phone))
        self.sync(self.phone, self.phone, self.laptop)
        for home in (self.phone, self.laptop):
            self.write(home)
        self.sync(self.phone, self.laptop, self.core, self.phone, self.laptop)

    def arm(self) -> None:
        self.world.crasher.points = 0
        self.world.crasher.kill_at = self._kill_at

    def end(self) -> None:
        """What comes behind this is as in any other script: no process dies there."""
        self.points = self.world.crasher.points

    def act(self, home: Home, flow: Callable[[Member], Flow[Any]]) -> None:
        """Whoever died in the act does it again."""
        for _ in range(TRIES_MAX):
            if self.world.run(home, flow):
                return
            assert not home.error, home.error

    def out(self, home: Home) -> bytes:
        """The device is out, goes on writing with its old keys, and the relay lets it."""
        device = home.identity.id
        self.act(self.core, lambda member: revoke(member, device, now_ms=NOW_MS))
        go_on_regardless(self.world, home)
        self.write(home)
        self.write(home)
        self.world.run_round(home)
        return device


def revoked(stage: MembersStage) -> None:
    """The phone is revoked; it had stored one entry, has another one pending, and so has the laptop."""
    stage.write(stage.phone)
    stage.sync(stage.phone)
    stage.write(stage.laptop)
    device = stage.phone.identity.id
    stage.arm()
    stage.act(stage.core, lambda member: revoke(member, device, now_ms=NOW_MS))
    stage.sync(stage.laptop)
    stage.end()
    stage.sync(stage.core, stage.laptop)


def revoked_with_the_root(stage: MembersStage) -> None:
    """The laptop, a Node with the root, puts a device out that had it too: another root first."""
    tablet = stage.world.add_home("tablet")
    stage.sync(tablet, tablet)
    stage.write(tablet)
    stage.sync(tablet, stage.core, stage.laptop)
    stage.write(stage.core)
    stage.write(stage.laptop)
    kit, new = stage.world.root, stage.world.new_root()
    stage.laptop.roots.append(new)
    device = tablet.identity.id
    stage.arm()
    stage.act(stage.laptop, lambda member: put_out(member, device, kit, new))
    stage.end()
    stage.sync(stage.core, stage.laptop)


def rotated(stage: MembersStage) -> None:
    """The laptop replaces the root."""
    kit, new = stage.world.root, stage.world.new_root()
    stage.laptop.roots.append(new)
    stage.arm()
    stage.act(stage.laptop, lambda member: replace_root(member, kit, new))
    stage.end()
    stage.write(stage.laptop)
    stage.sync(stage.laptop, stage.core)


def renewed(stage: MembersStage) -> None:
    """A new generation, while the laptop and the phone hold entries that they accepted under the old one."""
    stage.write(stage.laptop)
    stage.write(stage.phone)
    stage.write(stage.core)
    kit = stage.world.root

    def once(member: Member) -> Flow[None]:
        if member.log.generation == 1:
            yield from renew(member, kit)

    stage.arm()
    stage.act(stage.core, once)
    stage.sync(stage.laptop)
    stage.end()
    stage.sync(stage.core, stage.phone, stage.core)


def added(stage: MembersStage) -> None:
    """The Core adds a watch, which takes in everything from the first entry on, through three generations."""
    kit = stage.world.root
    for _ in range(2):
        stage.act(stage.core, lambda member: renew(member, kit))
        stage.write(stage.laptop)
        stage.sync(stage.laptop, stage.core)
    watch = stage.world.add_home("watch", has_kit=False)
    stage.arm()
    stage.act(stage.core, lambda member: add(member, watch))
    stage.sync(watch)
    stage.end()
    stage.sync(watch)
    stage.write(watch)
    stage.sync(watch, stage.core, watch)


def accepted(stage: MembersStage) -> None:
    """What the phone wrote after it was out is accepted, on the laptop."""
    device = stage.out(stage.phone)
    condone(stage.world, device)
    stage.sync(stage.core, stage.laptop)
    stage.arm()
    stage.act(stage.laptop, lambda member: accept_left(member, device))
    stage.end()
    stage.sync(stage.laptop, stage.core, stage.laptop)


def dropped(stage: MembersStage) -> None:
    """What the phone wrote after it was out is dropped, on the Core."""
    device = stage.out(stage.phone)
    stage.sync(stage.laptop)
    stage.arm()
    stage.act(stage.core, lambda member: drop_left(stage.world, member, device))
    stage.end()
    stage.sync(stage.laptop, stage.core)


SCRIPTS: dict[str, Callable[[MembersStage], None]] = {
    script.__name__.replace("_", " "): script
    for script in (revoked, revoked_with_the_root, rotated, renewed, added, accepted, dropped)
}


def play(name: str, kill_at: int | None = None) -> MembersStage:
    """A script to its end, where all devices agree. Raises Violation, also if the act was done twice or not at all."""
    stage = MembersStage(f"members/{name}", kill_at)
    SCRIPTS[name](stage)
    stage.world.agree(newcomer=stage.newcomer)
    _check(name, stage)
    return stage


def _check(name: str, stage: MembersStage) -> None:
    world, phone = stage.world, stage.phone.identity.id
    core = stage.core.open()
    assert core is not None
    expected = {"revoked": (2, 0), "revoked with the root": (2, 1), "rotated": (1, 1), "added": (3, 0)}
    assert (core.log.generation, core.log.root_number) == expected.get(name, (2, 0)), "once, and not twice"
    assert len(world.former) == (name in ("revoked", "revoked with the root", "accepted", "dropped"))
    assert len(core.log.members()) == 3 + (name in ("revoked with the root", "added")) + stage.newcomer
    history = world.checks.histories.get(core.replica.position().previous)
    assert history is not None
    left = {made for made, by in world.made_by.items() if by == phone}
    match name:
        case "revoked":
            assert left <= history.operations, "what the phone had stored before was taken first"
        case "accepted":
            assert left <= history.operations, "everything was accepted"
        case "dropped":
            assert len(left & history.operations) == 1, "what it stored before it was out, and no more"
            world.run(stage.core, lambda member: held_places(member, phone))
            assert stage.core.result == [], "nothing is held any more"
        case _:
            assert left <= history.operations


def count_points(name: str) -> int:
    return play(name).points
