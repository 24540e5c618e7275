"""Whether this device is let in, as its last round of sync found: kept in the journal, so that commands which open no key store
can say so, too.

::

    OPEN --the relay does not know our token--> REFUSED --"revoke" read in the log--> REVOKED
         <------- a round that succeeds -------          <--- paired again, a round ---

A refused token is no proof: a relay that lost its tokens looks the same. The device log proves it.
"""

from enum import StrEnum
from pathlib import Path

from crystal_mirror.ports import Journal
from crystal_node.device.journal import peek

META_ACCESS = "node.access"


class Access(StrEnum):
    """See the drawing."""

    OPEN = "open"
    REFUSED = "refused"
    REVOKED = "revoked"


TEXTS = {
    Access.REFUSED: "The relay refuses this device: it was revoked, or the relay lost its tokens. What is here stays "
    "searchable; `crystal pair --code -` brings this machine back in.",
    Access.REVOKED: "This device was revoked: it gets nothing new, and nothing that it records is shared. What is here stays "
    "searchable; `crystal pair --new-keys --code -` brings this machine back in, as another device.",
}


def note_access(journal: Journal, access: Access) -> None:
    """Keeps what a round found, if it is another thing than before. Who knows of the revocation learns no more from a
    relay that refuses."""
    value = None if access is Access.OPEN else access.value.encode()
    kept = journal.meta_get(META_ACCESS)
    if kept == value or (access is Access.REFUSED and _parsed(kept) is Access.REVOKED):
        return
    with journal.transaction() as transaction:
        transaction.meta_set(META_ACCESS, value)


def read_access(journal: Journal) -> Access:
    """What the last round found."""
    return _parsed(journal.meta_get(META_ACCESS))


def peek_access(state_database: Path) -> Access:
    """``read_access`` without opening the journal for writing; OPEN if there is none."""
    return _parsed(peek(state_database, META_ACCESS))


def _parsed(value: bytes | None) -> Access:
    return Access(value.decode()) if value in (b"refused", b"revoked") else Access.OPEN
