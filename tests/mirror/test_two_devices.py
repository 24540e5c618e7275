"""The path of one operation between two devices, with the real databases and nothing going wrong."""

from hashlib import sha256
from pathlib import Path

import pytest

from crystal_core.replica import Replica
from crystal_crypto.hierarchy import Root
from crystal_mirror.errors import BehindTheFloor
from crystal_mirror.membership.founding import found, join
from crystal_mirror.membership.member import Member, load_keys, load_log
from crystal_mirror.membership.status import devices, status
from crystal_mirror.notices import Notice
from crystal_mirror.operations import Capture, Forget, Piece, Remember
from crystal_mirror.replication.claim import claim
from crystal_mirror.round import sync_round
from crystal_node.device.journal import SqliteJournal
from tests.mirror.support import DETAILS, Objects, new_device, new_root, seeded

MODEL = "test/1"


def capture(text: str, session: str = "s1") -> Capture:
    return Capture("cc-mini", session, "src", "", "claude-code", (Piece(text, "user", 1, session + text, 0),))


class Pair:
    """A Core and a Node of one vault."""

    def __init__(self) -> None:
        self.store = Objects()
        self.root: Root = new_root()
        self.core = self.device("core", founding=True)
        self.node = self.device("node")

    def device(self, name: str, *, founding: bool = False) -> Member:
        identity, journal, random = new_device(name), SqliteJournal.open(":memory:"), seeded(name + "/run")
        flow = found if founding else join
        self.store.run(flow(identity, self.root, journal, random, DETAILS))
        secret = load_keys(identity, load_log(journal, self.root.vault))[1]
        replica = Replica.open(":memory:", secret)
        return Member.open(identity, self.root.vault, journal, replica, random, self.root)

    def sync(self, *members: Member) -> None:
        for member in members or (self.node, self.core, self.node):
            self.store.run(sync_round(member, MODEL))


@pytest.fixture
def pair() -> Pair:
    return Pair()


def equal(*members: Member) -> bool:
    digests = {member.replica.digest().hex() for member in members}
    return len(digests) == 1 and all(m.replica.recompute_digest() == m.replica.digest() for m in members)


def test_a_capture_reaches_the_core_and_comes_back_durable(pair: Pair) -> None:
    origin = pair.node.accept(capture("the lighthouse keeper"))
    assert status(pair.node).pending == 1
    pair.sync(pair.node)
    assert (status(pair.node).pending, status(pair.node).stored) == (0, 1)
    pair.sync(pair.core)
    assert status(pair.node).stored == 1, "the Core has it, this device has not seen that in the mirror"
    pair.sync(pair.node)
    assert status(pair.node).stored == 0
    assert pair.node.replica.done(origin)
    assert equal(pair.core, pair.node)
    assert pair.node.notices.current() == {}


def test_the_cores_own_operations_take_the_same_way(pair: Pair) -> None:
    pair.core.accept(Remember("tea, no sugar", "preference", "cc-mini", 5))
    pair.sync()
    assert equal(pair.core, pair.node)
    assert status(pair.core).stored == 0


def test_a_forget_reaches_both(pair: Pair) -> None:
    pair.node.accept(capture("a secret plan"))
    pair.sync()
    target = pair.node.secret.forget_hash(sha256(b"a secret plan").digest())
    pair.core.accept(Forget((target,)))
    pair.node.accept(capture("a secret plan", session="again"))
    pair.sync()
    pair.sync()
    assert equal(pair.core, pair.node)
    rows = {table.name: table.count for table in pair.node.replica.digest().tables}
    assert rows["chunks"] == 0
    assert rows["occurrences"] == 0


def test_a_round_without_news_writes_nothing(pair: Pair) -> None:
    pair.node.accept(capture("x"))
    pair.sync()
    pair.sync()
    before = dict(pair.store)
    pair.sync()
    assert dict(pair.store) == before


def test_an_emptied_relay_is_filled_again_and_named(pair: Pair) -> None:
    pair.node.accept(capture("one"))
    pair.sync()
    pair.node.accept(capture("two"))
    pair.sync(pair.node)
    pair.store.clear()
    pair.sync(pair.node)
    assert Notice.STREAM_LOST in pair.node.notices.current()
    pair.sync(pair.core)
    assert Notice.MIRROR_ROLLED_BACK in pair.core.notices.current()
    pair.sync()
    pair.sync()
    assert equal(pair.core, pair.node)
    assert status(pair.node).pending + status(pair.node).stored == 0
    assert pair.node.notices.current() == {}
    newcomer = pair.device("late")
    pair.sync(newcomer)
    assert equal(pair.core, newcomer)


def test_a_core_that_was_restored_from_a_backup_claims_a_new_epoch(pair: Pair, tmp_path: Path) -> None:
    pair.node.accept(capture("one"))
    pair.sync()
    assert isinstance(pair.core.journal, SqliteJournal)
    assert isinstance(pair.core.replica, Replica)
    journal_image = pair.core.journal.connection.serialize("main")
    replica_image = pair.core.replica.clone()
    pair.node.accept(capture("two"))
    pair.sync()
    path = tmp_path / "state.db"
    path.write_bytes(journal_image)
    restored = Member.open(
        pair.core.identity,
        pair.core.vault,
        SqliteJournal.open(path),
        replica_image,
        seeded("later"),
        pair.root,
    )
    pair.core = restored
    pair.node.accept(capture("three"))
    pair.core.accept(capture("four"))
    pair.sync()
    pair.sync()
    assert equal(pair.core, pair.node)
    assert restored.log.lead is not None
    assert restored.log.lead.epoch == 2
    assert {t.name: t.count for t in pair.node.replica.digest().tables}["chunks"] == 4


def test_a_forced_claim_seals_and_the_old_core_becomes_a_node(pair: Pair) -> None:
    pair.node.accept(capture("one"))
    pair.sync()
    pair.core.accept(capture("unsent on the core"))
    report = pair.store.run(claim(pair.node, pair.root))
    assert report.epoch == 2
    assert pair.node.is_core
    pair.sync(pair.core, pair.node, pair.core)
    assert not pair.core.is_core
    assert equal(pair.core, pair.node)
    assert status(pair.core).pending + status(pair.core).stored == 0
    assert [entry.leads for entry in devices(pair.core)] == [False, True]


def test_a_claim_is_refused_while_another_device_has_seen_more(pair: Pair) -> None:
    third = pair.device("third")
    pair.node.accept(capture("one"))
    pair.sync()
    pair.sync(third)
    pair.node.accept(capture("two"))
    before = dict(pair.store)
    pair.sync(pair.node, pair.core, pair.node)
    for key in set(pair.store) - set(before):
        if "/mirror/" in key:
            del pair.store[key]
    with pytest.raises(BehindTheFloor):
        pair.store.run(claim(third, pair.root))
    pair.store.run(claim(third, pair.root, force=True))
    for _ in range(3):
        pair.sync(pair.node, third, pair.core, pair.node)
    assert equal(third, pair.node, pair.core)
    assert {t.name: t.count for t in third.replica.digest().tables}["chunks"] == 2, (
        "what was verified came back"
    )
