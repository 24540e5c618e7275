"""The second reader's part about invites and kits, written from docs/protocol.md alone, as `independent_reader` is."""

import base64
import hashlib
import hmac
import unicodedata
from dataclasses import dataclass
from functools import cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.crypto.independent_reader import (
    Refused,
    ed25519_public,
    hkdf,
    label,
    must,
    padded,
    read_code,
    refuse,
    root_keys,
    sha256,
)

CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
BAD = "bad message"
Value = bytes | str | int | bool


# Texts


def read_offline_code(text: str) -> tuple[bytes, bytes]:
    """Root and vault."""
    code, at, vault = text.strip().partition("@")
    root, check = read_code(code)
    if at:
        must(len(vault) == 32 and set(vault) <= set("0123456789abcdefABCDEF"), "bad code")
        must(code == code.strip(), "bad code")
    named = bytes.fromhex(vault) if at else root_keys(root)["vault"]
    must(check in (None, sha256(label("crystal/v2/code") + root + named)[:4]), "bad code")
    return root, named


def read_kit(text: str) -> tuple[bytes, bytes]:
    must(len(text) <= 65536, "bad code")
    if text.strip()[:4].lower() in ("mc1:", "mc3:"):
        return read_offline_code(text)
    good = [(number, data) for number, data in map(good_for, kit_lines(text)) if number]
    if not good:
        for word in text.split():
            if word.startswith(("mc1:", "mc3:")):
                return read_offline_code(word)
    found: dict[int, bytes] = {}
    for number, data in good:
        must(found.setdefault(number, data) == data, "bad code")
    must(len(found) == 6, "bad code")
    secret = b"".join(found[number] for number in range(1, 7))
    return secret[:32], secret[32:]


def kit_lines(text: str) -> list[str]:
    lines: list[str] = []
    for whole in text.replace("\r", "\n").split("\n"):
        start = 0
        for at in range(1, len(whole) - 1):
            if whole[at - 1].isspace() and whole[at] in "123456" and whole[at + 1] == ":":
                lines.append(whole[start:at])
                start = at
        lines.append(whole[start:])
    return lines


def good_for(line: str) -> tuple[int, bytes]:
    """The number for which the line is good, or 0, and its data."""
    line = line.strip()
    before = None
    if len(line) > 1 and line[0] in "123456789":
        rest = line[1:].lstrip()
        if rest[:1] in (":", ".", ")"):
            before, line = int(line[0]), rest[1:]
        elif line[1].isspace():
            before, line = int(line[0]), rest
    value = count = 0
    for char in line.strip():
        if char in " \t\u00a0-":
            continue
        digit = CROCKFORD.find(char.upper().translate(str.maketrans("OIL", "011"))) if char.isascii() else -1
        if digit < 0:
            return 0, b""
        value, count = value << 5 | digit, count + 1
    if count != 16:
        return 0, b""
    raw = value.to_bytes(10, "big")
    for n in range(1, 7):
        if crc16(bytes([n]) + raw[:8]) == raw[8:] and before in (None, n):
            return n, raw[:8]
    return 0, b""


def crc16(data: bytes) -> bytes:
    register = 0xFFFF
    for byte in data:
        for bit in range(7, -1, -1):
            top = register >> 15 ^ byte >> bit & 1
            register = (register << 1 & 0xFFFF) ^ (0x1021 if top else 0)
    return register.to_bytes(2, "big")


