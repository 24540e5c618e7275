"""The base class of everything that holds key material.

Rules: `repr` and `str` show nothing, comparison takes constant time, pickling and copying refuse, and there is no hash, so
that a key cannot become a dictionary key by accident. Python cannot wipe memory reliably, so nothing here tries to.
"""

import hmac
from abc import ABC, abstractmethod
from typing import NoReturn, SupportsIndex

from crystal_crypto.errors import Malformed


class Secret(ABC):
    """A base class. Subclasses give their bytes through `_material`, which equality compares in constant time."""

    __slots__ = ()

    @abstractmethod
    def _material(self) -> bytes: ...

    def __repr__(self) -> str:
        return f"<{type(self).__name__} hidden>"

    def __str__(self) -> str:
        return repr(self)

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return hmac.compare_digest(self._material(), other._material())

    __hash__ = None  # type: ignore[assignment]

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(f"{type(self).__name__} holds key material and is never pickled or copied")


def exactly(data: bytes, length: int, what: str) -> bytes:
    """Returns `data` if it is `length` bytes long. Raises Malformed, which names both lengths and never the content."""
    if len(data) != length:
        raise Malformed(f"{what} must be {length} bytes, not {len(data)}")
    return bytes(data)
