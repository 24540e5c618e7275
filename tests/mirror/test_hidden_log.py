"""A relay that hides a part of the device log from one device, and what becomes of it when the log is shown."""

from crystal_mirror.membership.status import status
from crystal_mirror.notices import Notice
from crystal_mirror.operations import Forget
from crystal_mirror.replication.claim import claim
from crystal_mirror.round import sync_round
from tests.mirror.support import Objects
from tests.mirror.test_two_devices import MODEL, Pair, capture, equal


def without_log_from(store: Objects, slot: int) -> Objects:
    """The store as a relay shows it that hides the device log from ``slot`` on."""
    return Objects(
        {
            key: data
            for key, data in store.items()
            if "/devlog/" not in key or int(key.rsplit("/", 1)[1]) < slot
        }
    )


def test_a_seal_whose_lead_was_hidden_is_believed_as_soon_as_the_log_is_shown() -> None:
    pair = Pair()
    third = pair.device("third")
    pair.node.accept(capture("one"))
    pair.sync(pair.node, pair.core, pair.node, third)
    hidden_from = pair.node.log.next_slot
    pair.store.run(claim(pair.node, pair.root))
    pair.sync(pair.node)
    shown = without_log_from(pair.store, hidden_from)
    for member in (third, pair.core):
        shown.run(sync_round(member, MODEL))
    pair.node.accept(capture("two"))
    for _ in range(3):
        pair.sync(pair.node, third, pair.core)
    assert equal(pair.node, third, pair.core)
    assert not pair.core.is_core
    assert {t.name: t.count for t in third.replica.digest().tables}["chunks"] == 2


def test_what_a_core_published_behind_an_unseen_seal_is_offered_again() -> None:
    pair = Pair()
    pair.node.accept(capture("one"))
    pair.sync()
    hidden_from = pair.node.log.next_slot
    pair.store.run(claim(pair.node, pair.root))
    shown = without_log_from(pair.store, hidden_from)
    pair.core.accept(capture("made by the old Core"))
    shown.run(sync_round(pair.core, MODEL))
    pair.store.update({key: data for key, data in shown.items() if key not in pair.store})
    for _ in range(4):
        pair.sync(pair.core, pair.node)
    assert equal(pair.node, pair.core)
    assert {t.name: t.count for t in pair.node.replica.digest().tables}["chunks"] == 2
    assert status(pair.core).pending + status(pair.core).stored == 0


def test_an_entry_that_names_a_hidden_log_is_held_and_named() -> None:
    pair = Pair()
    pair.node.accept(capture("one"))
    pair.sync()
    hidden_from = pair.node.log.next_slot
    pair.device("late")
    pair.core.accept(capture("two"))
    pair.sync(pair.core)
    without_log_from(pair.store, hidden_from).run(sync_round(pair.node, MODEL))
    assert Notice.PEER_AHEAD in pair.node.notices.current()
    assert not equal(pair.core, pair.node)
    pair.sync(pair.node)
    assert equal(pair.core, pair.node)
    assert pair.node.notices.current() == {}


def test_two_processes_of_one_device_follow_each_others_reading_of_the_log() -> None:
    pair = Pair()
    one = pair.node
    other = type(one).open(one.identity, one.vault, one.journal, one.replica, one.random, one.root)
    junk = pair.store[one.keys.log(0)][:50]
    slot = one.log.next_slot
    pair.store[one.keys.log(slot)] = junk
    pair.sync(one, other)
    del pair.store[one.keys.log(slot)]
    pair.device("third")
    pair.sync(other)
    pair.device("fourth")
    pair.sync(one, other)
    assert len(one.log.members()) == len(other.log.members()) == 4
    assert one.log.head == other.log.head


def test_what_was_applied_and_lost_by_the_relay_before_it_was_let_go_of_is_put_back() -> None:
    pair = Pair()
    pair.node.accept(capture("one"))
    pair.sync(pair.node, pair.core)
    flow = sync_round(pair.node, MODEL)
    reply = None
    while not pair.node.replica.acks():
        reply = pair.store.answer(flow.send(reply))
    flow.close()
    for key in list(pair.store):
        if "/mirror/" in key or "/conversations/" in key:
            del pair.store[key]
    pair.sync(pair.node)
    assert status(pair.node).pending + status(pair.node).stored == 1
    assert any("/conversations/" in key for key in pair.store)


def test_a_rebuild_does_not_bring_a_forgotten_text_back_to_the_search() -> None:
    from hashlib import sha256

    pair = Pair()
    pair.node.accept(capture("a secret plan"))
    pair.sync()
    before = dict(pair.store)
    target = pair.node.secret.forget_hash(sha256(b"a secret plan").digest())
    pair.node.accept(Forget((target,)))
    pair.sync()
    for key in set(pair.store) - set(before):
        if "/devlog/" not in key:
            del pair.store[key]
    third = pair.device("third")
    pair.store.run(claim(third, pair.root, force=True))
    pair.sync(pair.node)
    assert Notice.REBUILT in pair.node.notices.raised()
    hidden = pair.node.replica.provisional_origins()
    assert hidden, "the forget waits in the outbox again, and hides meanwhile"
    for _ in range(3):
        pair.sync(third, pair.node)
    assert {t.name: t.count for t in third.replica.digest().tables}["chunks"] == 0
