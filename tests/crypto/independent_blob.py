"""The second reader's part about blobs, written from docs/protocol.md alone, as `independent_reader` is."""

import hmac
import struct

import zstandard
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.crypto.independent_reader import (
    MIB,
    hkdf,
    label,
    mac,
    must,
    padded,
    refuse,
    sha256,
    unzstd,
)

CONTENT_MAX = 8_257_528


def read_blob(
    data: bytes,
    *,
    vault: bytes,
    name: bytes,
    g: int,
    generation_key: bytes,
    content_hash: bytes,
) -> bytes:
    must(len(data) >= 6 and data[:4] == b"CRYB")
    must(data[4] == 2 and data[5] == 1, "unknown version")
    must(len(data) >= 96)
    header = data[:96]
    must(header[6] in (0, 1) and header[7] == 0 and header[12:16] == bytes(4))
    payload_length = int.from_bytes(header[88:96], "big")
    chunks = (payload_length + 65535) // 65536
    must(96 + 32 + payload_length + 16 * chunks <= 8 * MIB, "too large")
    must(payload_length >= 256 and padded(payload_length) == payload_length)
    must(int.from_bytes(header[8:12], "big") == g, "wrong key")
    must(header[16:32] == vault and header[32:64] == name, "wrong key")
    stream = hkdf(generation_key, vault, label("crystal/v2/blob-stream") + struct.pack(">I", g), 32)
    keys = hkdf(stream, header[64:88], label("crystal/v2/blob") + sha256(header), 64)
    must(len(data) >= 128)
    expected = mac(keys[32:], label("crystal/v2/blob-mac") + header)
    must(hmac.compare_digest(expected, data[96:128]), "wrong key")
    must(len(data) == 128 + payload_length + 16 * chunks)
    payload = b""
    for i in range(chunks):
        start = 128 + i * 65552
        nonce = i.to_bytes(11, "big") + bytes([i == chunks - 1])
        try:
            payload += AESGCM(keys[:32]).decrypt(nonce, data[start : start + 65552], None)
        except InvalidTag:
            refuse("malformed")
    length = int.from_bytes(payload[:8], "big")
    must(padded(8 + length) == payload_length)
    stored = payload[8 : 8 + length]
    must(not any(payload[8 + length :]))
    content = decompressed(stored) if header[6] else stored
    must(sha256(content) == content_hash, "wrong key")
    return content


def naming_key(vault: bytes, g: int, generation_key: bytes) -> bytes:
    return hkdf(generation_key, vault, label("crystal/v2/blob-name") + struct.pack(">I", g), 32)


def generation_name(vault: bytes, g: int, generation_key: bytes, content_hash: bytes, turn: int) -> bytes:
    return mac(naming_key(vault, g, generation_key), content_hash + (bytes([turn]) if turn else b""))


def decompressed(stored: bytes) -> bytes:
    try:
        stated = zstandard.get_frame_parameters(stored).content_size
    except zstandard.ZstdError:
        refuse("malformed")
    must(stated < 2**64 - 2)
    must(stated <= CONTENT_MAX, "too large")
    must(len(stored) < stated)
    return unzstd(stored, stated)


def cut_seed(key: bytes) -> int:
    return int.from_bytes(mac(key, label("crystal/v2/cuts"))[:8], "big") >> 1
