"""Builds whole invite pairings from the primitives alone, so that every single thing about them can be made wrong."""

import hashlib
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.vectors.craft import OTHER, SENDER, VAULT, Change, fixed, hkdf, padded, unchanged, verify_key

LABEL = b"crystal/v2/invite/"
URL = "https://relay.example.org"
SECRET = fixed("invite secret", 16)
A, B = fixed("inviter's ephemeral", 32), fixed("newcomer's ephemeral", 32)
SEED, EXCHANGE = fixed("newcomer's seed", 32), fixed("newcomer's exchange", 32)
HASH, HEAD = fixed("entry hash of an add", 32), fixed("log head after an add", 32)
_IDENTITY = b"CRYD\x02" + OTHER + SEED + EXCHANGE
IDENTITY = _IDENTITY + hashlib.sha256(b"crystal/v2/identity\x00" + _IDENTITY).digest()[:8]

Item = bytes | str | int | bool | float | None


def public(private: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def pack(*items: Item) -> bytes:
    """One MessagePack array, as short as it can be written."""
    return bytes([0x90 | len(items)]) + b"".join(map(_item, items))


def _item(item: Item) -> bytes:
    match item:
        case None:
            return b"\xc0"
        case bool():
            return b"\xc3" if item else b"\xc2"
        case int():
            return bytes([item]) if 0 <= item < 128 else b"\xcf" + item.to_bytes(8, "big")
        case float():
            return b"\xcb" + bytes.fromhex("4008000000000000")
        case bytes():
            return b"\xc4" + bytes([len(item)]) + item
        case str():
            text = item.encode()
            head = bytes([0xA0 | len(text)]) if len(text) < 32 else b"\xda" + len(text).to_bytes(2, "big")
            return head + text


def content(body: bytes) -> bytes:
    raw = len(body).to_bytes(2, "big") + body
    return raw + bytes(padded(len(raw)) - len(raw))


@dataclass
class Session:
    """A whole pairing as it should go; a case makes one thing about it wrong."""

    vault: bytes = VAULT
    secret: bytes = SECRET
    a: bytes = A
    b: bytes = B
    offer_name: str = "desk in the study"
    reveal_body: bytes = field(
        default_factory=lambda: pack(
            fixed("inviter's nonce", 32), SENDER, "desk in the study", "Linux x86_64"
        )
    )
    join_items: tuple[Item, ...] = (
        OTHER,
        verify_key(SEED),
        public(EXCHANGE),
        "новый ноутбук",
        "Darwin arm64",
        fixed("hash of a token", 32),
        fixed("newcomer's nonce", 32),
    )
    promised: Change = unchanged

    @property
    def mailbox(self) -> bytes:
        return hkdf(self.secret, self.vault, LABEL + b"mailbox\x00", 16)

    def seal(self, slot: str, inside: bytes, *, agreed: bool, transcript: bytes = b"") -> bytes:
        secret, parties = self.secret, self.mailbox + public(self.a)
        if agreed:
            point = X25519PublicKey.from_public_bytes(public(self.b))
            secret += X25519PrivateKey.from_private_bytes(self.a).exchange(point)
            parties += public(self.b)
        label = LABEL + slot.encode() + b"\x00"
        material = hkdf(secret, transcript or self.vault, label + parties, 44)
        return AESGCM(material[:32]).encrypt(material[32:], inside, label + self.mailbox + self.vault)

    def offer(self, inside: bytes = b"") -> bytes:
        reveal = self.promised(content(self.reveal_body))
        commitment = hashlib.sha256(LABEL + b"commit\x00" + reveal).digest()
        inside = inside or content(pack(commitment, self.offer_name))
        return b"\x02" + self.seal("offer", inside, agreed=False)

    def join(self, inside: bytes = b"") -> bytes:
        inside = inside or content(pack(*self.join_items))
        return b"\x02" + public(self.b) + self.seal("join", inside, agreed=True)

    def reveal(self) -> bytes:
        return b"\x02" + self.seal("reveal", content(self.reveal_body), agreed=True)

    def transcript(self) -> bytes:
        said = b"".join(len(m).to_bytes(4, "big") + m for m in (self.offer(), self.join(), self.reveal()))
        parties = public(self.a) + public(self.b)
        return hashlib.sha256(LABEL + b"transcript\x00" + self.vault + self.mailbox + parties + said).digest()

    def digits(self) -> str:
        point = X25519PublicKey.from_public_bytes(public(self.b))
        secret = self.secret + X25519PrivateKey.from_private_bytes(self.a).exchange(point)
        parties = self.mailbox + public(self.a) + public(self.b)
        raw = hkdf(secret, self.transcript(), LABEL + b"digits\x00" + parties, 8)
        return f"{int.from_bytes(raw, 'big') % 10**6:06d}"

    def welcome(self, body: bytes = b"") -> bytes:
        body = body or pack(7, HASH, HEAD, 0)
        return b"\x02" + self.seal("welcome", content(body), agreed=True, transcript=self.transcript())

    def end(self, body: bytes) -> bytes:
        return b"\x02" + self.seal("end", content(body), agreed=False)

    def done(self, body: bytes) -> bytes:
        return b"\x02" + self.seal("done", content(body), agreed=True, transcript=self.transcript())

    def text(self) -> bytes:
        url = URL.encode()
        return b"\x02" + self.vault + self.secret + public(self.a) + bytes([len(url)]) + url
