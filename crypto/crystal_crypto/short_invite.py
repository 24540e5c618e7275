"""The short invite, which a person types: the relay's address, and a key that opens the whole invite there.

    192.168.1.20:18791/7KPD-3MX9-QWHT        address "/" ten characters of the key | two of a check

While the invite is open its bytes lie at the relay, sealed under a key from scrypt(key, address), at a place that comes from
the same scrypt. So the typed address needs no fingerprint: it is in the invite, which only the key opens.

Rules: a reader takes ASCII letters of either case, O as 0, I and L as 1; white space anywhere, dashes in the key, `https://`
in front. The check covers the address too: it finds every one or two wrong characters of key and check, and every wrong or
swapped character of the address. Errors never quote the key.
"""

import os
import re
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from crystal_crypto import labels
from crystal_crypto.errors import BadCode, BadMessage, Malformed
from crystal_crypto.identity import Random
from crystal_crypto.invite_code import InviteCode, invite_bytes, invite_of
from crystal_crypto.limits import (
    INVITE_BYTES_MAX,
    INVITE_URL_BYTES_MAX,
    KEY_BYTES,
    NONCE_BYTES,
    SHORT_INVITE_BYTES,
    SHORT_KEY_CHARS,
    SHORT_PLACE_BYTES,
)
from crystal_crypto.secret import Secret

SCRYPT_N: Final = 2**15
SCRYPT_R: Final = 8
SCRYPT_P: Final = 1
"""32 MiB for each try."""

_VERSION: Final = 2
_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_VALUES: Final = {char: value for value, char in enumerate(_ALPHABET)} | {"O": 0, "I": 1, "L": 1}
_CHECK_CHARS: Final = 2
_GROUP: Final = 4
_FIELD: Final = 0b100101
"""x^5 + x^2 + 1, by which GF(32) is made."""
_CRC: Final = 0x233
_HTTP: Final = "http://"
_HTTPS: Final = "https://"
_SCHEME: Final = "://"
_PORT: Final = re.compile(r":([^\]]*)$")
"""Behind a host, or the brackets of an IPv6 address. A word there is the prefix of another code, whose text has slashes."""
_NOT_IN_ADDRESS: Final = frozenset('@?#\\"<>^`{|}')
_TYPE: Final = "Type it again as the other machine shows it"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ShortInvite(Secret):
    """``address``: as it is typed, with its host in lower case; ``key``: ten characters of the alphabet, 50 random bits.

    Raises BadCode for an address or a key of another form.
    """

    address: str
    key: str

    def __post_init__(self) -> None:
        if _address(self.address) != self.address:
            raise BadCode("that address is not in its one form")
        if len(self.key) != SHORT_KEY_CHARS or any(char not in _ALPHABET for char in self.key):
            raise BadCode("that is not a short invite's key")

    @classmethod
    def generate(cls, url: str, random: Random = os.urandom) -> "ShortInvite":
        """A fresh key for the relay at ``url``, whose fingerprint and ``https://`` are left out. Raises BadCode."""
        key = "".join(_ALPHABET[byte & 31] for byte in random(SHORT_KEY_CHARS))
        return cls(_address(url.partition("#")[0]), key)

    @property
    def url(self) -> str:
        """Where the sealed invite is fetched from, unless the person names another address of that relay."""
        return self.address if self.address.startswith(_HTTP) else _HTTPS + self.address

    def derived(self) -> "ShortInviteKeys":
        """What follows from key and address. Takes 32 MiB, and a tenth of a second or more."""
        length = SHORT_PLACE_BYTES + KEY_BYTES + NONCE_BYTES
        salt = labels.INVITE_SHORT + self.address.encode("ascii")
        kdf = Scrypt(salt=salt, length=length, n=SCRYPT_N, r=SCRYPT_R, p=SCRYPT_P)
        made = kdf.derive(self.key.encode("ascii"))  # §21.5-4
        return ShortInviteKeys(made[:SHORT_PLACE_BYTES], made[SHORT_PLACE_BYTES:])

    def _material(self) -> bytes:
        return f"{self.address}/{self.key}".encode()


class ShortInviteKeys(Secret):
    """The place of one sealed invite at the relay, and the key that seals it. It seals one invite only."""

    __slots__ = ("_key", "_nonce", "place")

    def __init__(self, place: bytes, key_and_nonce: bytes) -> None:
        self.place = place
        self._key = key_and_nonce[:KEY_BYTES]
        self._nonce = key_and_nonce[KEY_BYTES:]

    def seal(self, code: InviteCode) -> bytes:
        """The object for the relay, of the same length for all invites."""
        content = invite_bytes(code)
        padded = content + bytes(INVITE_BYTES_MAX - len(content))
        sealed = AESGCM(self._key).encrypt(self._nonce, padded, self._bound())
        return bytes([_VERSION]) + sealed  # §21.5-5

    def open(self, data: bytes) -> InviteCode:
        """Raises BadMessage unless a holder of the key has sealed it."""
        if len(data) != SHORT_INVITE_BYTES or data[0] != _VERSION:  # §21.5-6
            raise BadMessage("what lies at the short invite's place is no sealed invite")
        try:
            content = AESGCM(self._key).decrypt(self._nonce, data[1:], self._bound())
            return invite_of(content)  # §21.5-6
        except (InvalidTag, BadCode, Malformed):
            raise BadMessage("what lies at the short invite's place does not open with its key") from None

    def _bound(self) -> bytes:
        return labels.INVITE_SHORT + self.place

    def _material(self) -> bytes:
        return self.place + self._key


