"""Scripted runs of snapshots, restores, retention, planned changes of the Core, and files. The points at which a process can
die count from the act on.

Core and laptop keep the root. Limits are small (`smallness`), so that one snapshot has several parts and a floor rises.
"""

from collections.abc import Callable
from random import Random
from typing import Any

from crystal_mirror.entries.control_state import newest_snapshot, published_floor, read_base
from crystal_mirror.files.tree import FUSE_FREE_FILES
from crystal_mirror.handover.core import offer
from crystal_mirror.handover.successor import HandoverStage as Asking
from crystal_mirror.handover.successor import ask, follow_up, take
from crystal_mirror.membership.cursors import About
from crystal_mirror.membership.member import Member
from crystal_mirror.requests import Flow
from crystal_mirror.snapshots.creation import make_snapshot
from tests.sim.device import Home
from tests.sim.mixed import DAY_MS, SECOND_MS, retain_now
from tests.sim.script import TRIES_MAX, Stage
from tests.sim.smallness import small

ROUNDS_MAX = 6


class MixedStage(Stage):
    """A vault of two devices with clocks and files. ``arm`` says from where on the points count."""

    def __init__(self, name: str, kill_at: int | None = None) -> None:
        super().__init__(name, None)
        self._kill_at = kill_at
        self.newcomer = kill_at is None
        self.armed = False
        self.draw = Random(f"mixed/{name}")
        world = self.world
        world.has_clocks = world.has_files = True
        world.clock.tick_ms = SECOND_MS
        for home in world.homes:
            home.clock = world.clock
            world.give_files(home)
        self.sync(self.core, self.laptop, self.laptop)

    def arm(self) -> None:
        self.armed = True
        self.world.crasher.points = 0
        self.world.crasher.kill_at = self._kill_at

    def end(self) -> None:
        """What comes behind this is as in any other script: no process dies there."""
        self.points = self.world.crasher.points
        self.world.crasher.kill_at = None

    def act(self, home: Home, flow: Callable[[Member], Flow[Any]]) -> None:
        """Whoever died in the act does it again."""
        for _ in range(TRIES_MAX):
            if self.world.run(home, flow):
                return

    def snapshot(self, home: Home) -> None:
        """Makes one, and announces it."""
        self.snapshot_only(home)
        self.sync(home)

    def snapshot_only(self, home: Home) -> None:
        for _ in range(TRIES_MAX):
            home.open()
            before = self.world.faults["crash"]
            self.world.step_beside(home, make_snapshot)
            while home.beside is not None:
                self.world.step_beside(home)
            if self.world.faults["crash"] == before:
                break

    def sweep(self, home: Home) -> None:
        self.act(home, lambda member: retain_now(member, home.now_ms))
        self.sync(home)
        self.act(home, lambda member: retain_now(member, home.now_ms))

    def busy_days(self, count: int = 3) -> None:
        for _ in range(count):
            for home in (self.laptop, self.core):
                self.write(home)
                self.sync(home)
        self.sync(self.laptop)

    def file(self, home: Home, path: str, data: bytes | None) -> None:
        """A person writes a file, or (None) deletes it."""
        assert home.disk is not None, "it has files"
        filing = self.world.filing
        old = home.disk.files.get(path)
        if old is not None:
            filing.let_go(path, old.data)
        if data is None:
            home.disk.delete(path)
        else:
            assert home.disk.write(path, data), "nothing is in its way"
            filing.note_written(home, path, data)

    def meet(self, *homes: Home) -> None:
        for _ in range(3):
            self.sync(*homes)


def made(stage: MixedStage) -> None:
    """A snapshot is made and announced while the laptop goes on writing."""
    stage.busy_days()
    stage.write(stage.laptop)
    stage.sync(stage.laptop)
    stage.arm()
    stage.snapshot(stage.core)
    stage.end()
    stage.meet(stage.laptop, stage.core)


def let_go(stage: MixedStage) -> None:
    """Two snapshots, a floor, and all that may be deleted is; then again."""
    stage.busy_days()
    stage.snapshot(stage.core)
    stage.world.clock.now_ms += DAY_MS
    stage.sync(stage.core)
    stage.busy_days()
    stage.snapshot(stage.core)
    stage.write(stage.laptop)
    stage.sync(stage.laptop)
    stage.arm()
    stage.sweep(stage.core)
    stage.sync(stage.laptop)
    stage.end()
    stage.write(stage.laptop)
    stage.meet(stage.laptop, stage.core)


def begun_late(stage: MixedStage) -> None:
    """A device joins when the log's beginning is gone: it begins with the snapshot."""
    let_go_of_the_beginning(stage)
    phone = stage.world.add_home("phone")
    stage.sync(phone)
    stage.arm()
    stage.sync(phone, phone)
    stage.end()
    stage.write(phone)
    stage.meet(phone, stage.core, stage.laptop)


def left_behind(stage: MixedStage) -> None:
    """The laptop was away while the floor passed it, with something in its outbox and a file that it had changed."""
    stage.busy_days()
    stage.file(stage.laptop, "list", b"one two three")
    stage.meet(stage.laptop, stage.core)
    stage.write(stage.laptop)
    stage.file(stage.laptop, "list", b"one two three four")
    for _ in range(3):
        stage.write(stage.core)
        stage.sync(stage.core)
    stage.snapshot(stage.core)
    stage.world.needs.strict = False  # a person has it let go of what a reader has not seen
    stage.sweep(stage.core)
    stage.arm()
    stage.sync(stage.laptop, stage.laptop)
    stage.end()
    stage.meet(stage.laptop, stage.core)


