"""The entry: the one sealed object of every channel.

    header (184) | public | AES-256-GCM ciphertext and tag | HMAC-SHA256 (32) | Ed25519 signature (64)

Rules:
- Sealing: frames are compressed each by itself, laid out, padded, encrypted, MACed, signed. Opening goes the other way, and
  nothing is decrypted before the MAC agrees, nothing decompressed before its size is checked.
- The body is hashed once (`hashing`); MAC, signature and entry hash are taken over header, public part and that digest.
- `parse` needs no key and depends on public data only, so that all devices agree on what it refuses.
- The caller checks against the device log who may sign, and which sequence and previous hash come next.
"""

import functools
import hashlib
import hmac
import io
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import GCM

from crystal_crypto import labels
from crystal_crypto.errors import Malformed, TooLarge, UnknownVersion, WrongKey
from crystal_crypto.frames import Frame, content_of, frames_of
from crystal_crypto.hashing import body_digest
from crystal_crypto.hierarchy import GenerationKey
from crystal_crypto.identity import SigningKey, VerifyKey
from crystal_crypto.limits import (
    DEVICE_BYTES,
    ENTRY_BYTES_MAX,
    HASH_BYTES,
    HEADER_BYTES,
    INCARNATION_BYTES,
    MAC_BYTES,
    PADDED_BYTES_MIN,
    PUBLIC_BYTES_MAX,
    SALT_BYTES,
    SIGNATURE_BYTES,
    TAG_BYTES,
    U32_MAX,
    U64_MAX,
    VAULT_BYTES,
)
from crystal_crypto.memory import borrowed
from crystal_crypto.padding import largest_content, padded_length

__all__ = ["ENTRY_BYTES_MAX", "ZERO_HASH", "ZERO_ID", "Channel", "Entry", "Frame", "Header", "Kind"]
__all__ += ["content_bytes_max", "parse", "seal", "seal_entry"]

ZERO_ID: Final = bytes(DEVICE_BYTES)
"""The recipient of an entry for every device."""
ZERO_HASH: Final = bytes(HASH_BYTES)
"""The previous hash of a stream's first entry, and the log head of one that is older than the device log."""

_MAGIC: Final = b"CRYE"
_VERSION: Final = 2
_SUITE: Final = 1
_LAYOUT: Final = struct.Struct(">4sBBBBB3sI16s16s8sQQ16s32s32s24sII")
_NOTHING: Final = bytes(3)
_TRAILER_BYTES: Final = MAC_BYTES + SIGNATURE_BYTES


class Kind(IntEnum):
    """What an entry is. Each kind belongs to exactly one channel."""

    LOG = 1
    OFFER = 2
    BATCH = 3
    SEAL = 4
    CURSOR = 5
    COMMAND = 6


class Channel(IntEnum):
    """Where an entry belongs."""

    DEVLOG = 1
    CONVERSATIONS = 2
    MIRROR = 3
    COMMANDS = 4
    CURSOR = 5


_CHANNEL_OF: Final = {
    Kind.LOG: Channel.DEVLOG,
    Kind.OFFER: Channel.CONVERSATIONS,
    Kind.BATCH: Channel.MIRROR,
    Kind.SEAL: Channel.MIRROR,
    Kind.CURSOR: Channel.CURSOR,
    Kind.COMMAND: Channel.COMMANDS,
}
_KINDS: Final = {int(kind): kind for kind in Kind}
_CHANNELS: Final = {int(channel): channel for channel in Channel}


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """An entry's clear fields, bound by the MAC, the AEAD and the signature. Raises ValueError for values that an entry
    cannot have."""

    kind: Kind
    channel: Channel
    vault: bytes
    sender: bytes
    incarnation: bytes
    recipient: bytes = ZERO_ID
    epoch: int
    generation: int
    log_head: bytes
    sequence: int
    previous: bytes
    flags: int = 0

    def __post_init__(self) -> None:
        if _CHANNEL_OF[self.kind] is not self.channel:  # §5.1-1
            raise ValueError(f"a {self.kind.name} entry does not belong in channel {self.channel.name}")
        lengths = (
            len(self.vault) == VAULT_BYTES
            and len(self.sender) == len(self.recipient) == DEVICE_BYTES
            and len(self.incarnation) == INCARNATION_BYTES
            and len(self.log_head) == len(self.previous) == HASH_BYTES
        )
        if not lengths:
            raise ValueError("a header field has the wrong length")
        numbers = (
            0 <= self.epoch <= U64_MAX and 0 <= self.sequence <= U64_MAX and 0 <= self.generation <= U32_MAX
        )
        if not numbers:
            raise ValueError("a header number is out of range")
        if self.flags != 0:
            raise ValueError("no flags are defined in this version")


