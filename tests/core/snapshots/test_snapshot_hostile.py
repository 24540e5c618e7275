"""Parts of a snapshot that were cut, bent, or made by somebody who means harm: refused as Malformed, and nothing is changed."""

import tracemalloc
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crystal_core.replica import Replica
from crystal_core.snapshots.parts import decode_part, encode_part
from crystal_core.snapshots.rows import FileVersionRow, PartRows, PlaceRow
from crystal_crypto.errors import Malformed
from crystal_mirror.ports import SNAPSHOT_PART_BYTES_MAX
from tests.core.builders import (
    DEVICE,
    INCARNATION,
    apply,
    capture,
    content_hash,
    forget,
    new_replica,
    remember,
    windows,
)
from tests.core.snapshots.test_snapshot import load, parts_of, put

FIELDS = [
    "version",
    "names",
    "devices",
    "frames",
    "frame_lengths",
    "frame_of",
    "text_lengths",
    "windows",
    "vector_bytes",
    "vectors",
    "known",
    "places",
    "chunk_of",
    "place_of",
    "uuids",
    "tails",
    "messages",
    "pieces",
    "roles",
    "moments",
    "memories",
    "suppressed",
    "acks",
    "sparse",
    "files",
    "condemned",
]


def filled() -> Replica:
    replica = new_replica()
    apply(
        replica,
        capture("amber " * 30, "birch", "cedar", session="one"),
        capture("dune", "ember", session="two", message="0190163d-8694-739b-aea5-966300000001"),
        remember("fjord"),
        forget("gone"),
        put("a/b", "content"),
        vectors=lambda text: windows("xy") + windows(text),
    )
    with replica.transaction() as transaction:
        transaction.condemn([bytes(32)])
    return replica


PARTS = parts_of(filled())


def assert_refused(part: bytes, *before: bytes) -> None:
    replica = new_replica()
    load(replica, *before)
    digest = replica.digest()
    with pytest.raises(Malformed), replica.transaction() as transaction:
        transaction.load(part)
    assert replica.digest() == replica.recompute_digest() == digest
    assert replica.database.check() == []
    load(replica, *PARTS[len(before) :])


def changed(part: bytes, name: str, change: Callable[[Any], Any]) -> bytes:
    wire = msgspec.msgpack.decode(part)
    place = FIELDS.index(name)
    wire[place] = change(wire[place])
    return msgspec.msgpack.encode(wire)


