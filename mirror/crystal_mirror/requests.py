"""What flows ask of the world: store operations and embeddings, as values.

A flow is a generator that yields one of these and is sent its reply. Failures are thrown into it. Every request may be
repeated: a flow that was stopped anywhere is simply started anew. Keys are complete store keys (``keys.py``).
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from crystal_crypto.errors import CrystalError
from crystal_mirror.errors import RelayMisbehaves


@dataclass(frozen=True, slots=True)
class Get:
    """Reply: the object's bytes, or None if there is none."""

    key: str


@dataclass(frozen=True, slots=True)
class GetMany:
    """Reply: a list as long as ``keys``, bytes or None each. May be fetched side by side."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PutNew:
    """Create-only write. Reply: True if created and durable, False if the key exists already (with whatever bytes)."""

    key: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Put:
    """Overwriting write, for cursors. Reply: None, once durable."""

    key: str
    body: bytes


@dataclass(frozen=True, slots=True)
class List:
    """Reply: ``Listing``: keys under ``prefix`` strictly after ``after`` in byte order, ``limit`` at most."""

    prefix: str
    after: str
    limit: int


@dataclass(frozen=True, slots=True)
class Listing:
    """A page of keys. ``more`` says that the page is not the end; an empty page ends a listing all the same."""

    keys: tuple[str, ...]
    more: bool

    def after(self, key: str) -> list[str]:
        """The keys behind ``key`` that stand in order. A relay may list what it wants; who reads on needs progress."""
        rising: list[str] = []
        for listed in self.keys:
            if listed > key:
                rising.append(listed)
                key = listed
        return rising


@dataclass(frozen=True, slots=True)
class Embed:
    """Reply: per text, its windows' vectors (float16 little-endian, at least one each).

    Or None, where they cannot be made now and are not ``needed``: texts are committed and found by their words without, and get
    their vectors later. A failure of what is needed comes out of the flow's runner as it is.
    """

    texts: tuple[str, ...]
    needed: bool = False


@dataclass(frozen=True, slots=True)
class Has:
    """Reply: a list of bools, whether there is an object under each key. Moves no content."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GetBlob:
    """Reply: the blob's bytes (``BLOB_BYTES_MAX`` and one more byte at most), or None if there is none."""

    key: str


@dataclass(frozen=True, slots=True)
class PutBlob:
    """Create-only write of a blob, like ``PutNew`` for what an entry could not hold. Reply: True if created."""

    key: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Condemn:
    """Asks the relay to delete the named keys, or all under ``prefix`` up to the key ``through``. Needs the lead's right.

    Reply: None, once the relay has noted it for good; it deletes when it gets to it. Idempotent. 500 keys at most.
    """

    keys: tuple[str, ...] = ()
    prefix: str = ""
    through: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """Tells whoever waits how far a long flow is: ``done`` of ``total`` bytes of ``what``. Reply: None, at once."""

    what: str
    done: int
    total: int


Request = Get | GetMany | PutNew | Put | List | Embed | Has | GetBlob | PutBlob | Condemn | Progress

T = TypeVar("T")
Flow = Generator[Request, Any, T]
"""A sans-IO procedure: yields requests, is sent replies, returns its result."""


class StoreFailure(CrystalError):
    """Thrown into a flow when the store could not answer: nothing is known about the request's effect."""

    exit_code = 4
    hint = "Check the network and the relay; the work is kept and is retried."


RETRIES_MAX = 32  # §11.12-1


class RetryBudget:
    """Counts what went wrong with one thing."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._tries = 0

    def lose(self) -> None:
        """Raises RelayMisbehaves when it was tried often enough."""
        self._tries += 1
        if self._tries >= RETRIES_MAX:  # §11.12-1
            raise RelayMisbehaves(
                f"the relay lets nothing be written: {self._what} was tried {self._tries} times"
            )
