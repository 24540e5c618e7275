"""Builds entries and blobs from the primitives alone, so that every single thing about them can be made wrong.

Nothing here comes from the project's packages. A draft's defaults are right; a case changes one of them. `after` hooks change
bytes at a stage, and everything that is computed later follows the change.
"""

import hashlib
import hmac
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

Change = Callable[[bytes], bytes]


def fixed(name: str, length: int) -> bytes:
    """Bytes that look random and are always the same."""
    return b"".join(hashlib.sha256(f"vector {name} {n}".encode()).digest() for n in range(-(-length // 32)))[
        :length
    ]


VAULT = fixed("vault", 16)
SENDER = fixed("sender", 16)
OTHER = fixed("other device", 16)
GENERATION_KEY = fixed("generation key", 32)
VAULT_SECRET = fixed("vault secret", 32)
SEED = fixed("signing seed", 32)
OTHER_SEED = fixed("other signing seed", 32)


def hkdf(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    """RFC 5869, written out."""
    key = hmac.digest(salt or bytes(32), secret, "sha256")
    block = out = b""
    for n in range(-(-length // 32)):
        block = hmac.digest(key, block + info + bytes([n + 1]), "sha256")
        out += block
    return out[:length]


def verify_key(seed: bytes) -> bytes:
    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


def own_vault(root: bytes) -> bytes:
    """The id of the vault that a root founds."""
    admin = verify_key(hkdf(root, b"", b"crystal/v2/root/admin\x00", 32))
    return hashlib.sha256(b"crystal/v2/vault\x00" + admin).digest()[:16]


def checked_root(root: bytes, vault: bytes | None = None) -> bytes:
    """What an offline code holds: the root and its check, by default for the vault that the root founds."""
    named = own_vault(root) if vault is None else vault
    return root + hashlib.sha256(b"crystal/v2/code\x00" + root + named).digest()[:4]


def padded(length: int) -> int:
    if length <= 256:
        return 256
    exponent = length.bit_length() - 1
    step = 1 << (exponent - exponent.bit_length())
    return -(-length // step) * step


def flip(at: int, bit: int = 0) -> Change:
    """Flips one bit of the byte at `at` (negative: from the end)."""

    def change(data: bytes) -> bytes:
        changed = bytearray(data)
        changed[at] ^= 1 << bit
        return bytes(changed)

    return change


def unchanged(data: bytes) -> bytes:
    return data


def raw(data: bytes) -> bytes:
    return struct.pack(">BII", 1, len(data), len(data)) + data


def packed(data_bytes: int, zstd: bytes) -> bytes:
    return struct.pack(">BII", 2, data_bytes, len(zstd)) + zstd


def content(frames: Sequence[bytes]) -> bytes:
    joined = b"".join(frames) + b"\x00"
    return joined + bytes(padded(len(joined)) - len(joined))


def zstd_rle(
    blocks: Sequence[tuple[int, int]], *, stated: int | None, dictionary: int | None = None
) -> bytes:
    """A zstd frame of run-length blocks (byte, times), times up to 128 KiB, stating a content size or none."""
    if stated is None:
        head = bytes([0x00, 0x58])  # no size; a window of 2 MiB
    elif dictionary is None:
        head = bytes([0xA0]) + stated.to_bytes(4, "little")
    else:
        head = bytes([0xA1, dictionary]) + stated.to_bytes(4, "little")
    body = b""
    for n, (byte, times) in enumerate(blocks):
        last = n == len(blocks) - 1
        body += (int(last) | 1 << 1 | times << 3).to_bytes(3, "little") + bytes([byte])
    return b"\x28\xb5\x2f\xfd" + head + body


@dataclass(kw_only=True)
class EntryDraft:
    """An entry about to be built. None for a length means the true one."""

    name: str
    magic: bytes = b"CRYE"
    version: int = 2
    suite: int = 1
    kind: int = 2
    channel: int = 2
    flags: int = 0
    reserved: bytes = bytes(3)
    generation: int = 1
    vault: bytes = VAULT
    sender: bytes = SENDER
    incarnation: bytes = field(default_factory=lambda: fixed("incarnation", 8))
    epoch: int = 3
    sequence: int = 41
    recipient: bytes = bytes(16)
    log_head: bytes = field(default_factory=lambda: fixed("log head", 32))
    previous: bytes = field(default_factory=lambda: fixed("previous", 32))
    public: bytes = b""
    content: bytes = field(default_factory=lambda: content([raw(b"a first frame"), raw(b"and a second")]))
    public_length: int | None = None
    body_length: int | None = None
    generation_key: bytes = GENERATION_KEY
    key_number: int | None = None
    seed: bytes = SEED
    mac_label: bytes = b"crystal/v2/entry-mac\x00"
    signature_label: bytes = b"crystal/v2/entry-signature\x00"
    after_encryption: Change = unchanged
    after_mac: Change = unchanged
    after_signature: Change = unchanged

    def header(self, body_bytes: int) -> bytes:
        return struct.pack(
            ">4sBBBBB3sI16s16s8sQQ16s32s32s24sII",
            self.magic,
            self.version,
            self.suite,
            self.kind,
            self.channel,
            self.flags,
            self.reserved,
            self.generation,
            self.vault,
            self.sender,
            self.incarnation,
            self.epoch,
            self.sequence,
            self.recipient,
            self.log_head,
            self.previous,
            fixed(f"salt of {self.name}", 24),
            len(self.public) if self.public_length is None else self.public_length,
            body_bytes if self.body_length is None else self.body_length,
        )

    def build(self) -> bytes:
        """Each hook sees all bytes so far, and what is computed after it is computed over what it returned."""
        clear = self.header(len(self.content) + 16) + self.public
        number = self.generation if self.key_number is None else self.key_number
        stream = struct.pack(">IB", number, self.channel) + self.sender + self.incarnation
        stream_key = hkdf(self.generation_key, self.vault, b"crystal/v2/stream\x00" + stream, 32)
        salt = fixed(f"salt of {self.name}", 24)
        keys = hkdf(stream_key, salt, b"crystal/v2/entry\x00" + hashlib.sha256(clear).digest(), 76)
        data = self.after_encryption(clear + AESGCM(keys[:32]).encrypt(keys[64:], self.content, clear))
        split = len(clear)
        transcript = data[:split] + body_digest(data[split:])
        mac = hmac.digest(keys[32:64], self.mac_label + transcript, "sha256")
        data = self.after_mac(data + mac)
        body, mac = data[split:-32], data[-32:]
        transcript = data[:split] + body_digest(body) + mac
        key = Ed25519PrivateKey.from_private_bytes(self.seed)
        return self.after_signature(data + key.sign(self.signature_label + transcript))

    def hash(self) -> bytes:
        """The entry's hash; only for a draft without changes after the signature."""
        data = self.build()
        split = 184 + len(self.public)
        transcript = data[:split] + body_digest(data[split:-96]) + data[-96:]
        return hashlib.sha256(b"crystal/v2/entry-hash\x00" + transcript).digest()


def body_digest(body: bytes) -> bytes:
    pieces = [body[at : at + 131072] for at in range(0, len(body), 131072)]
    digests = b"".join(hashlib.sha256(piece).digest() for piece in pieces)
    return hashlib.sha256(b"crystal/v2/entry-body\x00" + digests).digest()


def blob_name(content_bytes: bytes, secret: bytes = VAULT_SECRET) -> bytes:
    key = hkdf(secret, b"", b"crystal/v2/secret/blob-name\x00", 32)
    return hmac.digest(key, hashlib.sha256(content_bytes).digest(), "sha256")


def naming_key(generation: int) -> bytes:
    return hkdf(GENERATION_KEY, VAULT, b"crystal/v2/blob-name\x00" + struct.pack(">I", generation), 32)


def generation_name(content_bytes: bytes, generation: int, turn: int = 0) -> bytes:
    named = hashlib.sha256(content_bytes).digest() + (bytes([turn]) if turn else b"")
    return hmac.digest(naming_key(generation), named, "sha256")


def cut_seed(key: bytes) -> int:
    return int.from_bytes(hmac.digest(key, b"crystal/v2/cuts\x00", "sha256")[:8], "big") // 2


@dataclass(kw_only=True)
class BlobDraft:
    """A blob about to be built."""

    name: str
    content: bytes = b"the content of a blob"
    stored: bytes | None = None
    """What is stored of the content, compressed: sets the flag."""
    magic: bytes = b"CRYB"
    version: int = 2
    suite: int = 1
    flags: int | None = None
    reserved: int = 0
    reserved_more: bytes = bytes(4)
    generation: int = 1
    vault: bytes = VAULT
    blob_name: bytes | None = None
    content_length: int | None = None
    payload_bytes: int | None = None
    padding: Change = unchanged
    flag_last: Callable[[int, int], bool] = lambda number, last: number == last

    def build(self) -> bytes:
        stored = self.content if self.stored is None else self.stored
        length = len(stored) if self.content_length is None else self.content_length
        payload = length.to_bytes(8, "big") + stored
        payload += self.padding(bytes(padded(len(payload)) - len(payload)))
        salt = fixed(f"salt of {self.name}", 24)
        header = struct.pack(
            ">4sBBBBI4s16s32s24sQ",
            self.magic,
            self.version,
            self.suite,
            int(self.stored is not None) if self.flags is None else self.flags,
            self.reserved,
            self.generation,
            self.reserved_more,
            self.vault,
            blob_name(self.content) if self.blob_name is None else self.blob_name,
            salt,
            len(payload) if self.payload_bytes is None else self.payload_bytes,
        )
        info = b"crystal/v2/blob-stream\x00" + struct.pack(">I", self.generation)
        stream = hkdf(GENERATION_KEY, self.vault, info, 32)
        keys = hkdf(stream, salt, b"crystal/v2/blob\x00" + hashlib.sha256(header).digest(), 64)
        data = header + hmac.digest(keys[32:], b"crystal/v2/blob-mac\x00" + header, "sha256")
        last = -(-len(payload) // 65536) - 1
        for n in range(last + 1):
            nonce = n.to_bytes(11, "big") + bytes([self.flag_last(n, last)])
            data += AESGCM(keys[:32]).encrypt(nonce, payload[n * 65536 : (n + 1) * 65536], None)
        return data
