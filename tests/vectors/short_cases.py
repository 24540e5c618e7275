"""The vectors about short invites: the text that is typed, and the sealed invite that it opens."""

import hashlib
from collections.abc import Iterator
from functools import cache

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.vectors.craft import VAULT, flip
from tests.vectors.invite_craft import LABEL, SECRET, URL, A, Session, public
from tests.vectors.vectorfile import Vector

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_ADDRESS, _KEY = "192.168.1.20:18791", "7KPD3MX9QW"
_LOG = [
    1,
    2,
    4,
    8,
    16,
    5,
    10,
    20,
    13,
    26,
    17,
    7,
    14,
    28,
    29,
    31,
    27,
    19,
    3,
    6,
    12,
    24,
    21,
    15,
    30,
    25,
    23,
    11,
    22,
    9,
    18,
]
"""The powers of x in GF(32), as the table that a person would make of them."""


def cases() -> Iterator[Vector]:
    yield from _texts()
    yield from _sealed()


def _texts() -> Iterator[Vector]:
    def good(name: str, what: str, text: str, address: str = _ADDRESS, key: str = _KEY) -> Vector:
        fields = {"of": "short", "what": what, "expect": "success", "address": address, "key": key}
        return Vector("invite", f"short_{name}", fields, text.encode())

    def bad(name: str, what: str, text: str) -> Vector:
        fields = {"of": "short", "what": what, "expect": "bad code"}
        return Vector("invite", f"short_{name}", fields, text.encode())

    text = short_text(_ADDRESS, _KEY)
    yield good("good", "as it is written", text)
    yield good("good_no_dashes", "without dashes", text.replace("-", ""))
    yield good("good_lower_case", "in lower case", text.lower())
    yield good(
        "good_spaces", "with spaces and a line end in it", f" {text[:9]} {text[9:21]}\n{text[21:]} \u00a0"
    )
    yield good("good_scheme", "with https:// before it", f"HTTPS://{text}")
    named, confusing = "relay.example.org", "0110101010"
    yield good("good_name", "a name in capitals", short_text(named, _KEY).replace("relay", "ReLay"), named)
    typed = short_text(named, confusing)
    key = typed.rpartition("/")[2].replace("0", "O").replace("1", "l", 2).replace("1", "I")
    yield good("good_confused", "O for 0, l and I for 1", f"{named}/{key}", named, confusing)
    for name, address in (
        ("path", "example.org:8443/crystal/Relay"),
        ("http", "http://10.0.0.5:18791"),
        ("ipv6", "[fd00::7]:18791"),
        ("long", "a" * 196 + ".org"),
    ):
        yield good(f"good_{name}", f"another address: {name}", short_text(address, _KEY), address)
    for name, key in (("zeros", "0" * 10), ("last", "Z" * 10)):
        yield good(f"good_{name}", f"another key: {name}", short_text(_ADDRESS, key), _ADDRESS, key)

    def changed(at: int, char: str) -> str:
        return text[:at] + char + text[at + 1 :]

    at = len(text) - 14
    yield bad("mistyped", "another character in the key", changed(at, "8"))
    yield bad(
        "mistyped_check",
        "another character in the check",
        changed(len(text) - 1, "0" if text[-1] != "0" else "1"),
    )
    yield bad("mistyped_address", "another digit in the address", changed(2, "3"))
    yield bad("mistyped_port", "two digits of the port swapped", text.replace("18791", "18971"))
    yield bad(
        "swapped", "two neighbours of the key swapped", text[:at] + text[at + 1] + text[at] + text[at + 2 :]
    )
    yield bad("two_mistyped", "two characters of the key are others", text.replace("7K", "8J"))
    yield bad("cut", "a character missing", text[:-1])
    yield bad("longer", "a character too many", text + "0")
    yield bad("letter_u", "a letter that does not occur", changed(at, "U"))
    yield bad("foreign_letter", "a letter that only looks right", changed(len(text) - 1, "\u0410"))
    yield bad("key_only", "no address", text.rpartition("/")[2])
    yield bad("address_only", "no key", _ADDRESS + "/")
    yield bad("no_slash", "a space for the slash", text.replace("/", " "))
    yield bad(
        "other_address",
        "the key of another address",
        short_text("10.0.0.5", _KEY).replace("10.0.0.5", _ADDRESS),
    )
    for name, address in (
        ("ftp", "ftp://example.org"),
        ("user", "me@example.org"),
        ("query", "example.org?a"),
        ("fragment", "example.org#pin=a"),
        ("escape", "example\x1b.org"),
        ("empty", "http://"),
        ("too_long", "a" * 201),
        ("not_ascii", "r\u00e9lais.example.org"),
        ("two_slashes", "example.org/"),
    ):
        yield bad(f"address_{name}", f"an address that is none: {name}", short_text(address, _KEY))


