"""The vectors about derivations, key encodings, padding and state digests; they have no bytes, only fields."""

import hashlib
import hmac
import struct
from collections.abc import Iterator, Sequence

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tests.vectors.craft import (
    GENERATION_KEY,
    SENDER,
    VAULT,
    VAULT_SECRET,
    blob_name,
    cut_seed,
    fixed,
    generation_name,
    hkdf,
    naming_key,
    padded,
    verify_key,
)
from tests.vectors.vectorfile import Vector

_P = 2**255 - 19
_ORDER_EIGHT = 2707385501144840649318225287225658788936804267575313519463743609750303402022


def cases() -> Iterator[Vector]:
    yield from _roots()
    yield from _streams()
    yield from _secrets()
    yield from _names()
    yield from _digests()
    yield _padding()
    yield from _verify_keys()
    yield from _identities()


def _case(name: str, of: str, what: str, fields: dict[str, str], expect: str = "success") -> Vector:
    return Vector("key", name, {"of": of, "what": what, "expect": expect} | fields)


def _roots() -> Iterator[Vector]:
    for name, root in (("root", fixed("root", 32)), ("root_of_zeros", bytes(32))):
        admin = verify_key(hkdf(root, b"", b"crystal/v2/root/admin\x00", 32))
        recovery = hkdf(root, b"", b"crystal/v2/root/recovery\x00", 32)
        fields = {
            "root": root.hex(),
            "admin": admin.hex(),
            "vault": hashlib.sha256(b"crystal/v2/vault\x00" + admin).hexdigest()[:32],
            "recovery": X25519PrivateKey.from_private_bytes(recovery).public_key().public_bytes_raw().hex(),
            "relay-secret": hkdf(root, b"", b"crystal/v2/root/relay\x00", 32).hex(),
            "check-value": hkdf(root, b"", b"crystal/v2/root/check\x00", 8).hex(),
        }
        yield _case(name, "root", "what is derived from a vault root", fields)


def _streams() -> Iterator[Vector]:
    salt, context = fixed("a salt", 24), fixed("a context", 32)
    for number, channel in ((1, 2), (2**32 - 1, 5)):
        stream = struct.pack(">IB", number, channel) + SENDER + fixed("incarnation", 8)
        stream_key = hkdf(GENERATION_KEY, VAULT, b"crystal/v2/stream\x00" + stream, 32)
        keys = hkdf(stream_key, salt, b"crystal/v2/entry\x00" + context, 76)
        fields = {
            "generation": str(number),
            "generation-key": GENERATION_KEY.hex(),
            "vault": VAULT.hex(),
            "channel": str(channel),
            "sender": SENDER.hex(),
            "incarnation": fixed("incarnation", 8).hex(),
            "salt": salt.hex(),
            "context": context.hex(),
            "encryption-key": keys[:32].hex(),
            "mac-key": keys[32:64].hex(),
            "nonce": keys[64:].hex(),
        }
        yield _case(f"entry_keys_channel_{channel}", "entry-keys", "one entry's keys and nonce", fields)


def _secrets() -> Iterator[Vector]:
    digest = hashlib.sha256(b"a text").digest()
    forget = hkdf(VAULT_SECRET, b"", b"crystal/v2/secret/forget\x00", 32)
    fields = {
        "secret": VAULT_SECRET.hex(),
        "content-hash": digest.hex(),
        "state-key": hkdf(VAULT_SECRET, b"", b"crystal/v2/secret/state\x00", 32).hex(),
        "forget-hash": hmac.digest(forget, digest, "sha256").hex(),
        "blob-name": blob_name(b"a text").hex(),
    }
    yield _case("vault_secret", "vault-secret", "what is derived from a vault secret", fields)
    seeded = {
        "secret": VAULT_SECRET.hex(),
        "seed": str(cut_seed(hkdf(VAULT_SECRET, b"", b"crystal/v2/secret/blob-name\x00", 32))),
    }
    yield _case("cut_seed_first", "cut-seed", "where files are cut in generation 1", seeded)


def _names() -> Iterator[Vector]:
    digest = hashlib.sha256(b"a text").digest()
    for generation, turn in ((2, 0), (2, 255), (2**32 - 1, 1)):
        fields = {
            "vault": VAULT.hex(),
            "generation": str(generation),
            "generation-key": GENERATION_KEY.hex(),
            "content-hash": digest.hex(),
            "turn": str(turn),
            "blob-name": generation_name(b"a text", generation, turn).hex(),
            "seed": str(cut_seed(naming_key(generation))),
        }
        yield _case(
            f"names_{generation}_{turn}",
            "generation-names",
            "a blob's name and the cut seed later on",
            fields,
        )


