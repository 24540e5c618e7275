"""The vault's keys, from the root down to one entry.

    R  root (32 bytes, what an offline code (mc3:) holds)
    ├── admin Ed25519 key ── its public key, hashed, is the vault's id
    ├── recovery X25519 key, relay recovery secret, check value
    G_n  generation key (32 random bytes)          N  vault secret (32 random bytes)
    ├── stream key: vault, channel, sender,        ├── state key   (digest of the replicated state)
    │   incarnation                                ├── forget key  (keyed hash of a forgotten text)
    │   └── per entry: K_enc, K_mac, nonce         └── blob name key (of generation 1)
    ├── blob key ── per blob: K_enc, K_mac
    └── naming key ── blob names, cut seed (of the later generations)

Rules: every derivation is HKDF-SHA256 (RFC 5869) under a label of its own (`labels`). R derives nothing that encrypts
content; a holder of a generation key alone can open and seal, but not administer the vault.
"""

import hashlib
import hmac
import os
from collections.abc import Sequence
from functools import cached_property
from typing import Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from crystal_crypto import labels
from crystal_crypto.identity import ExchangeKey, Random, SigningKey, VerifyKey
from crystal_crypto.limits import (
    BLOB_TURN_MAX,
    CHECK_VALUE_BYTES,
    DEVICE_BYTES,
    HASH_BYTES,
    INCARNATION_BYTES,
    KEY_BYTES,
    SALT_BYTES,
    STREAM_KEYS_CACHED_MAX,
    U32_MAX,
    VAULT_BYTES,
)
from crystal_crypto.secret import Secret, exactly

_ENTRY_KEY_BYTES: Final = 32 + 32 + 12
_BLOB_KEY_BYTES: Final = 32 + 32
_SEED_BYTES: Final = 8


def vault_id(admin: VerifyKey) -> bytes:
    """The vault's permanent 16-byte id, which proves with which admin key the vault began."""
    return hashlib.sha256(labels.VAULT + admin.to_bytes()).digest()[:VAULT_BYTES]  # §4.1-1, §4.2-1


def hkdf(secret: bytes, *, salt: bytes, info: bytes, length: int) -> bytes:
    """HKDF-SHA256, extract and expand. An empty salt stands for 32 zero bytes, as in RFC 5869."""
    return HKDF(SHA256(), length, salt, info).derive(secret)


class Root(Secret):
    """R: full power over the vault. It needs to exist only in the recovery kit and in offline codes."""

    def __init__(self, raw: bytes) -> None:
        """Raises Malformed unless `raw` is 32 bytes."""
        self._raw = exactly(raw, KEY_BYTES, "a vault root")

    @classmethod
    def from_bytes(cls, raw: bytes) -> "Root":
        return cls(raw)

    @classmethod
    def generate(cls, random: Random = os.urandom) -> "Root":
        return cls(random(KEY_BYTES))

    def to_bytes(self) -> bytes:
        return self._raw

    @cached_property
    def admin(self) -> SigningKey:
        """Signs the device log where the Core does not."""
        return SigningKey(self._derive(labels.ROOT_ADMIN, KEY_BYTES))  # §4.1-1

    @cached_property
    def recovery(self) -> ExchangeKey:
        """Every key bundle is also sealed to this key, so that the root alone recovers the vault."""
        return ExchangeKey(self._derive(labels.ROOT_RECOVERY, KEY_BYTES))  # §4.1-1

    @cached_property
    def relay_secret(self) -> bytes:
        """32 bytes with which the root's holder registers itself at the relay, which keeps only their hash."""
        return self._derive(labels.ROOT_RELAY, KEY_BYTES)  # §4.1-1

    @cached_property
    def check_value(self) -> bytes:
        """8 bytes that may be shown: they tell a mistyped root from the right one and reveal nothing else."""
        return self._derive(labels.ROOT_CHECK, CHECK_VALUE_BYTES)  # §4.1-1

    def sign_founding(
        self, *, vault: bytes, device: bytes, recovery_hash: bytes, token_hash: bytes, host: str
    ) -> bytes:
        """The signature (64 bytes) by which a relay lets a vault be founded: with these ids (16 bytes) and hashes (32 bytes),
        at the relay whose address has this host."""
        named = vault + device + recovery_hash + token_hash
        return self.admin.sign(labels.FOUNDING + named + host.encode("ascii"))  # §4.3-2

    def sign_deletion(self, *, vault: bytes, number: int, due: int, host: str) -> bytes:
        """The signature (64 bytes) by which the relay whose address has this host deletes a vault (16 bytes): by the request of
        this number, at `due` in Unix seconds."""
        asked = number.to_bytes(4, "big") + due.to_bytes(8, "big")
        return self.admin.sign(labels.DELETION + vault + asked + host.encode("ascii"))  # §4.4-1

    @cached_property
    def vault(self) -> bytes:
        """The id of the vault that this root founded (16 bytes)."""
        return vault_id(self.admin.public)

    def _derive(self, label: bytes, length: int) -> bytes:
        return hkdf(self._raw, salt=b"", info=label, length=length)

    def _material(self) -> bytes:
        return self._raw


