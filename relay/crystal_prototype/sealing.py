"""The payload of the published prototype, version 1: to exchange messages with devices that still run it.

    {"v":1,"nonce":b64,"ciphertext":b64,"tag":b64,"hmac":hex}

AES-256-GCM under the 32-byte key itself, no additional data, 12-byte nonce, 16-byte tag; hmac = HMAC-SHA256(k, nonce |
ciphertext | tag) with k = HKDF-SHA256(key, empty salt, info "crystal-relay-sign", 32 bytes).

Rules: version 2 never calls this module or falls back to it, and a version 1 key is never a vault root. A payload has no
sender, no order and no replay protection; a reader must not rely on it for any of these.
Decoding is strict: exactly these five fields, each once; canonical base64; exact lengths; lower-case hex.
"""

import base64
import hmac
import json
import os
import re
from typing import Final, cast

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from crystal_crypto.errors import Malformed, TooLarge, UnknownVersion, WrongKey
from crystal_crypto.hierarchy import hkdf
from crystal_crypto.identity import Random
from crystal_crypto.limits import KEY_BYTES, MAC_BYTES, NONCE_BYTES, TAG_BYTES, V1_PAYLOAD_BYTES_MAX
from crystal_crypto.secret import exactly

_MAC_INFO: Final = b"crystal-relay-sign"
_FIELDS: Final = frozenset({"v", "nonce", "ciphertext", "tag", "hmac"})
_AROUND_BYTES: Final = len('{"v":1,"nonce":"","ciphertext":"","tag":"","hmac":""}') + 16 + 24 + 64
_HEX: Final = re.compile(rf"[0-9a-f]{{{MAC_BYTES * 2}}}")


def seal_v1(key: bytes, plain: bytes, *, random: Random = os.urandom) -> bytes:
    """Seal a payload as compact JSON. Raises Malformed for a key that is not 32 bytes, TooLarge for over 100 MiB."""
    exactly(key, KEY_BYTES, "a version 1 key")
    payload_bytes = _AROUND_BYTES + -(-len(plain) // 3) * 4
    if payload_bytes > V1_PAYLOAD_BYTES_MAX:
        raise TooLarge(f"a version 1 payload is at most {V1_PAYLOAD_BYTES_MAX} bytes, not {payload_bytes}")
    nonce = exactly(random(NONCE_BYTES), NONCE_BYTES, "a nonce")
    sealed = AESGCM(key).encrypt(nonce, plain, None)
    fields = {
        "v": 1,
        "nonce": _base64(nonce),
        "ciphertext": _base64(sealed[:-TAG_BYTES]),
        "tag": _base64(sealed[-TAG_BYTES:]),
        "hmac": _mac(key, nonce, sealed).hex(),
    }
    payload = json.dumps(fields, separators=(",", ":")).encode("ascii")
    assert len(payload) == payload_bytes
    return payload


def open_v1(key: bytes, payload: bytes) -> bytes:
    """Open a payload. Raises Malformed, UnknownVersion, TooLarge, or WrongKey (also for changed bytes)."""
    exactly(key, KEY_BYTES, "a version 1 key")
    fields = _fields(payload)
    version = fields["v"]
    if type(version) is not int:  # §22-1
        raise Malformed("a version 1 payload's `v` is not a whole number")
    if version != 1:  # §22-1
        raise UnknownVersion("the payload states another version than 1")
    nonce = _decoded(fields, "nonce", NONCE_BYTES)
    ciphertext = _decoded(fields, "ciphertext", None)
    tag = _decoded(fields, "tag", TAG_BYTES)
    stated = fields["hmac"]
    if not isinstance(stated, str) or _HEX.fullmatch(stated) is None:  # §22-1
        raise Malformed("a version 1 payload's `hmac` is not 64 lower-case hex digits")
    sealed = ciphertext + tag
    if not hmac.compare_digest(_mac(key, nonce, sealed), bytes.fromhex(stated)):  # §22-2
        raise WrongKey("the version 1 payload's MAC does not agree")
    try:
        return AESGCM(key).decrypt(nonce, sealed, None)
    except InvalidTag:
        raise WrongKey("the version 1 payload's AEAD tag does not agree") from None


def _fields(payload: bytes) -> dict[str, object]:
    if len(payload) > V1_PAYLOAD_BYTES_MAX:  # §22-1
        raise TooLarge(f"a version 1 payload is at most {V1_PAYLOAD_BYTES_MAX} bytes, not {len(payload)}")
    try:
        parsed: object = json.loads(payload.decode("utf-8"), object_pairs_hook=_once)
    except Malformed:
        raise
    except (ValueError, RecursionError):
        raise Malformed("a version 1 payload is not JSON") from None
    if not isinstance(parsed, dict):
        raise Malformed("a version 1 payload is not a JSON object")
    fields = cast(dict[str, object], parsed)
    if fields.keys() != _FIELDS:  # §22-1
        raise Malformed("a version 1 payload must have exactly the fields v, nonce, ciphertext, tag and hmac")
    return fields


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) != len(pairs):  # §22-1
        raise Malformed("a version 1 payload repeats a field")
    return fields


def _decoded(fields: dict[str, object], name: str, length: int | None) -> bytes:
    text = fields[name]
    if not isinstance(text, str):
        raise Malformed(f"a version 1 payload's `{name}` is not a string")
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        raise Malformed(f"a version 1 payload's `{name}` is not base64") from None
    if _base64(data) != text:  # §22-1
        raise Malformed(f"a version 1 payload's `{name}` is not canonical base64")
    return data if length is None else exactly(data, length, f"a version 1 payload's `{name}`")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _mac(key: bytes, nonce: bytes, sealed: bytes) -> bytes:
    mac_key = hkdf(key, salt=b"", info=_MAC_INFO, length=MAC_BYTES)  # §22-3
    return hmac.digest(mac_key, nonce + sealed, "sha256")
