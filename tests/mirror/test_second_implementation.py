"""The document is enough to read a vault: a second reader comes from the root and the relay's objects to the same memory."""

from hashlib import sha256
from random import Random
from typing import Any

import msgspec
import pytest

from crystal_core.memories import memories
from crystal_core.replica import Replica
from crystal_mirror.devicelog.log import NOBODY, Verdict
from crystal_mirror.devicelog.records import GrantRecord, LeadRecord, NameRecord, Record, RootRecord
from crystal_mirror.membership.administration import grant_lead, rename, renew_generation, revoke, rotate_root
from crystal_mirror.operations import (
    Amend,
    Capture,
    DropDocument,
    DropSource,
    Forget,
    LinkProjects,
    Piece,
    PutDocument,
    PutSource,
    Remember,
    Replace,
    Replaced,
)
from crystal_mirror.replication.claim import claim
from crystal_mirror.replication.held_entries import accept_held
from crystal_mirror.streams.outbox import push
from tests.mirror.household import Household
from tests.mirror.independent_log import Log
from tests.mirror.independent_vault import read_log, read_vault
from tests.mirror.logs import Logbook, Signer
from tests.mirror.support import new_device, new_root
from tests.mirror.test_two_devices import Pair, capture


def test_a_second_reader_comes_to_the_same_state_and_digests() -> None:
    pair = Pair()
    pieces = tuple(
        Piece(
            f"piece {n}",
            ("user", "assistant")[n % 2],
            1_760_000_000_000 + n * 977,
            message,
            n % 3,
            ("", f"model-{n}")[n % 2],
        )
        for n, message in enumerate(["m1", "m2", "m2", "", "m1"])
    )
    pair.node.accept(Capture("cc-mini", "s", "src/x", "host/a/b", "claude-code", pieces))
    uuids = tuple(Piece(f"from {n}", "user", 5 - n, f"00000000-0000-4000-8000-{n:012d}", 0) for n in range(3))
    pair.core.accept(Capture("other", "s", "", "", "claude-code", uuids))
    pair.sync()
    pair.node.accept(Remember("piece 1", "fact", "cc-mini", 7))
    pair.core.accept(Remember("piece 1", "preference", "other", 8))
    pair.core.accept(Forget((pair.core.secret.forget_hash(sha256(b"piece 2").digest()),)))
    pair.node.accept(capture("piece 2", session="again"))
    pair.sync()
    pair.core.accept(Remember("piece 2", "event", "other", 9))
    pair.sync()
    _remember_and_read_in(pair)
    pair.store.run(claim(pair.node, pair.root))
    pair.node.accept(capture("after the move"))
    for _ in range(2):
        pair.sync(pair.core, pair.node)
    state, stated = read_vault(pair.root.to_bytes(), dict(pair.store))
    assert len(stated) >= 4
    assert state.digest() == pair.core.replica.digest().to_bytes() == pair.node.replica.digest().to_bytes()
    counts = {table.name: table.count for table in pair.core.replica.digest().tables}
    assert (len(state.chunks), len(state.kept.memories)) == (counts["chunks"], counts["memories"])
    assert state.kept.memories[sha256(b"piece 1").digest()][3] == "event"
    assert isinstance(pair.core.replica, Replica)
    scopes = {memory.text: memory.scope for memory in memories(pair.core.replica.database, status=None)}
    assert scopes["piece 1"] == "src/x"
    assert (scopes["of another"], scopes["takes its scope over"]) == ("", "host/a/b")
    assert counts["project_links"] == 1


