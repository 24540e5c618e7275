"""Blobs: ciphertext of file parts and snapshot parts, too large for an entry (STREAM construction, as in age).

    header (96) | HMAC-SHA256 of the header (32) | chunks: AES-256-GCM ciphertext (64 KiB, the last one shorter) and tag (16)
    payload = stored length (8) | stored bytes | zero padding
    stored bytes = the content as it is, or (flag bit 0) one zstd frame of it

Rules:
- A chunk's nonce is its number and a mark on the last one, so that cutting, extending or reordering is detected.
- The header's MAC commits the blob to its key: a wrong key is detected before anything is decrypted.
- The name is a keyed hash of the content (and of its turn), never of a frame, so that any release of zstd gives the same
  content the same name. Who asks for a blob knows the SHA-256 of its content, which is checked once all of it was read.
- Each chunk that `open_blob` yields is authentic, but the blob is whole only once the iteration has ended without an error:
  write it to a temporary place, and use it afterwards.
- Nothing holds more than two chunks in memory, and the padding hides the exact length. A compressed blob is held whole, and
  so is its content: at most `BLOB_CONTENT_BYTES_MAX` bytes, whatever the frame claims.
"""

import hashlib
import hmac
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from crystal_crypto import compression, labels
from crystal_crypto.errors import Malformed, TooLarge, UnknownVersion, WrongKey
from crystal_crypto.hierarchy import GenerationKey
from crystal_crypto.limits import (
    BLOB_BYTES_MAX,
    BLOB_CHUNK_BYTES,
    BLOB_HEADER_BYTES,
    BLOB_LENGTH_BYTES,
    HASH_BYTES,
    MAC_BYTES,
    PADDED_BYTES_MIN,
    SALT_BYTES,
    TAG_BYTES,
    VAULT_BYTES,
)
from crystal_crypto.padding import largest_content, padded_length
from crystal_crypto.secret import exactly

_MAGIC: Final = b"CRYB"
_VERSION: Final = 2
_SUITE: Final = 1
_LAYOUT: Final = struct.Struct(">4sBBBBI4s16s32s24sQ")
_FLAG_COMPRESSED: Final = 1
_NOTHING: Final = bytes(4)
_CHUNKS_MAX: Final = BLOB_BYTES_MAX // BLOB_CHUNK_BYTES

BLOB_CONTENT_BYTES_MAX: Final = (
    largest_content(BLOB_BYTES_MAX - BLOB_HEADER_BYTES - MAC_BYTES - _CHUNKS_MAX * TAG_BYTES)
    - BLOB_LENGTH_BYTES
)
"""The longest content that one blob can hold, in bytes."""

Piece: TypeAlias = bytes | memoryview
"""A piece of a content; a memoryview where that saves a copy."""


class ContentChanged(ValueError):
    """What was to be sealed is not the stated content: a file that changed while it was read."""


@dataclass(frozen=True, slots=True)
class BlobHeader:
    """A blob's clear fields. Nothing about them is authentic until `open_blob` has checked their MAC."""

    generation: int
    vault: bytes
    name: bytes
    salt: bytes
    payload_bytes: int
    compressed: bool = False


def blob_bytes(length: int) -> int:
    """The stored size of an uncompressed blob of `length` bytes; compressed it is smaller.

    Raises TooLarge beyond `BLOB_CONTENT_BYTES_MAX`.
    """
    if not 0 <= length <= BLOB_CONTENT_BYTES_MAX:  # §3-1
        raise TooLarge(f"a blob's content is at most {BLOB_CONTENT_BYTES_MAX} bytes, not {length}")
    return _stored_bytes(padded_length(BLOB_LENGTH_BYTES + length))


def seal_blob(
    content: Iterable[bytes],
    *,
    length: int,
    content_hash: bytes,
    vault: bytes,
    key: GenerationKey,
    name: bytes,
    salt: bytes,
    compress: bool = False,
) -> Iterator[bytes]:
    """Yields the blob piece by piece: `blob_bytes(length)` bytes or less, to be stored under `name` (32 bytes).

    `content_hash` is SHA-256 of the content, `salt` 24 fresh random bytes. Raises TooLarge at once; and ContentChanged, before
    the last piece, if the content has another length or hash.

    `compress` reads all of the content into memory and compresses the blob if that makes it smaller. Not for several
    conversations in one blob: its size would reveal whether one repeats another.
    """
    blob_bytes(length)
    payload_bytes = padded_length(BLOB_LENGTH_BYTES + length)  # §6.1-2
    pieces: Iterable[bytes] = _checked(content, length, content_hash)
    stored_bytes, compressed = length, False
    if compress:
        whole = b"".join(pieces)
        pieces = [whole]
        frame = compression.compress(whole, probing=False)
        if frame is not None and padded_length(BLOB_LENGTH_BYTES + len(frame)) < payload_bytes:  # §6.1-3
            pieces, stored_bytes, compressed = [frame], len(frame), True
            payload_bytes = padded_length(BLOB_LENGTH_BYTES + stored_bytes)
    header = BlobHeader(
        generation=key.number,
        vault=exactly(vault, VAULT_BYTES, "a vault id"),
        name=exactly(name, HASH_BYTES, "a blob's name"),
        salt=exactly(salt, SALT_BYTES, "a salt"),  # §4.2-2
        payload_bytes=payload_bytes,
        compressed=compressed,
    )
    return _seal(pieces, stored_bytes, header, key)


