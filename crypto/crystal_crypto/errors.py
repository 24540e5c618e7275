"""The errors of Crystal: the root of the tree, and the errors of cryptography.

Rules:
- Whatever bytes a parser of this package is given, it returns a value or raises one of these; nothing else escapes.
- A message says what is wrong and where. It never quotes key material, plaintext or a pairing code.
- `exit_code` and `hint` are for the program's edge: what the process ends with, and what the person can do about it.
"""

from typing import Final

import msgspec

UNDECODABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that are not of the asked type. The last two are not its own: a text that is not UTF-8, and
arrays in arrays without end, also in a field that it would skip."""


class CrystalError(Exception):
    """The root of all errors that Crystal raises on purpose."""

    exit_code: int = 1
    hint: str = ""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        if hint is not None:
            self.hint = hint


class CryptoError(CrystalError):
    """Sealed bytes, a key or a code that cannot be used."""

    exit_code = 7


class Malformed(CryptoError):
    """Bytes that do not follow the format: cut, extended, changed, or never of this format."""


class UnknownVersion(Malformed):
    """A version or suite that this program does not know: perhaps written by a newer one. Keep it and retry later."""

    hint = "It may come from a newer version of Crystal: update this device"


class TooLarge(Malformed):
    """A length beyond the limits of `crystal_crypto.limits`."""


class BadSignature(CryptoError):
    """An Ed25519 signature that does not belong to this message and key."""


class WrongKey(CryptoError):
    """A key that does not open these bytes: the MAC, the AEAD tag or the name does not agree."""

    hint = "The bytes were sealed with another key, or they were changed"


class BadCode(CryptoError):
    """A pairing text that is not valid; the message says why."""

    hint = "Copy the whole code again, from `mc3:` to its end; some go on behind an @"


class BadMessage(CryptoError):
    """A message of a pairing that is not what the other side must have written: damaged, swapped, or forged."""

    hint = "Make a new invite and pair again"


class BadJoin(BadMessage):
    """A newcomer's first message that must not be believed."""


class KeyStoreError(CryptoError):
    """A secret could not be kept or fetched; the message names the place and the reason."""

    exit_code = 8


class WrongPassphrase(KeyStoreError):
    """The given passphrase does not open the key store."""

    exit_code = 7
    hint = "Type it again, or check the file that CRYSTAL_PASSPHRASE_FILE names; nothing was changed"


class PassphraseNeeded(KeyStoreError):
    """The key store has a passphrase, and there is nobody to ask for it."""

    hint = "Set CRYSTAL_PASSPHRASE_FILE to a file that only you can read, or run the command at a terminal"