def _digests() -> Iterator[Vector]:
    def case(name: str, what: str, rows: Sequence[bytes]) -> Vector:
        key = fixed("state key", 32)
        hashes = (hmac.digest(key, b"chunks\x00" + row, "sha256") for row in rows)
        total = sum(int.from_bytes(row, "big") for row in hashes) % 2**256
        fields = {
            "state-key": key.hex(),
            "table": "chunks",
            "rows": " ".join(f"x{row.hex()}" for row in rows) or "none",
            "count": str(len(rows)),
            "sum": f"{total:064x}",
        }
        return _case(name, "state-digest", what, fields)

    yield case("digest_empty", "an empty table", [])
    yield case("digest_three_rows", "three rows, one of them empty", [b"first", b"", b"third"])
    yield case("digest_equal_rows", "two equal rows do not cancel", [b"same", b"same"])
    yield case("digest_many_rows", "a sum that wraps", [bytes([n]) for n in range(40)])


def _padding() -> Vector:
    lengths = [
        0,
        1,
        255,
        256,
        257,
        272,
        273,
        511,
        512,
        513,
        1000,
        4097,
        65536,
        65537,
        131072,
        135169,
        1032192,
    ]
    pairs = " ".join(f"{length}:{padded(length)}" for length in lengths)
    return _case("padding", "padding", "lengths and what they are padded to", {"padded": pairs})


def _verify_keys() -> Iterator[Vector]:
    def case(name: str, what: str, key: bytes, expect: str = "malformed") -> Vector:
        return _case(name, "verify-key", what, {"verify-key": key.hex()}, expect)

    def point(y: int, sign: int = 0) -> bytes:
        return (y | sign << 255).to_bytes(32, "little")

    yield case("verify_key", "an Ed25519 public key", verify_key(fixed("any seed", 32)), "success")
    yield case("verify_key_31_bytes", "31 bytes", bytes(31))
    yield case("verify_key_33_bytes", "33 bytes", bytes(33))
    yield case("verify_key_order_1", "the neutral point", point(1))
    yield case("verify_key_order_1_negative", "the neutral point with a sign", point(1, 1))
    yield case("verify_key_order_2", "the point of order two", point(_P - 1))
    yield case("verify_key_order_4", "a point of order four", point(0))
    yield case("verify_key_order_4_negative", "the other point of order four", point(0, 1))
    for n, y in enumerate((_ORDER_EIGHT, _P - _ORDER_EIGHT)):
        for sign in (0, 1):
            yield case(f"verify_key_order_8_{n}{sign}", "a point of order eight", point(y, sign))
    yield case("verify_key_y_of_p", "y = p, which stands for 0", point(_P))
    yield case("verify_key_y_above_p", "y above p: not canonical", point(_P + 3))


def _identities() -> Iterator[Vector]:
    device, seed, exchange = fixed("device", 16), fixed("device seed", 32), fixed("device exchange", 32)
    body = b"CRYD\x02" + device + seed + exchange
    check = hashlib.sha256(b"crystal/v2/identity\x00" + body).digest()[:8]
    right = body + check
    public = X25519PrivateKey.from_private_bytes(exchange).public_key().public_bytes_raw()
    fields = {
        "identity": right.hex(),
        "device": device.hex(),
        "verify-key": verify_key(seed).hex(),
        "exchange-public": public.hex(),
    }
    yield _case("identity", "identity", "a stored device identity", fields)

    def case(name: str, what: str, data: bytes, expect: str = "malformed") -> Vector:
        return _case(name, "identity", what, {"identity": data.hex()}, expect)

    yield case("identity_damaged", "one bit flipped", right[:50] + bytes([right[50] ^ 1]) + right[51:])
    yield case("identity_version_3", "version 3", right[:4] + b"\x03" + right[5:], "unknown version")
    yield case("identity_cut", "without its last byte", right[:-1])
    yield case("identity_longer", "a byte after the end", right + b"\x00")
    other = b"CRYE" + body[4:]
    other += hashlib.sha256(b"crystal/v2/identity\x00" + other).digest()[:8]
    yield case("identity_magic", "another magic, and its check", other)