def read_invite(text: str) -> dict[str, bytes]:
    kept = "".join(char for char in text.strip() if char not in " \t\r\n\u00a0-")
    must(kept[:4].lower() == "mc2:", "bad code")
    must(kept.isascii(), "bad code")
    code = kept[4:].upper()
    must(set(code) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"), "bad code")
    try:
        data = base64.b32decode(code + "=" * (-len(code) % 8))
    except ValueError:
        refuse("bad code")
    must(base64.b32encode(data).decode().rstrip("=") == code, "bad code")
    return invite_in(data)


def invite_in(data: bytes) -> dict[str, bytes]:
    """An invite's bytes, without a text around them."""
    must(len(data) > 70 and data[0] == 2 and len(data) == 70 + data[65], "bad code")
    must(1 <= data[65] <= 200, "bad code")
    must(sha256(label("crystal/v2/invite/check") + data[:-4])[:4] == data[-4:], "bad code")
    try:
        url = data[66:-4].decode("utf-8")
    except UnicodeDecodeError:
        refuse("bad code")
    must(url.startswith(("https://", "http://")), "bad code")
    must(not any(unicodedata.category(char)[0] in "CZ" for char in url), "bad code")
    vault, secret = data[1:17], data[17:33]
    return {
        "vault": vault,
        "secret": secret,
        "exchange": data[33:65],
        "url": data[66:-4],
        "mailbox": hkdf(secret, vault, label("crystal/v2/invite/mailbox"), 16),
        "access": hkdf(secret, vault, label("crystal/v2/invite/access"), 32),
    }


def read_short(text: str) -> tuple[str, str]:
    """Address and key, section 21.5."""
    plain = "".join(char for char in text if not char.isspace())
    must("/" in plain, "bad code")
    address, key = plain[: plain.rindex("/")], plain[plain.rindex("/") + 1 :]
    if address.lower().startswith("https://"):
        address = address[8:]
    start = 7 if address.lower().startswith("http://") else 0
    host = address[start:].partition("/")[0]
    address = address[: start + len(host)].lower() + address[start + len(host) :]
    must(bool(host) and len(address) <= 200 and not address.endswith("/"), "bad code")
    must(all("!" <= char <= "~" and char not in '@?#\\"<>^`{|}' for char in address), "bad code")
    must("://" not in address[start:], "bad code")
    digits = [char.upper().translate(str.maketrans("OIL", "011")) for char in key if char != "-"]
    must(len(digits) == 12 and all(len(char) == 1 and char in CROCKFORD for char in digits), "bad code")
    values = [CROCKFORD.index(char) for char in digits]
    check = crc10(address.encode())
    # Horner's rule from the last character: the sum of value i times x^i.
    weighted = plain_sum = 0
    for value in reversed(values):
        weighted <<= 1
        weighted ^= 0b100101 if weighted & 32 else 0
        weighted ^= value
        plain_sum ^= value
    must((plain_sum, weighted) == (check >> 5, check & 31), "bad code")
    return address, "".join(digits[:10])


def crc10(data: bytes) -> int:
    register = 0
    for byte in data:
        for bit in range(7, -1, -1):
            top = register >> 9 ^ byte >> bit & 1
            register = (register << 1 & 0x3FF) ^ (0x233 if top else 0)
    return register


@cache
def short_keys(address: str, key: str) -> tuple[bytes, bytes, bytes]:
    """Place, key and nonce, section 21.5."""
    salt = label("crystal/v2/invite/short") + address.encode()
    made = hashlib.scrypt(key.encode(), salt=salt, n=32768, r=8, p=1, maxmem=2**26, dklen=60)
    return made[:16], made[16:48], made[48:]


def read_sealed(address: str, key: str, data: bytes) -> dict[str, bytes]:
    place, secret, nonce = short_keys(address, key)
    must(len(data) == 287 and data[0] == 2, BAD)
    try:
        inside = AESGCM(secret).decrypt(nonce, data[1:], label("crystal/v2/invite/short") + place)
        end = 70 + inside[65]
        must(end <= 270 and not any(inside[end:]), BAD)
        found = invite_in(inside[:end])
    except (InvalidTag, Refused):
        refuse(BAD)
    return {name: found[name] for name in ("vault", "secret", "exchange", "url")} | {"place": place}


# Messages


@dataclass
class Side:
    """What one side knows: S, the vault, E_a, and after the agreement DH and E_b."""

    vault: bytes
    secret: bytes
    e_a: bytes
    e_b: bytes = b""
    dh: bytes = b""

    @property
    def mailbox(self) -> bytes:
        return hkdf(self.secret, self.vault, label("crystal/v2/invite/mailbox"), 16)

    def info(self, name: str) -> bytes:
        return label(f"crystal/v2/invite/{name}") + self.mailbox + self.e_a + self.e_b

    def once(self, slot: str, salt: bytes) -> tuple[bytes, bytes, bytes]:
        keys = hkdf(self.secret + self.dh, salt, self.info(slot), 44)
        return keys[:32], keys[32:], label(f"crystal/v2/invite/{slot}") + self.mailbox + self.vault

    def open(self, slot: str, message: bytes, salt: bytes = b"", clear: int = 0) -> bytes:
        must(1 + clear + 16 <= len(message) <= 4096 and message[0] == 2, BAD)
        key, nonce, additional = self.once(slot, salt or self.vault)
        try:
            return AESGCM(key).decrypt(nonce, message[1 + clear :], additional)
        except InvalidTag:
            refuse(BAD)

    def transcript(self, offer: bytes, join: bytes, reveal: bytes) -> bytes:
        said = b"".join(len(m).to_bytes(4, "big") + m for m in (offer, join, reveal))
        clear = label("crystal/v2/invite/transcript") + self.vault + self.mailbox + self.e_a + self.e_b
        return sha256(clear + said)

    def digits(self, transcript: bytes) -> str:
        raw = hkdf(self.secret + self.dh, transcript, self.info("digits"), 8)
        return str(int.from_bytes(raw, "big") % 1_000_000).zfill(6)


def agreed(vault: bytes, secret: bytes, *, private: bytes, e_a: bytes, e_b: bytes, mine: bytes) -> Side:
    """`mine` is the one of the two public keys that belongs to `private`."""
    other = e_b if mine == e_a else e_a
    try:
        dh = X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError:
        refuse(BAD)
    return Side(vault, secret, e_a, e_b, dh)


def public(private: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def fields(content: bytes, kinds: str) -> list[Value]:
    """The body's elements. `kinds`: n = bin 32, d = bin 16, s = name, i = int, b = bool."""
    must(len(content) >= 2, BAD)
    length = int.from_bytes(content[:2], "big")
    must(len(content) == padded(2 + length) and not any(content[2 + length :]), BAD)
    body = content[2 : 2 + length]
    must(len(body) > 0, BAD)
    if body[0] & 0xF0 == 0x90:
        count, at = body[0] & 15, 1
    else:
        must(body[0] in (0xDC, 0xDD), BAD)
        at = 3 if body[0] == 0xDC else 5
        count = int.from_bytes(body[1:at], "big")
    must(count == len(kinds), BAD)
    values: list[Value] = []
    for kind in kinds:
        value, at = element(body, at)
        match kind:
            case "n" | "d":
                must(isinstance(value, bytes) and len(value) == (32 if kind == "n" else 16), BAD)
            case "s":
                must(isinstance(value, str) and len(value) <= 200, BAD)
            case "i":
                must(isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 2**53, BAD)
            case _:
                must(isinstance(value, bool), BAD)
        values.append(value)
    must(at == len(body), BAD)
    return values


def element(body: bytes, at: int) -> tuple[Value, int]:
    """One MessagePack value of the kinds that occur here, and where it ends."""
    must(at < len(body), BAD)
    head, at = body[at], at + 1
    if head < 0x80:
        return head, at
    if head in (0xC2, 0xC3):
        return head == 0xC3, at
    if head & 0xE0 == 0xA0:
        length = head & 31
    elif head in (0xC4, 0xC5, 0xC6, 0xD9, 0xDA, 0xDB):
        size = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}[head]
        length, at = int.from_bytes(body[at : at + size], "big"), at + size
    else:
        must(head in (0xCC, 0xCD, 0xCE, 0xCF, 0xD0, 0xD1, 0xD2, 0xD3), BAD)
        size = 1 << (head & 3)
        must(at + size <= len(body), BAD)
        return int.from_bytes(body[at : at + size], "big", signed=head >= 0xD0), at + size
    must(at + length <= len(body), BAD)
    raw = body[at : at + length]
    if head in (0xC4, 0xC5, 0xC6):
        return raw, at + length
    try:
        return raw.decode("utf-8"), at + length
    except UnicodeDecodeError:
        refuse(BAD)


def read_join(side: Side, message: bytes) -> list[Value]:
    values = fields(side.open("join", message, clear=32), "dnnssnn")
    device, signing, exchange = values[:3]
    assert isinstance(device, bytes)
    assert isinstance(signing, bytes)
    assert isinstance(exchange, bytes)
    must(any(device), BAD)
    try:
        ed25519_public(signing)
        X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(exchange))
    except (Refused, ValueError):
        refuse(BAD)
    return values


def read_reveal(side: Side, message: bytes, offer: bytes) -> list[Value]:
    before = Side(side.vault, side.secret, side.e_a)
    commitment, name = fields(before.open("offer", offer), "ns")
    content = side.open("reveal", message)
    assert isinstance(commitment, bytes)
    must(hmac.compare_digest(sha256(label("crystal/v2/invite/commit") + content), commitment), BAD)
    values = fields(content, "ndss")
    must(values[2] == name, BAD)
    return values


def read_end(side: Side, message: bytes) -> str:
    (reason,) = fields(side.open("end", message), "s")
    must(reason in ("digits", "withdrawn", "failed", "revoked"), BAD)
    return str(reason)
