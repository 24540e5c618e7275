"""The vectors about proofs of the root: requests that found a vault at a relay."""

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.vectors.craft import EntryDraft, fixed, hkdf, verify_key
from tests.vectors.vectorfile import Vector

HOST = "relay.example.org"


def seed_of(number: int) -> bytes:
    """The seed of a root's admin key."""
    return hkdf(fixed(f"root {number} of a founding", 32), b"", b"crystal/v2/root/admin\x00", 32)


def _vault(seed: bytes) -> bytes:
    return hashlib.sha256(b"crystal/v2/vault\x00" + verify_key(seed)).digest()[:16]


SEEDS = [seed_of(number) for number in range(3)]
OWN = _vault(SEEDS[0])


def _bin(data: bytes) -> bytes:
    return b"\xc4" + bytes([len(data)]) + data


def _record(admin: bytes, name: bytes = b"root") -> bytes:
    fields = [
        _bin(admin),
        _bin(fixed("recovery key", 32)),
        _bin(bytes(16)),
        b"\x01",
        _bin(fixed("bundle", 113)),
    ]
    return b"\x96" + bytes([0xA0 + len(name)]) + name + b"".join(fields)


def _draft(number: int, **changes: object) -> EntryDraft:
    """The entry by which root `number` replaces the one before it."""
    draft = EntryDraft(
        name=f"root {number}",
        kind=1,
        channel=1,
        vault=OWN,
        sender=bytes(16),
        incarnation=bytes(8),
        sequence=number,
        public=_record(verify_key(SEEDS[number])),
        seed=SEEDS[number - 1],
    )
    return replace(draft, **changes)  # type: ignore[arg-type]


def replacement(number: int) -> bytes:
    """The entry by which root `number` replaces the one before it, as a proof shows it."""
    return _shown(_draft(number))


def _shown(draft: EntryDraft) -> bytes:
    data = draft.build()
    split = 184 + len(draft.public)
    body = data[split:-96]
    pieces = b"".join(hashlib.sha256(body[at : at + 131072]).digest() for at in range(0, len(body), 131072))
    return data[:split] + hashlib.sha256(b"crystal/v2/entry-body\x00" + pieces).digest() + data[-96:]


@dataclass(kw_only=True)
class _Request:
    """A request about to be written. `signed` replaces parts of what is signed."""

    vault: bytes = OWN
    admin: bytes = field(default_factory=lambda: verify_key(SEEDS[0]))
    roots: Sequence[bytes] = ()
    seed: bytes = field(default_factory=lambda: SEEDS[0])
    label: bytes = b"crystal/v2/founding\x00"
    host: str = HOST
    signed: dict[str, bytes] = field(default_factory=dict[str, bytes])
    proven: bool = True

    def build(self) -> dict[str, object]:
        named = {
            "vault": self.vault,
            "device": fixed("device that founds", 16),
            "recovery_hash": fixed("recovery hash", 32),
            "token_hash": fixed("token hash", 32),
        }
        body: dict[str, object] = {name: value.hex() for name, value in named.items()}
        if self.proven:
            message = self.label + b"".join((named | self.signed).values()) + self.host.encode()
            signature = Ed25519PrivateKey.from_private_bytes(self.seed).sign(message)
            roots = [base64.b64encode(root).decode() for root in self.roots]
            body["proof"] = {"admin": self.admin.hex(), "roots": roots, "signature": signature.hex()}
        return body


def _vector(name: str, what: str, expect: str, body: dict[str, object], host: str = HOST) -> Vector:
    fields = {"what": what, "expect": expect, "host": host}
    if expect == "success":
        fields["vault"] = str(body["vault"])
    return Vector("founding", name, fields, json.dumps(body).encode())


