"""What waits in an outbox while a device is revoked: sealed anew before it is sent, lost by nobody, done once."""

import pytest

from crystal_crypto.entry import parse
from crystal_mirror.errors import KeysWithheld
from crystal_mirror.membership.administration import renew_generation
from crystal_mirror.membership.member import Member
from crystal_mirror.membership.status import status
from crystal_mirror.notices import Notice
from crystal_mirror.ports import OutboxState
from crystal_mirror.replication.publish import publish
from crystal_mirror.requests import PutNew
from crystal_mirror.round import sync_round
from crystal_mirror.streams.outbox import push
from crystal_mirror.types import EntryState
from tests.mirror.household import MODEL, Household, another_process, generation_without, has, same
from tests.mirror.test_two_devices import capture


@pytest.fixture
def home() -> Household:
    home = Household()
    home.laptop, home.lost = home.add("laptop"), home.add("lost")
    home.sync(home.laptop, home.lost)
    return home


def stored(home: Household, member: Member) -> list[int]:
    """The generations of a device's entries at the relay, by place."""
    prefix = f"{member.keys.conversations_prefix}{member.device_id.hex()}."
    return [parse(home.store[key]).header.generation for key in sorted(home.store) if key.startswith(prefix)]


def pending(member: Member) -> list[int]:
    rows = [member.journal.row(name.incarnation, name.sequence) for name in member.journal.names()]
    return [parse(row.sealed).header.generation for row in rows if row]


def settled(home: Household, *texts: str) -> None:
    """All is durable, everywhere once, and nothing is left."""
    for _ in range(3):
        home.sync(home.laptop, home.core)
    assert all(has(member, text) for text in texts for member in (home.laptop, home.core))
    assert same(home.laptop, home.core)
    counts = {table.name: table.count for table in home.core.replica.digest().tables}
    assert counts["occurrences"] == len(texts)
    assert status(home.laptop).pending + status(home.laptop).stored == 0


def test_what_waited_is_sealed_anew_before_it_is_sent(home: Household) -> None:
    home.laptop.accept(capture("one"))
    home.laptop.accept(capture("two"))
    origins = [name.origin for name in home.laptop.journal.names()]
    home.revoke(home.lost)
    home.sync(home.laptop)
    assert stored(home, home.laptop) == [2, 2]
    assert [name.origin for name in home.laptop.journal.names()] == origins, "under the names that they had"
    settled(home, "one", "two")


def test_an_entry_whose_reply_was_lost_and_that_is_sealed_anew_counts_once(home: Household) -> None:
    home.revoke(home.lost)
    home.laptop.accept(capture("one"))
    flow, reply = push(home.laptop), None
    while not isinstance(request := flow.send(reply), PutNew):
        reply = home.store.answer(request)
    home.store.answer(request)
    flow.close()
    home.sync(home.laptop)
    assert sorted(stored(home, home.laptop)) == [1, 2]
    settled(home, "one")


def test_what_was_stored_under_the_old_generation_and_is_lost_by_the_relay_comes_back_under_the_new(
    home: Household,
) -> None:
    home.laptop.accept(capture("one"))
    home.sync(home.laptop)
    for key in [key for key in home.store if "/conversations/" in key]:
        del home.store[key]
    home.revoke(home.lost)
    home.sync(home.laptop)
    assert stored(home, home.laptop) == [2]
    settled(home, "one")


def test_a_process_that_has_not_read_the_log_adds_nothing_that_is_sent_under_the_old_generation(
    home: Household,
) -> None:
    stale = another_process(home.laptop)
    home.revoke(home.lost)
    home.read(home.laptop)
    home.laptop.accept(capture("by the one that knows"))
    stale.accept(capture("by the one that does not"))
    assert pending(home.laptop) == [2, 1]
    home.sync(home.laptop)
    assert set(stored(home, home.laptop)) == {2}
    settled(home, "by the one that knows", "by the one that does not")


def test_what_was_sealed_in_the_new_generation_never_goes_back_to_the_old(home: Household) -> None:
    stale = another_process(home.laptop)
    home.revoke(home.lost)
    home.read(home.laptop)
    home.laptop.accept(capture("one"))
    home.store.run(push(stale))
    assert stored(home, home.laptop) == [2]
    settled(home, "one")


def waiting_batch(home: Household, core: Member) -> None:
    """The Core has committed a batch, and died before it was put."""
    core.accept(capture("by the Core"))
    flow = sync_round(core, MODEL)
    request = flow.send(None)
    while not core.replica.kept(EntryState.UNSENT):
        request = flow.send(home.store.answer(request))
    flow.close()


def published(home: Household) -> list[int]:
    """The generations of the mirror's entries, by place."""
    keys = sorted(key for key in home.store if "/mirror/" in key)
    return [parse(home.store[key]).header.generation for key in keys]


def test_a_batch_that_waited_is_sealed_anew_before_it_is_sent(home: Household) -> None:
    waiting_batch(home, home.core)
    home.read(home.core)
    home.store.run(renew_generation(home.core, now_ms=3))
    assert published(home) == []
    settled(home, "by the Core")
    assert published(home) == [2]


def test_a_batch_of_the_new_generation_never_goes_back_to_the_old(home: Household) -> None:
    stale = another_process(home.core)
    home.store.run(renew_generation(home.core, now_ms=3))
    waiting_batch(home, home.core)
    home.store.run(publish(stale))
    assert published(home) == [2]
    settled(home, "by the Core")


def test_what_is_recorded_while_keys_are_withheld_waits_and_is_sent_when_they_come(home: Household) -> None:
    home.sync(home.core)
    home.store[home.core.keys.log(home.core.log.next_slot)] = generation_without(home.core, home.laptop)
    home.laptop.accept(capture("before it knew"))
    with pytest.raises(KeysWithheld):
        home.sync(home.laptop)
    home.laptop.accept(capture("while they are withheld"))
    with pytest.raises(KeysWithheld):
        home.sync(home.laptop)
    assert stored(home, home.laptop) == []
    assert Notice.KEYS_WITHHELD in home.laptop.notices.current()
    assert [name.state for name in home.laptop.journal.names()] == [OutboxState.PENDING] * 2
    home.read(home.core)
    home.store.run(renew_generation(home.core, now_ms=9))
    home.sync(home.laptop)
    assert stored(home, home.laptop) == [3, 3]
    assert Notice.KEYS_WITHHELD not in home.laptop.notices.current()
    settled(home, "before it knew", "while they are withheld")
