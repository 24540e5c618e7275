"""A device's own keys: Ed25519 to sign (RFC 8032), X25519 to receive sealed keys (RFC 7748).

Rules: a device makes its keys itself and they never leave it. Keys travel as raw 32 bytes. A signature is checked as
OpenSSL does (RFC 8032, without the cofactor). Public keys on which implementations disagree are refused when parsed:
encodings that are not canonical, and the points of small order.
"""

import hashlib
import hmac
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from crystal_crypto import labels
from crystal_crypto.errors import BadSignature, Malformed, UnknownVersion
from crystal_crypto.limits import (
    DEVICE_BYTES,
    IDENTITY_BYTES,
    INCARNATION_BYTES,
    KEY_BYTES,
    SIGNATURE_BYTES,
)
from crystal_crypto.secret import Secret, exactly

Random = Callable[[int], bytes]
"""Returns that many unpredictable bytes; `os.urandom` outside of tests."""

_IDENTITY_MAGIC: Final = b"CRYD"
_IDENTITY_VERSION: Final = 2
_CHECK_BYTES: Final = 8

_P: Final = 2**255 - 19
# The y coordinates of the eight points of small order (RFC 8032's curve): 0, 1, -1 and the two of order eight.
_SMALL_ORDER_Y: Final = frozenset(
    {
        0,
        1,
        _P - 1,
        2707385501144840649318225287225658788936804267575313519463743609750303402022,
        55188659117513257062467267217118295137698188065244968500265048394206261417927,
    }
)


@dataclass(frozen=True, slots=True)
class VerifyKey:
    """An Ed25519 public key. Make it with `from_bytes`, which refuses keys that verify more than they should."""

    _raw: bytes

    @classmethod
    def from_bytes(cls, raw: bytes) -> "VerifyKey":
        """Raises Malformed for a wrong length, an encoding that is not canonical, or a point of small order."""
        raw = exactly(raw, KEY_BYTES, "an Ed25519 public key")
        y = int.from_bytes(raw, "little") & (2**255 - 1)
        if y >= _P:  # §2-1
            raise Malformed("an Ed25519 public key must be in its canonical encoding")
        if y in _SMALL_ORDER_Y:  # §2-1
            raise Malformed("an Ed25519 public key must not be a point of small order")
        return cls(raw)

    def to_bytes(self) -> bytes:
        return self._raw

    def verify(self, signature: bytes, message: bytes) -> None:
        """Raises BadSignature unless `signature` is this key's over exactly `message`."""
        if len(signature) != SIGNATURE_BYTES:
            raise BadSignature(f"a signature must be {SIGNATURE_BYTES} bytes, not {len(signature)}")
        try:
            Ed25519PublicKey.from_public_bytes(self._raw).verify(signature, message)
        except (InvalidSignature, ValueError):
            raise BadSignature("the signature does not belong to this message and key") from None

    def __repr__(self) -> str:
        return f"VerifyKey({self._raw.hex()})"


class SigningKey(Secret):
    """An Ed25519 private key; its bytes are RFC 8032's 32-byte seed."""

    __slots__ = ("_key", "_public", "_seed")

    def __init__(self, seed: bytes) -> None:
        """Raises Malformed unless `seed` is 32 bytes."""
        self._seed = exactly(seed, KEY_BYTES, "an Ed25519 seed")
        self._key = Ed25519PrivateKey.from_private_bytes(self._seed)
        self._public = VerifyKey(self._key.public_key().public_bytes_raw())

    @classmethod
    def from_bytes(cls, seed: bytes) -> "SigningKey":
        return cls(seed)

    @classmethod
    def generate(cls, random: Random = os.urandom) -> "SigningKey":
        return cls(random(KEY_BYTES))

    def to_bytes(self) -> bytes:
        return self._seed

    @property
    def public(self) -> VerifyKey:
        return self._public

    def sign(self, message: bytes) -> bytes:
        """64 bytes. The caller puts a label before its message, so that no signature serves two purposes."""
        return self._key.sign(message)

    def _material(self) -> bytes:
        return self._seed


