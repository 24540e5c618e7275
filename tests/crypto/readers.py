"""What runs a vector: the project's own code and the independent reader, each giving an outcome that can be compared.

An outcome is `success` with the fields that the vector must state, or the name of a failure with none.
"""

import hashlib
from collections.abc import Callable

import msgspec

from crystal_crypto.blob import open_blob
from crystal_crypto.bundle import open_bundle
from crystal_crypto.digest import TableDigest
from crystal_crypto.entry import parse
from crystal_crypto.errors import (
    BadCode,
    BadJoin,
    BadMessage,
    BadSignature,
    CryptoError,
    Malformed,
    TooLarge,
    UnknownVersion,
    WrongKey,
    WrongPassphrase,
)
from crystal_crypto.hierarchy import GenerationKey, Root, VaultSecret
from crystal_crypto.identity import DeviceIdentity, ExchangeKey, VerifyKey
from crystal_crypto.keystore.passphrase import PassphraseHeader
from crystal_crypto.kit import decode_kit
from crystal_crypto.letter import open_letter
from crystal_crypto.padding import padded_length
from crystal_crypto.pairing import decode
from crystal_mirror.operations import Capture, ChangeFiles, decode_operation
from crystal_prototype.sealing import open_v1
from crystal_relay.errors import Forbidden
from crystal_relay.server.founding import check_deletion, check_founding
from crystal_relay.wire import DeletionRequest, VaultCreation
from tests.crypto import (
    independent_blob,
    independent_founding,
    independent_invite,
    independent_operation,
    independent_wrapping,
    invite_readers,
)
from tests.crypto import independent_reader as other
from tests.vectors.vectorfile import Vector, subject

Outcome = tuple[str, dict[str, str]]
Reader = Callable[[Vector], dict[str, str]]

_NAMES: dict[type[CryptoError], str] = {
    Malformed: "malformed",
    UnknownVersion: "unknown version",
    TooLarge: "too large",
    BadSignature: "bad signature",
    WrongKey: "wrong key",
    BadCode: "bad code",
    BadMessage: "bad message",
    BadJoin: "bad message",
    WrongPassphrase: "wrong key",
}


def ours(vector: Vector) -> Outcome:
    """Only the errors of the documented tree count as outcomes; anything else fails the test that asked."""
    try:
        return "success", _OURS[vector.folder](vector)
    except CryptoError as error:
        return _NAMES[type(error)], {}
    except msgspec.ValidationError:
        return "malformed", {}
    except Forbidden:
        return "bad proof", {}


def theirs(vector: Vector) -> Outcome:
    try:
        return "success", _THEIRS[vector.folder](vector)
    except other.Refused as refused:
        return refused.outcome, {}


def expected(vector: Vector) -> Outcome:
    """What the file says."""
    if vector.expect != "success":
        return vector.expect, {}
    return "success", {name: vector.fields[name] for name in _stated(vector)}


def _stated(vector: Vector) -> tuple[str, ...]:
    stated = {
        "entry": ("entry-hash", "frames", "payload"),
        "blob": ("length", "content"),
        "bundle": ("generation-key", "secret"),
        "letter": ("content",),
        "operation": ("changes", "paths") if "paths" in vector.fields else ("pieces", "models"),
        "code": ("root", "vault") if "vault" in vector.fields else ("root",),
        "kit": ("root", "vault"),
        "v1": ("plain",),
        "wrapped": ("secret",),
        "founding": ("vault",),
        "deletion": ("due",),
    }
    of_keys = {
        "root": ("admin", "vault", "recovery", "relay-secret", "check-value"),
        "entry-keys": ("encryption-key", "mac-key", "nonce"),
        "vault-secret": ("state-key", "forget-hash", "blob-name"),
        "cut-seed": ("seed",),
        "generation-names": ("blob-name", "seed"),
        "state-digest": ("count", "sum"),
        "padding": ("padded",),
        "verify-key": (),
        "identity": ("device", "verify-key", "exchange-public"),
    }
    if vector.folder == "invite":
        return invite_readers.STATED[vector.fields["of"]]
    return of_keys[vector.fields["of"]] if vector.folder == "key" else stated[vector.folder]


