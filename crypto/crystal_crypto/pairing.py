"""The offline pairing text: `mc1:` and base64 of the vault's root.

Rules: whoever has the text has the vault. Decoding accepts standard and URL-safe base64 (RFC 4648, not mixed), with or
without padding, with white space around it; it demands exactly 32 bytes and no stray bits. What is wrong is said by
position and count; the code itself is never quoted.
"""

import base64
import string
from typing import Final

from crystal_crypto.errors import BadCode
from crystal_crypto.hierarchy import Root
from crystal_crypto.limits import KEY_BYTES

PREFIX: Final = "mc1:"

_CHARS: Final = 43  # of base64 for 32 bytes, without padding
_SHARED: Final = frozenset(string.ascii_letters + string.digits)
_STANDARD: Final = frozenset("+/")
_URL_SAFE: Final = frozenset("-_")
_INVITE_PREFIX: Final = "mc2:"


def encode(root: Root) -> str:
    """The pairing text of a root. It is a secret: show it only to the person, never log it."""
    return PREFIX + base64.b64encode(root.to_bytes()).decode("ascii")


def decode(text: str) -> bytes:
    """The 32 bytes of the root. Raises BadCode, which says what is wrong and at which character (the first is 1)."""
    code = text.strip()
    if not code:
        raise BadCode("the pairing code is empty")
    if not code.startswith(PREFIX):
        raise _wrong_prefix(code)
    payload = code[len(PREFIX) :].removesuffix("=")
    for at, char in enumerate(payload, start=len(PREFIX) + 1):
        if char not in _SHARED and char not in _STANDARD and char not in _URL_SAFE:
            raise BadCode(f"the pairing code has a character at position {at} that cannot occur in it")
    if len(payload) < _CHARS:
        raise BadCode(f"the pairing code is too short by {_CHARS - len(payload)} characters")
    if len(payload) > _CHARS:
        raise BadCode(f"the pairing code is too long by {len(payload) - _CHARS} characters")
    used = set(payload)
    if used & _STANDARD and used & _URL_SAFE:
        raise BadCode("the pairing code mixes the two alphabets of base64 (+ and / with - and _)")
    standard = payload.replace("-", "+").replace("_", "/") + "="
    raw = base64.b64decode(standard, validate=True)
    if len(raw) != KEY_BYTES or base64.b64encode(raw).decode("ascii") != standard:
        raise BadCode("the pairing code's last character cannot stand there: something was mistyped")
    return raw


def _wrong_prefix(code: str) -> BadCode:
    lower = code[: len(PREFIX)].lower()
    if lower == PREFIX:
        return BadCode("the pairing code must begin with `mc1:` in lower case")
    if lower == _INVITE_PREFIX:
        return BadCode(
            "this is an invite (MC2), not an offline pairing code (mc1)", hint="use it as an invite"
        )
    return BadCode("the pairing code does not begin with `mc1:`")
