"""A second reader of proofs of the root, written from docs/protocol.md §4.3 and §4.4 alone."""

import base64
import binascii
import json
import re
import struct
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tests.crypto.independent_reader import is_list, is_object, label, must, refuse, sha256

HEX = {"vault": 32, "device": 32, "recovery_hash": 64, "token_hash": 64}
BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
BAD = "bad proof"


def read_founding(body: bytes, host: str) -> str:
    """The vault that the request founds, at the relay that was asked as this host."""
    asked = json.loads(body)
    must(set(asked) <= {*HEX, "proof"} and set(HEX) <= set(asked))
    for name, digits in HEX.items():
        must(is_hex(asked[name], digits))
    must("proof" in asked, BAD)
    signed = label("crystal/v2/founding") + b"".join(bytes.fromhex(asked[part]) for part in HEX)
    check_proof(asked["proof"], bytes.fromhex(asked["vault"]), signed, host)
    return str(asked["vault"])


def read_deletion(body: bytes, vault: str, number: int, host: str) -> int:
    """When the vault is to be deleted by the request of this number, at the relay that was asked as this host."""
    asked = json.loads(body)
    must(set(asked) == {"due", "proof"})
    due = asked["due"]
    must(type(due) is int and 0 <= due <= 1 << 40)
    signed = label("crystal/v2/deletion") + bytes.fromhex(vault) + struct.pack(">IQ", number, due)
    check_proof(asked["proof"], bytes.fromhex(vault), signed, host)
    return int(due)


def check_proof(proof: Any, vault: bytes, signed: bytes, host: str) -> None:
    must(is_object(proof) and set(proof) == {"admin", "roots", "signature"})
    must(is_hex(proof["admin"], 64) and is_hex(proof["signature"], 128))
    must(is_list(proof["roots"]) and len(proof["roots"]) <= 64)
    must(all(BASE64.fullmatch(root) is not None and len(root) <= 2048 for root in proof["roots"]))
    key = bytes.fromhex(proof["admin"])
    must(sha256(label("crystal/v2/vault") + key)[:16] == vault, BAD)
    for root in proof["roots"]:
        key = next_root(vault, key, root)
    name = re.sub(r":[0-9]*$", "", host) if not host.count(":") > 1 or host.startswith("[") else host
    verified(key, proof["signature"], signed + name.strip("[]").lower().encode())


def next_root(vault: bytes, key: bytes, text: str) -> bytes:
    try:
        shown = base64.b64decode(text, validate=True)
    except binascii.Error:
        refuse(BAD)
    must(len(shown) > 184 + 128, BAD)
    magic, version, suite, kind, channel = struct.unpack(">4sBBBB", shown[:8])
    must((magic, version, suite, kind, channel) == (b"CRYE", 2, 1, 1, 1), BAD)
    must(shown[16:32] == vault and shown[32:48] == bytes(16), BAD)
    public = shown[184:-128]
    must(struct.unpack(">I", shown[176:180])[0] == len(public), BAD)
    # An array of six, "root", the admin key (32), the recovery key (32), the holder (16), a generation, the sealed keys.
    must(public.startswith(b"\x96\xa4root\xc4\x20") and public[40:42] == b"\xc4\x20", BAD)
    must(public[74:76] == b"\xc4\x10" and public[92] < 0x80, BAD)
    must(public[93] == 0xC4 and public[94] == len(public) - 95, BAD)
    verified(key, shown[-64:].hex(), label("crystal/v2/entry-signature") + shown[:-64])
    return public[8:40]


def verified(key: bytes, signature: str, message: bytes) -> None:
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(bytes.fromhex(signature), message)
    except (InvalidSignature, ValueError):
        refuse(BAD)


def is_hex(text: object, digits: int) -> bool:
    return isinstance(text, str) and re.fullmatch(f"[0-9a-f]{{{digits}}}", text) is not None
