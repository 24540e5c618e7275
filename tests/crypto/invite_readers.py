"""What runs the vectors about invites: our two sides, and the independent reader's account of them."""

from functools import cache

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from crystal_crypto.identity import DeviceIdentity, ExchangeKey, ExchangePublic
from crystal_crypto.invite import Inviter, Joiner
from crystal_crypto.invite_code import InviteCode, InviteSecret, decode_invite
from crystal_crypto.short_invite import ShortInvite, ShortInviteKeys, decode_short_invite
from tests.crypto import independent_invite as other
from tests.crypto import independent_reader as primitives
from tests.vectors.vectorfile import Vector, subject

URL = "https://relay.example.org"
STATED = {
    "text": ("vault", "secret", "exchange", "url", "mailbox", "access"),
    "short": ("address", "key"),
    "sealed": ("vault", "secret", "exchange", "url", "place"),
    "offer": ("inviter-name",),
    "join": (
        "newcomer-device",
        "newcomer-signing",
        "newcomer-exchange",
        "newcomer-name",
        "newcomer-system",
        "newcomer-token-hash",
        "digits",
    ),
    "reveal": ("inviter-device", "inviter-name", "inviter-system", "digits"),
    "welcome": ("slot", "entry-hash", "head", "root-number"),
    "end": ("reason",),
    "done": ("accepted",),
}


def ours(vector: Vector) -> dict[str, str]:
    of, data = vector.fields["of"], subject(vector)
    if of == "text":
        return _our_text(data.decode())
    if of == "short":
        short = decode_short_invite(data.decode())
        return {"address": short.address, "key": short.key}
    if of == "sealed":
        return _our_sealed(vector, data)
    if of in ("join", "done"):
        return _our_inviter(vector, of, data)
    return _our_joiner(vector, of, data)


def _our_text(text: str) -> dict[str, str]:
    code = decode_invite(text)
    return {
        "vault": code.vault.hex(),
        "secret": code.secret.to_bytes().hex(),
        "exchange": code.exchange.to_bytes().hex(),
        "url": code.url,
        "mailbox": code.mailbox.hex(),
        "access": code.access.hex(),
    }


@cache
def _short_keys(address: str, key: str) -> ShortInviteKeys:
    return ShortInvite(address, key).derived()


def _our_sealed(vector: Vector, data: bytes) -> dict[str, str]:
    keys = _short_keys(vector.fields["address"], vector.fields["key"])
    code = keys.open(data)
    return {
        "vault": code.vault.hex(),
        "secret": code.secret.to_bytes().hex(),
        "exchange": code.exchange.to_bytes().hex(),
        "url": code.url,
        "place": keys.place.hex(),
    }


def _text(vector: Vector, name: str) -> str:
    return vector.hex(name).decode()


def _our_inviter(vector: Vector, of: str, data: bytes) -> dict[str, str]:
    ephemeral = ExchangeKey(vector.hex("private"))
    code = InviteCode(vector.hex("vault"), InviteSecret(vector.hex("secret")), ephemeral.public, URL)
    inviter = Inviter(
        code,
        ephemeral,
        vector.hex("nonce"),
        device=vector.hex("device"),
        name=_text(vector, "name"),
        system=_text(vector, "system"),
    )
    newcomer = inviter.open_join(vector.hex("join") if of == "done" else data)
    inviter.reveal()
    if of == "done":
        return {"accepted": str(int(inviter.open_done(data)))}
    return {
        "newcomer-device": newcomer.device.hex(),
        "newcomer-signing": newcomer.signing.to_bytes().hex(),
        "newcomer-exchange": newcomer.exchange.to_bytes().hex(),
        "newcomer-name": newcomer.name.encode().hex(),
        "newcomer-system": newcomer.system.encode().hex(),
        "newcomer-token-hash": newcomer.token_hash,
        "digits": vector.fields["digits"] if inviter.check(vector.fields["digits"]) else "others",
    }


def joiner_of(vector: Vector) -> Joiner:
    """The newcomer of a vector; where it says nothing of the newcomer, any will do."""
    code = InviteCode(
        vector.hex("vault"),
        InviteSecret(vector.hex("secret")),
        ExchangePublic.from_bytes(vector.hex("exchange")),
        URL,
    )
    if "identity" not in vector.fields:
        return Joiner.begin(code, DeviceIdentity.generate(), name="", system="", token_hash="00" * 32)
    return Joiner(
        code,
        DeviceIdentity.from_bytes(vector.hex("identity")),
        name=_text(vector, "name"),
        system=_text(vector, "system"),
        token_hash=vector.fields["token-hash"],
        ephemeral=ExchangeKey(vector.hex("private")),
        nonce=vector.hex("nonce"),
    )


def _our_joiner(vector: Vector, of: str, data: bytes) -> dict[str, str]:
    joiner = joiner_of(vector)
    if of == "end":
        return {"reason": joiner.open_end(data).value}
    offer = joiner.open_offer(vector.hex("offer") if "offer" in vector.fields else data)
    if of == "offer":
        return {"inviter-name": offer.name.encode().hex()}
    joiner.join()
    inviter = joiner.open_reveal(vector.hex("reveal") if "reveal" in vector.fields else data)
    if of == "reveal":
        return {
            "inviter-device": inviter.device.hex(),
            "inviter-name": inviter.name.encode().hex(),
            "inviter-system": inviter.system.encode().hex(),
            "digits": joiner.digits,
        }
    welcome = joiner.open_welcome(data)
    return {
        "slot": str(welcome.slot),
        "entry-hash": welcome.entry_hash.hex(),
        "head": welcome.head.hex(),
        "root-number": str(welcome.root_number),
    }


