"""Within seven days nothing on the relay holds a forgotten text, whenever it was forgotten, whoever leads meanwhile, and
however late a device brings it again."""

from hashlib import sha256

import pytest

from crystal_mirror.membership.cursors import About
from crystal_mirror.membership.member import Member
from crystal_mirror.operations import Capture, Forget, Piece, Remember
from crystal_mirror.replication.claim import claim
from crystal_mirror.retention.forgets import DAY_MS, pending_forgets
from crystal_mirror.retention.gc import snapshot_due
from crystal_mirror.round import sync_round
from crystal_mirror.snapshots.creation import make_snapshot
from tests.mirror.household import MODEL, Household, has, same
from tests.mirror.revealing import holders

NOW = 1_800_000_000_000
_MARKER = "the marker that nobody shall find"


def days(home: Household, first: float, last: float, core: Member, *others: Member) -> None:
    """Every six hours all of them sync, and the Core makes the snapshots that are due."""
    quarter = int(first * 4)
    while quarter <= last * 4:
        now = NOW + quarter * DAY_MS // 4
        for member in (core, *others, core):
            member.rounds = 0  # a process of its own each time
            home.store.run(sync_round(member, MODEL, about=About(now_ms=now)))
        if snapshot_due(core, now) is not None:
            assert home.store.run(make_snapshot(core)) is not None
        quarter += 1


def capture(text: str) -> Capture:
    return Capture(
        "agent", "session", "", "", "", (Piece(text, "user", 1, "m", 0), Piece(text + "!", "user", 1, "n", 0))
    )


def forget(home: Household, by: Member, text: str) -> None:
    by.accept(Forget((home.core.secret.forget_hash(sha256(text.encode()).digest()),)))


@pytest.fixture
def home() -> Household:
    home = Household()
    home.laptop = home.add("laptop", grant=True)
    for number in range(20):
        home.core.accept(Remember(f"fact number {number}", "fact", "agent", 1))
    home.core.accept(Remember(_MARKER, "fact", "agent", 1))
    home.sync(home.core, home.laptop)
    return home


def test_a_second_forget_does_not_wait_for_the_first_to_be_over(home: Household) -> None:
    days(home, 0, 2, home.core, home.laptop)
    forget(home, home.core, "fact number 3")
    days(home, 2, 6, home.core, home.laptop)
    forget(home, home.laptop, _MARKER)
    days(home, 6, 12.5, home.core, home.laptop)
    assert holders(home, _MARKER) == []
    assert holders(home, "fact number 4") != [], "the search finds what is there"
    assert pending_forgets(home.core) == pending_forgets(home.laptop) == ()
    assert same(home.core, home.laptop)


def test_who_takes_the_lead_goes_on_with_the_days_that_have_passed(home: Household) -> None:
    away = home.add("a reader that holds the floor down")
    days(home, 0, 0, home.core, home.laptop, away)
    assert home.store.run(make_snapshot(home.core)) is not None
    days(home, 0, 1, home.core, home.laptop)
    forget(home, home.core, _MARKER)
    days(home, 1, 6, home.core, home.laptop)
    assert holders(home, _MARKER) == ["mirror"]
    home.store.run(claim(home.laptop, None, now_ms=NOW + 6 * DAY_MS))
    days(home, 6, 8, home.laptop, home.core)
    assert home.laptop.is_core
    assert holders(home, _MARKER) == []
    assert same(home.core, home.laptop)


def test_a_text_that_comes_again_after_it_was_forgotten_is_gone_within_seven_days_too(
    home: Household,
) -> None:
    days(home, 0, 0, home.core, home.laptop)
    home.laptop.accept(capture("an outbox that was away"))
    forget(home, home.core, "an outbox that was away")
    home.sync(home.core)
    days(home, 1, 3, home.core)
    days(home, 4, 11.5, home.core, home.laptop)
    assert not has(home.core, "an outbox that was away")
    assert has(home.core, "an outbox that was away!")
    assert holders(home, "an outbox that was away") == holders(home, "an outbox that was away!")
    assert pending_forgets(home.core) == ()
    assert same(home.core, home.laptop)


def test_parts_that_were_left_while_a_forget_was_pending_go_soon_though_it_is_covered(
    home: Household,
) -> None:
    """A file that held the text is made anew, a little after the forget: its former parts are lone from then on."""
    days(home, 0, 1, home.core, home.laptop)
    forget(home, home.core, _MARKER)
    days(home, 1, 2.5, home.core, home.laptop)
    left = home.core.keys.blob(sha256(b"a part").digest())
    home.store[left] = b"sealed"
    days(home, 2.75, 7.5, home.core, home.laptop)
    assert pending_forgets(home.core) == ()
    assert left in home.store
    days(home, 7.75, 9, home.core, home.laptop)
    assert left not in home.store
