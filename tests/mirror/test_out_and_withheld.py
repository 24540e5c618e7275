"""A device that is out stops by itself and keeps what it has; one from which keys are withheld goes on as far as it can."""

import pytest

from crystal_mirror.errors import KeysWithheld, Revoked
from crystal_mirror.membership.administration import renew_generation
from crystal_mirror.membership.status import status
from crystal_mirror.notices import Notice
from crystal_mirror.replication.claim import claim
from tests.mirror.household import Household, generation_without, has, same
from tests.mirror.test_two_devices import capture


@pytest.fixture
def home() -> Household:
    home = Household()
    home.laptop, home.lost = home.add("laptop"), home.add("lost", grant=True)
    home.laptop.accept(capture("known to all"))
    for _ in range(2):
        home.sync(home.laptop, home.lost, home.core)
    return home


def test_a_device_that_is_out_takes_part_in_nothing_and_keeps_what_it_has(home: Household) -> None:
    home.sync(home.lost)
    home.lost.accept(capture("not sent yet"))
    home.revoke(home.lost)
    before = dict(home.store)
    with pytest.raises(Revoked):
        home.sync(home.lost)
    with pytest.raises(Revoked):
        home.lost.accept(capture("after it knew"))
    with pytest.raises(Revoked):
        home.store.run(claim(home.lost, None, force=True))
    with pytest.raises(Revoked):
        home.store.run(claim(home.lost, home.root, force=True))
    assert dict(home.store) == before, "it writes nothing"
    assert has(home.lost, "known to all")
    assert status(home.lost).pending == 1, "what it had accepted is not thrown away"


def test_a_core_from_which_keys_are_withheld_publishes_nothing_under_the_old_ones_and_loses_nothing(
    home: Household,
) -> None:
    keeper = home.by_kit("keeper")
    home.sync(keeper, home.core)
    home.store[keeper.keys.log(keeper.log.next_slot)] = generation_without(keeper, home.core)
    home.laptop.accept(capture("from the laptop"))
    home.core.accept(capture("from the Core"))
    home.sync(home.laptop)
    mirror = [key for key in home.store if "/mirror/" in key]
    for _ in range(2):
        with pytest.raises(KeysWithheld):
            home.sync(home.core)
    assert Notice.KEYS_WITHHELD in home.core.notices.current()
    assert [key for key in home.store if "/mirror/" in key] == mirror
    home.read(keeper)
    home.store.run(renew_generation(keeper, now_ms=9))
    for _ in range(3):
        home.sync(home.laptop, home.core, keeper)
    for text in ("from the laptop", "from the Core"):
        assert has(home.laptop, text)
    assert same(home.laptop, home.core, keeper)
    assert home.core.notices.current() == {}
    counts = {table.name: table.count for table in home.core.replica.digest().tables}
    assert counts["occurrences"] == 3