class GenerationKey(Secret):
    """G_n: one version of the vault's encryption key. Caches the keys that it derived last."""

    __slots__ = ("_blobs", "_naming", "_secret", "_streams", "number")

    def __init__(self, number: int, secret: bytes) -> None:
        """Raises Malformed unless `secret` is 32 bytes, ValueError unless `number` fits in 32 bits."""
        if not 0 <= number <= U32_MAX:
            raise ValueError("a generation number must fit in 32 bits")
        self.number = number
        self._secret = exactly(secret, KEY_BYTES, "a generation key")
        self._streams: dict[bytes, bytes] = {}
        self._naming: tuple[bytes, bytes] = (b"", b"")
        self._blobs: tuple[bytes, bytes] = (b"", b"")

    @classmethod
    def generate(cls, number: int, random: Random = os.urandom) -> "GenerationKey":
        return cls(number, random(KEY_BYTES))

    @property
    def secret(self) -> bytes:
        return self._secret

    def entry_keys(
        self, *, vault: bytes, channel: int, sender: bytes, incarnation: bytes, salt: bytes, context: bytes
    ) -> tuple[bytes, bytes, bytes]:
        """K_enc (32), K_mac (32) and the nonce (12) of one entry; `context` is SHA-256 of its header and public part."""
        material = hkdf(
            self._stream_key(vault, channel, sender, incarnation),
            salt=exactly(salt, SALT_BYTES, "a salt"),
            info=labels.ENTRY + exactly(context, HASH_BYTES, "an entry's context"),  # §4.1-2
            length=_ENTRY_KEY_BYTES,
        )
        return material[:32], material[32:64], material[64:]

    def blob_keys(self, *, vault: bytes, salt: bytes, context: bytes) -> tuple[bytes, bytes]:
        """K_enc (32) and K_mac (32) of one blob; `context` is SHA-256 of its header."""
        material = hkdf(
            self._blob_stream_key(vault),
            salt=exactly(salt, SALT_BYTES, "a salt"),
            info=labels.BLOB + exactly(context, HASH_BYTES, "a blob's context"),  # §4.1-2
            length=_BLOB_KEY_BYTES,
        )
        return material[:32], material[32:]

    def blob_name(self, vault: bytes, content_hash: bytes, turn: int = 0) -> bytes:
        """A blob's name (32 bytes) in this generation; `content_hash` is SHA-256 of its content, `turn` 0 to 255.

        Who has no key of this generation cannot tell from it what a blob holds, even by guessing.
        """
        return _keyed_name(self._naming_key(vault), content_hash, turn)  # §4.2-5

    def cut_seed(self, vault: bytes) -> int:
        """The seed (63 bits) of the places at which this generation's files are cut."""
        return _cut_seed(self._naming_key(vault))  # §4.2-6

    def _naming_key(self, vault: bytes) -> bytes:
        if self._naming[0] != vault:
            salt = exactly(vault, VAULT_BYTES, "a vault id")
            info = labels.BLOB_NAME + self.number.to_bytes(4, "big")  # §4.1-2
            self._naming = (vault, hkdf(self._secret, salt=salt, info=info, length=KEY_BYTES))
        return self._naming[1]

    def _blob_stream_key(self, vault: bytes) -> bytes:
        if self._blobs[0] != vault:
            salt = exactly(vault, VAULT_BYTES, "a vault id")
            info = labels.BLOB_STREAM + self.number.to_bytes(4, "big")  # §4.1-2
            self._blobs = (vault, hkdf(self._secret, salt=salt, info=info, length=KEY_BYTES))
        return self._blobs[1]

    def _stream_key(self, vault: bytes, channel: int, sender: bytes, incarnation: bytes) -> bytes:
        exactly(vault, VAULT_BYTES, "a vault id")
        exactly(sender, DEVICE_BYTES, "a sender id")
        exactly(incarnation, INCARNATION_BYTES, "an incarnation")
        stream = self.number.to_bytes(4, "big") + bytes([channel]) + sender + incarnation
        known = self._streams.get(vault + stream)
        if known is not None:
            return known
        derived = hkdf(self._secret, salt=vault, info=labels.STREAM + stream, length=KEY_BYTES)  # §4.1-2
        if len(self._streams) >= STREAM_KEYS_CACHED_MAX:
            self._streams.clear()  # rare: more streams in use than cached; deriving again costs microseconds
        self._streams[vault + stream] = derived
        return derived

    def _material(self) -> bytes:
        return self.number.to_bytes(4, "big") + self._secret

    def __repr__(self) -> str:
        return f"<GenerationKey {self.number} hidden>"


