"""Sealed key bundles: a generation key and the vault secret, for one recipient (HPKE, RFC 9180).

    version (1) = 2 | suite (1) = 1 | encapsulated key (32) | ciphertext of G and N (64) and tag (16)

Rules: base mode, DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-256-GCM, no additional data. `info` binds the vault, the
generation, the recipient and the device-log head, so that a bundle opens only for its purpose. Base mode does not
authenticate the sender: bundles are believed only inside a signed device-log entry.
"""

import struct
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from crystal_crypto import labels
from crystal_crypto.errors import Malformed, UnknownVersion, WrongKey
from crystal_crypto.hierarchy import GenerationKey, VaultSecret
from crystal_crypto.identity import ExchangeKey, ExchangePublic
from crystal_crypto.limits import BUNDLE_BYTES, DEVICE_BYTES, HASH_BYTES, KEY_BYTES, U32_MAX, VAULT_BYTES
from crystal_crypto.secret import exactly

SUITE: Final = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)  # §2-3
"""The HPKE suite of all sealed objects."""

_VERSION: Final = 2
_SUITE: Final = 1


def seal_bundle(
    recipient: ExchangePublic,
    *,
    generation: GenerationKey,
    secret: VaultSecret,
    vault: bytes,
    recipient_id: bytes,
    log_head: bytes,
) -> bytes:
    """A bundle of 114 bytes. The library draws its randomness: HPKE takes none from outside.

    Raises Malformed when the recipient's key is of low order or a field has the wrong length.
    """
    info = _info(vault, generation.number, recipient_id, log_head)
    try:
        public = X25519PublicKey.from_public_bytes(recipient.to_bytes())
        sealed = SUITE.encrypt(generation.secret + secret.to_bytes(), public, info)
    except ValueError:
        raise Malformed("nothing can be sealed to this X25519 key") from None
    return bytes([_VERSION, _SUITE]) + sealed


def open_bundle(
    data: bytes,
    private: ExchangeKey,
    *,
    vault: bytes,
    recipient_id: bytes,
    log_head: bytes,
    generation_number: int,
) -> tuple[GenerationKey, VaultSecret]:
    """Raises Malformed, UnknownVersion, or WrongKey: another recipient, vault, generation or log head, or changed bytes."""
    if len(data) < 2:  # §7-2
        raise Malformed("a key bundle is too short")
    if data[0] != _VERSION or data[1] != _SUITE:  # §7-2
        raise UnknownVersion(f"a key bundle of version {data[0]}, suite {data[1]} is unknown")
    exactly(data, BUNDLE_BYTES, "a key bundle")  # §7-2
    info = _info(vault, generation_number, recipient_id, log_head)
    try:
        plain = SUITE.decrypt(data[2:], X25519PrivateKey.from_private_bytes(private.to_bytes()), info)
    except (InvalidTag, ValueError):
        # §7-2
        raise WrongKey("the key bundle was sealed for another key or purpose, or it was changed") from None
    return GenerationKey(generation_number, plain[:KEY_BYTES]), VaultSecret(plain[KEY_BYTES:])


def _info(vault: bytes, generation: int, recipient_id: bytes, log_head: bytes) -> bytes:
    if not 0 <= generation <= U32_MAX:
        raise ValueError("a generation number must fit in 32 bits")
    return labels.BUNDLE + struct.pack(  # §7-1
        ">16sI16s32s",
        exactly(vault, VAULT_BYTES, "a vault id"),
        generation,
        exactly(recipient_id, DEVICE_BYTES, "a recipient id"),
        exactly(log_head, HASH_BYTES, "a log head"),
    )
