"""The vectors about sealed key bundles: one that was sealed once and is kept, and parts of it."""

from collections.abc import Iterator

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from tests.vectors.craft import GENERATION_KEY, OTHER, SENDER, VAULT, VAULT_SECRET, fixed, flip
from tests.vectors.vectorfile import Vector, read

_PRIVATE = fixed("recipient", 32)
_LOG_HEAD = fixed("log head of a bundle", 32)


def cases() -> Iterator[Vector]:
    yield _sealed()
    yield from _wrong_keys()
    yield from _changed()


def _fields(what: str, expect: str, **given: str) -> dict[str, str]:
    fields = {
        "what": what,
        "expect": expect,
        "private-key": _PRIVATE.hex(),
        "vault": VAULT.hex(),
        "recipient": SENDER.hex(),
        "log-head": _LOG_HEAD.hex(),
        "generation": "1",
    }
    return fields | {name.replace("_", "-"): value for name, value in given.items()}


def _sealed() -> Vector:
    given = {"generation-key": GENERATION_KEY.hex(), "secret": VAULT_SECRET.hex()}
    fields = _fields("a bundle for this recipient", "success") | given
    vector = Vector("bundle", "sealed", fields)
    if vector.path.exists():
        return Vector("bundle", "sealed", fields, read(vector.path).body)
    info = b"crystal/v2/bundle\x00" + VAULT + (1).to_bytes(4, "big") + SENDER + _LOG_HEAD
    suite = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
    public = X25519PrivateKey.from_private_bytes(_PRIVATE).public_key()
    body = b"\x02\x01" + suite.encrypt(GENERATION_KEY + VAULT_SECRET, public, info)
    return Vector("bundle", "sealed", fields, body)


def _part(name: str, what: str, expect: str, parts: str = ":", **given: str) -> Vector:
    more = {"base": "sealed.txt", "parts": parts}
    return Vector("bundle", name, _fields(what, expect, **given) | more)


def _wrong_keys() -> Iterator[Vector]:
    yield _part(
        "another_recipient_key", "another private key", "wrong key", private_key=fixed("other", 32).hex()
    )
    yield _part("another_vault", "in another vault", "wrong key", vault=OTHER.hex())
    yield _part("another_recipient", "for another recipient", "wrong key", recipient=OTHER.hex())
    yield _part("another_log_head", "at another log head", "wrong key", log_head=flip(31)(_LOG_HEAD).hex())
    yield _part("another_generation", "as another generation", "wrong key", generation="2")


def _changed() -> Iterator[Vector]:
    yield _part("empty", "no bytes", "malformed", "x")
    yield _part("cut_1", "cut after the version", "malformed", ":1")
    yield _part("cut_2", "cut after the suite", "malformed", ":2")
    yield _part("cut_113", "without its last byte", "malformed", ":113")
    yield _part("longer_by_a_byte", "a byte after the end", "malformed", ": x00")
    yield _part("version_1", "version 1", "unknown version", "x01 1:")
    yield _part("version_3", "version 3", "unknown version", "x03 1:")
    yield _part("suite_2", "suite 2", "unknown version", ":1 x02 2:")
    yield _part("key_of_zeros", "an encapsulated key of low order", "wrong key", ":2 x00*32 34:")
    yield _part("key_swapped", "another encapsulated key", "wrong key", f":2 x{fixed('any', 32).hex()} 34:")
    yield _part("ciphertext_of_zeros", "another ciphertext", "wrong key", ":34 x00*64 98:")
    yield _part("tag_of_zeros", "another tag", "wrong key", ":98 x00*16")