def cases() -> Iterator[Vector]:
    once, twice = replacement(1), replacement(2)
    yield _vector("first_root", "by the root that founds the vault", "success", _Request().build())
    yield _vector(
        "port_and_case",
        "the host with a port, in capitals",
        "success",
        _Request().build(),
        "Relay.Example.org:8443",
    )
    replaced = _Request(roots=[once], seed=SEEDS[1])
    yield _vector("replaced_root", "by a root that replaced the first", "success", replaced.build())
    again = _Request(roots=[once, twice], seed=SEEDS[2])
    yield _vector("twice_replaced_root", "by the third root", "success", again.build())
    literal = _Request(host="2001:db8::1")
    yield _vector("ipv6", "a relay at an IPv6 address", "success", literal.build(), "[2001:db8::1]:8443")
    yield from _bad_proofs(once, twice)
    yield from _malformed(once)


def _bad_proofs(once: bytes, twice: bytes) -> Iterator[Vector]:
    def case(name: str, what: str, **changes: object) -> Vector:
        return _vector(name, what, "bad proof", _Request(**changes).build())  # type: ignore[arg-type]

    yield case("no_proof", "no proof", proven=False)
    yield case("another_root", "by a root of another vault, with the right admin key", seed=seed_of(7))
    yield case(
        "another_vault", "by a root that is not the id's", admin=verify_key(seed_of(7)), seed=seed_of(7)
    )
    yield case("another_host", "signed for another relay", host="elsewhere.example.org")
    yield case("another_label", "signed under another label", label=b"crystal/v2/entry-signature\x00")
    for part, length in (("vault", 16), ("device", 16), ("recovery_hash", 32), ("token_hash", 32)):
        yield case(
            f"another_{part}_signed", f"signed with another {part}", signed={part: fixed("other", length)}
        )
    yield case("replaced_root_signs", "by the first root, after it was replaced", roots=[once])
    yield case("root_left_out", "one replacement is not shown", roots=[twice], seed=SEEDS[2])
    yield case("roots_in_another_order", "replacements in another order", roots=[twice, once], seed=SEEDS[2])

    def root(name: str, what: str, **changes: object) -> Vector:
        return case(f"entry_{name}", what, roots=[_shown(_draft(1, **changes))], seed=SEEDS[1])

    yield root("of_another_vault", "a root's entry of another vault", vault=fixed("vault", 16))
    yield root("of_a_device", "a root's entry that a device has sent", sender=fixed("sender", 16))
    yield root("of_another_kind", "an offer with a root's public part", kind=2, channel=2)
    yield root("by_another_key", "a root's entry that another root signed", seed=seed_of(7))
    yield root("of_another_record", "another record", public=_record(verify_key(SEEDS[1]), b"rOOt"))
    yield root("with_more_behind", "a byte behind the record", public=_record(verify_key(SEEDS[1])) + b"\x00")
    yield root("of_another_length", "a public length that is not the true one", public_length=200)
    cut = _Request(roots=[once[:-1]], seed=SEEDS[1])
    yield _vector("entry_cut", "the last byte of an entry is missing", "bad proof", cut.build())
    tiny = _Request(roots=[once[:100]], seed=SEEDS[1])
    yield _vector("entry_of_100_bytes", "an entry shorter than its header", "bad proof", tiny.build())


def _malformed(once: bytes) -> Iterator[Vector]:
    def case(name: str, what: str, proof: object) -> Vector:
        return _vector(name, what, "malformed", _Request().build() | {"proof": proof})

    good = cast("dict[str, Any]", _Request().build()["proof"])
    yield case(
        "proof_without_roots", "no list of roots", {name: good[name] for name in ("admin", "signature")}
    )
    yield case("proof_with_more", "a member that is not defined", good | {"host": HOST})
    yield case("signature_short", "a signature of 63 bytes", good | {"signature": good["signature"][:-2]})
    yield case("admin_in_capitals", "an admin key in capitals", good | {"admin": good["admin"].upper()})
    many = [base64.b64encode(once).decode()] * 65
    yield case("too_many_roots", "65 roots", good | {"roots": many})
    yield case(
        "root_too_long", "a root of 1,537 bytes", good | {"roots": [base64.b64encode(bytes(1537)).decode()]}
    )
    yield case("root_not_base64", "a root in another encoding", good | {"roots": ["_-_-"]})