def encode_short_invite(invite: ShortInvite) -> str:
    """The text, as it is shown. It is secret until the invite is used or expires."""
    values = [_VALUES[char] for char in invite.key]
    sums = _sums(values, invite.address)
    for last in range(32):  # §21.5-2
        before = sums[0] ^ last
        if _sums([*values, before, last], invite.address) == (0, 0):
            chars = invite.key + _ALPHABET[before] + _ALPHABET[last]
            groups = (chars[at : at + _GROUP] for at in range(0, len(chars), _GROUP))
            return f"{invite.address}/{'-'.join(groups)}"
    raise AssertionError("two equations of a field have one solution")


def is_short_invite(text: str) -> bool:
    """Whether to read a text as a short invite: something follows the address's slash, and it is no other kind of code."""
    plain = "".join(text.split()).lower()
    if plain.startswith(("mc1:", "mc2:", "mc3:")):
        return False
    before, slash, key = plain.partition(_SCHEME)[2 if _SCHEME in plain else 0].rpartition("/")
    port = _PORT.search(before.partition("/")[0])
    return bool(slash and key and (port is None or port[1].isdecimal())) or _is_key(plain)


def decode_short_invite(text: str) -> ShortInvite:
    """Raises BadCode, which says what is wrong."""
    plain = "".join(text.split())  # §21.5-3
    before, _, after = plain.rpartition("/")
    if not before or not after or before.endswith("/"):
        what = "has no relay's address before its key" if _is_key(after) else "is an address without a key"
        raise BadCode(
            f"the short invite {what}",
            hint="A short invite is the relay's address, a slash, and twelve letters and digits. " + _TYPE,
        )
    address, chars = _address(before), _key_chars(after)
    for at, char in enumerate(chars, start=1):
        if char not in _VALUES:  # §21.5-3
            raise BadCode(
                f"the short invite's key has a character at place {at} that cannot occur in it",
                hint="It has digits and letters without U. " + _TYPE,
            )
    wanted = SHORT_KEY_CHARS + _CHECK_CHARS
    if len(chars) != wanted:  # §21.5-3
        too = "short" if len(chars) < wanted else "long"
        raise BadCode(
            f"the short invite's key is too {too}: {len(chars)} characters after the last slash, and there must be {wanted}",
            hint=_TYPE,
        )
    values = [_VALUES[char] for char in chars]
    if _sums(values, address) != (0, 0):  # §21.5-2
        raise BadCode(
            "the short invite was mistyped: its check does not agree with its address and key",
            hint="Compare each character, those of the address too. " + _TYPE,
        )
    return ShortInvite(address, "".join(_ALPHABET[value] for value in values[:SHORT_KEY_CHARS]))


def _key_chars(text: str) -> str:
    return "".join(char.upper() if char.isascii() else char for char in text if char != "-")


def _is_key(text: str) -> bool:
    chars = _key_chars(text)
    return len(chars) == SHORT_KEY_CHARS + _CHECK_CHARS and all(char in _VALUES for char in chars)


def _address(text: str) -> str:
    """Without `https://`, and scheme and host in lower case. Raises BadCode."""
    scheme, mark, rest = text.rpartition(_SCHEME)
    host, slash, path = rest.partition("/")
    scheme = scheme.lower() + mark
    address = ("" if scheme == _HTTPS else scheme) + host.lower() + slash + path
    if (
        scheme not in ("", _HTTP, _HTTPS)
        or not host
        or not address.isascii()
        or not address.isprintable()
        or len(address) > INVITE_URL_BYTES_MAX
        or any(char in _NOT_IN_ADDRESS or char == " " for char in address)
    ):  # §21.5-1
        raise BadCode("the short invite names no relay's address", hint=_TYPE)
    return address


def _sums(values: list[int], address: str) -> tuple[int, int]:
    """Both sums that the check makes zero: over the values, and over the values times powers of x."""
    checked = _crc10(address.encode("ascii"))
    plain, weighted = checked >> 5, checked & 31
    power = 1
    for value in values:
        plain ^= value
        weighted ^= _product(value, power)
        power = _product(power, 2)
    return plain, weighted


def _product(one: int, other: int) -> int:
    """In GF(32)."""
    made = 0
    while other:
        made ^= one if other & 1 else 0
        one <<= 1
        one ^= _FIELD if one & 32 else 0
        other >>= 1
    return made


def _crc10(data: bytes) -> int:
    """CRC-10 as in ATM (ITU-T I.610): begins with 0, bits highest first; of the ASCII text 123456789 it is 199."""
    crc = 0
    for byte in data:
        crc ^= byte << 2
        for _ in range(8):
            crc = (crc << 1) ^ (_CRC if crc & 0x200 else 0)
            crc &= 0x3FF
    return crc