def _sealed() -> Iterator[Vector]:
    given = {"address": _ADDRESS, "key": _KEY}
    stated = {
        "vault": VAULT.hex(),
        "secret": SECRET.hex(),
        "exchange": public(A).hex(),
        "url": URL,
        "place": _derived(_ADDRESS, _KEY)[:16].hex(),
    }

    def good(name: str, what: str, data: bytes, changed: dict[str, str] | None = None) -> Vector:
        fields = {"of": "sealed", "what": what, "expect": "success"} | given | stated | (changed or {})
        return Vector("invite", f"sealed_{name}", fields, data)

    def bad(name: str, what: str, data: bytes) -> Vector:
        fields = {"of": "sealed", "what": what, "expect": "bad message"} | given
        return Vector("invite", f"sealed_{name}", fields, data)

    body = Session().text()
    right = sealed(body)
    yield good("good", "a sealed invite", right)
    pinned = f"https://{_ADDRESS}#pin=abcdefghijklmnopqrstuvwxyz".encode()
    long = b"https://" + b"a" * 192
    for name, url in (("pinned", pinned), ("longest", long)):
        data = sealed(body[:65] + bytes([len(url)]) + url)
        yield good(f"good_{name}", f"another address inside: {name}", data, {"url": url.decode()})
    yield bad("empty", "no bytes", b"")
    for at in (1, 16, 286):
        yield bad(f"cut_{at}", f"cut after {at} bytes", right[:at])
    yield bad("longer", "a byte after the end", right + b"\x00")
    yield bad("version_1", "version 1", b"\x01" + right[1:])
    yield bad("version_3", "version 3", b"\x03" + right[1:])
    for place, at in (("first", 1), ("middle", 140), ("tag", -1)):
        yield bad(f"flipped_{place}", f"one bit flipped: {place}", flip(at)(right))
    yield bad("other_key", "sealed with another key", sealed(body, key="0" * 10))
    yield bad("other_address", "sealed for another address", sealed(body, address="10.0.0.5"))
    yield bad("other_label", "sealed under another label", sealed(body, label=LABEL + b"offer\x00"))
    yield bad("check", "an invite whose check does not agree", sealed(body, check=bytes(4)))
    yield bad("invite_version", "an invite of version 3", sealed(b"\x03" + body[1:]))
    yield bad("padding", "padding that is not zero", sealed(body, padding=b"\x01"))
    yield bad("no_url", "an invite without a URL", sealed(body[:65] + b"\x00"))
    yield bad("url_beyond", "a URL longer than its limit", sealed(body[:65] + b"\xff" + body[66:]))
    yield bad("url_ftp", "an invite with another URL", sealed(body[:65] + b"\x0bftp://a.org"))
    yield bad("offer", "the message `offer` in its place", Session().offer())


@cache
def _derived(address: str, key: str) -> bytes:
    """60 bytes: the place, the key, the nonce."""
    salt = LABEL + b"short\x00" + address.encode()
    return hashlib.scrypt(key.encode(), salt=salt, n=2**15, r=8, p=1, maxmem=2**26, dklen=60)


def sealed(
    body: bytes,
    *,
    address: str = _ADDRESS,
    key: str = _KEY,
    label: bytes = LABEL + b"short\x00",
    check: bytes = b"",
    padding: bytes = b"\x00",
) -> bytes:
    """The object at the relay, for an invite's bytes without their check."""
    made = _derived(address, key)
    invite = body + (check or hashlib.sha256(LABEL + b"check\x00" + body).digest()[:4])
    inside = invite + padding * (270 - len(invite))
    return b"\x02" + AESGCM(made[16:48]).encrypt(made[48:], inside, label + made[:16])


def short_text(address: str, key: str) -> str:
    """The text for any address, also for one that is none."""
    crc = 0
    for bit in "".join(f"{byte:08b}" for byte in address.encode()):
        crc = crc << 1 & 0x3FF ^ (0x233 if crc >> 9 ^ int(bit) else 0)
    values = [_ALPHABET.index(char) for char in key]
    ends = [
        (one, other)
        for one in range(32)
        for other in range(32)
        if _sum([*values, one, other], weighted=False) == crc >> 5
        and _sum([*values, one, other], weighted=True) == crc & 31
    ]
    ((one, other),) = ends
    chars = key + _ALPHABET[one] + _ALPHABET[other]
    return f"{address}/{chars[:4]}-{chars[4:8]}-{chars[8:]}"


def _sum(values: list[int], *, weighted: bool) -> int:
    found = 0
    for at, value in enumerate(values):
        if value:
            found ^= _LOG[(_LOG.index(value) + at) % 31] if weighted else value
    return found
