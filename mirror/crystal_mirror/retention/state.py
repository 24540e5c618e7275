"""What the Core's retention remembers from look to look, in the journal. Losing it only makes it wait longer.

The times are the Core's own clock's, in milliseconds.
"""

import msgspec

from crystal_mirror.batch import Announced
from crystal_mirror.member import Member
from crystal_mirror.snapshot_base import Place

META = "retention"


class AckedStream(msgspec.Struct, array_like=True):
    """An ack, and when it was first seen here; and an older one, which is what may go when its time has come."""

    older: int
    older_at: int
    newer: int
    newer_at: int
    gone: int


class ReaderPosition(msgspec.Struct, array_like=True):
    """Where a reader last told that it is, and since when it tells the same."""

    epoch: int
    sequence: int
    since: int


class KeptSnapshot(msgspec.Struct, array_like=True):
    """A snapshot that was announced at ``slot``, the names of its blobs, and when it was first seen."""

    announced: Announced
    slot: Place
    names: list[bytes]
    since: int


class RetentionState(msgspec.Struct, array_like=True):
    """Lists begin with what is oldest."""

    looked_at: int = 0
    readers: dict[str, ReaderPosition] = {}
    acked: dict[str, AckedStream] = {}
    snapshots: list[KeptSnapshot] = []
    floor_asked: tuple[int, int] = (0, 0)
    condemned: list[bytes] = []
    """To be asked for, once they are published."""
    unreferenced: dict[bytes, int] = {}
    """Blobs that nothing refers to, and since when they were seen so."""
    swept_at: int = 0
    lost: bool = False
    """The relay does not have the newest snapshot."""
    checked_at: int = 0
    """When that was last looked at."""
    size: int = 0
    """Bytes of the newest snapshot."""
    checked: bytes = b""
    """Of which snapshot that is said: the hash of its manifest."""
    hurried: set[bytes] = set()
    """Those of the unreferenced that were so while a forget was pending: they may hold what was forgotten."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(RetentionState)


def read_state(member: Member) -> RetentionState:
    """A fresh value each time; what is changed in it counts when it is written."""
    kept = member.journal.meta_get(META)
    try:
        return _decoder.decode(kept) if kept else RetentionState()
    except msgspec.MsgspecError:  # another version's
        return RetentionState()


def write_state(member: Member, state: RetentionState) -> None:
    with member.journal.transaction() as transaction:
        transaction.meta_set(META, _encoder.encode(state))
