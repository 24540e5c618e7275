"""A second reader of the byte formats, written from docs/protocol.md alone.

It imports `cryptography`, `zstandard` and the standard library and nothing of the project, and it is kept plain: each function
follows one section of the document. It reads the same vectors as the project's own code. Where the two differ, the
document is wrong, or one of them is.
"""

import base64
import hashlib
import hmac
import json
import struct
from dataclasses import dataclass
from typing import Any, NoReturn, TypeGuard, cast

import zstandard
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KIB = 1024
MIB = 1024 * KIB
PAIRS = {(1, 1), (2, 2), (3, 3), (4, 3), (5, 5), (6, 4)}


class Refused(Exception):
    """The outcome of reading, in the document's words."""

    def __init__(self, outcome: str) -> None:
        super().__init__(outcome)
        self.outcome = outcome


def refuse(outcome: str) -> NoReturn:
    raise Refused(outcome)


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def must(condition: bool, outcome: str = "malformed") -> None:
    if not condition:
        refuse(outcome)


# Notation and primitives


def label(text: str) -> bytes:
    return text.encode("ascii") + b"\x00"


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def mac(key: bytes, message: bytes) -> bytes:
    return hmac.new(key, message, hashlib.sha256).digest()


def hkdf(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    return HKDF(SHA256(), length, salt or bytes(32), info).derive(secret)


def padded(n: int) -> int:
    if n <= 256:
        return 256
    e = 0
    while 2 ** (e + 1) <= n:
        e += 1
    s = 0
    while 2 ** (s + 1) <= e:
        s += 1
    multiple = 1 << (e - (s + 1))
    return (n + multiple - 1) // multiple * multiple


def ed25519_public(raw: bytes) -> Ed25519PublicKey:
    must(len(raw) == 32)
    p = 2**255 - 19
    y = int.from_bytes(raw, "little") % 2**255
    must(y < p)
    # Small order: doubling three times gives the neutral point. Only y is needed for that: on the curve
    # -x² + y² = 1 + d x² y², x² = (y² - 1) / (d y² + 1), and the y of a doubled point is (y² + x²) / (2 - (y² - x²)).
    d = -121665 * pow(121666, -1, p) % p
    for _ in range(3):
        yy = y * y % p
        xx = (yy - 1) * pow(d * yy + 1, -1, p) % p
        y = (yy + xx) * pow(2 + xx - yy, -1, p) % p
    must(y != 1)
    return Ed25519PublicKey.from_public_bytes(raw)


# Keys


def root_keys(root: bytes) -> dict[str, bytes]:
    admin = Ed25519PrivateKey.from_private_bytes(hkdf(root, b"", label("crystal/v2/root/admin"), 32))
    recovery = X25519PrivateKey.from_private_bytes(hkdf(root, b"", label("crystal/v2/root/recovery"), 32))
    public = admin.public_key().public_bytes_raw()
    return {
        "admin": public,
        "vault": sha256(label("crystal/v2/vault") + public)[:16],
        "recovery": recovery.public_key().public_bytes_raw(),
        "relay-secret": hkdf(root, b"", label("crystal/v2/root/relay"), 32),
        "check-value": hkdf(root, b"", label("crystal/v2/root/check"), 8),
    }


def secret_key(secret: bytes, name: str) -> bytes:
    return hkdf(secret, b"", label(f"crystal/v2/secret/{name}"), 32)


def secret_keys(secret: bytes, content_hash: bytes) -> dict[str, bytes]:
    return {
        "state-key": secret_key(secret, "state"),
        "forget-hash": mac(secret_key(secret, "forget"), content_hash),
        "blob-name": mac(secret_key(secret, "blob-name"), content_hash),
    }


def state_digest(state_key: bytes, table: str, rows: list[bytes]) -> tuple[int, int]:
    total = 0
    for row in rows:
        total += int.from_bytes(mac(state_key, label(table) + row), "big")
    return total % 2**256, len(rows)


# Entries


@dataclass
class EntryFields:
    """The header's fields, cut by the table of offsets."""

    raw: bytes

    def at(self, offset: int, length: int) -> bytes:
        return self.raw[offset : offset + length]

    def number(self, offset: int, length: int) -> int:
        return int.from_bytes(self.at(offset, length), "big")


def entry_keys(
    g: int,
    key: bytes,
    *,
    vault: bytes,
    channel: int,
    sender: bytes,
    incarnation: bytes,
    salt: bytes,
    context: bytes,
) -> tuple[bytes, bytes, bytes]:
    info = label("crystal/v2/stream") + struct.pack(">IB", g, channel) + sender + incarnation
    stream_key = hkdf(key, vault, info, 32)
    out = hkdf(stream_key, salt, label("crystal/v2/entry") + context, 76)
    return out[:32], out[32:64], out[64:76]


@dataclass
class SealedEntry:
    """An entry whose bytes are in order; nothing is known about it yet."""

    field: EntryFields
    clear: bytes
    public: bytes
    body: bytes
    body_digest: bytes
    mac: bytes
    signature: bytes

    @property
    def hash(self) -> bytes:
        return sha256(
            label("crystal/v2/entry-hash") + self.clear + self.body_digest + self.mac + self.signature
        )


def parse_entry(data: bytes) -> SealedEntry:
    must(len(data) <= MIB, "too large")
    must(len(data) >= 6 and data[:4] == b"CRYE")
    must(data[4] == 2 and data[5] == 1, "unknown version")
    must(len(data) >= 184)
    field = EntryFields(data[:184])
    must((data[6], data[7]) in PAIRS)
    must(field.at(8, 4) == bytes(4))
    public_length, body_length = field.number(176, 4), field.number(180, 4)
    must(public_length <= 256 * KIB and body_length <= MIB, "too large")
    must(body_length >= 272 and padded(body_length - 16) == body_length - 16)
    must(184 + public_length + body_length + 96 == len(data))
    clear = data[: 184 + public_length]
    body = data[184 + public_length : -96]
    pieces = b""
    for start in range(0, body_length, 128 * KIB):
        pieces += sha256(body[start : start + 128 * KIB])
    body_digest = sha256(label("crystal/v2/entry-body") + pieces)
    return SealedEntry(field, clear, clear[184:], body, body_digest, data[-96:-64], data[-64:])


def verify_entry(entry: SealedEntry, verify_key: bytes) -> None:
    signed = label("crystal/v2/entry-signature") + entry.clear + entry.body_digest + entry.mac
    try:
        ed25519_public(verify_key).verify(entry.signature, signed)
    except InvalidSignature:
        refuse("bad signature")


def open_entry(entry: SealedEntry, g: int, generation_key: bytes) -> list[bytes]:
    field = entry.field
    must(field.number(12, 4) == g, "wrong key")
    k_enc, k_mac, nonce = entry_keys(
        g,
        generation_key,
        vault=field.at(16, 16),
        channel=field.number(7, 1),
        sender=field.at(32, 16),
        incarnation=field.at(48, 8),
        salt=field.at(152, 24),
        context=sha256(entry.clear),
    )
    expected = mac(k_mac, label("crystal/v2/entry-mac") + entry.clear + entry.body_digest)
    must(hmac.compare_digest(expected, entry.mac), "wrong key")
    try:
        content = AESGCM(k_enc).decrypt(nonce, entry.body, entry.clear)
    except InvalidTag:
        refuse("wrong key")
    return read_content(content)


def read_entry(data: bytes, verify_key: bytes, g: int, generation_key: bytes) -> tuple[bytes, list[bytes]]:
    """The entry's hash and its frames."""
    entry = parse_entry(data)
    verify_entry(entry, verify_key)
    return entry.hash, open_entry(entry, g, generation_key)


def read_content(content: bytes) -> list[bytes]:
    found: list[tuple[int, int, bytes]] = []
    total = at = 0
    while True:
        must(at < len(content))
        if content[at] == 0:
            break
        must(len(found) < 4096, "too large")
        must(len(content) - at >= 9)
        codec, length, stored_length = struct.unpack(">BII", content[at : at + 9])
        must(codec in (1, 2))
        total += length
        must(total <= 16 * MIB, "too large")
        at += 9
        must(stored_length <= len(content) - at)
        must(stored_length == length if codec == 1 else stored_length < length)
        found.append((codec, length, content[at : at + stored_length]))
        at += stored_length
    must(len(content) == padded(at + 1))
    must(not any(content[at:]))
    return [stored if codec == 1 else unzstd(stored, length) for codec, length, stored in found]


def unzstd(stored: bytes, length: int) -> bytes:
    must(stored[:4] == bytes.fromhex("28b52ffd"))
    try:
        header = zstandard.get_frame_parameters(stored)
        must(header.content_size == length and header.dict_id == 0 and not header.has_checksum)
        # Streamed, so that what comes out is bounded here and not by the library.
        stream = zstandard.ZstdDecompressor().decompressobj()
        data = stream.decompress(stored)
        must(stream.eof and not stream.unused_data and len(data) == length)
    except zstandard.ZstdError:
        refuse("malformed")
    return data


# Bundles, identities, texts


def read_bundle(
    data: bytes, *, private: bytes, vault: bytes, recipient: bytes, log_head: bytes, g: int
) -> tuple[bytes, bytes]:
    must(len(data) >= 2)
    must(data[0] == 2 and data[1] == 1, "unknown version")
    must(len(data) == 114)
    info = label("crystal/v2/bundle") + vault + struct.pack(">I", g) + recipient + log_head
    suite = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
    try:
        plain = suite.decrypt(data[2:], X25519PrivateKey.from_private_bytes(private), info)
    except (InvalidTag, ValueError):
        refuse("wrong key")
    return plain[:32], plain[32:]


def read_letter(
    data: bytes,
    *,
    private: bytes,
    vault: bytes,
    sender: bytes,
    recipient: bytes,
    place: tuple[bytes, bytes, int],
) -> bytes:
    """`place`: the log head, and incarnation and sequence of the stream."""
    must(len(data) >= 2)
    must(data[0] == 2 and data[1] == 1, "unknown version")
    must(len(data) >= 50)
    must(len(data) - 50 <= 96 * 1024, "too large")
    log_head, incarnation, sequence = place
    ids = vault + sender + recipient + log_head + incarnation
    info = label("crystal/v2/letter") + ids + struct.pack(">Q", sequence)
    suite = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
    try:
        return suite.decrypt(data[2:], X25519PrivateKey.from_private_bytes(private), info)
    except (InvalidTag, ValueError):
        refuse("wrong key")


def read_identity(data: bytes) -> dict[str, bytes]:
    must(len(data) >= 5 and data[:4] == b"CRYD")
    must(data[4] == 2, "unknown version")
    must(len(data) == 93)
    must(sha256(label("crystal/v2/identity") + data[:85])[:8] == data[85:])
    public = X25519PrivateKey.from_private_bytes(data[53:85]).public_key()
    assert isinstance(public, X25519PublicKey)
    return {
        "device": data[5:21],
        "verify-key": Ed25519PrivateKey.from_private_bytes(data[21:53]).public_key().public_bytes_raw(),
        "exchange-public": public.public_bytes_raw(),
    }


def read_code(text: str) -> tuple[bytes, bytes | None]:
    """The root, and the check; None for a code of an earlier version, which has none."""
    code = text.strip()
    must(code[:4] in ("mc3:", "mc1:"), "bad code")
    old = code.startswith("mc1:")
    rest = code[4:].removesuffix("=") if old else code[4:]
    must(len(rest) == (43 if old else 48) and rest.isascii() and "=" not in rest, "bad code")
    must(not (set(rest) & set("+/") and set(rest) & set("-_")), "bad code")
    standard = rest.translate(str.maketrans("-_", "+/")) + ("=" if old else "")
    try:
        content = base64.b64decode(standard, validate=True)
    except ValueError:
        refuse("bad code")
    must(base64.b64encode(content).decode("ascii") == standard, "bad code")
    return content[:32], None if old else content[32:]


def read_v1(key: bytes, payload: bytes) -> bytes:
    def pairs(found: list[tuple[str, object]]) -> dict[str, object]:
        must(len({name for name, _ in found}) == len(found))
        return dict(found)

    must(len(payload) <= 100 * MIB, "too large")
    try:
        parsed: object = json.loads(payload.decode("utf-8"), object_pairs_hook=pairs)
    except (ValueError, RecursionError):
        refuse("malformed")
    must(isinstance(parsed, dict))
    fields = cast(dict[str, object], parsed)
    must(set(fields) == {"v", "nonce", "ciphertext", "tag", "hmac"})
    version = fields.pop("v")
    must(isinstance(version, int) and not isinstance(version, bool))
    must(version == 1, "unknown version")
    must(all(isinstance(value, str) for value in fields.values()))
    texts = {name: str(value) for name, value in fields.items()}
    nonce, ciphertext, tag = (canonical_base64(texts[name]) for name in ("nonce", "ciphertext", "tag"))
    must(len(nonce) == 12 and len(tag) == 16)
    must(len(texts["hmac"]) == 64 and set(texts["hmac"]) <= set("0123456789abcdef"))
    mac_key = hkdf(key, b"", b"crystal-relay-sign", 32)
    must(mac(mac_key, nonce + ciphertext + tag).hex() == texts["hmac"], "wrong key")
    try:
        return AESGCM(key).decrypt(nonce, ciphertext + tag, None)
    except InvalidTag:
        refuse("wrong key")


def canonical_base64(text: str) -> bytes:
    try:
        data = base64.b64decode(text.encode("ascii"), validate=True)
    except ValueError:
        refuse("malformed")
    must(base64.b64encode(data).decode("ascii") == text)
    return data
