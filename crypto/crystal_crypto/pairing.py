"""The offline pairing text: `mc1:` and base64 of the vault's root; after a rotation of the root also `@` and the vault's
id.

Rules: the text gives full power over the vault. Decoding accepts standard and URL-safe base64 (RFC 4648, not mixed), with
or without padding, with white space around it; it demands exactly 32 bytes and no stray bits. A vault's id is the hash of
its first root's key, so the text of a later root has to name it. Errors give positions and counts; the code is never
quoted.
"""

import base64
import string
from dataclasses import dataclass
from typing import Final

from crystal_crypto.errors import BadCode
from crystal_crypto.hierarchy import Root
from crystal_crypto.limits import KEY_BYTES, VAULT_BYTES
from crystal_crypto.secret import exactly

PREFIX: Final = "mc1:"

_CHARS: Final = 43  # of base64 for 32 bytes, without padding
_VAULT_CHARS: Final = 2 * VAULT_BYTES
_SHARED: Final = frozenset(string.ascii_letters + string.digits)
_STANDARD: Final = frozenset("+/")
_URL_SAFE: Final = frozenset("-_")
_INVITE_PREFIX: Final = "mc2:"


@dataclass(frozen=True, slots=True)
class OfflineCode:
    """The content of a pairing text. `vault` is the vault that it names; None stands for the one that the root founded."""

    root: Root
    vault: bytes | None = None

    @property
    def vault_id(self) -> bytes:
        """The vault that the code is for."""
        return self.root.vault if self.vault is None else self.vault


def encode(root: Root, vault: bytes | None = None) -> str:
    """The pairing text of a root. It is a secret: show it only to the person, never log it.

    Raises Malformed for a `vault` (None: the one that the root founded) that is not 16 bytes.
    """
    text = PREFIX + base64.b64encode(root.to_bytes()).decode("ascii")
    if vault is None or exactly(vault, VAULT_BYTES, "a vault id") == root.vault:
        return text
    return f"{text}@{vault.hex()}"


def decode(text: str) -> OfflineCode:
    """Raises BadCode, which says what is wrong and at which character (the first is 1)."""
    code = text.strip()
    if not code:
        raise BadCode("the pairing code is empty")
    if not code.startswith(PREFIX):  # §19-1
        raise _wrong_prefix(code)
    root, named, vault = code[len(PREFIX) :].partition("@")  # §19-1
    return OfflineCode(
        Root.from_bytes(_root(root)), _vault(vault, len(code) - len(vault) + 1) if named else None
    )


def _root(text: str) -> bytes:
    payload = text.removesuffix("=")
    for at, char in enumerate(payload, start=len(PREFIX) + 1):
        if char not in _SHARED and char not in _STANDARD and char not in _URL_SAFE:  # §19-2
            raise BadCode(f"the pairing code has a character at position {at} that cannot occur in it")
    if len(payload) < _CHARS:  # §19-2
        raise BadCode(f"the pairing code is too short by {_CHARS - len(payload)} characters")
    if len(payload) > _CHARS:  # §19-2
        raise BadCode(f"the pairing code is too long by {len(payload) - _CHARS} characters")
    used = set(payload)
    if used & _STANDARD and used & _URL_SAFE:  # §19-2
        raise BadCode("the pairing code mixes the two alphabets of base64 (+ and / with - and _)")
    standard = payload.replace("-", "+").replace("_", "/") + "="
    raw = base64.b64decode(standard, validate=True)
    if len(raw) != KEY_BYTES or base64.b64encode(raw).decode("ascii") != standard:  # §19-2
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
    if lower == PREFIX:
        return BadCode("the pairing code must begin with `mc1:` in lower case")
    if lower == _INVITE_PREFIX:
        return BadCode(
            "this is an invite (MC2), not an offline pairing code (mc1)", hint="Use it as an invite"
        )
    return BadCode("the pairing code does not begin with `mc1:`")  # §19-4
