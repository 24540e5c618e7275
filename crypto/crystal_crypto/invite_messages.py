"""The messages of an invite pairing as bytes: their keys, their frame, and what is inside.

    message = version (1) = 2 | AES-256-GCM(length (2) | body | zero padding) and tag
    join    = version (1) = 2 | E_b (32) | the same
    body    = one MessagePack array, its fields below in order

Rules: each key seals one message and comes with its nonce from HKDF, under the slot's own label. Before the key agreement there
is only S; after it the keys come from S and the X25519 secret, with both public keys in `info`, so that another encoding of
the same point gives another key. Messages after the digits are keyed by the whole transcript. Padding hides the lengths of
names. For any bytes, opening returns a body or raises BadMessage.
"""

import hashlib
from enum import Enum
from typing import Annotated, Any, Final, TypeVar

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from crystal_crypto import labels
from crystal_crypto.errors import BadMessage
from crystal_crypto.hierarchy import hkdf
from crystal_crypto.invite_code import InviteCode
from crystal_crypto.limits import (
    INVITE_MESSAGE_BYTES_MAX,
    INVITE_NAME_CHARS_MAX,
    KEY_BYTES,
    NONCE_BYTES,
    TAG_BYTES,
)
from crystal_crypto.padding import padded_length
from crystal_crypto.secret import Secret

VERSION: Final = 2
_LENGTH_BYTES: Final = 2

_Device = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
_Bytes32 = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
_Name = Annotated[str, msgspec.Meta(max_length=INVITE_NAME_CHARS_MAX)]
_Number = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class InviteSlot(Enum):
    """The places of a mailbox, each written once."""

    OFFER = "offer"
    JOIN = "join"
    REVEAL = "reveal"
    WELCOME = "welcome"
    END = "end"
    DONE = "done"


class EndReason(Enum):
    """Why the inviter ended a pairing."""

    DIGITS = "digits"
    WITHDRAWN = "withdrawn"
    FAILED = "failed"
    REVOKED = "revoked"
    """The newcomer was a device of the vault, and its id never comes back: it needs new keys."""


