"""The invite's text: `MC2:` and base32 of everything that a newcomer needs to meet the inviting device at the relay.

    version (1) = 2 | vault (16) | one-time secret S (16) | the inviter's ephemeral X25519 key E_a (32)
    | length of the relay's URL (1) | URL | check (4)

Rules: upper case, so that a QR code holds it in its alphanumeric mode. A reader takes any case, and spaces, line breaks and
dashes anywhere. The text alone only opens the mailbox: the digits decide. Errors give positions and counts; the text itself
is never quoted.
"""

import base64
import hashlib
import hmac
import os
import string
from dataclasses import dataclass
from typing import Final

from crystal_crypto import labels
from crystal_crypto.errors import BadCode, TooLarge
from crystal_crypto.hierarchy import hkdf
from crystal_crypto.identity import ExchangePublic, Random
from crystal_crypto.limits import (
    ACCESS_BYTES,
    INVITE_CHECK_BYTES,
    INVITE_SECRET_BYTES,
    INVITE_URL_BYTES_MAX,
    KEY_BYTES,
    MAILBOX_BYTES,
    VAULT_BYTES,
)
from crystal_crypto.secret import Secret, exactly

PREFIX: Final = "MC2:"

_VERSION: Final = 2
_LENGTH_AT: Final = 1 + VAULT_BYTES + INVITE_SECRET_BYTES + KEY_BYTES
_BARE_BYTES: Final = _LENGTH_AT + 1 + INVITE_CHECK_BYTES
_ALPHABET: Final = frozenset(string.ascii_letters + "234567")
_SEPARATORS: Final = frozenset(" \t\r\n\u00a0-")
_SCHEMES: Final = ("https://", "http://")
_COPY: Final = "Copy the whole invite again, from `MC2:` to its end"
_OFFLINE_PREFIXES: Final = ("mc3:", "mc1:")


class InviteSecret(Secret):
    """S: the 16 random bytes of one invite."""

    __slots__ = ("_raw",)

    def __init__(self, raw: bytes) -> None:
        """Raises Malformed unless `raw` is 16 bytes."""
        self._raw = exactly(raw, INVITE_SECRET_BYTES, "an invite's secret")

    @classmethod
    def generate(cls, random: Random = os.urandom) -> "InviteSecret":
        return cls(random(INVITE_SECRET_BYTES))

    def to_bytes(self) -> bytes:
        return self._raw

    def _material(self) -> bytes:
        return self._raw


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class InviteCode(Secret):
    """The content of an invite's text: the vault, the one-time secret and key, and the relay."""

    vault: bytes
    secret: InviteSecret
    exchange: ExchangePublic
    url: str

    def __post_init__(self) -> None:
        exactly(self.vault, VAULT_BYTES, "a vault id")
        _url_bytes(self.url)

    @property
    def mailbox(self) -> bytes:
        """The mailbox's name at the relay (16 bytes)."""
        return self._derive(labels.INVITE_MAILBOX, MAILBOX_BYTES)

    @property
    def access(self) -> bytes:
        """32 bytes that open the mailbox to the newcomer; the relay keeps only a hash of them."""
        return self._derive(labels.INVITE_ACCESS, ACCESS_BYTES)

    def _derive(self, label: bytes, length: int) -> bytes:
        return hkdf(self.secret.to_bytes(), salt=self.vault, info=label, length=length)  # §21.2-1

    def _material(self) -> bytes:
        return self.vault + self.secret.to_bytes() + self.exchange.to_bytes() + self.url.encode()


def encode_invite(code: InviteCode) -> str:
    """The text, one line of upper-case letters and digits. It is secret until the invite is used or expires."""
    return PREFIX + _base32(invite_bytes(code))


def invite_bytes(code: InviteCode) -> bytes:
    """The bytes that the text holds: at most INVITE_BYTES_MAX."""
    url = _url_bytes(code.url)
    head = bytes([_VERSION]) + code.vault + code.secret.to_bytes() + code.exchange.to_bytes()
    body = head + bytes([len(url)]) + url
    return body + _check(body)


def invite_of(data: bytes) -> InviteCode:
    """The invite in its bytes, which zeros may follow. Raises BadCode."""
    if len(data) <= _LENGTH_AT or data[0] != _VERSION:
        raise _mistyped()
    end = _BARE_BYTES + data[_LENGTH_AT]
    if data[_LENGTH_AT] > INVITE_URL_BYTES_MAX or len(data) < end or any(data[end:]):
        raise _mistyped()
    return _parsed(data[:end])


