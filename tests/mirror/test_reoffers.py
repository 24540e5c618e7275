"""An ex-Core in league with the relay shows one device an epoch that goes on. What it wrote there must not come in by that
device's good name."""

from crystal_core.replica import Replica
from crystal_crypto.hierarchy import Root
from crystal_mirror.membership.administration import revoke, rotate_root
from crystal_mirror.membership.member import Member
from crystal_mirror.membership.status import status
from crystal_mirror.notices import Notice
from crystal_mirror.replication.claim import claim
from crystal_mirror.replication.held_entries import accept_held, drop_held, held_locally
from crystal_mirror.round import sync_round
from tests.mirror.support import Objects, seeded
from tests.mirror.test_two_devices import MODEL, Pair, capture


class Forked:
    """``victim`` has followed the ex-Core's epoch on a relay of its own; all others know that the ex-Core is out."""

    def __init__(self) -> None:
        pair = self.pair = Pair()
        self.ex_core, self.heir = pair.core, pair.node
        self.victim = pair.device("victim")
        self.heir.accept(capture("known to all"))
        pair.sync(self.heir, self.ex_core, self.heir, self.victim)
        aside = Objects(pair.store)
        pair.store.run(claim(self.heir, pair.root))
        new = Root.from_bytes(seeded("new root")(32))
        pair.store.run(rotate_root(self.heir, pair.root, new, now_ms=1))
        self.heir.root = new
        pair.store.run(revoke(self.heir, self.ex_core.device_id, now_ms=2))
        self.ex_core.accept(capture("planted after it was out"))
        self.victim.accept(capture("the victim's own"))
        for member in (self.victim, self.ex_core, self.victim):
            aside.run(sync_round(member, MODEL))
        assert status(self.victim).stored == 0, "as far as the victim was shown, all is durable"

    def learn(self) -> None:
        """The victim is shown the truth, and everybody syncs."""
        for _ in range(3):
            self.pair.sync(self.victim, self.heir)


def has(member: Member, text: str) -> bool:
    assert isinstance(member.replica, Replica)
    counted = member.replica.database.row("SELECT count(*) FROM chunks WHERE text = ?", (text,))
    assert counted is not None
    return bool(counted[0])


def test_an_ex_core_that_a_lying_relay_keeps_alive_for_one_device_gets_nothing_in_through_it() -> None:
    forked = Forked()
    assert has(forked.victim, "planted after it was out")
    forked.learn()
    for member in (forked.victim, forked.heir):
        assert has(member, "the victim's own") and has(member, "known to all")
        assert not has(member, "planted after it was out")
    assert forked.victim.replica.digest() == forked.heir.replica.digest()
    assert Notice.HELD_REVOKED in forked.victim.notices.current()
    assert held_locally(forked.victim, forked.ex_core.device_id) == 1


def test_the_owner_may_accept_it_all_the_same() -> None:
    forked = Forked()
    forked.learn()
    accepted = forked.pair.store.run(accept_held(forked.victim, forked.ex_core.device_id))
    assert accepted.operations == 1
    forked.learn()
    assert has(forked.heir, "planted after it was out")
    assert Notice.HELD_REVOKED not in forked.victim.notices.current()


def test_or_drop_it() -> None:
    forked = Forked()
    forked.learn()
    forked.pair.store.run(drop_held(forked.victim, forked.ex_core.device_id))
    forked.learn()
    assert held_locally(forked.victim, forked.ex_core.device_id) == 0
    assert not has(forked.heir, "planted after it was out")
    assert Notice.HELD_REVOKED not in forked.victim.notices.current()