def theirs(vector: Vector) -> dict[str, str]:
    of, data = vector.fields["of"], subject(vector)
    if of == "text":
        found = other.read_invite(data.decode())
        return {name: value.decode() if name == "url" else value.hex() for name, value in found.items()}
    if of == "short":
        address, key = other.read_short(data.decode())
        return {"address": address, "key": key}
    if of == "sealed":
        opened = other.read_sealed(vector.fields["address"], vector.fields["key"], data)
        return {name: value.decode() if name == "url" else value.hex() for name, value in opened.items()}
    if of in ("join", "done"):
        return _their_inviter(vector, of, data)
    return _their_joiner(vector, of, data)


def _their_inviter(vector: Vector, of: str, data: bytes) -> dict[str, str]:
    vault, secret, private = (vector.hex(name) for name in ("vault", "secret", "private"))
    join = vector.hex("join") if of == "done" else data
    e_a = other.public(private)
    primitives.must(len(join) >= 49 and join[0] == 2, other.BAD)
    side = other.agreed(vault, secret, private=private, e_a=e_a, e_b=join[1:33], mine=e_a)
    values = other.read_join(side, join)
    offer, reveal = their_offer_and_reveal(vector, side)
    transcript = side.transcript(offer, join, reveal)
    if of == "done":
        (accepted,) = other.fields(side.open("done", data, transcript), "b")
        return {"accepted": str(int(bool(accepted)))}
    names = [name for name in STATED["join"] if name != "digits"]
    return _hex(names, values) | {"digits": side.digits(transcript)}


def their_offer_and_reveal(vector: Vector, side: other.Side) -> tuple[bytes, bytes]:
    """The inviter's own two messages, made anew by the document."""
    name, system = vector.hex("name"), vector.hex("system")
    assert max(len(name), len(system)) < 32
    body = b"\x94\xc4\x20" + vector.hex("nonce") + b"\xc4\x10" + vector.hex("device")
    body += bytes([0xA0 | len(name)]) + name + bytes([0xA0 | len(system)]) + system
    content = _content(body)
    commitment = primitives.sha256(primitives.label("crystal/v2/invite/commit") + content)
    offered = _content(b"\x92\xc4\x20" + commitment + bytes([0xA0 | len(name)]) + name)
    before = other.Side(side.vault, side.secret, side.e_a)
    return _sealed(before, "offer", offered), _sealed(side, "reveal", content)


def _content(body: bytes) -> bytes:
    raw = len(body).to_bytes(2, "big") + body
    return raw + bytes(primitives.padded(len(raw)) - len(raw))


def _sealed(side: other.Side, slot: str, content: bytes) -> bytes:
    key, nonce, additional = side.once(slot, side.vault)
    return b"\x02" + AESGCM(key).encrypt(nonce, content, additional)


def _their_joiner(vector: Vector, of: str, data: bytes) -> dict[str, str]:
    vault, secret, e_a = (vector.hex(name) for name in ("vault", "secret", "exchange"))
    before = other.Side(vault, secret, e_a)
    if of == "end":
        return {"reason": other.read_end(before, data)}
    if of == "offer":
        return _hex(["inviter-name"], other.fields(before.open("offer", data), "ns")[1:])
    private = vector.hex("private")
    e_b = other.public(private)
    side = other.agreed(vault, secret, private=private, e_a=e_a, e_b=e_b, mine=e_b)
    offer, join = vector.hex("offer"), their_join(vector)
    reveal = vector.hex("reveal") if of == "welcome" else data
    values = other.read_reveal(side, reveal, offer)
    transcript = side.transcript(offer, join, reveal)
    if of == "reveal":
        names = ["inviter-device", "inviter-name", "inviter-system"]
        return _hex(names, values[1:]) | {"digits": side.digits(transcript)}
    slot, entry_hash, head, root_number = other.fields(side.open("welcome", data, transcript), "inni")
    found = _hex(["entry-hash", "head"], [entry_hash, head])
    return {"slot": str(slot), "root-number": str(root_number)} | found


def their_join(vector: Vector) -> bytes:
    """The newcomer's own message, made anew by the document."""
    private, e_a = vector.hex("private"), vector.hex("exchange")
    e_b = other.public(private)
    side = other.agreed(
        vector.hex("vault"), vector.hex("secret"), private=private, e_a=e_a, e_b=e_b, mine=e_b
    )
    identity = primitives.read_identity(vector.hex("identity"))
    parts = [identity["device"], identity["verify-key"], identity["exchange-public"]]
    body = b"\x97" + b"".join(b"\xc4" + bytes([len(part)]) + part for part in parts)
    for name in ("name", "system"):
        text = vector.hex(name)
        assert len(text) < 32
        body += bytes([0xA0 | len(text)]) + text
    body += b"\xc4\x20" + vector.hex("token-hash") + b"\xc4\x20" + vector.hex("nonce")
    key, nonce, additional = side.once("join", side.vault)
    return b"\x02" + e_b + AESGCM(key).encrypt(nonce, _content(body), additional)


def _hex(names: list[str], values: list[other.Value]) -> dict[str, str]:
    pairs = zip(names, values, strict=False)
    return {
        name: (value.encode() if isinstance(value, str) else bytes(value)).hex()
        for name, value in pairs
        if isinstance(value, str | bytes)
    }
