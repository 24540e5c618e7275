"""The vectors about a secret under a passphrase: the header file and the secret's file. Cheap but for one."""

import struct
from collections.abc import Iterator

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

from tests.vectors.craft import fixed, hkdf
from tests.vectors.vectorfile import Vector

_PASSPHRASE = "sch\u00f6ne lange W\u00f6rter".encode()
_NAME = b"identity"
_SECRET = fixed("stored secret", 93)
_MASTER, _PREVIOUS = fixed("master key", 32), fixed("previous master key", 32)
_CHEAP = (64, 1, 1)
_SEALED, _SEALING = 2, 1


def _header(
    cost: tuple[int, int, int] = _CHEAP,
    *,
    state: int = _SEALED,
    previous: bytes = bytes(32),
    version: int = 1,
) -> bytes:
    memory_kib, iterations, lanes = cost
    salt = fixed("argon2id salt", 16)
    kek = Argon2id(salt=salt, length=32, iterations=iterations, lanes=lanes, memory_cost=memory_kib).derive(
        _PASSPHRASE
    )
    check = hkdf(kek, b"", b"crystal/v2/passphrase/check\x00", 16)
    head = b"CRYH" + struct.pack(">BBBII", version, state, lanes, memory_kib, iterations) + salt + check
    head += fixed("seal salt", 24)
    keys = hkdf(kek, head[-24:], b"crystal/v2/passphrase/header\x00", 44)
    return head + AESGCM(keys[:32]).encrypt(keys[32:], _MASTER + previous, head)


def _wrapped(name: bytes = _NAME, *, master: bytes = _MASTER, version: int = 1) -> bytes:
    salt = fixed("secret salt", 24)
    head = b"CRYW" + bytes([version]) + hkdf(master, b"", b"crystal/v2/passphrase/key-id\x00", 8) + salt
    keys = hkdf(master, salt, b"crystal/v2/passphrase/secret\x00" + name, 44)
    return head + AESGCM(keys[:32]).encrypt(keys[32:], _SECRET, head + name)


def _flipped(data: bytes, at: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)


def _case(name: str, what: str, header: bytes, wrapped: bytes, expect: str = "success") -> Vector:
    fields = {
        "what": what,
        "expect": expect,
        "passphrase": _PASSPHRASE.hex(),
        "header": header.hex(),
        "name": _NAME.decode(),
        "file": wrapped.hex(),
    }
    return Vector("wrapped", name, fields | ({"secret": _SECRET.hex()} if expect == "success" else {}))


def cases() -> Iterator[Vector]:
    header, wrapped = _header(), _wrapped()
    yield _case("cheap", "a secret under a passphrase, at a cost for tests", header, wrapped)
    yield _case("full_cost", "at the cost of a new passphrase", _header((64 * 1024, 32, 4)), wrapped)
    yield _case("lanes", "more than one lane", _header((96, 2, 3)), wrapped)
    changing = _header(state=_SEALING, previous=_PREVIOUS)
    yield _case("change_done", "while a passphrase is changed: a file with the new key", changing, wrapped)
    yield _case(
        "change_ahead",
        "while a passphrase is changed: a file with the key before",
        changing,
        _wrapped(master=_PREVIOUS),
    )
    yield _case("change_over", "a file with the key before", header, _wrapped(master=_PREVIOUS), "wrong key")
    yield _case("other_name", "the file of another secret", header, _wrapped(b"root"), "wrong key")
    for name, what, at, expect in (
        ("magic", "another magic", 0, "malformed"),
        ("version", "version 0", 4, "unknown version"),
        ("state", "another state", 5, "wrong key"),
        ("salt", "a bit of the salt flipped", 15, "wrong key"),
        ("check", "a bit of the check flipped", 31, "wrong key"),
        ("seal_salt", "a bit of the seal salt flipped", 47, "wrong key"),
        ("sealed", "a bit of the sealed keys flipped", 71, "wrong key"),
        ("tag", "a bit of the tag flipped", 150, "wrong key"),
    ):
        yield _case(f"header_{name}", f"header: {what}", _flipped(header, at), wrapped, expect)
    yield _case("header_cut", "header: without its last byte", header[:-1], wrapped, "malformed")
    yield _case("header_longer", "header: a byte after the end", header + b"\x00", wrapped, "malformed")
    for name, cost in (
        ("100_gib", (100 * 1024 * 1024, 1, 1)),
        ("257_mib", (256 * 1024 + 1, 1, 1)),
        ("65_passes", (64, 65, 1)),
        ("no_pass", (64, 0, 1)),
        ("9_lanes", (72, 1, 9)),
        ("no_lane", (64, 1, 0)),
        ("too_little", (15, 1, 2)),
    ):
        fields = struct.pack(">BII", cost[2], cost[0], cost[1])
        asking = header[:6] + fields + header[15:]
        yield _case(f"cost_{name}", f"header: a cost that is refused, {cost}", asking, wrapped, "malformed")
    for name, what, at in (
        ("key_id", "of the key id", 5),
        ("salt", "of the salt", 13),
        ("ciphertext", "of the ciphertext", 37),
        ("tag", "of the tag", -1),
    ):
        yield _case(f"file_{name}", f"file: a bit {what} flipped", header, _flipped(wrapped, at), "wrong key")
    yield _case("file_plain", "a plain secret in a sealed store", header, _SECRET, "wrong key")
    yield _case("file_version", "file: version 2", header, _wrapped(version=2), "wrong key")
    yield _case(
        "file_empty", "file: no ciphertext but a tag", header, wrapped[:37] + wrapped[-16:], "wrong key"
    )