def _payload(frames: list[bytes]) -> dict[str, str]:
    digests = b"".join(hashlib.sha256(frame).digest() for frame in frames)
    return {"frames": str(len(frames)), "payload": hashlib.sha256(digests).hexdigest()}


def _content(content: bytes) -> dict[str, str]:
    return {"length": str(len(content)), "content": hashlib.sha256(content).hexdigest()}


def _our_entry(vector: Vector) -> dict[str, str]:
    entry = parse(subject(vector))
    entry.verify(VerifyKey.from_bytes(vector.hex("verify-key")))
    frames = entry.open(GenerationKey(vector.number("generation"), vector.hex("generation-key")))
    return {"entry-hash": entry.hash.hex(), **_payload(frames)}


def _their_entry(vector: Vector) -> dict[str, str]:
    entry_hash, frames = other.read_entry(
        subject(vector), vector.hex("verify-key"), vector.number("generation"), vector.hex("generation-key")
    )
    return {"entry-hash": entry_hash.hex(), **_payload(frames)}


def _our_blob(vector: Vector) -> dict[str, str]:
    stored = subject(vector)
    pieces = [stored[at : at + 10_000] for at in range(0, len(stored), 10_000)]
    key = GenerationKey(vector.number("generation"), vector.hex("generation-key"))
    name, vault = vector.hex("name"), vector.hex("vault")
    asked = vector.hex("content-hash")
    return _content(b"".join(open_blob(pieces, content_hash=asked, name=name, vault=vault, key=key)))


def _their_blob(vector: Vector) -> dict[str, str]:
    content = independent_blob.read_blob(
        subject(vector),
        vault=vector.hex("vault"),
        name=vector.hex("name"),
        g=vector.number("generation"),
        generation_key=vector.hex("generation-key"),
        content_hash=vector.hex("content-hash"),
    )
    return _content(content)


def _our_bundle(vector: Vector) -> dict[str, str]:
    generation, secret = open_bundle(
        subject(vector),
        ExchangeKey(vector.hex("private-key")),
        vault=vector.hex("vault"),
        recipient_id=vector.hex("recipient"),
        log_head=vector.hex("log-head"),
        generation_number=vector.number("generation"),
    )
    return {"generation-key": generation.secret.hex(), "secret": secret.to_bytes().hex()}


def _their_bundle(vector: Vector) -> dict[str, str]:
    generation, secret = other.read_bundle(
        subject(vector),
        private=vector.hex("private-key"),
        vault=vector.hex("vault"),
        recipient=vector.hex("recipient"),
        log_head=vector.hex("log-head"),
        g=vector.number("generation"),
    )
    return {"generation-key": generation.hex(), "secret": secret.hex()}


def _our_letter(vector: Vector) -> dict[str, str]:
    content = open_letter(
        subject(vector),
        ExchangeKey(vector.hex("private-key")),
        vault=vector.hex("vault"),
        sender=vector.hex("sender"),
        recipient_id=vector.hex("recipient"),
        log_head=vector.hex("log-head"),
        incarnation=vector.hex("incarnation"),
        sequence=vector.number("sequence"),
    )
    return {"content": content.hex()}


def _our_operation(vector: Vector) -> dict[str, str]:
    operation = decode_operation(subject(vector))
    if isinstance(operation, Capture):
        models = "\n".join(piece.model for piece in operation.pieces).encode()
        return {"pieces": str(len(operation.pieces)), "models": hashlib.sha256(models).hexdigest()}
    assert isinstance(operation, ChangeFiles)
    paths = "\n".join(each.path for each in operation.changes).encode()
    return {"changes": str(len(operation.changes)), "paths": hashlib.sha256(paths).hexdigest()}


def _their_letter(vector: Vector) -> dict[str, str]:
    content = other.read_letter(
        subject(vector),
        private=vector.hex("private-key"),
        vault=vector.hex("vault"),
        sender=vector.hex("sender"),
        recipient=vector.hex("recipient"),
        place=(vector.hex("log-head"), vector.hex("incarnation"), vector.number("sequence")),
    )
    return {"content": content.hex()}


