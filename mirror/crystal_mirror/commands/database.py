"""The database of commands: what a device asked and was asked, how far it has read, and what it noticed. A port:
``crystal_node`` implements it on SQLite.

Implementers must hold what ``crystal_mirror.ports`` says of databases: a transaction is all or nothing, on disk when it
returns, and several processes of one home may hold the database at once.

::

    a request at its target    RECEIVED --its claim is about to be put--> CLAIMING --it is this process's own--> STARTED
                               STARTED --> DONE, FAILED      before it: --> REFUSED, EXPIRED      otherwise: --> UNKNOWN
"""

from contextlib import AbstractContextManager
from enum import IntEnum, StrEnum
from typing import Protocol

import msgspec

from crystal_mirror.commands.messages import Arguments, CommandState
from crystal_mirror.membership.member import Member
from crystal_mirror.ports import Stream

_META = "troubles"
DETAIL_CHARS_MAX = 200
META_OWNER = "owner"


class ReceivedState(IntEnum):
    """How far a request has come at the device that was asked."""

    RECEIVED = 1
    CLAIMING = 2
    """Its claim may be on the relay; nothing of it has run here."""
    STARTED = 3
    DONE = 4
    FAILED = 5
    REFUSED = 6
    EXPIRED = 7
    UNKNOWN = 8

    @property
    def ended(self) -> bool:
        return self >= ReceivedState.DONE


class AskedRequest(msgspec.Struct, frozen=True, array_like=True):
    """A request of this device, and what is known of it. Times are by this device's own clock in milliseconds, and only
    shown."""

    id: bytes
    target: bytes
    action: str
    arguments: Arguments
    asked_at: int
    state: CommandState
    number: int
    """Number of the last report that counted; -1: none."""
    text: str
    result: bytes
    done: int
    total: int
    changed_at: int


class ReceivedRequest(msgspec.Struct, frozen=True, array_like=True):
    """A request to this device. ``incarnation``, ``stream_sequence``: its place in its sender's stream; ``digest``: the
    SHA-256 of its sealed bytes. ``tries``: how many processes began to run it. ``number``: of its last report."""

    sender: bytes
    id: bytes
    action: str
    arguments: Arguments
    epoch: int
    sequence: int
    incarnation: bytes
    stream_sequence: int
    digest: bytes
    state: ReceivedState
    tries: int
    number: int
    received_at: int
    text: str


class OutgoingMessage(msgspec.Struct, frozen=True, array_like=True):
    """A message that the relay is not known to have. ``turn``: its number in the database, 0 before it has one.
    ``replaces``: a later message of that name replaces it while it is not sealed. ``sealed``: empty before it has a place
    in the stream."""

    turn: int
    recipient: bytes
    data: bytes
    replaces: bytes = b""
    incarnation: bytes = b""
    sequence: int = 0
    sealed: bytes = b""


class StreamTail(msgspec.Struct, frozen=True, array_like=True):
    """How far another device's stream was read: the last entry, its hash (empty: unknown), later places with junk."""

    sequence: int = -1
    hash: bytes = b""
    junk: tuple[int, ...] = ()


class CommandView(Protocol):
    """Contents of the database; read-only."""

    def stream(self) -> Stream | None: ...

    def outgoing(self) -> list[OutgoingMessage]:
        """In order of ``turn``."""
        ...

    def asked(self, request: bytes) -> AskedRequest | None: ...

    def all_asked(self) -> list[AskedRequest]:
        """The latest last."""
        ...

    def received(self, sender: bytes, request: bytes) -> ReceivedRequest | None: ...

    def all_received(self) -> list[ReceivedRequest]:
        """In the order in which they came."""
        ...

    def tail(self, device: bytes, incarnation: bytes) -> StreamTail | None: ...

    def meta_get(self, name: str) -> bytes | None: ...


class CommandTransaction(CommandView, Protocol):
    """Changes that commit together."""

    def set_stream(self, stream: Stream) -> None: ...

    def add_outgoing(self, message: OutgoingMessage) -> None:
        """Gives it the next turn."""
        ...

    def set_outgoing(self, message: OutgoingMessage) -> None:
        """Replaces the message of that turn. Does nothing if there is none."""
        ...

    def remove_outgoing(self, turn: int) -> None: ...

    def put_asked(self, row: AskedRequest) -> None: ...

    def remove_asked(self, request: bytes) -> None: ...

    def put_received(self, row: ReceivedRequest) -> None: ...

    def remove_received(self, sender: bytes, request: bytes) -> None: ...

    def set_tail(self, device: bytes, incarnation: bytes, tail: StreamTail) -> None: ...

    def meta_set(self, name: str, value: bytes | None) -> None: ...

    def wipe(self) -> None:
        """Removes everything."""
        ...


class CommandDatabase(CommandView, Protocol):
    """``commands.db``."""

    def transaction(self) -> AbstractContextManager[CommandTransaction]: ...


class CommandNotice(StrEnum):
    """What was noticed about the channel, by name. It is counted here, apart from the notices of the rounds
    (``notices.py``), which start over in each round while commands are read in between. Nothing noted here was run."""

    TAMPERED = "tampered"
    """An object is not what its sender can have put there."""
    UNREADABLE = "unreadable"
    """Authentic, but it cannot be opened or understood here."""
    MISSING = "missing"
    """Entries that a stream must have are not shown."""
    PEER_AHEAD = "peer-log-unknown"
    """Its sender names a device log that is not shown here."""
    COPIED = "copied"
    """Another copy of this device writes commands, or this home was restored from a backup."""
    OVERFULL = "overfull"
    """A device sends more than is taken."""


class NoticeCount(msgspec.Struct, frozen=True, array_like=True):
    """How often it was noticed, and the last detail."""

    count: int
    detail: str


_decoder = msgspec.msgpack.Decoder(dict[str, NoticeCount])
_encoder = msgspec.msgpack.Encoder()


def note_command(transaction: CommandTransaction, notice: CommandNotice, detail: str) -> None:
    noted = command_notices(transaction)
    before = noted.get(notice.value)
    count = before.count + 1 if before is not None else 1
    noted[notice.value] = NoticeCount(count, detail[:DETAIL_CHARS_MAX])
    transaction.meta_set(_META, _encoder.encode(noted))


def command_notices(database: CommandView) -> dict[str, NoticeCount]:
    """By name."""
    kept = database.meta_get(_META)
    return _decoder.decode(kept) if kept else {}


def own_database(member: Member, database: CommandDatabase) -> bool:
    """Makes the database this device's. Returns whether it was another's, in which case it is emptied and counts as new.

    A home restored from the recovery kit keeps its memory and gets new keys. What the device before was asked or was about
    to run is not for the new one: its claims have other names, so what ran there would run again here.
    """
    if database.meta_get(META_OWNER) == member.device_id:
        return False
    with database.transaction() as transaction:
        before = transaction.meta_get(META_OWNER)
        if before == member.device_id:
            return False
        if before is not None:
            transaction.wipe()
        transaction.meta_set(META_OWNER, member.device_id)
        return before is not None