def decode_invite(text: str) -> InviteCode:
    """Raises BadCode, which says what is wrong, and where: positions count from 1, from the first character that is no
    white space."""
    code = text.strip()
    kept = [(at, char) for at, char in enumerate(code, start=1) if char not in _SEPARATORS]  # §21.1-1
    _check_prefix(code, "".join(char for _, char in kept[: len(PREFIX)]))
    payload = kept[len(PREFIX) :]
    for at, char in payload:
        if char not in _ALPHABET:
            raise BadCode(
                f"the invite has a character at position {at} that cannot occur in it",
                hint="An invite has the letters A to Z and the digits 2 to 7 only. " + _COPY,
            )
    return _parsed(_bytes("".join(char for _, char in payload).upper()))


def _parsed(data: bytes) -> InviteCode:
    body, check = data[:-INVITE_CHECK_BYTES], data[-INVITE_CHECK_BYTES:]
    if not hmac.compare_digest(check, _check(body)):  # §21.1-4
        raise _mistyped()
    return InviteCode(
        vault=body[1:17],
        secret=InviteSecret(body[17:33]),
        exchange=ExchangePublic.from_bytes(body[33:_LENGTH_AT]),
        url=_url(body[_LENGTH_AT + 1 :]),
    )


def _check_prefix(code: str, prefix: str) -> None:
    if not code:
        raise BadCode("the invite is empty", hint=_COPY)
    if prefix.lower() == PREFIX.lower():
        return
    if prefix.lower() in _OFFLINE_PREFIXES:
        raise BadCode(
            "this is an offline pairing code (mc3), not an invite", hint="Use it as an offline code"
        )
    if code.lower().startswith(_SCHEMES):
        raise BadCode(
            "this is an address, not an invite",
            hint="An invite begins with `MC2:`; the relay's address is inside",
        )
    raise BadCode("the invite does not begin with `MC2:`", hint=_COPY)  # §21.1-4


def _bytes(payload: str) -> bytes:
    """The payload's bytes, as many as they must be, or what is wrong with its length."""
    there = len(payload)
    least = _chars(_BARE_BYTES + 1)
    if there < 2:
        raise _cut(there, least)
    usable = payload[: there - there % 8]
    # The version and the length stand before the end, so a text that was cut still says how long it was.
    start = base64.b32decode(usable) if usable else b""
    version = start[0] if start else base64.b32decode(payload[:2] + "======")[0]
    if version != _VERSION:
        raise BadCode(
            f"the invite is of version {version}, which is unknown here",
            hint="Update this device, or copy the invite again if it was typed",
        )
    if len(start) <= _LENGTH_AT:
        raise _cut(there, least)
    length = start[_LENGTH_AT]
    if not 1 <= length <= INVITE_URL_BYTES_MAX:
        raise _mistyped()
    needed = _chars(_BARE_BYTES + length)
    if there < needed:  # §21.1-2
        raise _cut(there, needed)
    if there > needed:  # §21.1-2
        raise BadCode(f"the invite is too long by {there - needed} characters", hint=_COPY)
    data = base64.b32decode(payload + "=" * (-there % 8))
    if _base32(data) != payload:  # §21.1-2
        raise _mistyped()
    return data


def _cut(there: int, needed: int) -> BadCode:
    least = "" if needed > _chars(_BARE_BYTES + 1) else "at least "
    return BadCode(
        f"the invite was cut short: {there} characters after `MC2:`, and there must be {least}{needed}",
        hint=_COPY,
    )


def _mistyped() -> BadCode:
    return BadCode("the invite was mistyped: its check does not agree with the rest", hint=_COPY)


def _url_bytes(url: str) -> bytes:
    """Raises TooLarge, or BadCode for an invalid relay address."""
    data = url.encode("utf-8", "surrogatepass")
    if len(data) > INVITE_URL_BYTES_MAX:
        raise TooLarge(
            f"a relay's address in an invite is at most {INVITE_URL_BYTES_MAX} bytes, not {len(data)}"
        )
    _url(data)
    return data


def _url(data: bytes) -> str:
    try:
        url = data.decode("utf-8")
    except UnicodeDecodeError:
        url = ""
    if not url.startswith(_SCHEMES) or not url.isprintable() or " " in url:  # §21.1-3
        raise BadCode("the invite names no relay's address", hint="Make a new invite on the other device")
    return url


def _chars(size: int) -> int:
    """How many base32 characters that many bytes take."""
    return -(-size * 8 // 5)


def _base32(data: bytes) -> str:
    return base64.b32encode(data).decode("ascii").rstrip("=")


def _check(body: bytes) -> bytes:
    return hashlib.sha256(labels.INVITE_CHECK + body).digest()[:INVITE_CHECK_BYTES]