class OfferBody(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The inviter's name, and its commitment to what `reveal` will say."""

    commitment: _Bytes32
    name: _Name


class JoinBody(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The newcomer's identity, and its nonce."""

    device: _Device
    signing: _Bytes32
    exchange: _Bytes32
    name: _Name
    system: _Name
    token_hash: _Bytes32
    nonce: _Bytes32


class RevealBody(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The inviter's nonce and identity; the offer committed to all of it."""

    nonce: _Bytes32
    device: _Device
    name: _Name
    system: _Name


class WelcomeBody(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The newcomer's slot in the device log."""

    slot: _Number
    entry_hash: _Bytes32
    head: _Bytes32
    root_number: _Number


class EndBody(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    reason: EndReason


class DoneBody(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    accepted: bool


Body = OfferBody | JoinBody | RevealBody | WelcomeBody | EndBody | DoneBody
_B = TypeVar("_B", OfferBody, JoinBody, RevealBody, WelcomeBody, EndBody, DoneBody)
_DECODERS: dict[type[msgspec.Struct], msgspec.msgpack.Decoder[Any]] = {
    kind: msgspec.msgpack.Decoder(kind)
    for kind in (OfferBody, JoinBody, RevealBody, WelcomeBody, EndBody, DoneBody)
}

_LABELS: Final = {
    InviteSlot.OFFER: labels.INVITE_OFFER,
    InviteSlot.JOIN: labels.INVITE_JOIN,
    InviteSlot.REVEAL: labels.INVITE_REVEAL,
    InviteSlot.WELCOME: labels.INVITE_WELCOME,
    InviteSlot.END: labels.INVITE_END,
    InviteSlot.DONE: labels.INVITE_DONE,
}


class InviteKeys(Secret):
    """The keys of one invite: from S alone, or from S and the X25519 secret once there is one (`shared`, `joiner` = E_b)."""

    __slots__ = ("_mailbox", "_parties", "_secret", "_vault")

    def __init__(self, code: InviteCode, *, shared: bytes = b"", joiner: bytes = b"") -> None:
        self._secret = code.secret.to_bytes() + shared
        self._vault = code.vault
        self._mailbox = code.mailbox
        self._parties = code.exchange.to_bytes() + joiner

    def seal(
        self, slot: InviteSlot, content: bytes, *, transcript: bytes = b"", before: bytes = b""
    ) -> bytes:
        """The message. Each (slot, transcript) may seal one content only: its nonce is derived."""
        key, nonce, aad = self._once(slot, transcript)
        return bytes([VERSION]) + before + AESGCM(key).encrypt(nonce, content, aad)

    def open(self, slot: InviteSlot, data: bytes, *, transcript: bytes = b"", skip: int = 0) -> bytes:
        """The content of a message, `skip` bytes of which are clear. Raises BadMessage."""
        check_frame(slot, data, skip)
        key, nonce, aad = self._once(slot, transcript)
        try:
            return AESGCM(key).decrypt(nonce, data[1 + skip :], aad)
        except InvalidTag:
            raise BadMessage(
                f"the message `{slot.value}` was sealed for another pairing, or it was changed"
            ) from None

    def digits(self, transcript: bytes, count: int) -> str:
        """That many decimal digits of this agreement and transcript."""
        raw = hkdf(self._secret, salt=transcript, info=self._info(labels.INVITE_DIGITS), length=8)  # §21.2-1
        return f"{int.from_bytes(raw, 'big') % 10**count:0{count}d}"

    def transcript(self, offer: bytes, join: bytes, reveal: bytes) -> bytes:
        """32 bytes that bind everything that both sides have seen up to the digits."""
        said = b"".join(len(message).to_bytes(4, "big") + message for message in (offer, join, reveal))
        clear = labels.INVITE_TRANSCRIPT + self._vault + self._mailbox + self._parties
        return hashlib.sha256(clear + said).digest()  # §21.2-1

    def _once(self, slot: InviteSlot, transcript: bytes) -> tuple[bytes, bytes, bytes]:
        info = self._info(_LABELS[slot])  # §21.2-1
        material = hkdf(
            self._secret, salt=transcript or self._vault, info=info, length=KEY_BYTES + NONCE_BYTES
        )
        return material[:KEY_BYTES], material[KEY_BYTES:], _LABELS[slot] + self._mailbox + self._vault

    def _info(self, label: bytes) -> bytes:
        return label + self._mailbox + self._parties

    def _material(self) -> bytes:
        return self._secret + self._parties


def check_frame(slot: InviteSlot, data: bytes, skip: int = 0) -> None:
    """Raises BadMessage for an impossible length or version, before anything is derived."""
    if len(data) > INVITE_MESSAGE_BYTES_MAX:  # §21.3-1
        raise BadMessage(f"the message `{slot.value}` is over {INVITE_MESSAGE_BYTES_MAX} bytes")
    if not data:  # §21.3-5
        raise BadMessage(f"the message `{slot.value}` is empty")
    if data[0] != VERSION:  # §21.3-5
        raise BadMessage(
            f"the message `{slot.value}` is of version {data[0]}, which is unknown here",
            hint="The other device may run a newer version of Crystal: update both",
        )
    if len(data) < 1 + skip + TAG_BYTES:  # §21.3-5
        raise BadMessage(f"the message `{slot.value}` is cut short")


def content_of(body: Body) -> bytes:
    """Length, body and padding: what is sealed."""
    packed = msgspec.msgpack.encode(body)
    length = _LENGTH_BYTES + len(packed)
    return len(packed).to_bytes(_LENGTH_BYTES, "big") + packed + bytes(padded_length(length) - length)


def body_of(slot: InviteSlot, content: bytes, kind: type[_B]) -> _B:
    """The body of a content. Raises BadMessage: one content has one layout."""
    packed = content[_LENGTH_BYTES : _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES], "big")]
    used = _LENGTH_BYTES + len(packed)
    right_length = len(content) >= used and len(content) == padded_length(used)
    if content[:_LENGTH_BYTES] != len(packed).to_bytes(_LENGTH_BYTES, "big") or not right_length:  # §21.3-5
        raise BadMessage(f"the message `{slot.value}` has lengths that do not fit")
    if any(content[used:]):  # §21.3-5
        raise BadMessage(f"the message `{slot.value}` has padding that is not zero")
    try:
        body: _B = _DECODERS[kind].decode(packed)  # §21.3-2
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise BadMessage(f"the message `{slot.value}` does not hold its fields") from None
    return body


def commitment(reveal: bytes) -> bytes:
    """Binds the inviter to the whole content of its `reveal` without revealing it."""
    return hashlib.sha256(labels.INVITE_COMMIT + reveal).digest()  # §21.3-3
