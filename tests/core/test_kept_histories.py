"""Random histories of memories and documents: rows are those of a model that knows nothing of databases, whatever pended on
the device, and so are those of a device that took a snapshot on the way."""

from hashlib import sha256
from random import Random
from typing import Any

import msgspec
import pytest

from crystal_core.replica import Replica
from crystal_mirror.operations import (
    Amend,
    Capture,
    DropDocument,
    DropSource,
    Forget,
    LinkProjects,
    Operation,
    Piece,
    PutDocument,
    PutSource,
    Remember,
    Status,
    encode_operation,
)
from tests.core.builders import (
    DEVICE,
    INCARNATION,
    NOW,
    OTHER_DEVICE,
    SECRET,
    content_hash,
    new_replica,
    one_window,
    origin,
    target,
    texts,
)
from tests.mirror.independent_memories import Kept
from tests.sim.checks import rows_kept

WORDS = ("amber", "birch", "cedar", "dune", "ember", "flint")
STEPS = 60
SEEDS = 16


class Model:
    def __init__(self) -> None:
        self.texts: set[str] = set()
        self.said: set[str] = set()
        self.suppressed: set[bytes] = set()
        self.kept = Kept()

    def apply(self, device: bytes, operation: Operation) -> None:
        plain: list[Any] = msgspec.msgpack.decode(encode_operation(operation))
        match operation:
            case Capture():
                for piece in operation.pieces:
                    if self._take(piece.text):
                        self.said.add(piece.text)
            case Remember():
                self.suppressed.discard(target(operation.text))
                self._take(operation.text)
                self.kept.remember(content_hash(operation.text), device, plain, SECRET.forget_hash)
            case Amend():
                self.kept.amend(device, plain, SECRET.forget_hash)
            case Forget():
                self.suppressed |= set(operation.targets)
                for text in [text for text in WORDS if target(text) in operation.targets]:
                    self.texts.discard(text)
                    self.said.discard(text)
                    self.kept.forget(content_hash(text))
            case PutSource():
                self.kept.sources[operation.name] = (device, *plain[2:])
            case DropSource():
                self._release(self.kept.drop_source(operation.name))
            case PutDocument():
                self._release(self.kept.put_document(device, plain, self._take))
            case DropDocument():
                self._release(self.kept.drop_document(device, operation.source, operation.path))
            case LinkProjects():
                self.kept.link(device, plain)
            case _:
                raise AssertionError("files have histories of their own")

    def _take(self, text: str) -> bytes | None:
        if target(text) in self.suppressed:
            return None
        self.texts.add(text)
        return content_hash(text)

    def _release(self, left: set[bytes]) -> None:
        needed = self.kept.stand() | self.kept.memories.keys() | {content_hash(text) for text in self.said}
        self.texts -= {text for text in WORDS if content_hash(text) in left - needed}


def _operation(draw: Random, number: int) -> Operation:
    text, source, path = draw.choice(WORDS), draw.choice(("notes", "code")), draw.choice(("a.md", "b.md"))
    moment = NOW + draw.randrange(-5, 5) + number
    scope = draw.choice((None, None, "", "host/a/b", "src/x"))
    match draw.randrange(13):
        case 0:
            return Capture("agent", "session", "", "", "", (Piece(text, "user", moment, "m", 0),))
        case 1 | 2:
            old = tuple(target(word) for word in draw.sample(WORDS, draw.randrange(3)))
            category, confidence = draw.choice(("fact", "event")), draw.choice((50, 100))
            return Remember(text, category, "agent", moment, confidence, old, scope)
        case 3:
            status: Status | None = draw.choice((None, "active", "retired"))
            return Amend(target(text), None, draw.choice((None, 10)), status, "person", moment, scope)
        case 4:
            return Forget((target(text),))
        case 5 | 6:
            return PutSource(source, "", ("*",), (), moment)
        case 7:
            return DropDocument(source, path) if draw.random() < 0.7 else DropSource(source)
        case 8:
            one, other = draw.sample((("src/x", ""), ("", "host/a/b"), ("src/x", "host/a/b")), 2)
            return LinkProjects(one, other, draw.random() < 0.6, moment)
        case _:
            total = draw.randrange(5)
            first = draw.randrange(total) if total and draw.random() < 0.5 else 0
            pieces = tuple(draw.choice(WORDS) for _ in range(draw.randint(min(1, total), total - first)))
            version = sha256(bytes([draw.randrange(2)])).digest()
            return PutDocument(source, path, version, moment, "md", first, total, pieces, ("",) * len(pieces))


def _copied(replica: Replica) -> Replica:
    twin = new_replica()
    with replica.export() as moment, twin.transaction() as transaction:
        for part in moment.parts():
            transaction.load(part)
    return twin


@pytest.mark.parametrize("seed", range(SEEDS))
def test_rows_are_the_models_whatever_pends(seed: int) -> None:
    draw = Random(seed)
    model, replica, twin = Model(), new_replica(), new_replica()
    for number in range(STEPS):
        if draw.random() < 0.3:
            replica.index_provisional(origin(1000 + number), _operation(draw, number))
        if draw.random() < 0.1 and (waiting := sorted(replica.provisional_origins())):
            replica.drop_provisional(draw.choice(waiting))
        batch = [
            (draw.choice((DEVICE, OTHER_DEVICE)), _operation(draw, number)) for _ in range(draw.randint(1, 4))
        ]
        for each in (replica, twin):
            foreseen = set(each.unembedded([operation for _, operation in batch]))
            asked: set[str] = set()

            def vectors(text: str, asked: set[str] = asked) -> list[bytes]:
                asked.add(text)
                return one_window(text)

            with each.transaction() as transaction:
                for device, operation in batch:
                    place = origin(transaction.ack(device, INCARNATION) + 1, device)
                    transaction.apply(place, operation, vectors)
                    transaction.mark_done(place)
            assert asked <= foreseen
        for device, operation in batch:
            model.apply(device, operation)
        assert replica.digest() == twin.digest() == replica.recompute_digest()
        assert texts(replica.database) == model.texts
        if draw.random() < 0.1:
            twin = _copied(replica)
    kept = rows_kept(replica.database)
    model.kept.parts = {where: parts for where, parts in model.kept.parts.items() if parts}
    assert kept == model.kept
    assert _copied(replica).digest() == replica.digest()
    assert replica.database.check() == []
    lone = "SELECT count(*) FROM chunks WHERE provisional AND rowid NOT IN (SELECT chunk FROM provisional_places)"
    assert replica.database.value(lone) == 0
