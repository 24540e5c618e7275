"""A relay that lies about snapshots, files, cursors or deletions is named, or it has no effect; when it stops, all is well."""

from collections.abc import Callable

import pytest

from crystal_mirror.notices import Notice
from crystal_mirror.snapshots.creation import make_snapshot
from tests.sim.bloblies import (
    CrossesCursors,
    DeletesMore,
    DeniesBlobs,
    ExchangesBlobs,
    HidesCursors,
    KeepsEverything,
    LosesBlobs,
    LosesSomeBlobs,
    PretendsToHaveBlobs,
    RefusesBlobs,
    ReplaysCursors,
    ShowsDeleted,
    SwallowsBlobs,
    SwellsBlobs,
    TampersWithBlobs,
    TampersWithCursors,
    TruncatesBlobs,
)
from tests.sim.measure import note_lie
from tests.sim.mixed import retain_now
from tests.sim.mixed_script import MixedStage, let_go_of_the_beginning
from tests.sim.smallness import small
from tests.sim.store import Lie

MISBEHAVES = "RelayMisbehaves"
LOST = Notice.SNAPSHOT_LOST.value

NAMED: dict[str, tuple[Callable[[dict[str, bytes]], Lie], str]] = {
    "loses blobs": (lambda _: LosesBlobs(), LOST),
    "pretends to have blobs": (lambda _: PretendsToHaveBlobs(), LOST),
    "denies blobs": (lambda _: DeniesBlobs(), LOST),
    "swallows blobs": (lambda _: SwallowsBlobs(), MISBEHAVES),
    "calls blobs taken": (lambda _: RefusesBlobs(), MISBEHAVES),
    "tampers with blobs": (lambda _: TampersWithBlobs(0.5), LOST),
    "changes the headers of blobs": (lambda _: TampersWithBlobs(0.01), LOST),
    "truncates blobs": (lambda _: TruncatesBlobs(), LOST),
    "swells blobs": (lambda _: SwellsBlobs(), LOST),
    "exchanges blobs": (lambda _: ExchangesBlobs(), LOST),
    "deletes more than it was asked": (lambda _: DeletesMore(), Notice.MIRROR_ROLLED_BACK.value),
}
WITHOUT_EFFECT: dict[str, Callable[[dict[str, bytes]], Lie]] = {
    "loses some blobs": lambda _: LosesSomeBlobs(),
    "shows old cursors": ReplaysCursors,
    "shows cursors as another's": lambda _: CrossesCursors(),
    "hides cursors": lambda _: HidesCursors(),
    "tampers with cursors": lambda _: TampersWithCursors(0.5),
    "keeps what was condemned": lambda _: KeepsEverything(),
    "shows what was deleted": ShowsDeleted,
}


def lie(make: Callable[[dict[str, bytes]], Lie]) -> set[str]:
    """Two devices with files and a floor are lied to while a third one joins, and while the Core makes another snapshot and
    lets go of what it can. Returns what they noticed, and how the making ended."""
    with small():
        stage = MixedStage("lies")
        world = stage.world
        stage.busy_days(1)
        before = dict(world.store.objects)
        stage.file(stage.core, "list", b"milk and bread, and something to read in the evening")
        stage.meet(stage.core)
        let_go_of_the_beginning(stage)
        world.store.lie = told = make(before)
        note_lie(told.name)
        world.deceived, world.needs.harmed, world.needs.strict = True, told.harms, False
        stage.file(stage.laptop, "notes.md", b"these were written while the relay lied to everybody")
        phone = world.add_home("phone")
        noticed: set[str] = set()
        for _ in range(2):
            stage.write(stage.laptop)
            for home in (stage.laptop, stage.core, phone):
                world.run_round(home)
            stage.core.open()
            world.step_beside(stage.core, make_snapshot)
            while stage.core.beside is not None:
                world.step_beside(stage.core)
            noticed.add(stage.core.error.partition(":")[0])
            world.run(stage.core, lambda member: retain_now(member, stage.core.now_ms))
        members = [member for home in world.homes if (member := home.open()) is not None]
        noticed |= {name for member in members for name in member.notices.raised()}
        world.agree()
        assert not world.lost
        return noticed


@pytest.mark.parametrize("attack", NAMED)
def test_a_relay_that_lies_about_blobs_is_named(attack: str) -> None:
    make, named = NAMED[attack]
    assert named in lie(make)


@pytest.mark.parametrize("attack", WITHOUT_EFFECT)
def test_a_lie_about_what_blobs_and_cursors_say_has_no_effect(attack: str) -> None:
    lie(WITHOUT_EFFECT[attack])