@dataclass(frozen=True, slots=True)
class ExchangePublic:
    """An X25519 public key."""

    _raw: bytes

    @classmethod
    def from_bytes(cls, raw: bytes) -> "ExchangePublic":
        """Raises Malformed for a wrong length. Low-order points are refused where they are used."""
        return cls(exactly(raw, KEY_BYTES, "an X25519 public key"))

    def to_bytes(self) -> bytes:
        return self._raw

    def __repr__(self) -> str:
        return f"ExchangePublic({self._raw.hex()})"


class ExchangeKey(Secret):
    """An X25519 private key."""

    __slots__ = ("_key", "_raw")

    def __init__(self, raw: bytes) -> None:
        """Raises Malformed unless `raw` is 32 bytes."""
        self._raw = exactly(raw, KEY_BYTES, "an X25519 private key")
        self._key = X25519PrivateKey.from_private_bytes(self._raw)

    @classmethod
    def from_bytes(cls, raw: bytes) -> "ExchangeKey":
        return cls(raw)

    @classmethod
    def generate(cls, random: Random = os.urandom) -> "ExchangeKey":
        return cls(random(KEY_BYTES))

    def to_bytes(self) -> bytes:
        return self._raw

    @property
    def public(self) -> ExchangePublic:
        return ExchangePublic(self._key.public_key().public_bytes_raw())

    def exchange(self, other: ExchangePublic) -> bytes:
        """The 32-byte shared secret, to be hashed before use. Raises Malformed when `other` is of low order (RFC 7748, 6.1)."""
        try:
            return self._key.exchange(X25519PublicKey.from_public_bytes(other.to_bytes()))
        except ValueError:
            raise Malformed("the other side's X25519 key gives no shared secret") from None  # §2-2, §21.2-2

    def _material(self) -> bytes:
        return self._raw


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DeviceIdentity(Secret):
    """One device: its random id and its two private keys. `to_bytes` is for the key store only."""

    id: bytes
    signing: SigningKey
    exchange: ExchangeKey

    def __post_init__(self) -> None:
        exactly(self.id, DEVICE_BYTES, "a device id")

    @classmethod
    def generate(cls, random: Random = os.urandom) -> "DeviceIdentity":
        return cls(random(DEVICE_BYTES), SigningKey.generate(random), ExchangeKey.generate(random))  # §4.1-4

    def other_incarnation(self, operation: bytes) -> bytes:
        """8 bytes for a second name of `operation` (what identifies it): the same on all copies of the device. Nobody else
        can compute them, and so test guesses of what it holds."""
        derive = HKDF(SHA256(), KEY_BYTES, None, labels.RENAMED)  # §4.1-4
        key = derive.derive(self.signing.to_bytes())
        return hmac.digest(key, operation, "sha256")[:INCARNATION_BYTES]  # §10.4-4

    def to_bytes(self) -> bytes:
        """magic | version | id | Ed25519 seed | X25519 key | first 8 bytes of their labelled SHA-256."""
        body = _IDENTITY_MAGIC + bytes([_IDENTITY_VERSION]) + self._material()
        return body + _check(body)

    @classmethod
    def from_bytes(cls, data: bytes) -> "DeviceIdentity":
        """Raises Malformed, also for bytes that were damaged in storage, and UnknownVersion."""
        if len(data) < len(_IDENTITY_MAGIC) + 1 or data[:4] != _IDENTITY_MAGIC:  # §18.1-1
            raise Malformed("these bytes are not a device identity")
        if data[4] != _IDENTITY_VERSION:  # §18.1-1
            raise UnknownVersion(f"a device identity of version {data[4]} is unknown")
        exactly(data, IDENTITY_BYTES, "a device identity")
        body, check = data[:-_CHECK_BYTES], data[-_CHECK_BYTES:]
        if not hmac.compare_digest(check, _check(body)):  # §18.1-1
            raise Malformed("the stored device identity is damaged")
        return cls(bytes(body[5:21]), SigningKey(body[21:53]), ExchangeKey(body[53:85]))

    def _material(self) -> bytes:
        return self.id + self.signing.to_bytes() + self.exchange.to_bytes()


def _check(body: bytes) -> bytes:
    return hashlib.sha256(labels.IDENTITY + body).digest()[:_CHECK_BYTES]
