"""Whether the relay lets this device in, as its last sync round found. Kept in the journal, so that commands which open no
key store can tell.

::

    OPEN --the relay does not know our token--> REFUSED --"revoke" read in the log--> REVOKED
         <------- a round that succeeds -------          <--- paired again, a round ---

A refused token proves nothing, because a relay that lost its tokens looks the same; the device log proves a revocation.
"""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from crystal_node.device.journal_values import peek

if TYPE_CHECKING:
    from crystal_mirror.ports import Journal

META_ACCESS = "node.access"


class Access(StrEnum):
    """See the drawing above."""

    OPEN = "open"
    REFUSED = "refused"
    REVOKED = "revoked"


TEXTS = {
    Access.REFUSED: "The relay refuses this device: it was revoked, or the relay lost its tokens. What is here stays "
    "searchable; `crystal pair --code -` brings this machine back in.",
    Access.REVOKED: "This device was revoked: it gets nothing new, and nothing that it records is shared. What is here stays "
    "searchable; `crystal pair --new-keys --code -` brings this machine back in, as another device.",
}


def note_access(journal: "Journal", access: Access) -> None:
    """Keeps what a round found, if it changed. REVOKED stays when a relay merely refuses."""
    value = None if access is Access.OPEN else access.value.encode()
    kept = journal.meta_get(META_ACCESS)
    if kept == value or (access is Access.REFUSED and _parsed(kept) is Access.REVOKED):
        return
    with journal.transaction() as transaction:
        transaction.meta_set(META_ACCESS, value)


def read_access(journal: "Journal") -> Access:
    """What the last round found."""
    return _parsed(journal.meta_get(META_ACCESS))


def peek_access(state_database: Path) -> Access:
    """``read_access`` without opening the journal for writing; OPEN if there is no journal."""
    return _parsed(peek(state_database, META_ACCESS))


def _parsed(value: bytes | None) -> Access:
    return Access(value.decode()) if value in (b"refused", b"revoked") else Access.OPEN