class Entry:
    """A parsed entry. Its bytes are well-formed; nothing else is known about it until `verify` and `open` have passed."""

    __slots__ = ("_body_digest", "_hash", "data", "header", "public", "salt")

    def __init__(
        self, data: bytes, header: Header, salt: bytes, public: bytes, body_digest: bytes | None
    ) -> None:
        """For `parse` and `seal_entry` only."""
        self.data = data
        self.header = header
        self.salt = salt
        self.public = public
        self._body_digest = body_digest
        self._hash: bytes | None = None

    @property
    def hash(self) -> bytes:
        """The entry's hash (32 bytes), which the next entry has as `previous`; computed on first use."""
        if self._hash is None:
            self._hash = hashlib.sha256(labels.ENTRY_HASH + self.shown).digest()  # §5.4-4
        return self._hash

    @property
    def shown(self) -> bytes:
        """What shows the entry's signature to somebody who does not have its body: clear bytes, body digest, MAC, signature."""
        return self._clear() + self._digest() + self.data[-_TRAILER_BYTES:]  # §4.3-3

    def verify(self, key: VerifyKey) -> None:
        """Raises BadSignature unless `key` signed exactly this entry."""
        shown = self.shown
        key.verify(  # §5.4-3, §5.5-7
            shown[-SIGNATURE_BYTES:], labels.ENTRY_SIGNATURE + shown[:-SIGNATURE_BYTES]
        )

    def open(self, key: GenerationKey) -> list[bytes]:
        """The frames' data. Raises WrongKey, or Malformed and TooLarge for a body whose writer laid it out wrongly."""
        if key.number != self.header.generation:  # §5.5-9
            raise WrongKey(
                f"the entry needs the key of generation {self.header.generation}, not {key.number}"
            )
        clear = self._clear()
        encryption, mac_key, nonce = _keys(key, self.header, self.salt, clear)
        expected = _mac(mac_key, clear, self._digest())
        if not hmac.compare_digest(expected, self.data[-_TRAILER_BYTES:-SIGNATURE_BYTES]):  # §5.5-9
            raise WrongKey("the entry's MAC does not agree")
        body = self._body()
        with borrowed(len(body) - TAG_BYTES) as plain:
            try:
                AESGCM(encryption).decrypt_into(nonce, body, clear, plain)
            except InvalidTag:
                raise WrongKey("the entry's AEAD tag does not agree") from None  # §5.5-9
            return frames_of(plain)

    def _clear(self) -> bytes:
        return self.data[: HEADER_BYTES + len(self.public)]

    def _body(self) -> memoryview:
        return memoryview(self.data)[HEADER_BYTES + len(self.public) : -_TRAILER_BYTES]

    def _digest(self) -> bytes:
        if self._body_digest is None:
            self._body_digest = body_digest(self._body())
        return self._body_digest

    def __repr__(self) -> str:
        header = self.header
        return f"<Entry {header.kind.name} {header.channel.name} #{header.sequence}, {len(self.data)} bytes>"


def seal(
    header: Header,
    frames: Sequence[Frame],
    *,
    key: GenerationKey,
    signer: SigningKey,
    public: bytes = b"",
    salt: bytes,
) -> bytes:
    """The sealed bytes of one entry; `salt` is 24 fresh random bytes, never used twice. See `seal_entry`."""
    return seal_entry(header, frames, key=key, signer=signer, public=public, salt=salt).data


def seal_entry(
    header: Header,
    frames: Sequence[Frame],
    *,
    key: GenerationKey,
    signer: SigningKey,
    public: bytes = b"",
    salt: bytes,
) -> Entry:
    """Like `seal`, but returns the parsed entry, whose hash then costs no second pass over the body.

    Raises TooLarge beyond `FRAMES_MAX`, `PLAINTEXT_BYTES_MAX`, `PUBLIC_BYTES_MAX` or `ENTRY_BYTES_MAX`, and ValueError for
    a key of another generation or a salt of another length.
    """
    if key.number != header.generation:
        raise ValueError("the header names another generation than the key's")
    if len(salt) != SALT_BYTES:  # §4.2-2
        raise ValueError(f"a salt must be {SALT_BYTES} bytes")
    if len(public) > PUBLIC_BYTES_MAX:  # §3-1
        raise TooLarge(f"an entry's public part is at most {PUBLIC_BYTES_MAX} bytes, not {len(public)}")
    parts, plain_bytes = content_of(frames, content_bytes_max(len(public)))
    clear = _pack(header, salt, len(public), plain_bytes + TAG_BYTES) + public
    encryption, mac_key, nonce = _keys(key, header, salt, clear)
    built = io.BytesIO()  # its value is the buffer itself: the megabyte is not copied once more
    built.seek(len(clear) + plain_bytes + TAG_BYTES + _TRAILER_BYTES - 1)
    built.write(b"\x00")
    with built.getbuffer() as view:
        view[: len(clear)] = clear
        view[len(clear) + plain_bytes : -_TRAILER_BYTES] = _encrypt(
            encryption, nonce, clear, parts, view[len(clear) :]
        )
        digest = body_digest(view[len(clear) : -_TRAILER_BYTES])
        mac = _mac(mac_key, clear, digest)
        view[-_TRAILER_BYTES:] = mac + signer.sign(labels.ENTRY_SIGNATURE + clear + digest + mac)
    data = built.getvalue()
    entry = _parse(data, digest)
    if entry.header != header:
        raise AssertionError("a sealed entry does not parse to the header it was given")
    return entry


