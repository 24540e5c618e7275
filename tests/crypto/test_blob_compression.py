"""Compressed blobs: smaller where that is possible, the same content under the same name, and nothing that a frame claims costs
anything before it is judged."""

import hashlib
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crystal_crypto.blob import (
    BLOB_CONTENT_BYTES_MAX,
    Piece,
    blob_bytes,
    open_blob,
    parse_blob_header,
    seal_blob,
)
from crystal_crypto.compression import compress, stated_length
from crystal_crypto.errors import CryptoError, Malformed, TooLarge, WrongKey
from crystal_crypto.limits import BLOB_BYTES_MAX, KIB, MIB
from tests.crypto.support import KEY, SALT
from tests.vectors.craft import VAULT, BlobDraft, blob_name, fixed, zstd_rle

TEXT = b"the same words again and again, and again the same words " * 5000
BLOCK = 128 * KIB
"""The longest block of a zstd frame."""


def _sealed(content: bytes, *, compressing: bool = True) -> bytes:
    pieces = seal_blob(
        [content[:1000], content[1000:]],
        length=len(content),
        content_hash=hashlib.sha256(content).digest(),
        vault=VAULT,
        key=KEY,
        name=blob_name(content),
        salt=SALT,
        compress=compressing,
    )
    return b"".join(pieces)


def _open(data: bytes, content: bytes) -> Iterator[Piece]:
    digest = hashlib.sha256(content).digest()
    return open_blob([data], content_hash=digest, name=blob_name(content), vault=VAULT, key=KEY)


def test_sealing_gives_the_bytes_that_the_document_describes() -> None:
    frame = compress(TEXT)
    draft = BlobDraft(name="document", content=TEXT, stored=frame)
    pieces = seal_blob(
        [TEXT],
        length=len(TEXT),
        content_hash=hashlib.sha256(TEXT).digest(),
        vault=VAULT,
        key=KEY,
        name=blob_name(TEXT),
        salt=fixed("salt of document", 24),
        compress=True,
    )
    assert b"".join(pieces) == draft.build()


def test_a_compressed_blob_has_the_name_of_the_content_and_gives_it_back() -> None:
    plain, packed = _sealed(TEXT, compressing=False), _sealed(TEXT)
    assert parse_blob_header(packed).compressed
    assert not parse_blob_header(plain).compressed
    assert parse_blob_header(packed).name == parse_blob_header(plain).name == blob_name(TEXT)
    assert len(packed) < len(plain) / 50
    pieces = list(_open(packed, TEXT))
    assert b"".join(pieces) == TEXT
    assert max(map(len, pieces)) <= 64 * KIB


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=3000), st.integers(1, 200), st.integers(0, 70_000))
def test_whatever_the_content_it_comes_back_and_is_never_larger(piece: bytes, times: int, tail: int) -> None:
    content = piece * times + fixed("tail", tail)
    data = _sealed(content)
    assert len(data) <= blob_bytes(len(content))
    assert parse_blob_header(data).compressed == (len(data) < blob_bytes(len(content)))
    assert b"".join(_open(data, content)) == content


@pytest.mark.parametrize("length", [0, 1, 248, 5000, 300_000, BLOB_CONTENT_BYTES_MAX])
def test_what_does_not_shrink_is_stored_as_it_is(length: int) -> None:
    content = fixed("random", length)
    data = _sealed(content)
    assert not parse_blob_header(data).compressed
    assert len(data) == blob_bytes(length)
    assert b"".join(_open(data, content)) == content


def test_the_longest_content_comes_back_compressed_too() -> None:
    content = bytes(BLOB_CONTENT_BYTES_MAX)
    data = _sealed(content)
    assert len(data) < 4 * KIB
    assert b"".join(_open(data, content)) == content
    with pytest.raises(TooLarge):
        _sealed(content + b"\x00")


def test_a_part_that_shrinks_in_places_is_compressed() -> None:
    """Entries take samples first; a part may have text only where no sample is taken."""
    content = fixed("picture", 120_000) + bytes(60_000) + fixed("another picture", 120_000)
    assert compress(content) is None
    assert len(_sealed(content)) < 250_000


