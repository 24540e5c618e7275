"""Blobs: streamed both ways in little memory, and nothing about them can be changed."""

import hashlib
import tracemalloc
from collections.abc import Iterable, Iterator

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
from crystal_crypto.errors import CryptoError, Malformed, TooLarge, WrongKey
from crystal_crypto.limits import BLOB_BYTES_MAX, KIB, MIB
from tests.crypto.support import KEY, SALT, SECRET
from tests.vectors.craft import VAULT, BlobDraft, blob_name, fixed

CHUNK = 64 * KIB


def _seal(pieces: Iterable[bytes], length: int, content_hash: bytes, salt: bytes = SALT) -> Iterator[bytes]:
    return seal_blob(
        pieces,
        length=length,
        content_hash=content_hash,
        vault=VAULT,
        key=KEY,
        name=SECRET.blob_name(content_hash),
        salt=salt,
    )


def _sealed(content: bytes) -> bytes:
    return b"".join(_seal([content], len(content), hashlib.sha256(content).digest()))


def _open(pieces: Iterable[bytes], content: bytes) -> Iterator[Piece]:
    return _open_hashed(pieces, hashlib.sha256(content).digest())


def _open_hashed(pieces: Iterable[bytes], content_hash: bytes) -> Iterator[Piece]:
    name = SECRET.blob_name(content_hash)
    return open_blob(pieces, content_hash=content_hash, name=name, vault=VAULT, key=KEY)


def test_sealing_gives_the_bytes_that_the_document_describes() -> None:
    content = fixed("content", 70_000)
    draft = BlobDraft(name="document", content=content)
    salt = fixed("salt of document", 24)
    assert b"".join(_seal([content], 70_000, hashlib.sha256(content).digest(), salt)) == draft.build()


@pytest.mark.parametrize(
    "length", [0, 1, 247, 248, 249, CHUNK - 9, CHUNK - 8, CHUNK - 7, 2 * CHUNK - 8, BLOB_CONTENT_BYTES_MAX]
)
def test_content_of_every_length_comes_back(length: int) -> None:
    content = bytes(length)
    data = _sealed(content)
    assert len(data) == blob_bytes(length) <= BLOB_BYTES_MAX
    assert b"".join(_open([data], content)) == content


@settings(max_examples=30)
@given(
    st.integers(0, 3 * CHUNK),
    st.lists(st.integers(0, CHUNK), max_size=8),
    st.lists(st.integers(0, CHUNK), max_size=8),
)
def test_pieces_may_be_cut_anywhere(length: int, cuts: list[int], stored_cuts: list[int]) -> None:
    content = fixed("content", length)

    def pieces(data: bytes, sizes: list[int]) -> Iterator[bytes]:
        for size in sizes:
            yield data[:size]
            data = data[size:]
        yield data

    sealed = _seal(pieces(content, cuts), length, hashlib.sha256(content).digest())
    stored = pieces(b"".join(sealed), stored_cuts)
    assert b"".join(_open(stored, content)) == content


def test_the_stored_size_tells_little_about_the_content() -> None:
    assert blob_bytes(0) == blob_bytes(248) == 96 + 32 + 256 + 16
    assert len({blob_bytes(1_000_000 + n) for n in range(10_000)}) <= 2


def test_too_much_content_is_refused_at_once() -> None:
    assert BLOB_CONTENT_BYTES_MAX > BLOB_BYTES_MAX * 0.98
    for length in (BLOB_CONTENT_BYTES_MAX + 1, 2**40, -1):
        with pytest.raises(TooLarge):
            _seal([], length, bytes(32))
        with pytest.raises(TooLarge):
            blob_bytes(length)


@pytest.mark.parametrize(
    ("given_content", "length"),
    [
        (b"c" * 100_000, 100_001),
        (b"c" * 100_000, 99_999),
        (b"c" * 99_999 + b"d", 100_000),
        (b"", 100_000),
        # The payload is exactly one chunk, so that no padding follows the content.
        (b"c" * (CHUNK - 9) + b"d", CHUNK - 8),
        (b"c" * (CHUNK - 7), CHUNK - 8),
    ],
)
def test_a_file_that_changes_while_it_is_sealed_never_gives_a_whole_blob(
    given_content: bytes, length: int
) -> None:
    expected = hashlib.sha256(b"c" * length).digest()
    written: list[bytes] = []
    with pytest.raises(ValueError, match="changed while"):
        written.extend(_seal([given_content], length, expected))
    assert len(b"".join(written)) < blob_bytes(length)
    with pytest.raises(Malformed):
        list(_open(written or [b""], b"c" * length))


def test_large_blobs_need_little_memory() -> None:
    length = 8_000_000
    piece = fixed("piece", 50_000)
    digest = hashlib.sha256(piece * 160)
    tracemalloc.start()
    try:
        pieces = (piece for _ in range(160))
        sealed = _seal(pieces, length, digest.digest())
        size = sum(len(part) for part in _open_hashed(sealed, digest.digest()))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # The padding of the last chunks is one piece of up to 128 KiB.
    assert size == length
    assert peak < MIB


@settings(max_examples=200)
@given(st.integers(0, 96 + 32 + 67_584 + 32 - 1), st.integers(0, 7))
def test_every_flipped_bit_is_noticed(at: int, bit: int) -> None:
    content = fixed("content", CHUNK)
    data = bytearray(_sealed(content))
    data[at] ^= 1 << bit
    with pytest.raises(CryptoError):
        list(_open([bytes(data)], content))


def test_every_cut_of_a_small_blob_is_noticed() -> None:
    data = _sealed(b"content")
    for at in range(len(data)):
        with pytest.raises(Malformed):
            list(_open([data[:at]], b"content"))


def test_content_that_its_name_does_not_name_is_told_at_the_end() -> None:
    data = BlobDraft(name="renamed", content=b"forged", blob_name=blob_name(b"asked for")).build()
    opened = _open([data], b"asked for")
    assert next(opened) == b"forged"
    with pytest.raises(WrongKey, match="asked for"):
        next(opened)


def test_a_header_can_be_read_before_the_rest_is_there() -> None:
    data = _sealed(b"content")
    header = parse_blob_header(data[:96])
    assert (header.generation, header.vault, header.name) == (1, VAULT, blob_name(b"content"))
    assert (header.salt, header.payload_bytes) == (SALT, 256)
    for at in range(96):
        with pytest.raises(Malformed):
            parse_blob_header(data[:at])
