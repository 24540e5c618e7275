"""A device takes the lead with the state of a snapshot whose announcement the relay has lost meanwhile."""

from crystal_mirror.entries.control_state import newest_snapshot, published_floor, read_base
from crystal_mirror.replication.claim import claim
from crystal_mirror.retention.gc import snapshot_due
from crystal_mirror.round import sync_round
from tests.mirror.household import MODEL, Household, same
from tests.mirror.test_snapshots import NOW, house, mirror_slots, remember, snapshot


def test_who_leads_tells_nobody_of_a_snapshot_that_the_log_does_not_announce() -> None:
    home = Household()
    laptop = home.add("laptop")
    for number in range(80):
        remember(home.core, f"fact {number}")
        home.sync(home.core)
    home.sync(laptop)
    snapshot(home)
    house(home)
    assert published_floor(home.core.replica)[1] > 50
    remember(home.core, "one more")
    home.sync(home.core)
    kept = set(mirror_slots(home))
    snapshot(home)
    fresh = home.by_kit("fresh")
    flow, reply = sync_round(fresh, MODEL), None
    while read_base(fresh.replica) is None:
        reply = home.store.answer(flow.send(reply))
    flow.close()
    assert read_base(fresh.replica) == newest_snapshot(home.core.replica)
    for key in set(mirror_slots(home)) - kept:
        del home.store[key]
    home.store.run(claim(fresh, home.root, force=True))
    home.sync(fresh, laptop)
    assert newest_snapshot(fresh.replica) is None
    assert snapshot_due(fresh, NOW) is not None
    snapshot(home, fresh)
    late = home.add("late", by=fresh)
    home.sync(laptop, late, fresh)
    assert same(fresh, laptop, late)