def _remember_and_read_in(pair: Pair) -> None:
    """Memories that change, and documents in several operations, some of which are of no effect."""

    def hidden(text: str) -> bytes:
        return pair.core.secret.forget_hash(sha256(text.encode()).digest())

    def put(path: str, version: int, first: int, total: int, *texts: str) -> PutDocument:
        titles = tuple(f"title {number}" for number in range(len(texts)))
        return PutDocument("notes", path, bytes([version]) * 32, 5, "markdown", first, total, texts, titles)

    pair.core.accept(PutSource("notes", "Documents", ("*.md",), (), 4))
    pair.core.accept(put("a.md", 1, 0, 3, "piece 1", "only in a document", "only there too"))
    pair.core.accept(put("b.md", 1, 0, 0))
    pair.node.accept(Remember("piece 3", "fact", "other", 10, 70, (hidden("piece 1"), hidden("piece 3"))))
    pair.node.accept(Amend(hidden("piece 2"), None, 30, "retired", "person", 11))
    pair.sync()
    pair.node.accept(put("a.md", 2, 0, 1, "not its own"))
    pair.node.accept(Remember("piece 1", "fact", "other", 12))
    pair.core.accept(put("a.md", 2, 0, 4, "moved", "piece 4"))
    pair.core.accept(put("a.md", 1, 2, 4, "too late"))
    pair.core.accept(put("a.md", 2, 2, 4, "only there too", "from 1"))
    pair.core.accept(DropDocument("notes", "b.md"))
    pair.node.accept(Forget((hidden("piece 4"),)))
    pair.sync()
    pair.node.accept(PutSource("gone", "", (), (), 4))
    pair.node.accept(PutDocument("gone", "c", bytes(32), 5, "", 0, 1, ("only in c",), ("",)))
    pair.sync()
    pair.core.accept(DropSource("gone"))
    pair.sync()
    pair.node.accept(Remember("of a project", "fact", "other", 13, 100, (), "host/a/b"))
    pair.core.accept(Remember("piece 1", "fact", "other", 14, 100, (), "src/x"))
    pair.sync()
    pair.core.accept(Remember("takes its scope over", "fact", "other", 15, 100, (hidden("of a project"),)))
    pair.core.accept(Remember("piece 1", "event", "other", 16))
    pair.sync()
    pair.node.accept(Amend(hidden("piece 1"), None, 60, None, "person", 17))
    pair.node.accept(Amend(hidden("of a project"), None, None, None, "person", 18, ""))
    app, lib = ("src/x", "host/a/b"), ("", "host/a/lib")
    pair.node.accept(LinkProjects(lib, app, True, 19))
    pair.sync()
    pair.core.accept(LinkProjects(app, lib, True, 20))
    pair.core.accept(LinkProjects(app, ("src/y", ""), True, 21))
    pair.sync()
    pair.core.accept(
        Replace(
            (
                Replaced(hidden("from 1"), "from [redacted:one]"),
                Replaced(hidden("moved"), "piece 1"),
                Replaced(hidden("of a project"), "of another"),
                Replaced(hidden("never said"), "nor this"),
            )
        )
    )
    for at, (text, former) in enumerate((("x", ""), ("x again", "x"), ("y", ""), ("y now", "y")), start=30):
        pair.core.accept(Remember(text, "fact", "other", at, 100, (hidden(former),) if former else ()))
    pair.core.accept(Replace((Replaced(hidden("x again"), "y now"), Replaced(hidden("y now"), "y"))))
    pair.node.accept(LinkProjects(("src/y", ""), app, False, 22))
    pair.node.accept(LinkProjects(("src/never", ""), app, False, 23))
    pair.sync()


def test_a_second_reader_follows_revocations_generations_and_another_root() -> None:
    home = Household()
    laptop, lost = home.add("laptop"), home.add("lost", grant=True)
    lost.accept(capture("before it was out"))
    home.sync(lost, laptop, home.core)
    home.revoke(lost)
    lost.accept(capture("held, and accepted"))
    home.store.run(push(lost))
    home.store.run(renew_generation(home.core, now_ms=3))
    laptop.accept(capture("in the third generation"))
    home.sync(laptop, home.core, laptop)
    new = new_root("new")
    home.store.run(rotate_root(home.core, home.root, new, now_ms=4))
    home.core.root = new
    home.store.run(grant_lead(home.core, laptop.device_id, now_ms=5))
    home.store.run(rename(home.core, laptop.device_id, "desk", now_ms=6))
    home.sync(laptop)
    home.store.run(claim(laptop, None))
    home.store.run(accept_held(laptop, lost.device_id))
    home.core.accept(capture("made by the old Core"))
    for _ in range(3):
        home.sync(home.core, laptop)
    second = new_root("newest")
    home.store.run(rotate_root(laptop, new, second, now_ms=8))
    home.store.run(revoke(laptop, home.core.device_id, now_ms=9))
    laptop.accept(capture("alone"))
    home.sync(laptop, laptop)
    vault = home.core.vault
    state, stated = read_vault(second.to_bytes(), dict(home.store), vault)
    assert len(stated) == 4
    assert state.digest() == laptop.replica.digest().to_bytes()
    assert len(state.chunks) == 5
    log = read_log(vault, dict(home.store))
    assert log.head == laptop.log.head
    assert (log.generation, len(log.admins), log.active()) == (4, 3, [laptop.device_id])
    for device in (laptop, lost, home.core):
        keys, _ = log.keys(device.device_id, device.identity.exchange.to_bytes())
        assert sorted(keys) == [n for n in range(1, 5) if device.key_for(n)]
    with pytest.raises(AssertionError, match="the root in force"):
        read_vault(home.root.to_bytes(), dict(home.store), vault)


