"""A relay that is put back to long ago, and a device that takes the lead from there: what the others hold is not given up."""

import contextlib

from crystal_crypto.errors import CrystalError
from crystal_mirror.entries.control_state import published_floor
from crystal_mirror.notices import Notice
from crystal_mirror.replication.claim import claim
from tests.mirror.household import Household, has, same
from tests.mirror.test_snapshots import house, remember, snapshot


def sync_all(home: Household) -> None:
    for member in (home.core, home.laptop, home.lost):
        member.rounds = 0
        with contextlib.suppress(CrystalError):  # who must hold says so
            home.sync(member)


def test_rows_that_no_kept_entry_could_bring_back_are_not_given_up_for_an_older_history() -> None:
    home = Household()
    home.laptop, home.lost = home.add("laptop"), home.by_kit("stale")
    for number in range(10):
        remember(home.core, f"before {number}")
        home.sync(home.core)
    home.sync(home.laptop, home.lost)
    backup = dict(home.store)
    for number in range(80):
        remember(home.laptop if number % 2 else home.core, f"durable {number}")
        home.sync(home.laptop, home.core)
    home.sync(home.laptop)
    assert not home.laptop.journal.names()
    snapshot(home)
    house(home)
    home.sync(home.laptop)
    assert published_floor(home.laptop.replica)[1] > 50
    home.store.clear()
    home.store.update(backup)
    home.store.run(claim(home.lost, home.root, force=True))
    sync_all(home)
    snapshot(home, home.lost)
    for _ in range(3):
        sync_all(home)
    assert all(has(home.laptop, f"durable {number}") for number in range(80))
    assert Notice.MIRROR_FORKED in home.laptop.notices.current()


def test_an_epoch_that_ended_elsewhere_above_what_is_kept_is_gone_over_to_and_nothing_is_lost() -> None:
    home = Household()
    home.laptop, home.lost = home.add("laptop"), home.by_kit("successor")
    for number in range(10):
        remember(home.core, f"before {number}")
        home.sync(home.core)
    home.sync(home.laptop, home.lost)
    backup = dict(home.store)
    for number in range(5):
        remember(home.core, f"more {number}")
        home.sync(home.core, home.laptop)
    home.store.clear()
    home.store.update(backup)
    home.store.run(claim(home.lost, home.root, force=True))
    home.sync(home.lost)
    snapshot(home, home.lost)
    for _ in range(4):
        sync_all(home)
    assert same(home.core, home.laptop, home.lost)
    assert all(has(home.lost, f"more {number}") for number in range(5))
