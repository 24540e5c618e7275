"""What a device says of copies of itself, of a lost claim, and of one damaged object: the right words for each."""

from crystal_core.replica import Replica
from crystal_mirror.membership.member import Member
from crystal_mirror.notices import Notice
from crystal_mirror.round import FULL_CHECK_ROUNDS
from crystal_node.device.journal import SqliteJournal
from tests.mirror.household import Household
from tests.mirror.support import seeded
from tests.mirror.test_lost_journals import without_its_journal
from tests.mirror.test_snapshots import remember


def settled() -> tuple[Household, Member]:
    home = Household()
    laptop = home.add("laptop")
    remember(home.core, "the first remark")
    home.sync(home.core, laptop, home.core, laptop)
    return home, laptop


def test_two_machines_with_the_keys_of_one_device_are_named_on_each() -> None:
    home, laptop = settled()
    journal = SqliteJournal.open(":memory:")
    journal.connection.deserialize("main", laptop.journal.connection.serialize("main"))  # type: ignore[attr-defined]
    assert isinstance(laptop.replica, Replica)
    copy = Member.open(
        laptop.identity, laptop.vault, journal, laptop.replica.clone(), seeded("the copy"), laptop.root
    )
    for number, member in enumerate((copy, laptop, copy)):
        remember(home.core, f"remark {number}")
        home.sync(home.core)
        member.rounds = FULL_CHECK_ROUNDS
        home.sync(member)
        assert (Notice.COPIED in member.notices.current()) is (number > 0)


def test_a_device_that_is_alone_never_hears_of_copies() -> None:
    home, laptop = settled()
    for number in range(3):
        remember(home.core, f"remark {number}")
        home.sync(home.core)
        laptop.rounds = FULL_CHECK_ROUNDS
        home.sync(laptop)
    assert Notice.COPIED not in laptop.notices.raised()


def test_a_core_without_its_state_is_told_that_its_claim_is_lost() -> None:
    home, _ = settled()
    back = without_its_journal(home, home.core)
    home.sync(back)
    assert Notice.CLAIM_LOST in back.notices.current()
    assert Notice.RESTORED not in back.notices.current()


def test_one_damaged_object_is_called_that_and_costs_no_epoch() -> None:
    home, laptop = settled()
    position = home.core.replica.position()
    key = home.core.keys.mirror(position.epoch, position.sequence - 1)
    whole = home.store[key]
    home.store[key] = whole[:-1] + bytes([whole[-1] ^ 1])
    home.sync(laptop)
    assert Notice.MIRROR_DAMAGED in laptop.notices.current()
    assert Notice.MIRROR_FORKED not in laptop.notices.current()
    home.sync(home.core, laptop)
    assert home.store[key] == whole
    assert Notice.RESTORED not in home.core.notices.raised()
    assert home.core.replica.position().epoch == position.epoch
    assert not laptop.notices.current()
