"""Parts of a snapshot with memories and documents that a liar has bent: refused, and nothing of them is kept."""

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import msgspec
import pytest

from crystal_core.replica import Replica
from crystal_crypto.errors import Malformed
from crystal_mirror.operations import Amend, PutDocument, PutSource, Remember
from tests.core.builders import NOW, apply, capture, content_hash, new_replica, target
from tests.core.snapshots.test_snapshot import load, parts_of

FIELDS = {
    "known": 10,
    "memory_states": 26,
    "memory_changes": 27,
    "sources": 28,
    "documents": 29,
    "document_parts": 30,
}
CHUNKS, CHANGES, DOCUMENTS, PLACES, SOURCES = range(5)


def filled() -> Replica:
    replica = new_replica()
    version = sha256(b"read").digest()
    apply(
        replica,
        capture("amber"),
        Remember("birch", "fact", "agent", NOW, 60),
        Remember("cedar", "fact", "agent", NOW, 100, (target("birch"),)),
        Amend(target("cedar"), None, 40, "retired", "person", NOW + 1),
        PutSource("notes", "Documents", ("*.md",), (), NOW),
        PutDocument("notes", "a.md", version, NOW, "md", 0, 2, ("amber", "dune"), ("A", "A > B")),
    )
    return replica


PARTS = parts_of(filled())


def assert_refused(place: int, name: str, change: Callable[[Any], Any]) -> None:
    replica = new_replica()
    load(replica, *PARTS[:place])
    digest = replica.digest()
    wire = msgspec.msgpack.decode(PARTS[place])
    bent = change(wire[FIELDS[name]])
    assert bent != wire[FIELDS[name]]
    wire[FIELDS[name]] = bent
    with pytest.raises(Malformed), replica.transaction() as transaction:
        transaction.load(msgspec.msgpack.encode(wire))
    assert replica.digest() == replica.recompute_digest() == digest
    assert replica.database.check() == []
    load(replica, *PARTS[place:])
    assert replica.digest() == filled().digest()


BENT: list[tuple[int, str, Callable[[Any], Any]]] = [
    (CHUNKS, "memory_states", lambda rows: [[9, *rows[0][1:]]]),
    (CHUNKS, "memory_states", lambda rows: [[rows[0][0], 101, *rows[0][2:]]]),
    (CHUNKS, "memory_states", lambda rows: [[*rows[0][:2], "asleep", *rows[0][3:]]]),
    (CHUNKS, "memory_states", lambda rows: [[*rows[0][:3], b"short", rows[0][4]]]),
    (CHANGES, "memory_changes", lambda rows: rows * 2),
    (CHANGES, "memory_changes", lambda rows: [[77, *rows[0][1:]]]),
    (CHANGES, "memory_changes", lambda rows: [[*rows[0][:6], b"short", *rows[0][7:]]]),
    (CHANGES, "memory_changes", lambda rows: [[*rows[0][:9], b"short"]]),
    (CHANGES, "known", lambda _: [content_hash("nowhere")] * 2),
    (DOCUMENTS, "documents", lambda rows: rows * 2),
    (DOCUMENTS, "documents", lambda rows: [[rows[0][0], "a\nb", *rows[0][2:]]]),
    (DOCUMENTS, "documents", lambda rows: [[*rows[0][:2], b"short", *rows[0][3:]]]),
    (DOCUMENTS, "documents", lambda rows: [[*rows[0][:6], 3]]),
    (DOCUMENTS, "documents", lambda rows: [[*rows[0][:5], 2**20 + 1, 2]]),
    (PLACES, "document_parts", lambda rows: rows * 2),
    (PLACES, "document_parts", lambda rows: [[rows[0][1], *rows[0][1:]]]),
    (PLACES, "document_parts", lambda rows: [[*rows[0][:4], 2]]),
    (PLACES, "document_parts", lambda rows: [[*rows[0][:3], 99, rows[0][4]]]),
    (PLACES, "known", lambda known: known[:1]),
    (SOURCES, "sources", lambda rows: rows * 2),
    (SOURCES, "sources", lambda rows: [["", *rows[0][1:]]]),
    (SOURCES, "sources", lambda rows: [["a\x1bb", *rows[0][1:]]]),
    (SOURCES, "sources", lambda rows: [[*rows[0][:3], ["x"] * 257, *rows[0][4:]]]),
]


@pytest.mark.parametrize(
    "number", range(len(BENT)), ids=[f"{name} {at}" for at, (_, name, _) in enumerate(BENT)]
)
def test_what_was_bent_is_refused(number: int) -> None:
    assert_refused(*BENT[number])


def test_a_part_of_before_there_were_these_is_read() -> None:
    older = new_replica()
    apply(older, capture("amber"), Remember("birch", "fact", "agent", NOW))
    loaded = new_replica()
    for part in parts_of(older):
        wire = msgspec.msgpack.decode(part)
        assert wire[26:] == [[]] * 5
        load(loaded, msgspec.msgpack.encode(wire[:26]))
    assert loaded.digest() == older.digest()