class VaultSecret(Secret):
    """N: keys for what must be recognised across generations: state digests, forgotten texts, blobs of generation 1."""

    def __init__(self, raw: bytes) -> None:
        """Raises Malformed unless `raw` is 32 bytes."""
        self._raw = exactly(raw, KEY_BYTES, "a vault secret")

    @classmethod
    def from_bytes(cls, raw: bytes) -> "VaultSecret":
        return cls(raw)

    @classmethod
    def generate(cls, random: Random = os.urandom) -> "VaultSecret":
        return cls(random(KEY_BYTES))

    def to_bytes(self) -> bytes:
        return self._raw

    @cached_property
    def state_key(self) -> bytes:
        """Key of the state digest (`digest.TableDigest`)."""
        return self._derive(labels.SECRET_STATE)  # §4.1-3

    @cached_property
    def forget_key(self) -> bytes:
        """Key of `forget_hash`."""
        return self._derive(labels.SECRET_FORGET)  # §4.1-3

    @cached_property
    def blob_name_key(self) -> bytes:
        """Key of `blob_name`."""
        return self._derive(labels.SECRET_BLOB_NAME)  # §4.1-3

    def forget_hash(self, content_hash: bytes) -> bytes:
        """The keyed hash (32 bytes) under which a text is suppressed; `content_hash` is SHA-256 of its UTF-8."""
        # §4.2-3, §10.2-8
        return hmac.digest(self.forget_key, exactly(content_hash, HASH_BYTES, "a content hash"), "sha256")

    def forget_hashes(self, content_hashes: Sequence[bytes]) -> list[bytes]:
        """`forget_hash` of each, at half the cost."""
        copy = hmac.new(self.forget_key, digestmod="sha256").copy
        found: list[bytes] = []
        for content_hash in content_hashes:
            if len(content_hash) != HASH_BYTES:
                exactly(content_hash, HASH_BYTES, "a content hash")
            keyed = copy()
            keyed.update(content_hash)
            found.append(keyed.digest())
        return found

    def blob_name(self, content_hash: bytes, turn: int = 0) -> bytes:
        """A blob's name (32 bytes) in generation 1; `content_hash` is SHA-256 of its content. The relay learns nothing from it.

        `turn` (0 to 255): the name of a deleted blob is not used again; the same content is stored under the next turn's
        name.
        """
        return _keyed_name(self.blob_name_key, content_hash, turn)  # §4.2-3

    @property
    def cut_seed(self) -> int:
        """The seed (63 bits) of the places at which files are cut in generation 1."""
        return _cut_seed(self.blob_name_key)  # §4.2-6

    def _derive(self, label: bytes) -> bytes:
        return hkdf(self._raw, salt=b"", info=label, length=KEY_BYTES)

    def _material(self) -> bytes:
        return self._raw


def _keyed_name(key: bytes, content_hash: bytes, turn: int) -> bytes:
    if not 0 <= turn <= BLOB_TURN_MAX:
        raise ValueError(f"a blob's turn is 0 to {BLOB_TURN_MAX}")
    named = exactly(content_hash, HASH_BYTES, "a content hash") + (bytes([turn]) if turn else b"")
    return hmac.digest(key, named, "sha256")


def _cut_seed(key: bytes) -> int:
    """63 bits, as the cutting library takes."""
    return int.from_bytes(hmac.digest(key, labels.CUTS, "sha256")[:_SEED_BYTES], "big") >> 1