def emptied(stage: MixedStage) -> None:
    """The relay loses everything when the log's beginning is gone from every disk."""
    let_go_of_the_beginning(stage)
    stage.file(stage.laptop, "plans/june.md", b"swim, read, sleep, and not a word of work " * 2)
    stage.meet(stage.laptop, stage.core, stage.laptop)
    stage.write(stage.laptop)
    stage.world.harm(stage.world.store.objects.clear)
    stage.arm()
    stage.sync(stage.core, stage.laptop)
    stage.snapshot(stage.core)
    stage.end()
    stage.meet(stage.laptop, stage.core)


def moved(stage: MixedStage) -> None:
    """The laptop asks for the lead, the Core drains, and the laptop takes it, while both write."""
    core, laptop, world = stage.core, stage.laptop, stage.world
    stage.busy_days(1)
    stage.write(core)
    stage.write(laptop)
    stage.arm()
    stage.act(laptop, lambda member: ask(member, member.root, About(laptop.now_ms)))
    stage.write(laptop)
    for _ in range(ROUNDS_MAX):
        stage.sync(core)
        stage.act(laptop, lambda member: follow_up(member, About(laptop.now_ms)))
        if laptop.result is Asking.DRAINED:
            break
    stage.act(laptop, lambda member: take(member, member.root, About(laptop.now_ms)))
    stage.sync(laptop)
    stage.end()
    stage.write(core)
    stage.meet(core, laptop)
    member = laptop.open()
    assert member is not None
    assert member.is_core or world.crasher.kills, "without a death it is the Core now"


def given(stage: MixedStage) -> None:
    """The Core offers the lead to the laptop, which need not have any right to it."""
    core, laptop = stage.core, stage.laptop
    device = laptop.identity.id
    stage.busy_days(1)
    stage.write(laptop)
    stage.arm()
    for _ in range(ROUNDS_MAX):
        member = core.open()
        if member is not None and not member.is_core:
            break
        stage.act(core, lambda member: offer(member, device, About(core.now_ms), ready=True))
        stage.sync(laptop, core)
    stage.sync(laptop)
    stage.end()
    stage.write(core)
    stage.meet(core, laptop)


_FOLDER_FILES = FUSE_FREE_FILES + 1


def filed(stage: MixedStage) -> None:
    """Files: new ones, changed on both sides, deleted here and changed there, renamed; a folder renamed that is larger than
    what may be deleted without a question."""
    core, laptop = stage.core, stage.laptop
    for path in ("notes.md", "list", "plans/june.md"):
        stage.file(core, path, f"{path} as it was in the beginning, of several parts".encode())
    for number in range(_FOLDER_FILES):
        stage.file(core, f"drafts/{number}", b"draft %d" % number)
    stage.meet(core, laptop)
    stage.file(core, "notes.md", b"the Core's version of the notes, in several parts")
    stage.file(laptop, "notes.md", b"the laptop's version of the notes, in several parts")
    stage.file(core, "list", None)
    stage.file(laptop, "list", b"an edit that beats a deletion, whoever comes first")
    assert laptop.disk is not None
    assert len(laptop.disk.files) == 3 + _FOLDER_FILES, "what the Core had is on the laptop"
    old = laptop.disk.files["plans/june.md"].data
    stage.file(laptop, "plans/june.md", None)
    stage.file(laptop, "plans/july.md", old)
    for number in range(_FOLDER_FILES):
        stage.file(laptop, f"drafts/{number}", None)
        stage.file(laptop, f"essays/{number}", b"draft %d" % number)
    stage.arm()
    stage.sync(laptop, core, laptop, core)
    stage.end()
    stage.meet(laptop, core)


def let_go_of_the_beginning(stage: MixedStage) -> None:
    stage.busy_days()
    stage.snapshot(stage.core)
    stage.busy_days(1)
    stage.world.clock.now_ms += 2 * DAY_MS
    stage.sweep(stage.core)
    stage.meet(stage.laptop, stage.core)


SCRIPTS: dict[str, Callable[[MixedStage], None]] = {
    script.__name__.replace("_", " "): script
    for script in (made, let_go, begun_late, left_behind, emptied, moved, given, filed)
}


def play(name: str, kill_at: int | None = None) -> MixedStage:
    """A script to its end, where all devices agree. Raises Violation."""
    with small():
        stage = MixedStage(f"mixed/{name}", kill_at)
        SCRIPTS[name](stage)
        stage.world.agree(newcomer=stage.newcomer)
    _check(name, stage)
    return stage


def _check(name: str, stage: MixedStage) -> None:
    member = stage.core.open()
    assert member is not None
    assert not stage.world.lost
    if name in ("let go", "begun late", "left behind", "emptied"):
        assert published_floor(member.replica) > (0, 0), "the log's beginning was let go of"
        assert newest_snapshot(member.replica) is not None
    if name in ("begun late", "left behind"):
        last = stage.world.homes[-1].open()
        assert last is not None
        assert read_base(last.replica) is not None, "it stands on a snapshot"
    if name == "filed":
        disk = stage.core.disk
        assert disk is not None
        assert sum("notes" in path for path in disk.files) == 2, "both versions of the notes are kept"
        assert {"list", "plans/july.md"} <= disk.files.keys()
        assert "plans/june.md" not in disk.files
        assert sum(path.startswith("essays/") for path in disk.files) == _FOLDER_FILES
        assert not any(path.startswith("drafts/") for path in disk.files)


def count_points(name: str) -> int:
    return play(name).points
