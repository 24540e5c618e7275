"""The vectors about requests to delete a vault at a relay."""

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.vectors.craft import fixed, verify_key
from tests.vectors.founding_cases import HOST, OWN, SEEDS, replacement, seed_of
from tests.vectors.vectorfile import Vector

_DUE = 1_900_000_000


@dataclass(kw_only=True)
class _Request:
    """A request about to be written. What is signed is what is asked for, unless `signed` replaces a part of it."""

    vault: bytes = OWN
    number: int = 1
    due: int = _DUE
    admin: bytes = field(default_factory=lambda: verify_key(SEEDS[0]))
    roots: Sequence[bytes] = ()
    seed: bytes = field(default_factory=lambda: SEEDS[0])
    label: bytes = b"crystal/v2/deletion\x00"
    host: str = HOST
    signed: dict[str, bytes] = field(default_factory=dict[str, bytes])

    def build(self) -> dict[str, object]:
        named = {
            "vault": self.vault,
            "number": self.number.to_bytes(4, "big"),
            "due": self.due.to_bytes(8, "big"),
        }
        message = self.label + b"".join((named | self.signed).values()) + self.host.encode()
        signature = Ed25519PrivateKey.from_private_bytes(self.seed).sign(message)
        roots = [base64.b64encode(root).decode() for root in self.roots]
        proof = {"admin": self.admin.hex(), "roots": roots, "signature": signature.hex()}
        return {"due": self.due, "proof": proof}


def _vector(name: str, what: str, expect: str, body: dict[str, object], host: str = HOST) -> Vector:
    fields = {"what": what, "expect": expect, "host": host, "vault": OWN.hex(), "number": "1"}
    if expect == "success":
        fields["due"] = str(body["due"])
    return Vector("deletion", name, fields, json.dumps(body).encode())


def cases() -> Iterator[Vector]:
    once, twice = replacement(1), replacement(2)
    yield _vector("first_root", "by the root that founded the vault", "success", _Request().build())
    again = _Request(roots=[once, twice], seed=SEEDS[2])
    yield _vector("twice_replaced_root", "by the third root", "success", again.build())
    literal = _Request(host="2001:db8::1")
    yield _vector("ipv6", "a relay at an IPv6 address", "success", literal.build(), "[2001:db8::1]:8443")

    def case(name: str, what: str, **changes: object) -> Vector:
        return _vector(name, what, "bad proof", _Request(**changes).build())  # type: ignore[arg-type]

    yield case("another_root", "by a root of another vault, with the right admin key", seed=seed_of(7))
    yield case(
        "another_vault", "by a root that is not the id's", admin=verify_key(seed_of(7)), seed=seed_of(7)
    )
    yield case("another_host", "signed for another relay", host="elsewhere.example.org")
    yield case("label_of_founding", "signed under the label of a founding", label=b"crystal/v2/founding\x00")
    yield case("another_vault_signed", "signed with another vault", signed={"vault": fixed("other", 16)})
    yield case("another_number_signed", "signed for another number", signed={"number": bytes([0, 0, 0, 2])})
    yield case("another_due_signed", "signed for another time", signed={"due": (_DUE + 1).to_bytes(8, "big")})
    yield case(
        "numbers_of_32_bits_signed", "a time of 32 bits is signed", signed={"due": _DUE.to_bytes(4, "big")}
    )
    yield case("replaced_root_signs", "by the first root, after it was replaced", roots=[once])
    yield case("root_left_out", "one replacement is not shown", roots=[twice], seed=SEEDS[2])
    good = _Request().build()
    malformed: list[tuple[str, str, dict[str, object]]] = [
        ("no_proof", "no proof", {"due": _DUE}),
        ("more", "a member that is not defined", good | {"number": 1}),
        ("due_negative", "a time before 1970", good | {"due": -1}),
        ("due_text", "a time in quotes", good | {"due": str(_DUE)}),
    ]
    for name, what, body in malformed:
        yield _vector(name, what, "malformed", body)
