"""Two processes of one home that read a snapshot at the same time: one gets through, and neither undoes the other's work."""

from collections.abc import Generator
from typing import Any

import pytest

from crystal_mirror.membership.member import Member
from crystal_mirror.notices import Notice
from crystal_mirror.replication.rebuild import begin_rebuild
from crystal_mirror.requests import GetBlob
from crystal_mirror.round import sync_round
from crystal_mirror.snapshots.restore import restore_pending
from tests.mirror.household import MODEL, Household, another_process, has, same
from tests.mirror.test_snapshots import house, remember, snapshot


def side_by_side(home: Household, *members: Member, steps: int, pace: tuple[int, ...] = (1, 1)) -> int:
    """Drives a round of each in turn, ``pace`` requests at a time, until all are through. Returns how many blobs came."""
    flows: dict[int, Generator[Any, Any, Any]] = {n: sync_round(m, MODEL) for n, m in enumerate(members)}
    replies: dict[int, Any] = dict.fromkeys(flows)
    fetched = 0
    for _ in range(steps):
        for number in list(flows):
            for _ in range(pace[number]):
                try:
                    request = flows[number].send(replies[number])
                except StopIteration:
                    del flows[number]
                    break
                fetched += isinstance(request, GetBlob)
                replies[number] = home.store.answer(request)
        if not flows:
            return fetched
    raise AssertionError("they hinder each other for ever")


def go_on(home: Household, flow: Generator[Any, Any, Any], reply: Any, requests: int = 10_000) -> Any:
    """Drives a flow on, to its end or for so many requests."""
    for _ in range(requests):
        try:
            reply = home.store.answer(flow.send(reply))
        except StopIteration:
            break
    return reply


@pytest.fixture
def home() -> Household:
    home = Household()
    home.laptop = home.add("laptop")
    home.sync(home.core, home.laptop)
    remember(home.laptop, "made before it went away")
    home.sync(home.laptop)
    for number in range(80):
        remember(home.core, f"{number} " + "long words that fill a part of a snapshot " * 1400)
    home.sync(home.core)
    snapshot(home)
    return home


@pytest.mark.parametrize("pace", [(1, 1), (2, 1), (1, 3), (3, 2)])
def test_two_processes_of_a_new_device_get_through(home: Household, pace: tuple[int, ...]) -> None:
    late = home.add("late")
    parts = sum("/blob/" in key for key in home.store)
    assert parts > 3
    fetched = side_by_side(home, late, another_process(late), steps=1000, pace=pace)
    assert fetched <= 4 * parts
    home.sync(late)
    assert not restore_pending(late)
    assert Notice.SNAPSHOT_DAMAGED not in late.notices.current()
    assert same(home.core, late)


@pytest.mark.parametrize("pace", [(1, 1), (2, 1), (1, 3), (3, 2)])
def test_two_processes_of_a_device_that_was_away_get_through(home: Household, pace: tuple[int, ...]) -> None:
    house(home)
    laptop = home.laptop
    side_by_side(home, laptop, another_process(laptop), steps=1000, pace=pace)
    for _ in range(2):
        home.sync(laptop, home.core)
    home.sync(laptop)
    assert not restore_pending(laptop)
    assert Notice.SNAPSHOT_DAMAGED not in laptop.notices.current()
    assert same(home.core, laptop)
    assert has(home.core, "made before it went away")
    assert laptop.journal.names() == []


@pytest.mark.parametrize("stop_after", range(1, 4))
def test_a_process_that_comes_in_half_way_goes_on_with_what_the_other_has_read(
    home: Household, stop_after: int
) -> None:
    late = home.add("late")
    flow, reply, gets = sync_round(late, MODEL), None, 0
    while gets <= stop_after:
        request = flow.send(reply)
        gets += isinstance(request, GetBlob)
        reply = home.store.answer(request)
    assert restore_pending(late)
    home.sync(another_process(late))
    assert same(home.core, late)
    go_on(home, flow, reply)
    home.sync(late)
    assert same(home.core, late)
    assert Notice.SNAPSHOT_DAMAGED not in late.notices.current()


@pytest.mark.parametrize("done", range(10, 16))
def test_a_core_writes_nothing_on_rows_that_another_process_makes_anew(home: Household, done: int) -> None:
    offered = {key: data for key, data in home.store.items() if "/conversations/" in key}
    house(home)
    home.store.update(offered)  # not deleted there yet
    before = {key for key in home.store if "/mirror/" in key}
    remember(home.core, "in the middle of it")
    second = another_process(home.core)
    round_of_second = sync_round(second, MODEL)
    reply = go_on(home, round_of_second, None, done)
    rebuild = begin_rebuild(home.core, None)
    rebuild_reply = None
    while not restore_pending(home.core):
        rebuild_reply = home.store.answer(rebuild.send(rebuild_reply))
    rebuild_reply = go_on(home, rebuild, rebuild_reply, 3)
    go_on(home, round_of_second, reply)
    go_on(home, rebuild, rebuild_reply)
    home.sync(home.core, home.laptop, home.core, home.laptop)
    assert all(key > min(before) for key in home.store if "/mirror/" in key and key not in before)
    assert same(home.core, home.laptop)
    assert has(home.laptop, "in the middle of it")
