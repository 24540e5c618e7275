"""A device lost its ``state.db``, and with it the outbox: what can be found there and stands nowhere else is offered again."""

from hashlib import sha256

from crystal_crypto.hierarchy import Root
from crystal_mirror.devicelog.log import DeviceLog
from crystal_mirror.devicelog.sync import read_log
from crystal_mirror.membership.member import Member
from crystal_mirror.operations import (
    Amend,
    Capture,
    DropSource,
    Forget,
    LinkProjects,
    Operation,
    PutDocument,
    PutSource,
    Remember,
)
from crystal_mirror.store_keys import StoreKeys
from crystal_node.device.journal import SqliteJournal
from tests.mirror.household import Household, has, same
from tests.mirror.support import seeded
from tests.mirror.test_two_devices import capture


def without_its_journal(home: Household, member: Member, *, root: Root | None = None) -> Member:
    """The device as it comes back with an empty journal, after it has read the device log."""
    journal = SqliteJournal.open(":memory:")
    home.store.run(read_log(DeviceLog(home.root.vault), journal, StoreKeys(home.root.vault)))
    return Member.open(
        member.identity, member.vault, journal, member.replica, seeded("after the loss"), root or member.root
    )


def named(member: Member, text: str) -> bytes:
    """The keyed hash by which operations name a text."""
    return member.secret.forget_hash(sha256(text.encode()).digest())


def made(member: Member) -> list[Operation]:
    """One operation of each kind that leaves something to find."""
    return [
        capture("Herring is sold from the boat."),
        Remember(
            "The smokehouse opens at six.", "fact", "me", 5, supersedes=(named(member, "an older one"),)
        ),
        Remember("The smokehouse closes at ten.", "fact", "me", 6, scope="~/smoke"),
        Amend(named(member, "The smokehouse closes at ten."), None, 40, "retired", "me", 7),
        Forget((named(member, "Whatever was said of eels."),)),
        PutSource("recipes", "~/recipes", ("*.md",), (), 8),
        PutDocument(
            "recipes",
            "soup.md",
            bytes(32),
            9,
            "markdown",
            0,
            2,
            ("First, the fish.", "Then, salt."),
            ("Soup", ""),
        ),
        DropSource("drafts"),
        LinkProjects(("~/smoke", ""), ("", "example.org/fish"), True, 10),
    ]


def test_what_waited_in_a_lost_outbox_is_offered_again_word_for_word() -> None:
    home = Household()
    laptop = home.add("laptop")
    home.sync(home.core, laptop)
    operations = made(laptop)
    origins = laptop.accept_many(operations)
    back = without_its_journal(home, laptop)
    assert {name.origin for name in back.journal.names()} == set(origins)
    assert [back.replica.provisional_operation(origin) for origin in origins] == operations
    home.sync(back, home.core, back)
    assert same(home.core, back)
    assert all(
        has(home.core, text)
        for text in ("Herring is sold from the boat.", "The smokehouse opens at six.", "Then, salt.")
    )
    assert not back.journal.names() and not back.replica.provisional_origins()


def test_what_was_sent_before_the_loss_is_taken_once() -> None:
    home = Household()
    laptop = home.add("laptop")
    home.sync(home.core, laptop)
    laptop.accept_many(made(laptop))
    home.sync(laptop)
    back = without_its_journal(home, laptop)
    home.sync(home.core, back, home.core, back)
    assert same(home.core, back)
    assert not back.journal.names() and not back.replica.provisional_origins()
    assert isinstance(made(laptop)[0], Capture)


def test_nothing_is_offered_twice_while_the_journal_is_there() -> None:
    home = Household()
    laptop = home.add("laptop")
    home.sync(home.core, laptop)
    laptop.accept_many(made(laptop))
    before = laptop.journal.names()
    laptop.mend()
    assert laptop.journal.names() == before