def parse(data: bytes) -> Entry:
    """The entry in `data`, which must hold nothing else. Raises Malformed, UnknownVersion or TooLarge."""
    return _parse(data, None)


@functools.cache
def content_bytes_max(public_bytes: int = 0) -> int:
    """The bytes of content that fit one entry beside a public part of that length: 9 for each frame, its stored data (never
    more than the data itself), and 1 for the end mark."""
    room = ENTRY_BYTES_MAX - HEADER_BYTES - public_bytes - TAG_BYTES - _TRAILER_BYTES
    return largest_content(room)


def _parse(data: bytes, digest: bytes | None) -> Entry:
    if len(data) > ENTRY_BYTES_MAX:  # §5.5-1, §3-2
        raise TooLarge(f"an entry is at most {ENTRY_BYTES_MAX} bytes, not {len(data)}")
    if len(data) < 6 or data[:4] != _MAGIC:  # §5.5-2
        raise Malformed("these bytes are not an entry")
    if data[4] != _VERSION:  # §5.5-2
        raise UnknownVersion(f"an entry of version {data[4]} is unknown")
    if data[5] != _SUITE:  # §2-3, §5.5-2
        raise UnknownVersion(f"an entry of suite {data[5]} is unknown")
    if len(data) < HEADER_BYTES:  # §5.5-3
        raise Malformed("an entry is cut within its header")
    fields = _LAYOUT.unpack_from(data)
    kind, channel, flags, reserved, generation = fields[3:8]
    vault, sender, incarnation, epoch, sequence, recipient, log_head, previous, salt = fields[8:17]
    public_bytes, body_bytes = fields[17:]
    # §5.5-3, §5.1-1
    if kind not in _KINDS or channel not in _CHANNELS or _CHANNEL_OF[_KINDS[kind]] != channel:
        raise Malformed(f"an entry of kind {kind} in channel {channel} is not defined")
    if flags != 0 or reserved != _NOTHING:  # §5.5-3, §1.2-2
        raise Malformed("an entry sets flags or reserved bytes that this version does not define")
    if public_bytes > PUBLIC_BYTES_MAX:  # §5.5-4
        raise TooLarge(f"an entry's public part is at most {PUBLIC_BYTES_MAX} bytes, not {public_bytes}")
    if body_bytes > ENTRY_BYTES_MAX:  # §5.5-4
        raise TooLarge(f"an entry's body cannot be {body_bytes} bytes")
    if (
        body_bytes < PADDED_BYTES_MIN + TAG_BYTES
        or padded_length(body_bytes - TAG_BYTES) != body_bytes - TAG_BYTES  # §5.5-5
    ):
        raise Malformed(f"an entry's body cannot be {body_bytes} bytes: that is not a padded length")
    stated = HEADER_BYTES + public_bytes + body_bytes + _TRAILER_BYTES
    if stated != len(data):  # §5.5-6
        raise Malformed(f"an entry states {stated} bytes and has {len(data)}")
    header = Header(
        kind=_KINDS[kind],
        channel=_CHANNELS[channel],
        vault=vault,
        sender=sender,
        incarnation=incarnation,
        recipient=recipient,
        epoch=epoch,
        generation=generation,
        log_head=log_head,
        sequence=sequence,
        previous=previous,
    )
    return Entry(data, header, salt, data[HEADER_BYTES : HEADER_BYTES + public_bytes], digest)


def _pack(header: Header, salt: bytes, public_bytes: int, body_bytes: int) -> bytes:
    return _LAYOUT.pack(
        _MAGIC,
        _VERSION,
        _SUITE,
        header.kind,
        header.channel,
        header.flags,
        _NOTHING,
        header.generation,
        header.vault,
        header.sender,
        header.incarnation,
        header.epoch,
        header.sequence,
        header.recipient,
        header.log_head,
        header.previous,
        salt,
        public_bytes,
        body_bytes,
    )


def _keys(key: GenerationKey, header: Header, salt: bytes, clear: bytes) -> tuple[bytes, bytes, bytes]:
    return key.entry_keys(
        vault=header.vault,
        channel=header.channel,
        sender=header.sender,
        incarnation=header.incarnation,
        salt=salt,
        context=hashlib.sha256(clear).digest(),
    )


def _encrypt(key: bytes, nonce: bytes, clear: bytes, parts: list[bytes], into: memoryview) -> bytes:
    """Writes the ciphertext of all parts together to `into`, and returns the tag."""
    encryptor = Cipher(AES256(key), GCM(nonce)).encryptor()
    encryptor.authenticate_additional_data(clear)
    at = 0
    for part in parts:
        at += encryptor.update_into(part, into[at:])
    encryptor.finalize()
    return encryptor.tag


def _mac(key: bytes, clear: bytes, digest: bytes) -> bytes:
    return hmac.digest(key, labels.ENTRY_MAC + clear + digest, "sha256")  # §5.4-2
