"""Proof of the root: only somebody who has the root of a vault's id creates the vault here, or has it deleted
(docs/protocol.md §4.3, §4.4).

The one place where the relay uses cryptography. All that it imports is the verification of an Ed25519 signature: it has no
cipher and no key.
"""

import hashlib
from base64 import b64decode
from typing import Final

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from crystal_relay.errors import UNDECODABLE, Forbidden
from crystal_relay.wire import DeletionRequest, RootProof, VaultCreation

_VAULT_LABEL: Final = b"crystal/v2/vault\0"
_FOUNDING_LABEL: Final = b"crystal/v2/founding\0"
_DELETION_LABEL: Final = b"crystal/v2/deletion\0"
_ENTRY_LABEL: Final = b"crystal/v2/entry-signature\0"
_VAULT_BYTES: Final = 16
_HEADER_BYTES: Final = 184
_BEHIND_BYTES: Final = 32 + 32 + 64
"""Body digest, MAC and signature."""
_SIGNATURE_BYTES: Final = 64
_LOG_ENTRY: Final = b"CRYE\x02\x01\x01\x01"
"""Magic, version, suite, kind and channel of an entry of the device log."""
_ROOT_SENDER: Final = bytes(16)
_NO_ROOT_ENTRY: Final = "the proof contains something other than the entries of the vault's roots"
_HINT: Final = "Use the newest recovery kit, or a device that has the root."


class _RootRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="root"):
    """The public part of a root's entry. Only the admin key matters here."""

    admin: bytes
    recovery: bytes
    holder: bytes
    generation: int
    bundle: bytes


def check_founding(creation: VaultCreation, host: str) -> None:
    """Check that the sender has the root of the vault's id.

    `host`: of the request, as the header Host has it.

    Raises Forbidden: there is no proof, or it is not one for this vault, these hashes and this host.
    """
    proof = creation.proof
    if proof is None:  # §R4.1-2
        raise Forbidden(
            "this relay takes a new vault only with a proof of its root, which this version of Crystal does not send: "
            "upgrade it",
            hint="Upgrade Crystal on this device.",
        )
    named = creation.vault + creation.device + creation.recovery_hash + creation.token_hash
    _check_proof(creation.vault, proof, _FOUNDING_LABEL + bytes.fromhex(named), host)  # §4.3-2


def check_deletion(vault: str, number: int, request: DeletionRequest, host: str) -> None:
    """Check that the root of the vault (32 hex digits) has signed the request for its deletion of this number.

    Raises Forbidden: as `check_founding`.
    """
    asked = number.to_bytes(4, "big") + request.due.to_bytes(8, "big")
    _check_proof(vault, request.proof, _DELETION_LABEL + bytes.fromhex(vault) + asked, host)  # §4.4-1


def _check_proof(vault_id: str, proof: RootProof, message: bytes, host: str) -> None:
    """Check that the newest root of the proof has signed the message, followed by the name of the host. Raises Forbidden."""
    vault, key = bytes.fromhex(vault_id), bytes.fromhex(proof.admin)
    if hashlib.sha256(_VAULT_LABEL + key).digest()[:_VAULT_BYTES] != vault:  # §4.3-1
        raise Forbidden("the proof begins with a root of another vault", hint=_HINT)
    for text in proof.roots:
        key = _next_root(vault, key, text)
    here = host_name(host)
    if not _has_signed(key, bytes.fromhex(proof.signature), message + here.encode()):
        raise Forbidden(
            f"the proof of the vault's root is not signed by its newest root for the relay at {here}",
            hint=f"{_HINT} A proxy in front of the relay has to pass on the header Host.",
        )


def host_name(host: str) -> str:
    """The name or the address in a header Host: without the port, in lower case."""
    name, colon, port = host.rpartition(":")
    if colon and (port.isdigit() or not port) and not (":" in name and not name.endswith("]")):
        host = name
    return host.removeprefix("[").removesuffix("]").lower()


def _next_root(vault: bytes, key: bytes, text: str) -> bytes:
    """The admin key of the root that the one with this key put in its place. Raises Forbidden."""
    try:
        shown = b64decode(text, validate=True)
        record = _record(vault, shown)
    except (ValueError, *UNDECODABLE):
        raise Forbidden(_NO_ROOT_ENTRY, hint=_HINT) from None
    if not _has_signed(key, shown[-_SIGNATURE_BYTES:], _ENTRY_LABEL + shown[:-_SIGNATURE_BYTES]):
        raise Forbidden(_NO_ROOT_ENTRY, hint=_HINT)
    return record.admin


def _record(vault: bytes, shown: bytes) -> _RootRecord:
    """The record in an entry without its body. Raises ValueError, or one of UNDECODABLE."""
    public = shown[_HEADER_BYTES:-_BEHIND_BYTES]
    if (
        not shown.startswith(_LOG_ENTRY)  # §4.3-3
        or shown[16:32] != vault
        or shown[32:48] != _ROOT_SENDER
        or int.from_bytes(shown[176:180], "big") != len(public)
    ):
        raise ValueError("not an entry that the vault's root has signed")
    return msgspec.msgpack.decode(public, type=_RootRecord)


def _has_signed(key: bytes, signature: bytes, message: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True