@pytest.mark.parametrize("part", range(len(PARTS)))
def test_a_part_that_was_cut_or_extended_is_refused(part: int) -> None:
    whole = PARTS[part]
    for end in {0, 1, len(whole) // 3, len(whole) // 2, len(whole) - 1}:
        assert_refused(whole[:end])
    assert_refused(whole + b"\0")
    assert_refused(bytes(SNAPSHOT_PART_BYTES_MAX + 1))


BENT: list[tuple[str, Callable[[Any], Any]]] = [
    ("version", lambda _: 2),
    ("names", lambda names: names[:-1]),
    ("names", lambda names: ["x" * 1025, *names[1:]]),
    ("devices", lambda _: []),
    ("devices", lambda _: [b"short"]),
    ("frames", lambda frames: frames[:-1]),
    ("frames", lambda frames: [frames[0][:-1], *frames[1:]]),
    ("frame_lengths", lambda lengths: [lengths[0] + 1, *lengths[1:]]),
    ("frame_lengths", lambda lengths: [SNAPSHOT_PART_BYTES_MAX] * len(lengths)),
    ("frame_of", lambda numbers: [numbers[0] + 50, *numbers[1:]]),
    ("frame_of", lambda numbers: numbers[::-1]),
    ("text_lengths", lambda lengths: [0, *lengths[1:]]),
    ("text_lengths", lambda lengths: lengths[:-1]),
    ("windows", lambda windows: [windows[0] + 1, *windows[1:]]),
    ("windows", lambda windows: [0 for _ in windows]),
    ("vector_bytes", lambda size: size * 2),
    ("vector_bytes", lambda _: 0),
    ("vector_bytes", lambda _: 1),
    ("vectors", lambda vectors: vectors[:-1]),
    ("vectors", lambda vectors: b"\x00\x7c" + vectors[2:]),
    ("vectors", lambda vectors: vectors[:-2] + b"\xff\xff"),
    ("known", lambda _: [b"short"]),
    ("known", lambda _: [content_hash("nowhere")]),
    ("places", lambda places: places[:-1]),
    ("places", lambda places: [[99, *places[0][1:]], *places[1:]]),
    ("chunk_of", lambda numbers: [-1, *numbers[1:]]),
    ("chunk_of", lambda numbers: [6, *numbers[1:]]),
    ("place_of", lambda numbers: [2, *numbers[1:]]),
    ("uuids", lambda uuids: uuids[:-1]),
    ("uuids", lambda uuids: uuids + bytes(16)),
    ("messages", lambda codes: [500, *codes[1:]]),
    ("messages", lambda codes: [1, *codes[1:]]),
    ("tails", lambda _: []),
    ("tails", lambda tails: [*tails, "more"]),
    ("pieces", lambda pieces: pieces[:-1]),
    ("pieces", lambda pieces: [2**32, *pieces[1:]]),
    ("roles", lambda roles: [77, *roles[1:]]),
    ("moments", lambda moments: [-1, *moments[1:]]),
    ("moments", lambda moments: [2**53, 1, *moments[2:]]),
    ("memories", lambda memories: memories * 2),
    ("memories", lambda memories: [[6, *memories[0][1:]]]),
    ("memories", lambda memories: [[0, 99, *memories[0][2:]]]),
]


@pytest.mark.parametrize("number", range(len(BENT)), ids=[name for name, _ in BENT])
def test_a_part_that_was_bent_is_refused(number: int) -> None:
    name, change = BENT[number]
    bent = changed(PARTS[0], name, change)
    assert bent != PARTS[0]
    assert_refused(bent)


BENT_ROWS: list[tuple[int, str, Callable[[Any], Any]]] = [
    (1, "suppressed", lambda rows: rows * 2),
    (1, "suppressed", lambda rows: [rows[0][:-1]]),
    (2, "files", lambda rows: rows * 2),
    (2, "files", lambda rows: [["../escape", *rows[0][1:]]]),
    (2, "files", lambda rows: [["/etc/passwd", *rows[0][1:]]]),
    (2, "files", lambda rows: [["con", *rows[0][1:]]]),
    (2, "files", lambda rows: [rows[0], ["A/B", *rows[0][1:]]]),
    (2, "files", lambda rows: [[*rows[0][:6], True, rows[0][7]]]),
    (2, "files", lambda rows: [[*rows[0][:7], b"x"]]),
    (2, "files", lambda rows: [[*rows[0][:7], bytes(37)]]),
    (2, "files", lambda rows: [[rows[0][0], b"short", *rows[0][2:]]]),
    (3, "condemned", lambda rows: rows * 2),
    (3, "condemned", lambda _: [b""]),
    (4, "acks", lambda rows: rows * 2),
    (4, "acks", lambda rows: [[*rows[0][:2], -1]]),
    (4, "acks", lambda rows: [[*rows[0][:2], 2**63]]),
]


@pytest.mark.parametrize("number", range(len(BENT_ROWS)), ids=[name for _, name, _ in BENT_ROWS])
def test_rows_that_were_bent_are_refused(number: int) -> None:
    part, name, change = BENT_ROWS[number]
    assert_refused(changed(PARTS[part], name, change))


@pytest.mark.parametrize("part", range(len(PARTS)))
def test_a_part_is_loaded_once(part: int) -> None:
    replica = new_replica()
    load(replica, *PARTS)
    digest = replica.digest()
    with pytest.raises(Malformed), replica.transaction() as transaction:
        transaction.load(PARTS[part])
    assert replica.digest() == replica.recompute_digest() == digest == filled().digest()


def test_vectors_of_another_size_are_refused() -> None:
    other = new_replica()
    apply(other, capture("other"), vectors=lambda _: [bytes(8)])
    assert_refused(parts_of(other)[0], PARTS[0])


def test_texts_are_checked_to_be_text() -> None:
    rows = PartRows(texts=[b"\xff\xfe bent"], windows=[0])
    assert_refused(encode_part(rows))
    split = PartRows(
        texts=[b"caf\xc3", b"\xa9"], windows=[0, 0], places=[PlaceRow("", "", "", "", "", DEVICE)]
    )
    for chunk in (0, 1):
        split.chunk_of.append(chunk)
        split.place_of.append(0)
        split.messages.append("")
        split.pieces.append(chunk)
        split.roles.append("")
        split.moments.append(0)
    assert_refused(encode_part(split))


def test_what_a_part_states_is_checked_before_it_is_taken() -> None:
    """A few bytes that state much must not take much memory."""
    bombs = [
        changed(PARTS[0], "frame_lengths", lambda lengths: [2**22] * len(lengths)),
        changed(PARTS[0], "vector_bytes", lambda _: 8192),
        b"\xdc\x00\x1a\x01\xdd\xff\xff\xff\xff",
        changed(PARTS[0], "messages", lambda codes: [1026] * 100_000),
        changed(PARTS[0], "tails", lambda tails: ["x" * 1024, "x"] * 1000),
    ]
    for bomb in bombs:
        tracemalloc.start()
        try:
            with pytest.raises(Malformed):
                decode_part(bomb)
            assert tracemalloc.get_traced_memory()[1] < 16 * 1024 * 1024
        finally:
            tracemalloc.stop()


def test_a_part_that_would_be_too_large_is_not_made() -> None:
    file = FileVersionRow("a", DEVICE, INCARNATION, 1, False, 0, False, bytes(37) * 6000)
    with pytest.raises(ValueError, match="over the limit"):
        encode_part(PartRows(files=[file] * 30))


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(PARTS) - 1), st.integers(0, 2**32))
def test_flipped_bytes_raise_malformed_or_change_the_digest(number: int, seed: int) -> None:
    random = Random(seed)
    part = bytearray(PARTS[number])
    for _ in range(random.randint(1, 3)):
        part[random.randrange(len(part))] ^= random.randint(1, 255)
    replica = new_replica()
    sums = replica.part_sums()
    refused = False
    try:
        sums.add(bytes(part))
    except Malformed:
        refused = True
    before = replica.digest()
    try:
        with replica.transaction() as transaction:
            transaction.load(bytes(part))
        assert not refused
        assert replica.digest() == replica.recompute_digest() == sums.digest()
    except Malformed:
        assert replica.digest() == before
    assert replica.database.check() == []
