"""What flows ask of the world: store operations and embeddings, as values; and the retry budget of a flow.

A flow is a generator that yields a request and is sent its reply. Failures are thrown into it. Every request may be
repeated: a flow that was stopped anywhere is simply run again. Keys are complete store keys (``store_keys.py``).
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
class GetPart:
    """Reply: at most ``length`` bytes of the object from ``start`` on, none if it ends before; None if there is no object."""

    key: str
    start: int
    length: int


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
        """The keys after ``key`` that are in ascending order. A relay may list anything; the reader must make progress."""
        rising: list[str] = []
        for listed in self.keys:
            if listed > key:
                rising.append(listed)
                key = listed
        return rising


@dataclass(frozen=True, slots=True)
class Poll:
    """Reply: a token for the next such request, at once. It equals ``token`` if nothing was written under ``prefix`` since that
    was given; any other reply tells nothing. ``token`` is empty if there is none."""

    prefix: str
    token: str


@dataclass(frozen=True, slots=True)
class Embed:
    """Reply: for each text, the vectors of its windows (float16 little-endian, at least one each).

    The reply is None if vectors cannot be made now and are not ``needed``: the texts are then committed without, found by
    keyword, and get their vectors later. If they are needed, the failure is raised by the flow's runner.
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
class GetBlobs:
    """Reply: a list as long as ``keys``: the blob's bytes (its limit and one more byte at most), or None. May be fetched side
    by side."""

    keys: tuple[str, ...]
    limits: tuple[int, ...]
    """Bytes of each."""
    ahead: "GetBlobs | None" = None
    """What is probably asked for next: it may be fetched while the flow works on this reply."""


@dataclass(frozen=True, slots=True)
class PutBlob:
    """Create-only write of a blob, like ``PutNew`` for what an entry could not hold. Reply: True if created."""

    key: str
    body: bytes


@dataclass(frozen=True, slots=True)
class PutBlobs:
    """Create-only writes of blobs, side by side and in any order. Reply, once they and those begun before are durable: a list
    of bools, True if created."""

    blobs: tuple[tuple[str, bytes], ...]
    """Keys and bytes."""
    behind: bool = False
    """The reply may come while they are written, and tells nothing. Their failure is thrown into the flow at a later request of
    this kind; a flow that relies on them makes one more without it, if only of no blobs."""


@dataclass(frozen=True, slots=True)
class Condemn:
    """Asks the relay to delete the named keys, or all under ``prefix`` up to the key ``through``. Needs the Core's token
    scope.

    Reply: None, once the relay has recorded it durably; it deletes later. Idempotent. At most 500 keys.
    """

    keys: tuple[str, ...] = ()
    prefix: str = ""
    through: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """Reports the progress of a long flow: ``done`` of ``total`` bytes of ``what``. Reply: None, at once."""

    what: str
    done: int
    total: int


Request = (
    Get
    | GetPart
    | GetMany
    | PutNew
    | Put
    | List
    | Poll
    | Embed
    | Has
    | GetBlob
    | GetBlobs
    | PutBlob
    | PutBlobs
    | Condemn
    | Progress
)

T = TypeVar("T")
Flow = Generator[Request, Any, T]
"""A sans-IO procedure: yields requests, is sent replies, returns its result."""


class StoreFailure(CrystalError):
    """Thrown into a flow when the store could not answer: nothing is known about the request's effect."""

    exit_code = 4
    hint = "Check the network and the relay; the work is kept and is retried."

    @property
    def refused(self) -> bool:
        """Whether the store answered, and does not do it: trying again at once does not help."""
        return self.exit_code != StoreFailure.exit_code


RETRIES_MAX = 32  # §11.12-1


class RetryBudget:
    """Retry budget of a flow within one round.

    A store that reports every place as taken, shows nothing there, or shows other bytes than were put could otherwise keep
    a flow writing forever. Races between honest writers end much earlier: each lost race is another device's entry.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._tries = 0

    def spend(self) -> None:
        """Counts a failed attempt. Raises RelayMisbehaves when the budget is used up."""
        self._tries += 1
        if self._tries >= RETRIES_MAX:  # §11.12-1
            raise RelayMisbehaves(
                f"the relay lets nothing be written: {self._what} was tried {self._tries} times"
            )