def parse_blob_header(data: bytes) -> BlobHeader:
    """The fields of a blob's first 96 bytes (more may follow). Raises Malformed, UnknownVersion or TooLarge."""
    if len(data) < 6 or data[:4] != _MAGIC:  # §6.2-1
        raise Malformed("these bytes are not a blob")
    if data[4] != _VERSION:  # §6.2-1
        raise UnknownVersion(f"a blob of version {data[4]} is unknown")
    if data[5] != _SUITE:  # §2-3, §6.2-1
        raise UnknownVersion(f"a blob of suite {data[5]} is unknown")
    if len(data) < BLOB_HEADER_BYTES:  # §6.2-2
        raise Malformed("a blob is cut within its header")
    _, _, _, flags, reserved, generation, nothing, vault, name, salt, payload_bytes = _LAYOUT.unpack_from(
        data
    )
    if flags & ~_FLAG_COMPRESSED or reserved != 0 or nothing != _NOTHING:  # §6.2-2, §1.2-2
        raise Malformed("a blob sets flags or reserved bytes that this version does not define")
    if payload_bytes > BLOB_BYTES_MAX or _stored_bytes(payload_bytes) > BLOB_BYTES_MAX:  # §6.2-3, §3-2
        raise TooLarge(f"a blob's payload cannot be {payload_bytes} bytes")
    if payload_bytes < PADDED_BYTES_MIN or padded_length(payload_bytes) != payload_bytes:  # §6.2-3
        raise Malformed(f"a blob's payload cannot be {payload_bytes} bytes: that is not a padded length")
    return BlobHeader(generation, vault, name, salt, payload_bytes, bool(flags & _FLAG_COMPRESSED))


def open_blob(
    stored: Iterable[bytes], *, content_hash: bytes, name: bytes, vault: bytes, key: GenerationKey
) -> Iterator[Piece]:
    """The content, in pieces of up to 64 KiB; `stored` may come in pieces of any size. See the module's rules on its use.

    While iterating, raises WrongKey (another key, generation, vault or name, or content of another SHA-256), Malformed (cut,
    extended, reordered, changed), UnknownVersion or TooLarge.
    """
    source = _Source(stored)
    raw = bytes(source.take(BLOB_HEADER_BYTES))
    header = parse_blob_header(raw)
    if header.generation != key.number:  # §6.2-4
        raise WrongKey(f"the blob needs the key of generation {header.generation}, not {key.number}")
    if header.vault != vault or header.name != name:  # §6.2-4
        raise WrongKey("the blob belongs to another vault or another name")
    encryption, mac = _keys(header, raw, key)
    if not hmac.compare_digest(mac, source.take(MAC_BYTES)):  # §6.2-5
        raise WrongKey("the blob's MAC does not agree")
    digest = hashlib.sha256()
    pieces = _stored(source, header.payload_bytes, AESGCM(encryption))
    for piece in _decompressed(pieces) if header.compressed else pieces:
        digest.update(piece)
        yield piece
    if not hmac.compare_digest(digest.digest(), content_hash):  # §6.2-9
        raise WrongKey("the blob's content is not the one that was asked for")


