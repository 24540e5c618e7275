"""Letters: some bytes for one recipient, as commands and their reports travel (HPKE, RFC 9180).

    version (1) = 2 | suite (1) = 1 | encapsulated key (32) | ciphertext and tag (16)

Rules: as for key bundles: base mode, DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-256-GCM, no additional data. `info` binds
the vault, the sender, the recipient, the device-log head and the place in the sender's stream, so that a letter opens only
at its place. Base mode does not authenticate the sender: a letter is believed only inside an entry that its sender signed.
"""

import struct
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from crystal_crypto import labels
from crystal_crypto.bundle import SUITE
from crystal_crypto.errors import Malformed, TooLarge, UnknownVersion, WrongKey
from crystal_crypto.identity import ExchangeKey, ExchangePublic
from crystal_crypto.limits import (
    DEVICE_BYTES,
    HASH_BYTES,
    INCARNATION_BYTES,
    LETTER_CONTENT_BYTES_MAX,
    LETTER_OVERHEAD_BYTES,
    U64_MAX,
    VAULT_BYTES,
)
from crystal_crypto.secret import exactly

_VERSION: Final = 2
_SUITE: Final = 1


def seal_letter(
    content: bytes,
    recipient: ExchangePublic,
    *,
    vault: bytes,
    sender: bytes,
    recipient_id: bytes,
    log_head: bytes,
    incarnation: bytes,
    sequence: int,
) -> bytes:
    """The sealed letter, 50 bytes longer than its content. The library draws its randomness: HPKE takes none from outside.

    Raises TooLarge, and Malformed when the recipient's key is of low order or a field has the wrong length.
    """
    if len(content) > LETTER_CONTENT_BYTES_MAX:  # §3-1
        raise TooLarge(f"a letter holds at most {LETTER_CONTENT_BYTES_MAX} bytes, not {len(content)}")
    info = _info(vault, sender, recipient_id, log_head, incarnation, sequence)
    try:
        public = X25519PublicKey.from_public_bytes(recipient.to_bytes())
        sealed = SUITE.encrypt(content, public, info)
    except ValueError:
        raise Malformed("nothing can be sealed to this X25519 key") from None
    return bytes([_VERSION, _SUITE]) + sealed


def open_letter(
    data: bytes,
    private: ExchangeKey,
    *,
    vault: bytes,
    sender: bytes,
    recipient_id: bytes,
    log_head: bytes,
    incarnation: bytes,
    sequence: int,
) -> bytes:
    """Raises Malformed, UnknownVersion, TooLarge, or WrongKey: another recipient or place, or changed bytes."""
    if len(data) < 2:  # §8-2
        raise Malformed("a letter is too short")
    if data[0] != _VERSION or data[1] != _SUITE:  # §8-2
        raise UnknownVersion(f"a letter of version {data[0]}, suite {data[1]} is unknown")
    if len(data) < LETTER_OVERHEAD_BYTES:  # §8-2
        raise Malformed("a letter is too short")
    if len(data) > LETTER_OVERHEAD_BYTES + LETTER_CONTENT_BYTES_MAX:  # §8-2
        raise TooLarge(f"a letter holds at most {LETTER_CONTENT_BYTES_MAX} bytes")
    info = _info(vault, sender, recipient_id, log_head, incarnation, sequence)
    try:
        return SUITE.decrypt(data[2:], X25519PrivateKey.from_private_bytes(private.to_bytes()), info)
    except (InvalidTag, ValueError):
        raise WrongKey("the letter was sealed for another key or place, or it was changed") from None  # §8-2


def _info(
    vault: bytes, sender: bytes, recipient_id: bytes, log_head: bytes, incarnation: bytes, sequence: int
) -> bytes:
    if not 0 <= sequence <= U64_MAX:
        raise ValueError("a sequence must fit in 64 bits")
    return labels.LETTER + struct.pack(  # §8-1
        ">16s16s16s32s8sQ",
        exactly(vault, VAULT_BYTES, "a vault id"),
        exactly(sender, DEVICE_BYTES, "a sender's id"),
        exactly(recipient_id, DEVICE_BYTES, "a recipient id"),
        exactly(log_head, HASH_BYTES, "a log head"),
        exactly(incarnation, INCARNATION_BYTES, "an incarnation"),
        sequence,
    )
