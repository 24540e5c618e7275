"""The port that every key store implements, and the bounds on names and secrets that all of them check.

`load` returns bytes, which Python cannot wipe.
"""

import re
from typing import Final, Protocol

from crystal_crypto.limits import SECRET_BYTES_MAX, SECRET_NAME_CHARS_MAX

_NAME: Final = re.compile(rf"[a-z0-9][a-z0-9._-]{{0,{SECRET_NAME_CHARS_MAX - 1}}}")


class KeyStore(Protocol):
    """Named secrets. Names are 1 to 64 of a-z, 0-9, dot, dash, underscore, not beginning with a mark; secrets at most 16
    KiB.

    All calls raise KeyStoreError if the store cannot do what was asked, ValueError for a name or secret out of bounds.
    """

    def load(self, name: str) -> bytes | None:
        """The secret, or None if there is none of that name. Never part of one."""
        ...

    def store(self, name: str, secret: bytes) -> None:
        """Stores the secret in place of an earlier one. Durable when it returns; after a crash the old or the new one is
        there."""
        ...

    def delete(self, name: str) -> None:
        """Deletes the secret. Deleting one that is not there is no error."""
        ...


def check_name(name: str) -> None:
    """Raises ValueError for a name out of bounds."""
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"a secret's name must be 1 to {SECRET_NAME_CHARS_MAX} of a-z, 0-9, '.', '-', '_'")


def is_name(text: str) -> bool:
    """Whether a secret may have this name."""
    return _NAME.fullmatch(text) is not None


def check_secret(secret: bytes) -> None:
    """Raises ValueError for a secret out of bounds."""
    if not 1 <= len(secret) <= SECRET_BYTES_MAX:
        raise ValueError(f"a secret must be 1 to {SECRET_BYTES_MAX} bytes")