def _seal(
    pieces: Iterable[bytes], stored_bytes: int, header: BlobHeader, key: GenerationKey
) -> Iterator[bytes]:
    raw = _LAYOUT.pack(
        _MAGIC,
        _VERSION,
        _SUITE,
        _FLAG_COMPRESSED if header.compressed else 0,
        0,
        header.generation,
        _NOTHING,
        header.vault,
        header.name,
        header.salt,
        header.payload_bytes,
    )
    encryption, mac = _keys(header, raw, key)
    yield raw + mac
    aead = AESGCM(encryption)
    last = -(-header.payload_bytes // BLOB_CHUNK_BYTES) - 1
    source = _Source(_payload(pieces, stored_bytes, header.payload_bytes))
    for number in range(last + 1):
        chunk = source.take(min(BLOB_CHUNK_BYTES, header.payload_bytes - number * BLOB_CHUNK_BYTES))
        if number == last:
            source.finish()
        yield aead.encrypt(_nonce(number, number == last), chunk, None)  # §6.1-5


def _payload(pieces: Iterable[bytes], stored_bytes: int, payload_bytes: int) -> Iterator[bytes]:
    yield stored_bytes.to_bytes(BLOB_LENGTH_BYTES, "big")
    yield from pieces
    yield bytes(payload_bytes - BLOB_LENGTH_BYTES - stored_bytes)  # §6.1-2


def _checked(content: Iterable[bytes], length: int, content_hash: bytes) -> Iterator[bytes]:
    """The same pieces. Raises ContentChanged after them, or before one too many, if they are not the stated content."""
    digest = hashlib.sha256()
    given = 0
    for piece in content:
        given += len(piece)
        if given > length:
            break
        digest.update(piece)
        yield piece
    if given != length or digest.digest() != content_hash:
        raise ContentChanged("the content changed while it was being sealed")


def _stored(source: "_Source", payload_bytes: int, aead: AESGCM) -> Iterator[Piece]:
    """The authentic stored bytes of each chunk, without the length before them and the padding after them."""
    last = -(-payload_bytes // BLOB_CHUNK_BYTES) - 1
    remaining = 0
    for number in range(last + 1):
        size = min(BLOB_CHUNK_BYTES, payload_bytes - number * BLOB_CHUNK_BYTES)
        sealed = source.take(size + TAG_BYTES)
        if number == last:
            source.finish()
        try:
            chunk = aead.decrypt(_nonce(number, number == last), sealed, None)
        except InvalidTag:
            raise Malformed(f"the blob's chunk {number} is damaged or out of place") from None  # §6.2-6
        if number == 0:
            remaining = int.from_bytes(chunk[:BLOB_LENGTH_BYTES], "big")
            # §6.2-7
            if remaining > BLOB_BYTES_MAX or padded_length(BLOB_LENGTH_BYTES + remaining) != payload_bytes:
                raise Malformed("the blob's stored length does not fit its payload")
        begin = BLOB_LENGTH_BYTES if number == 0 else 0
        end = min(begin + remaining, len(chunk))
        if chunk[end:] != bytes(len(chunk) - end):  # §6.2-7
            raise Malformed("the blob's padding is not zero")
        remaining -= end - begin
        if end > begin:
            yield memoryview(chunk)[begin:end]


def _decompressed(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """The content of the one zstd frame in the pieces. Its stated size is checked before memory is allocated."""
    frame = b"".join(pieces)
    length = compression.stated_length(frame)
    if length > BLOB_CONTENT_BYTES_MAX:  # §6.2-8
        raise TooLarge(f"a blob's content is at most {BLOB_CONTENT_BYTES_MAX} bytes, not {length}")
    if length <= len(frame):  # §6.2-8
        raise Malformed("a blob's compressed frame is not smaller than its content")
    content = memoryview(compression.decompress(frame, length))
    for at in range(0, length, BLOB_CHUNK_BYTES):
        yield content[at : at + BLOB_CHUNK_BYTES]


def _keys(header: BlobHeader, raw: bytes, key: GenerationKey) -> tuple[bytes, bytes]:
    """K_enc and the header's MAC."""
    context = hashlib.sha256(raw).digest()
    encryption, mac_key = key.blob_keys(vault=header.vault, salt=header.salt, context=context)
    return encryption, hmac.digest(mac_key, labels.BLOB_MAC + raw, "sha256")  # §6.1-1


def _nonce(number: int, last: bool) -> bytes:
    return number.to_bytes(11, "big") + (b"\x01" if last else b"\x00")  # §6.1-5


def _stored_bytes(payload_bytes: int) -> int:
    chunks = -(-payload_bytes // BLOB_CHUNK_BYTES)
    return BLOB_HEADER_BYTES + MAC_BYTES + payload_bytes + chunks * TAG_BYTES  # §6.1-6


class _Source:
    """Reads exact numbers of bytes from pieces of any size."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._piece = memoryview(b"")

    def take(self, size: int) -> Piece:
        """Exactly `size` bytes. Raises Malformed when the pieces end before."""
        if size <= len(self._piece):
            whole, self._piece = self._piece[:size], self._piece[size:]
            return whole
        taken: list[memoryview] = []
        missing = size
        while missing:
            if not self._piece:
                self._piece = self._next()
            part = self._piece[:missing]
            self._piece = self._piece[len(part) :]
            taken.append(part)
            missing -= len(part)
        return b"".join(taken)

    def finish(self) -> None:
        """Raises Malformed when anything is left."""
        if self._piece or any(len(piece) for piece in self._pieces):  # §6.2-6
            raise Malformed("a blob goes on after its last chunk")

    def _next(self) -> memoryview:
        for piece in self._pieces:
            return memoryview(piece)
        raise Malformed("a blob ends too early")  # §6.2-6