def _our_code(vector: Vector) -> dict[str, str]:
    code = decode(subject(vector).decode())
    return _root_and_vault(vector, code.root.to_bytes(), code.vault_id)


def _their_code(vector: Vector) -> dict[str, str]:
    return _root_and_vault(vector, *independent_invite.read_offline_code(subject(vector).decode()))


def _our_kit(vector: Vector) -> dict[str, str]:
    kit = decode_kit(subject(vector).decode())
    return _root_and_vault(vector, kit.root.to_bytes(), kit.vault)


def _their_kit(vector: Vector) -> dict[str, str]:
    return _root_and_vault(vector, *independent_invite.read_kit(subject(vector).decode()))


def _root_and_vault(vector: Vector, root: bytes, vault: bytes) -> dict[str, str]:
    stated = {"root": root.hex(), "vault": vault.hex()}
    return {name: stated[name] for name in _stated(vector)}


def _our_key(vector: Vector) -> dict[str, str]:
    match vector.fields["of"]:
        case "root":
            root = Root(vector.hex("root"))
            found = {
                "admin": root.admin.public.to_bytes(),
                "vault": root.vault,
                "recovery": root.recovery.public.to_bytes(),
                "relay-secret": root.relay_secret,
                "check-value": root.check_value,
            }
        case "entry-keys":
            generation = GenerationKey(vector.number("generation"), vector.hex("generation-key"))
            encryption, mac, nonce = generation.entry_keys(
                channel=vector.number("channel"),
                **{name: vector.hex(name) for name in ("vault", "sender", "incarnation", "salt", "context")},
            )
            found = {"encryption-key": encryption, "mac-key": mac, "nonce": nonce}
        case "vault-secret":
            secret, digest = VaultSecret(vector.hex("secret")), vector.hex("content-hash")
            found = {
                "state-key": secret.state_key,
                "forget-hash": secret.forget_hash(digest),
                "blob-name": secret.blob_name(digest),
            }
        case "cut-seed":
            return {"seed": str(VaultSecret(vector.hex("secret")).cut_seed)}
        case "generation-names":
            vault, digest = vector.hex("vault"), vector.hex("content-hash")
            key = GenerationKey(vector.number("generation"), vector.hex("generation-key"))
            name = key.blob_name(vault, digest, vector.number("turn"))
            return {"blob-name": name.hex(), "seed": str(key.cut_seed(vault))}
        case "state-digest":
            table = TableDigest(vector.hex("state-key"), vector.fields["table"])
            for row in _rows(vector):
                table.add(row)
            return {"count": str(table.count), "sum": table.sum_bytes.hex()}
        case "padding":
            return _padded(vector, padded_length)
        case "verify-key":
            VerifyKey.from_bytes(vector.hex("verify-key"))
            return {}
        case _:
            identity = DeviceIdentity.from_bytes(vector.hex("identity"))
            found = {
                "device": identity.id,
                "verify-key": identity.signing.public.to_bytes(),
                "exchange-public": identity.exchange.public.to_bytes(),
            }
    return {name: value.hex() for name, value in found.items()}


