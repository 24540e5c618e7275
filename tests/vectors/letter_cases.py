"""The vectors about letters: one that was sealed once and is kept, and parts of it."""

from collections.abc import Iterator

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from tests.vectors.craft import OTHER, SENDER, VAULT, fixed, flip
from tests.vectors.vectorfile import Vector, read

_PRIVATE = fixed("recipient of a letter", 32)
_RECIPIENT = fixed("recipient's id", 16)
_LOG_HEAD = fixed("log head of a letter", 32)
_INCARNATION = fixed("incarnation of commands", 8)
_SEQUENCE = 7
_CONTENT = b"run it, and say how it went"


def cases() -> Iterator[Vector]:
    yield _sealed()
    yield from _other_places()
    yield from _changed()


def _fields(what: str, expect: str, **given: str) -> dict[str, str]:
    fields = {
        "what": what,
        "expect": expect,
        "private-key": _PRIVATE.hex(),
        "vault": VAULT.hex(),
        "sender": SENDER.hex(),
        "recipient": _RECIPIENT.hex(),
        "log-head": _LOG_HEAD.hex(),
        "incarnation": _INCARNATION.hex(),
        "sequence": str(_SEQUENCE),
    }
    return fields | {name.replace("_", "-"): value for name, value in given.items()}


def _sealed() -> Vector:
    fields = _fields("a letter for this recipient", "success") | {"content": _CONTENT.hex()}
    vector = Vector("letter", "sealed", fields)
    if vector.path.exists():
        return Vector("letter", "sealed", fields, read(vector.path).body)
    place = _LOG_HEAD + _INCARNATION + _SEQUENCE.to_bytes(8, "big")
    info = b"crystal/v2/letter\x00" + VAULT + SENDER + _RECIPIENT + place
    suite = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
    public = X25519PrivateKey.from_private_bytes(_PRIVATE).public_key()
    return Vector("letter", "sealed", fields, b"\x02\x01" + suite.encrypt(_CONTENT, public, info))


def _part(name: str, what: str, expect: str, parts: str = ":", **given: str) -> Vector:
    more = {"base": "sealed.txt", "parts": parts}
    return Vector("letter", name, _fields(what, expect, **given) | more)


def _other_places() -> Iterator[Vector]:
    other = fixed("other", 32).hex()
    yield _part("another_recipient_key", "another private key", "wrong key", private_key=other)
    yield _part("another_vault", "in another vault", "wrong key", vault=OTHER.hex())
    yield _part("another_sender", "as another's letter", "wrong key", sender=OTHER.hex())
    yield _part("another_recipient", "for another recipient", "wrong key", recipient=OTHER.hex())
    yield _part("another_log_head", "at another log head", "wrong key", log_head=flip(31)(_LOG_HEAD).hex())
    yield _part("another_stream", "in another stream", "wrong key", incarnation=bytes(8).hex())
    yield _part("another_place", "at another place of the stream", "wrong key", sequence="8")


def _changed() -> Iterator[Vector]:
    end = 50 + len(_CONTENT)
    yield _part("empty", "no bytes", "malformed", "x")
    yield _part("cut_1", "cut after the version", "malformed", ":1")
    yield _part("cut_2", "cut after the suite", "malformed", ":2")
    yield _part("cut_49", "cut within the tag of an empty letter", "malformed", ":49")
    yield _part("without_its_last_byte", "without its last byte", "wrong key", f":{end - 1}")
    yield _part("longer_by_a_byte", "a byte after the end", "wrong key", ": x00")
    yield _part("longest", "as long as a letter may be, and junk", "wrong key", f": x00*{98_354 - end}")
    yield _part("too_long", "a byte longer than a letter may be", "too large", f": x00*{98_355 - end}")
    yield _part("version_1", "version 1", "unknown version", "x01 1:")
    yield _part("suite_2", "suite 2", "unknown version", ":1 x02 2:")
    yield _part("key_of_zeros", "an encapsulated key of low order", "wrong key", ":2 x00*32 34:")
    yield _part("key_swapped", "another encapsulated key", "wrong key", f":2 x{fixed('any', 32).hex()} 34:")
    yield _part("ciphertext_of_zeros", "another ciphertext", "wrong key", f":34 x00*{end - 50} {end - 16}:")
    yield _part("tag_of_zeros", "another tag", "wrong key", f":{end - 16} x00*16")