@pytest.mark.parametrize("given_content", [TEXT[:-1], TEXT + b"x", TEXT[:-1] + b"x", b""])
def test_a_file_that_changes_while_it_is_sealed_gives_no_compressed_blob(given_content: bytes) -> None:
    with pytest.raises(ValueError, match="changed while"):
        seal_blob(
            [given_content],
            length=len(TEXT),
            content_hash=hashlib.sha256(TEXT).digest(),
            vault=VAULT,
            key=KEY,
            name=blob_name(TEXT),
            salt=SALT,
            compress=True,
        )


def _bomb(stated: int | None, blocks: int) -> bytes:
    content = b"A" * 1000
    return BlobDraft(
        name="bomb", content=content, stored=zstd_rle([(65, BLOCK)] * blocks, stated=stated)
    ).build()


@pytest.mark.parametrize(
    ("stated", "error"),
    [(1000, Malformed), (None, Malformed), (BLOB_CONTENT_BYTES_MAX + 1, TooLarge), (2**32 - 1, TooLarge)],
)
def test_a_bomb_is_refused_before_memory_is_taken_for_it(
    stated: int | None, error: type[CryptoError]
) -> None:
    """20,000 blocks of 4 bytes would be 2.4 GiB."""
    data = _bomb(stated, 20_000) if stated != 1000 else _bomb(stated, 240)
    tracemalloc.start()
    try:
        with pytest.raises(error):
            list(_open(data, b"A" * 1000))
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()


def test_a_bomb_that_states_the_most_takes_no_more_than_that() -> None:
    data = _bomb(BLOB_CONTENT_BYTES_MAX, 20_000)
    tracemalloc.start()
    try:
        with pytest.raises(Malformed):
            list(_open(data, b"A" * 1000))
        assert tracemalloc.get_traced_memory()[1] < BLOB_BYTES_MAX + MIB
    finally:
        tracemalloc.stop()


def test_large_compressed_blobs_need_the_frame_and_the_content_and_little_more() -> None:
    piece = fixed("piece", 50_000)
    content = b"".join(piece[n:] + piece[:n] for n in range(160))
    data = _sealed(content)
    tracemalloc.start()
    try:
        size = sum(len(part) for part in _open(data, content))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size == len(content)
    assert peak < len(data) + len(content) + MIB


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_as_a_compressed_content(stored: bytes) -> None:
    for prefix in (b"", b"\x28\xb5\x2f\xfd", b"\x28\xb5\x2f\xfd\xa0\xe8\x03\x00\x00"):
        draft = BlobDraft(name="any", content=b"A" * 1000, stored=prefix + stored)
        with pytest.raises((Malformed, TooLarge, WrongKey)):
            list(_open(draft.build(), b"A" * 1000))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2**16), st.integers(1, 255)), min_size=1, max_size=4))
def test_a_changed_frame_gives_its_content_or_an_error(where: list[tuple[int, int]]) -> None:
    changed = bytearray(compress(TEXT) or b"")
    for at, mask in where:
        changed[at % len(changed)] ^= mask
    opened = _open(BlobDraft(name="changed", content=TEXT, stored=bytes(changed)).build(), TEXT)
    try:
        content = b"".join(opened)
    except CryptoError:
        return
    assert content == TEXT


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 7))
def test_every_flipped_bit_is_noticed(at: int, bit: int) -> None:
    data = bytearray(_sealed(TEXT))
    data[at % len(data)] ^= 1 << bit
    with pytest.raises(CryptoError):
        list(_open(bytes(data), TEXT))


def test_nobody_without_the_key_can_say_that_a_blob_is_compressed() -> None:
    for compressing in (True, False):
        data = bytearray(_sealed(TEXT, compressing=compressing))
        data[6] ^= 1
        with pytest.raises(WrongKey, match="MAC"):
            list(_open(bytes(data), TEXT))


def test_no_content_is_given_before_the_whole_frame_is_judged() -> None:
    frame = compress(TEXT) or b""
    for stored in (frame + b"\x00", frame + frame, frame[:-1]):
        opened = _open(BlobDraft(name="early", content=TEXT, stored=stored).build(), TEXT)
        with pytest.raises(Malformed):
            next(opened)


@given(st.binary(max_size=30))
def test_a_stated_length_is_a_number_or_an_error(data: bytes) -> None:
    for frame in (data, b"\x28\xb5\x2f\xfd" + data):
        try:
            assert stated_length(frame) >= 0
        except Malformed:
            continue
