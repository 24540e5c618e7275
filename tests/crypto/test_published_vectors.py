"""The primitives give what their standards publish, called as we call them (vectors: the package `cryptography_vectors`)."""

import hmac
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict, cast

import cryptography_vectors
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import GCM

from crystal_crypto.bundle import SUITE
from crystal_crypto.errors import BadSignature, Malformed
from crystal_crypto.hierarchy import hkdf
from crystal_crypto.identity import ExchangeKey, ExchangePublic, SigningKey, VerifyKey

FOLDER = Path(cryptography_vectors.__file__).parent


def _records(path: str, first: str) -> Iterator[dict[str, str]]:
    """The `Name = value` records of a file; a line named `first` begins a new one, `[Name = value]` holds for all after it."""
    common: dict[str, str] = {}
    record: dict[str, str] = {}
    for line in (FOLDER / path).read_text(encoding="utf-8").splitlines():
        name, found, value = line.strip("[]").partition("=")
        name = name.strip()
        if line.startswith("[") and found:
            if first in record:
                yield common | record
                record = {}
            common[name] = value.strip()
        elif line.strip() == "FAIL":
            record["FAIL"] = ""
        elif found and not line.startswith("#"):
            if name == first and first in record:
                yield common | record
                record = {}
            record[name] = value.strip()
    yield common | record


def _hex(record: dict[str, str], name: str) -> bytes:
    return bytes.fromhex(record[name])


def _gcm(path: str) -> list[dict[str, str]]:
    """Those with our nonce and tag lengths."""
    wanted = [r for r in _records(path, "Count") if r["IVlen"] == "96" and r["Taglen"] == "128"]
    assert len(wanted) >= 300
    return wanted


def test_aes_256_gcm_encrypts_as_published() -> None:
    for record in _gcm("ciphers/AES/GCM/gcmEncryptExtIV256.rsp"):
        nonce, plain, aad = (_hex(record, name) for name in ("IV", "PT", "AAD"))
        sealed = _hex(record, "CT") + _hex(record, "Tag")
        assert AESGCM(_hex(record, "Key")).encrypt(nonce, plain, aad) == sealed


def test_aes_256_gcm_encrypts_in_parts_as_published() -> None:
    for record in _gcm("ciphers/AES/GCM/gcmEncryptExtIV256.rsp"):
        plain = _hex(record, "PT")
        into = memoryview(bytearray(len(plain) + 32))
        encryptor = Cipher(AES256(_hex(record, "Key")), GCM(_hex(record, "IV"))).encryptor()
        encryptor.authenticate_additional_data(_hex(record, "AAD"))
        at = 0
        for part in (plain[:5], plain[5:]):
            at += encryptor.update_into(part, into[at:])
        assert encryptor.finalize() == b""
        assert bytes(into[:at]) + encryptor.tag == _hex(record, "CT") + _hex(record, "Tag")


def test_aes_256_gcm_decrypts_as_published_and_refuses_what_must_fail() -> None:
    refused = 0
    for record in _gcm("ciphers/AES/GCM/gcmDecrypt256.rsp"):
        nonce, aad = _hex(record, "IV"), _hex(record, "AAD")
        sealed = _hex(record, "CT") + _hex(record, "Tag")
        into = bytearray(len(sealed) - 16)
        cipher = AESGCM(_hex(record, "Key"))
        if "FAIL" in record:
            refused += 1
            with pytest.raises(InvalidTag):
                cipher.decrypt_into(nonce, sealed, aad, into)
            with pytest.raises(InvalidTag):
                cipher.decrypt(nonce, sealed, aad)
        else:
            cipher.decrypt_into(nonce, sealed, aad, into)
            assert into == cipher.decrypt(nonce, sealed, aad) == _hex(record, "PT")
    assert refused > 50


def test_hkdf_sha256_as_rfc_5869_publishes_it() -> None:
    records = list(_records("KDF/rfc-5869-HKDF-SHA256.txt", "COUNT"))
    assert len(records) == 3
    for record in records:
        secret, salt, info = (_hex(record, name) for name in ("IKM", "salt", "info"))
        assert hkdf(secret, salt=salt, info=info, length=int(record["L"])) == _hex(record, "OKM")


def test_hmac_sha256_as_rfc_4231_publishes_it() -> None:
    records = list(_records("HMAC/rfc-4231-sha256.txt", "Len"))
    assert len(records) >= 6
    for record in records:
        digest = hmac.digest(_hex(record, "Key"), _hex(record, "Msg")[: int(record["Len"]) // 8], "sha256")
        assert digest[: len(_hex(record, "MD"))] == _hex(record, "MD")


def test_ed25519_signs_and_verifies_as_published() -> None:
    lines = (FOLDER / "asymmetric/Ed25519/sign.input").read_text(encoding="ascii").splitlines()
    assert len(lines) == 1024
    for line in lines:
        seed, public, message, signed = (bytes.fromhex(part) for part in line.split(":")[:4])
        key, signature = SigningKey.from_bytes(seed[:32]), signed[:64]
        assert key.public.to_bytes() == public
        assert key.sign(message) == signature
        VerifyKey.from_bytes(public).verify(signature, message)
        with pytest.raises(BadSignature):
            key.public.verify(signature, message + b"\x00")


def test_x25519_as_rfc_7748_publishes_it() -> None:
    records = [r for r in _records("asymmetric/X25519/rfc7748.txt", "COUNT") if "INPUT_SCALAR" in r]
    assert len(records) >= 3
    for record in records:
        key = ExchangeKey.from_bytes(_hex(record, "INPUT_SCALAR"))
        other = ExchangePublic.from_bytes(_hex(record, "INPUT_U"))
        assert key.exchange(other) == _hex(record, "OUTPUT_U")


def test_x25519_refuses_points_that_give_no_secret() -> None:
    key = ExchangeKey.generate()
    for point in (bytes(32), b"\x01" + bytes(31)):
        with pytest.raises(Malformed):
            key.exchange(ExchangePublic.from_bytes(point))


class _Hpke(TypedDict):
    mode: int
    kem_id: int
    kdf_id: int
    aead_id: int
    info: str
    skRm: str
    enc: str
    key: str
    base_nonce: str
    encryptions: list[dict[str, str]]


def test_hpke_opens_what_rfc_9180_derives() -> None:
    """The RFC's own ciphertexts have additional data, which we never use: its key and nonce seal one without."""
    text = (FOLDER / "HPKE/test-vectors.json").read_text(encoding="utf-8")
    wanted = [
        vector
        for vector in cast(list[_Hpke], json.loads(text))
        if (vector["mode"], vector["kem_id"], vector["kdf_id"], vector["aead_id"]) == (0, 0x20, 1, 2)
    ]
    assert len(wanted) == 1
    vector = {name: bytes.fromhex(wanted[0][name]) for name in ("info", "skRm", "enc", "key", "base_nonce")}
    first = {name: bytes.fromhex(value) for name, value in wanted[0]["encryptions"][0].items()}
    cipher = AESGCM(vector["key"])
    assert cipher.encrypt(vector["base_nonce"], first["pt"], first["aad"]) == first["ct"]
    sealed = vector["enc"] + cipher.encrypt(vector["base_nonce"], first["pt"], b"")
    private = X25519PrivateKey.from_private_bytes(vector["skRm"])
    assert SUITE.decrypt(sealed, private, vector["info"]) == first["pt"]
    with pytest.raises(InvalidTag):
        SUITE.decrypt(sealed, private, vector["info"] + b"\x00")