def _their_key(vector: Vector) -> dict[str, str]:
    match vector.fields["of"]:
        case "root":
            found = other.root_keys(vector.hex("root"))
        case "entry-keys":
            encryption, mac, nonce = other.entry_keys(
                vector.number("generation"),
                vector.hex("generation-key"),
                channel=vector.number("channel"),
                **{name: vector.hex(name) for name in ("vault", "sender", "incarnation", "salt", "context")},
            )
            found = {"encryption-key": encryption, "mac-key": mac, "nonce": nonce}
        case "vault-secret":
            found = other.secret_keys(vector.hex("secret"), vector.hex("content-hash"))
        case "cut-seed":
            return {
                "seed": str(independent_blob.cut_seed(other.secret_key(vector.hex("secret"), "blob-name")))
            }
        case "generation-names":
            given = (vector.hex("vault"), vector.number("generation"), vector.hex("generation-key"))
            name = independent_blob.generation_name(*given, vector.hex("content-hash"), vector.number("turn"))
            seed = independent_blob.cut_seed(independent_blob.naming_key(*given))
            return {"blob-name": name.hex(), "seed": str(seed)}
        case "state-digest":
            total, count = other.state_digest(vector.hex("state-key"), vector.fields["table"], _rows(vector))
            return {"count": str(count), "sum": f"{total:064x}"}
        case "padding":
            return _padded(vector, other.padded)
        case "verify-key":
            other.ed25519_public(vector.hex("verify-key"))
            return {}
        case _:
            found = other.read_identity(vector.hex("identity"))
    return {name: value.hex() for name, value in found.items()}


def _our_wrapped(vector: Vector) -> dict[str, str]:
    header = PassphraseHeader.parse(vector.hex("header"))
    keys = header.open(header.derive(bytearray(vector.hex("passphrase"))))
    secret = keys.unwrap(vector.fields["name"], vector.hex("file"))
    if secret is None:
        raise WrongKey("a store of files refuses it: it is under none of these keys")
    return {"secret": secret.hex()}


def _their_wrapped(vector: Vector) -> dict[str, str]:
    given = (vector.hex("passphrase"), vector.hex("header"), vector.fields["name"], vector.hex("file"))
    return {"secret": independent_wrapping.read_wrapped(*given).hex()}


def _our_founding(vector: Vector) -> dict[str, str]:
    creation = msgspec.json.decode(subject(vector), type=VaultCreation)
    check_founding(creation, vector.fields["host"])
    return {"vault": creation.vault}


def _their_founding(vector: Vector) -> dict[str, str]:
    return {"vault": independent_founding.read_founding(subject(vector), vector.fields["host"])}


def _our_deletion(vector: Vector) -> dict[str, str]:
    request = msgspec.json.decode(subject(vector), type=DeletionRequest)
    check_deletion(vector.fields["vault"], int(vector.fields["number"]), request, vector.fields["host"])
    return {"due": str(request.due)}


def _their_deletion(vector: Vector) -> dict[str, str]:
    vault, number = vector.fields["vault"], int(vector.fields["number"])
    return {
        "due": str(independent_founding.read_deletion(subject(vector), vault, number, vector.fields["host"]))
    }


def _rows(vector: Vector) -> list[bytes]:
    rows = vector.fields["rows"]
    return [] if rows == "none" else [bytes.fromhex(row[1:]) for row in rows.split(" ")]


def _padded(vector: Vector, function: Callable[[int], int]) -> dict[str, str]:
    lengths = [int(pair.split(":")[0]) for pair in vector.fields["padded"].split()]
    return {"padded": " ".join(f"{length}:{function(length)}" for length in lengths)}


_OURS: dict[str, Reader] = {
    "entry": _our_entry,
    "blob": _our_blob,
    "bundle": _our_bundle,
    "letter": _our_letter,
    "operation": _our_operation,
    "code": _our_code,
    "kit": _our_kit,
    "invite": invite_readers.ours,
    "v1": lambda vector: {"plain": hashlib.sha256(open_v1(vector.hex("key"), subject(vector))).hexdigest()},
    "key": _our_key,
    "wrapped": _our_wrapped,
    "founding": _our_founding,
    "deletion": _our_deletion,
}
_THEIRS: dict[str, Reader] = {
    "entry": _their_entry,
    "blob": _their_blob,
    "bundle": _their_bundle,
    "letter": _their_letter,
    "operation": lambda vector: independent_operation.read(subject(vector)),
    "code": _their_code,
    "kit": _their_kit,
    "invite": invite_readers.theirs,
    "v1": lambda vector: {
        "plain": hashlib.sha256(other.read_v1(vector.hex("key"), subject(vector))).hexdigest()
    },
    "key": _their_key,
    "wrapped": _their_wrapped,
    "founding": _their_founding,
    "deletion": _their_deletion,
}
