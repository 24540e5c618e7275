"""The offline pairing text: `mc3:` and base64 of the vault's root and a check; after a rotation of the root also `@` and the
vault's id.

Rules: the text gives full power over the vault. Decoding accepts standard and URL-safe base64 (RFC 4648, not mixed), with white
space around it; it demands exactly 36 bytes, whose last four are a check of the root and the vault. A vault's id is the hash of
its first root's key, so the text of a later root has to name it. Errors give positions and counts; the code is never
quoted.

Earlier versions wrote `mc1:` and the 32 bytes of the root alone, with or without padding; that is still read. The published
prototype's pairing text has the same form, and its content is its relay key: nothing in it tells the two apart. The prototype
refuses `mc3:`, so it cannot store a root as its key.
"""

import base64
import hashlib
import hmac
import string
from dataclasses import dataclass
from typing import Final

from crystal_crypto import labels
from crystal_crypto.errors import BadCode
from crystal_crypto.hierarchy import Root
from crystal_crypto.limits import KEY_BYTES, OFFLINE_CODE_CHECK_BYTES, VAULT_BYTES
from crystal_crypto.secret import exactly

PREFIX: Final = "mc3:"
OLD_PREFIX: Final = "mc1:"
"""Of the codes of earlier versions, and of the published prototype's."""
OFFLINE_PREFIXES: Final = (PREFIX, OLD_PREFIX)

_CHARS: Final = 48  # of base64 for 36 bytes
_OLD_CHARS: Final = 43  # of base64 for 32 bytes, without padding
_VAULT_CHARS: Final = 2 * VAULT_BYTES
_SHARED: Final = frozenset(string.ascii_letters + string.digits)
_STANDARD: Final = frozenset("+/")
_URL_SAFE: Final = frozenset("-_")
_INVITE_PREFIX: Final = "mc2:"


@dataclass(frozen=True, slots=True)
class OfflineCode:
    """The content of a pairing text. `vault` is the vault that it names; None stands for the one that the root founded.

    `old`: it begins with `mc1:`, as the published prototype's do, so it may be one of those.
    """

    root: Root
    vault: bytes | None = None
    old: bool = False

    @property
    def vault_id(self) -> bytes:
        """The vault that the code is for."""
        return self.root.vault if self.vault is None else self.vault


def encode(root: Root, vault: bytes | None = None) -> str:
    """The pairing text of a root. It is a secret: show it only to the person, never log it.

    Raises Malformed for a `vault` (None: the one that the root founded) that is not 16 bytes.
    """
    named = root.vault if vault is None else exactly(vault, VAULT_BYTES, "a vault id")
    raw = root.to_bytes()
    text = PREFIX + base64.b64encode(raw + _check(raw, named)).decode("ascii")
    return text if named == root.vault else f"{text}@{named.hex()}"


def is_offline_code(text: str) -> bool:
    """Whether a text begins as an offline code does, in any case, after white space."""
    return text.lstrip()[: len(PREFIX)].lower() in OFFLINE_PREFIXES


def decode(text: str) -> OfflineCode:
    """Raises BadCode, which says what is wrong and at which character (the first is 1)."""
    code = text.strip()
    if not code:
        raise BadCode("the pairing code is empty")
    if not code.startswith(OFFLINE_PREFIXES):  # §19-1
        raise _wrong_prefix(code)
    old = code.startswith(OLD_PREFIX)
    payload, at, name = code[len(PREFIX) :].partition("@")  # §19-1
    raw = _payload(payload.removesuffix("=") if old else payload, _OLD_CHARS if old else _CHARS)  # §19-5
    root = Root.from_bytes(raw[:KEY_BYTES])
    vault = _vault(name, len(code) - len(name) + 1) if at else None  # §19-3
    found = OfflineCode(root, vault, old)
    if not old and not hmac.compare_digest(raw[KEY_BYTES:], _check(raw[:KEY_BYTES], found.vault_id)):  # §19-4
        raise BadCode("the pairing code was mistyped: its check does not agree with the rest")
    return found


def _check(root: bytes, vault: bytes) -> bytes:
    return hashlib.sha256(labels.OFFLINE_CODE + root + vault).digest()[:OFFLINE_CODE_CHECK_BYTES]


def _payload(payload: str, chars: int) -> bytes:
    for at, char in enumerate(payload, start=len(PREFIX) + 1):
        if char not in _SHARED and char not in _STANDARD and char not in _URL_SAFE:  # §19-2
            raise BadCode(f"the pairing code has a character at position {at} that cannot occur in it")
    if len(payload) < chars:  # §19-2
        raise BadCode(f"the pairing code is too short by {chars - len(payload)} characters")
    if len(payload) > chars:  # §19-2
        raise BadCode(f"the pairing code is too long by {len(payload) - chars} characters")
    used = set(payload)
    if used & _STANDARD and used & _URL_SAFE:  # §19-2
        raise BadCode("the pairing code mixes the two alphabets of base64 (+ and / with - and _)")
    standard = payload.replace("-", "+").replace("_", "/") + "=" * (-chars % 4)
    raw = base64.b64decode(standard, validate=True)
    if base64.b64encode(raw).decode("ascii") != standard:  # §19-5
        raise BadCode("the pairing code's last character cannot stand there: something was mistyped")
    return raw


def _vault(text: str, start: int) -> bytes:
    for at, char in enumerate(text, start=start):
        if char not in string.hexdigits:  # §19-3
            raise BadCode(
                f"the pairing code has a character at position {at} that cannot occur in a vault's id"
            )
    if len(text) != _VAULT_CHARS:  # §19-3
        raise BadCode(
            f"the pairing code names a vault (after @) by {len(text)} characters, and there must be {_VAULT_CHARS}"
        )
    return bytes.fromhex(text)


def _wrong_prefix(code: str) -> BadCode:
    lower = code[: len(PREFIX)].lower()
    if lower in OFFLINE_PREFIXES:
        return BadCode(f"the pairing code must begin with `{lower}` in lower case")
    if lower == _INVITE_PREFIX:
        return BadCode(
            "this is an invite (MC2), not an offline pairing code (mc3)", hint="Use it as an invite"
        )
    return BadCode("the pairing code does not begin with `mc3:`")  # §19-6
