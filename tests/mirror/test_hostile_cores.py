"""A Core whose rows do not follow from the operations that it orders: its readers hold, and say so."""

from crystal_core.replica import Replica
from crystal_mirror.membership.member import Member
from crystal_mirror.notices import Notice
from tests.mirror.household import Household, has
from tests.mirror.test_snapshots import remember


def _leave_out_a_memory(member: Member) -> None:
    assert isinstance(member.replica, Replica)
    member.replica.database.run("DELETE FROM memories WHERE chunk = (SELECT min(chunk) FROM memories)")
    member.replica.database.run("DELETE FROM digests WHERE name = 'memories'")


def test_rows_that_do_not_follow_from_the_operations_hold_the_mirror_and_are_named() -> None:
    home = Household()
    laptop = home.add("laptop")
    remember(home.core, "the first")
    home.sync(home.core, laptop)
    assert has(laptop, "the first")
    _leave_out_a_memory(home.core)
    remember(home.core, "after the Core changed a row")
    home.sync(home.core)
    before = laptop.replica.position()
    home.sync(laptop)
    assert laptop.replica.position() == before
    assert not has(laptop, "after the Core changed a row")
    assert has(laptop, "the first")
    assert Notice.QUARANTINED in laptop.notices.current()
