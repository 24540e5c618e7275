"""What a device had sent and not heard of again, when it reads a snapshot in place of the log that would tell: the state says
whether it was done, and nothing is done a second time that was undone since."""

from hashlib import sha256

from crystal_core.replica import Replica
from crystal_mirror.membership.member import Member
from crystal_mirror.operations import Capture, Forget, Piece
from crystal_node.device.journal import SqliteJournal
from tests.mirror.household import Household, has, same
from tests.mirror.support import new_device
from tests.mirror.test_snapshots import house, remember, snapshot

TEXT = "what is to be forgotten"


def forget(member: Member, text: str) -> None:
    member.accept(Forget((member.secret.forget_hash(sha256(text.encode()).digest()),)))


def memories(member: Member, text: str) -> int:
    assert isinstance(member.replica, Replica)
    row = member.replica.database.row(
        "SELECT count(*) FROM memories JOIN chunks ON chunks.rowid = memories.chunk WHERE chunks.text = ?",
        (text,),
    )
    assert row is not None
    return int(row[0])


def test_a_memory_that_was_forgotten_meanwhile_is_not_brought_back_by_its_maker() -> None:
    home = Household()
    laptop = home.add("laptop")
    remember(home.core, "something")
    home.sync(home.core, laptop)
    remember(laptop, TEXT)
    home.sync(laptop)  # it is sent; and the lid is closed
    home.sync(home.core)
    assert has(home.core, TEXT)
    forget(home.core, TEXT)
    home.sync(home.core)
    assert not has(home.core, TEXT)
    snapshot(home)
    house(home)
    for _ in range(3):
        home.sync(laptop, home.core)
    assert not has(home.core, TEXT)
    assert not has(laptop, TEXT)
    assert same(home.core, laptop)
    assert laptop.journal.names() == []


def test_a_memory_under_a_used_up_name_whose_words_were_captured_is_not_lost() -> None:
    home = Household()
    laptop = home.add("laptop")
    captured = Capture("agent", "session", "", "", "source", (Piece(TEXT, "user", 1, "m", 0),))
    home.core.accept(captured)
    remember(laptop, "before the backup")
    home.sync(laptop, home.core, laptop)
    journal = SqliteJournal.open(":memory:")
    assert isinstance(laptop.journal, SqliteJournal)
    journal.connection.deserialize("main", laptop.journal.connection.serialize("main"))
    for number in range(5):
        remember(laptop, f"after the backup {number}")
    home.sync(laptop, home.core, laptop)
    snapshot(home)
    house(home)
    laptop = home.open(new_device("laptop"), journal)
    remember(laptop, TEXT)
    for _ in range(3):
        home.sync(laptop, home.core)
    home.sync(laptop)
    assert same(home.core, laptop)
    assert laptop.journal.names() == []
    assert memories(home.core, TEXT) == 1
