"""A device that was restored from a backup, behind a floor: the entries that used its names up are gone from the relay.

What it makes under such a name is offered again under another one.
"""

from hashlib import sha256

import pytest

from crystal_mirror.membership.member import Member
from crystal_mirror.operations import Forget, Operation, Remember
from crystal_mirror.requests import List
from crystal_mirror.round import sync_round
from crystal_mirror.streams.outbox import push
from crystal_node.device.journal import SqliteJournal
from tests.mirror.household import MODEL, Household, has, same
from tests.mirror.support import new_device
from tests.mirror.test_snapshots import house, remember, snapshot

FACT = "a fact that everybody has"


def restored(home: Household) -> Member:
    """The laptop as its backup had it, after it went on and the Core let go of all that."""
    laptop = home.add("laptop")
    remember(home.core, FACT)
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
    assert not [key for key in home.store if "/conversations/" in key]
    return home.open(new_device("laptop"), journal)


@pytest.mark.parametrize("push_first", [False, True], ids=["reads first", "sends first"])
@pytest.mark.parametrize("kind", ["remember", "forget"])
def test_what_is_made_under_a_used_up_name_is_not_lost(kind: str, push_first: bool) -> None:
    home = Household()
    laptop = restored(home)
    target = laptop.secret.forget_hash(sha256(FACT.encode()).digest())
    operation: Operation = (
        Remember("after the restoration", "fact", "agent", 1) if kind == "remember" else Forget((target,))
    )
    laptop.accept(operation)
    if push_first:
        home.store.run(push(laptop))
    for _ in range(3):
        home.sync(laptop, home.core)
    home.sync(laptop)
    assert same(home.core, laptop)
    assert laptop.journal.names() == []
    assert has(home.core, "after the backup 4")
    assert has(home.core, FACT) == (kind == "remember")
    assert has(home.core, "after the restoration") == (kind == "remember")


def test_names_are_compared_in_the_first_round_that_reaches_the_relay() -> None:
    home = Household()
    laptop = home.add("laptop")
    home.sync(laptop)
    assert isinstance(laptop.journal, SqliteJournal)
    laptop = home.open(laptop.identity, laptop.journal)
    remember(laptop, "made while the relay was away")
    away = sync_round(laptop, MODEL)
    next(away)
    with pytest.raises(OSError, match="away"):
        away.throw(OSError("the relay is away"))
    own = laptop.keys.conversation(laptop.device_id, bytes(8), 0).split(laptop.device_id.hex())[0]
    asked: list[str] = []
    flow, reply = sync_round(laptop, MODEL), None
    while True:
        try:
            request = flow.send(reply)
        except StopIteration:
            break
        asked += [request.prefix] if isinstance(request, List) else []
        reply = home.store.answer(request)
    assert any(prefix.startswith(own + laptop.device_id.hex()) for prefix in asked)
