"""Members that say within their rights what nobody honest says: it costs the others nothing, and binds nobody."""

from typing import Any

import pytest

from crystal_mirror.entries.batches import Announced
from crystal_mirror.entries.control_state import newest_snapshot, published_floor
from crystal_mirror.history.control_entries import write_control_entry
from crystal_mirror.membership.cursors import About, put_cursor, read_cursors
from crystal_mirror.membership.member import Member
from crystal_mirror.operations import Remember
from crystal_mirror.replication.publish import publish
from crystal_mirror.retention.forgets import DAY_MS
from crystal_mirror.retention.gc import retain
from crystal_mirror.retention.status import retention_status
from crystal_mirror.round import sync_round
from crystal_mirror.snapshots.creation import make_snapshot
from crystal_mirror.types import Position
from tests.mirror.household import MODEL, Household, same

NOW = 1_800_000_000_000
FAR = 2**53


@pytest.fixture
def home() -> Household:
    home = Household()
    home.laptop = home.add("laptop")
    for number in range(10):
        home.core.accept(Remember(f"fact number {number}", "fact", "agent", 1))
    home.sync(home.core, home.laptop)
    return home


def says_it_stands_at(home: Household, member: Member, place: tuple[int, int], patch: Any) -> None:
    """The member's cursor tells of that place, signed and counted as any of its cursors."""
    with patch.context() as inner:
        inner.setattr(member.replica, "position", lambda: Position(*place, bytes(32)))
        home.store.run(put_cursor(member))


def _take_nothing(*_: object) -> None:
    """A Core that is not bound by what it decrees."""


@pytest.mark.parametrize("place", [(FAR, 0), (FAR, FAR), (2, 0)])
def test_a_node_that_says_it_is_ages_ahead_costs_the_core_no_time_and_raises_no_floor(
    home: Household, place: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    says_it_stands_at(home, home.laptop, place, monkeypatch)
    assert home.store.run(make_snapshot(home.core)) is not None
    home.sync(home.core)
    home.store.run(read_cursors(home.core))
    asked = 0

    def counted(epoch: int, last_entry: Any = home.core.replica.last_entry) -> Any:
        nonlocal asked
        asked += 1
        assert asked < 100, "the Core looks for the ends of epochs that never were"
        return last_entry(epoch)

    monkeypatch.setattr(home.core.replica, "last_entry", counted)
    for look in range(3):
        home.store.run(retain(home.core, NOW + look * DAY_MS))
        home.store.run(sync_round(home.core, MODEL, about=About(now_ms=0)))
        retention_status(home.core, NOW)
    assert published_floor(home.core.replica) <= home.core.replica.position()[:2]


def test_a_core_that_announces_a_state_to_come_has_nobody_drop_what_it_keeps(
    home: Household, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = newest_snapshot(home.laptop.replica)
    announced = Announced(FAR, 0, bytes(32), bytes(32), bytes(32), 1, 0)
    with monkeypatch.context() as hostile:
        hostile.setattr("crystal_mirror.history.control_entries.take_control_entry", _take_nothing)
        write_control_entry(home.core, announced=announced, floor=(FAR, 0))
    home.store.run(publish(home.core))
    home.sync(home.laptop)
    assert home.laptop.replica.position() == home.core.replica.position()
    assert newest_snapshot(home.laptop.replica) == before
    assert published_floor(home.laptop.replica) == (0, 0)
    assert home.laptop.replica.oldest_kept() == (1, 0)
    assert home.store.run(make_snapshot(home.core)) is not None
    home.sync(home.core, home.laptop)
    assert newest_snapshot(home.laptop.replica) == newest_snapshot(home.core.replica) != before
    assert same(home.core, home.laptop)