SIGNERS = 6


class Told(Logbook):
    """A log that anybody writes to: what they may, what they may not, and what is made wrong in one place."""

    def __init__(self, draw: Random) -> None:
        super().__init__()
        self.random = draw
        self.people = [new_device(f"person {n}") for n in range(SIGNERS)]
        self.roots = [self.root]
        self.must(self.root_record(self.root))
        for person in self.people[:3]:
            self.must(self.add(person))
        self.must(LeadRecord(1, self.people[0].id, bytes(16)))

    def entry(self) -> bytes:
        """Something that somebody says next."""
        draw = self.random
        who, lead = draw.choice(self.people), self.log.lead
        assert lead is not None
        match draw.randrange(9):
            case 0:
                record: Record = self.root_record(new_root(f"root {draw.randrange(4)}"))
            case 1 | 2:
                record = self.add(who, grant=draw.random() < 0.5, holds_root=draw.random() < 0.5)
            case 3:
                record = self.revoke(
                    who.id, ((bytes([draw.randrange(3)]) * 8, draw.randrange(9)), (b"~" * 8, 1))
                )
            case 4:
                record = self.generation()
            case 5 | 6:
                device = draw.choice((who.id, who.id, who.id, NOBODY))
                record = LeadRecord(max(1, lead.epoch + draw.choice((1, 1, 1, 0, 2))), device, bytes(16))
            case 7:
                record = GrantRecord(who.id)
            case _:
                record = NameRecord(who.id)
        chief = next((person for person in self.people if person.id == lead.device), who)
        signer: Signer = draw.choice((self.root, self.root, chief, chief, who, draw.choice(self.roots)))
        wrong = draw.randrange(12)
        if wrong == 0:
            record = self._mistaken(record)
        key = self.key(max(1, self.log.generation + draw.choice((-1, 1)))) if wrong == 1 else None
        header: dict[str, Any] = {"previous": bytes(32)} if wrong == 2 else {}
        signed = draw.choice(self.people).signing if wrong == 3 else None
        sealed = self.seal(record, signer, key=key, signed=signed, **header)
        return sealed[:-1] + bytes([sealed[-1] ^ 1]) if wrong == 4 else sealed

    def _mistaken(self, record: Record) -> Record:
        """The record with a field of another one of its kind, or with one that is off by a little."""
        name = self.random.choice(record.__struct_fields__)
        value = getattr(record, name)
        match value:
            case bool():
                other: object = not value
            case int():
                other = value + self.random.choice((-1, 1))
            case bytes():
                other = self.random.choice((bytes(len(value)), self.people[0].id, value[:-1], value + b"!"))
            case _:
                other = value[1:] if value else ((bytes(16), bytes(114)),)
        return msgspec.structs.replace(record, **{name: other})

    def says_next(self) -> bool:
        data = self.entry()
        valid = self.log.extend(data) is Verdict.VALID
        self.written.append(data)
        record = self.log.events[-1].record
        if valid and isinstance(record, RootRecord):
            known = [
                root
                for n in range(4)
                if (root := new_root(f"root {n}")).admin.public.to_bytes() == record.admin
            ]
            self.root = known[0]
            self.roots.append(self.root)
        return valid

    written: list[bytes]


@pytest.mark.parametrize("seed", range(8))
def test_both_readers_come_to_the_same_verdict_on_every_slot_whoever_wrote_it(seed: int) -> None:
    told = Told(Random(seed))
    told.written = []
    second = Log(told.log.vault)
    for event in told.log.events:
        assert second.judge(event.entry.data)
    verdicts: list[bool] = []
    for slot in range(120):
        verdicts.append(told.says_next())
        assert second.judge(told.written[-1]) is verdicts[-1], f"slot {slot}: {told.log.events[-1].record}"
        assert second.head == told.log.head
        assert second.generation == told.log.generation
        assert second.active() == sorted(info.device for info in told.log.active())
        if len(told.log.active()) < 2:
            break
    assert {True, False} <= set(verdicts)
