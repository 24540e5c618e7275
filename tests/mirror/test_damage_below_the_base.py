"""A slot that the relay spoils below the snapshot that the Core builds on."""

from crystal_mirror.entries.control_state import published_floor, read_base
from crystal_mirror.notices import Notice
from tests.mirror.household import Household, has, same
from tests.mirror.test_snapshots import house, remember, snapshot


def test_damage_before_a_slow_reader_below_the_base_stops_nobody() -> None:
    home = Household()
    laptop = home.add("laptop")
    for number in range(70):
        remember(home.core, f"first {number}")
        home.sync(home.core)
    home.sync(laptop)
    home.core.rounds = 0
    home.sync(home.core)
    for number in range(20):
        remember(home.core, f"then {number}")
        home.sync(home.core)
    snapshot(home)
    house(home, 2, force=False)
    base, position = read_base(home.core.replica), laptop.replica.position()
    assert base is not None
    assert published_floor(home.core.replica) < position[:2] < base.position[:2]
    key = home.core.keys.mirror(position.epoch, position.sequence)
    home.store[key] = b"junk" + home.store[key][4:]
    told: set[str] = set()
    for _ in range(4):
        home.core.rounds = laptop.rounds = 0
        remember(home.core, "and on")
        home.sync(home.core, laptop)
        told.add(home.core.notices.current().get(Notice.MIRROR_TAMPERED, ""))
        house(home, 2.1, force=False)
    assert has(laptop, "then 19")
    assert same(home.core, laptop)
    assert "the relay shows other bytes below the snapshot" in told
