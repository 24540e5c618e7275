"""Packs that were listed in a history that is given up: they hold slots that nobody is to read any more."""

import pytest

from crystal_mirror.entries.control_state import packs_of
from crystal_mirror.replication.claim import claim
from crystal_mirror.retention.gc import retain
from crystal_mirror.snapshots import packs
from tests.mirror.household import Household, same
from tests.mirror.test_snapshots import NOW, mirror_slots, remember


def test_who_goes_over_to_another_history_lists_no_packs_of_the_former(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packs, "PACK_SLOTS_MAX", 64)
    home = Household()
    second, third = home.by_kit("second"), home.by_kit("third")
    for number in range(20):
        remember(home.core, f"fact {number}")
        home.sync(home.core)
    kept = set(mirror_slots(home))
    for number in range(60):
        remember(home.core, f"another {number}")
        home.sync(home.core)
    home.store.run(retain(home.core, NOW))
    home.sync(home.core, second)
    assert packs_of(second.replica)
    for key in set(mirror_slots(home)) - kept:
        del home.store[key]
    home.store.run(claim(third, home.root, force=True))
    for _ in range(2):
        home.sync(home.core, second, third)
    assert same(home.core, second, third)
    assert packs_of(second.replica) == packs_of(third.replica) == ()
