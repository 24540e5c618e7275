"""The expiry index: the sweeper's work, in order of time.

    r/expiry/<unix seconds, 12 digits>/invite.<vault>.<mailbox>            an invite is over: its slots
    r/expiry/<unix seconds, 12 digits>/mailbox.<vault>.<mailbox>           a day later: its state at the relay
    r/expiry/<unix seconds, 12 digits>/short.<vault>.<place>               likewise: where its short invite lay
    r/expiry/<unix seconds, 12 digits>/condemned.<vault>.<id>              r/condemned/<vault>/<id> names what to delete
    r/expiry/<unix seconds, 12 digits>/dropped.<vault>                     r/vault/<vault>/dropped says whether it is due
    r/expiry/<unix seconds, 12 digits>/deletion.<vault>                    r/vault/<vault>/deletion/… says whether it is due
    r/expiry/<unix seconds, 12 digits>/deleted.<vault>                     a year after a deletion: what remained of the vault

A record's information is in its key; it has no content. A record is written before its subject, so that a crash between the
two may leave a record without a subject, but never a subject without a record. The sweeper removes a record without a
subject; deleting a missing key is no error. So any number of processes may write and sweep these in any order.
"""

import math
import re
from dataclasses import dataclass
from enum import StrEnum

from crystal_relay.errors import AlreadyExists
from crystal_relay.store import Store

EXPIRY_PREFIX = "r/expiry/"
_DIGITS = 12
_VAULT = r"(?P<vault>[0-9a-f]{32})"
_RECORD = re.compile(
    rf"{EXPIRY_PREFIX}(?P<when>[0-9]{{{_DIGITS}}})/(?P<kind>[a-z]+)\.{_VAULT}(?:\.(?P<rest>[a-z0-9._-]+))?\Z"
)
_WHEN = re.compile(rf"{EXPIRY_PREFIX}([0-9]{{{_DIGITS}}})/")


class ExpiryKind(StrEnum):
    """The kind of a record's subject."""

    INVITE = "invite"
    MAILBOX = "mailbox"
    SHORT = "short"
    CONDEMNED = "condemned"
    DROPPED = "dropped"
    DELETION = "deletion"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class Expiry:
    """One record. `rest`: the invite's mailbox, the short invite's place, the condemnation's id, nothing for a vault."""

    when: int
    kind: ExpiryKind
    vault: str
    rest: str = ""

    @property
    def key(self) -> str:
        """The record's key in the store."""
        tail = f".{self.rest}" if self.rest else ""
        return f"{EXPIRY_PREFIX}{self.when:0{_DIGITS}d}/{self.kind.value}.{self.vault}{tail}"


def expiry_at(seconds: float, kind: ExpiryKind, vault: str, rest: str = "") -> Expiry:
    """A record for a time (unix seconds), rounded up to a whole second."""
    return Expiry(math.ceil(seconds), kind, vault, rest)


async def record_expiry(store: Store, expiry: Expiry) -> None:
    """Write the record. Idempotent."""
    try:
        await store.put_new(expiry.key, b"")
    except AlreadyExists:
        return


def due_at(key: str) -> int | None:
    """The time in a record's key; None if the key has another form."""
    match = _WHEN.match(key)
    return int(match[1]) if match is not None else None


def parse_expiry(key: str) -> Expiry | None:
    """Parse a record's key; None for a kind that this version does not know, and leaves alone."""
    match = _RECORD.match(key)
    if match is None or match["kind"] not in ExpiryKind.__members__.values():
        return None
    return Expiry(int(match["when"]), ExpiryKind(match["kind"]), match["vault"], match["rest"] or "")
