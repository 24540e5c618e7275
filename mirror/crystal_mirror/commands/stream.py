"""This device's own stream of commands: sends what waits in the database, in order.

Sealed bytes are in the database before their first put, and are put again identically. If the next place holds other bytes,
this database is an older copy, or another copy of the device writes beside it, or the relay put junk there: a new stream is
begun, and what waits is sealed again in it. Readers know a message by its request's id and its number, so a message that
comes twice counts once.

A stream that was not used for ``STREAM_IDLE_MS`` is not continued: the relay may have deleted what it held of it, and an
old copy of the database would not notice that it goes back in it.
"""

import msgspec

from crystal_crypto.entry import parse
from crystal_crypto.errors import Malformed
from crystal_mirror.commands.asker import ended_here
from crystal_mirror.commands.database import (
    CommandDatabase,
    CommandNotice,
    CommandTransaction,
    OutgoingMessage,
    note_command,
    own_database,
)
from crystal_mirror.commands.entries import CommandPlace, seal_message, signed_by_me
from crystal_mirror.commands.messages import CommandState, Request, Withdraw, decode_message
from crystal_mirror.devicelog.sync import read_log
from crystal_mirror.membership.member import Member
from crystal_mirror.ports import Stream
from crystal_mirror.requests import Flow, Get, PutNew, RetryBudget
from crystal_mirror.types import INCARNATION_BYTES, ZERO_HASH

STREAM_IDLE_MS = 20 * 24 * 3600 * 1000
META_USED = "stream.used"


def send(member: Member, database: CommandDatabase, now_ms: int) -> Flow[int]:
    """Puts what waits on the relay, in order. Returns how many messages. Sends no request when nothing waits.

    Raises:
        KeysWithheld: the key in force is not here; what waits goes on waiting.
        Revoked: this device is out.
    """
    own_database(member, database)
    if not database.outgoing():
        return 0
    yield from read_log(member.log, member.journal, member.keys)
    member.check_active()
    retries = RetryBudget("a command of this device")
    sent = 0
    while True:
        message = _next(member, database, now_ms)
        if message is None:
            return sent
        place = CommandPlace(member.device_id, message.incarnation, message.sequence)
        key = member.keys.command(member.device_id, message.incarnation, message.sequence)
        if not (yield PutNew(key, message.sealed)):
            there = yield Get(key)
            if there != message.sealed:  # §16.2-4
                retries.spend()
                if there is not None:
                    _give_way(member, database, place, there)
                continue
        with database.transaction() as transaction:
            if message in transaction.outgoing():
                transaction.remove_outgoing(message.turn)
            transaction.meta_set(META_USED, b"%d" % now_ms)
            _note_sent(transaction, message, now_ms)
        sent += 1


def _next(member: Member, database: CommandDatabase, now_ms: int) -> OutgoingMessage | None:
    """The first message that waits, sealed at its place."""
    with database.transaction() as transaction:
        while True:
            waiting = transaction.outgoing()
            if not waiting:
                return None
            message = waiting[0]
            info = member.log.member(message.recipient)
            if info is None or info.revoked is not None:
                transaction.remove_outgoing(message.turn)
                _note_nobody(transaction, message, now_ms, "that device is out of the vault")
                continue
            if message.sealed:
                outdated = parse(message.sealed).header.generation < member.log.generation
                if not outdated and not _idle(transaction, now_ms):  # §16.2-4
                    return message
                # Nothing is sent that a device known to be revoked could read.
                _restart(member, transaction)
                transaction.meta_set(META_USED, b"%d" % now_ms)
                continue
            stream = _stream(member, transaction, now_ms)
            try:
                sealed = seal_message(
                    member,
                    message.data,
                    info,
                    incarnation=stream.incarnation,
                    sequence=stream.sequence,
                    previous=stream.previous,
                )
            except Malformed as error:  # the device gave an invalid public key
                transaction.remove_outgoing(message.turn)
                note_command(transaction, CommandNotice.UNREADABLE, f"for {info.device.hex()[:8]}: {error}")
                _note_nobody(transaction, message, now_ms, "nothing can be sealed to that device")
                continue
            transaction.set_stream(Stream(stream.incarnation, stream.sequence + 1, parse(sealed).hash))
            message = msgspec.structs.replace(
                message, incarnation=stream.incarnation, sequence=stream.sequence, sealed=sealed
            )
            transaction.set_outgoing(message)
            transaction.meta_set(META_USED, b"%d" % now_ms)
            return message


def _stream(member: Member, transaction: CommandTransaction, now_ms: int) -> Stream:
    stream = transaction.stream()
    return _begin(member) if stream is None or _idle(transaction, now_ms) else stream


def _idle(transaction: CommandTransaction, now_ms: int) -> bool:
    used = transaction.meta_get(META_USED)
    return used is None or abs(now_ms - int(used)) > STREAM_IDLE_MS


def _begin(member: Member) -> Stream:
    return Stream(member.random(INCARNATION_BYTES), 0, ZERO_HASH)


def _restart(member: Member, transaction: CommandTransaction) -> None:
    """Begins a new stream, in which everything that waits is sealed again."""
    transaction.set_stream(_begin(member))
    for message in transaction.outgoing():
        if message.sealed:
            transaction.set_outgoing(
                msgspec.structs.replace(message, incarnation=b"", sequence=0, sealed=b"")
            )


def _give_way(member: Member, database: CommandDatabase, place: CommandPlace, there: bytes) -> None:
    with database.transaction() as transaction:
        stream = transaction.stream()
        if stream is None or stream.incarnation != place.incarnation:
            return  # another process of this home has done it
        if signed_by_me(member, place, there):
            note_command(
                transaction, CommandNotice.COPIED, "another copy of this device has written commands"
            )
        else:
            note_command(
                transaction,
                CommandNotice.TAMPERED,
                f"foreign bytes as command {place.sequence} of this device",
            )
        _restart(member, transaction)


def _note_sent(transaction: CommandTransaction, message: OutgoingMessage, now_ms: int) -> None:
    said = decode_message(message.data)
    row = transaction.asked(said.id) if isinstance(said, Request) else None
    if row is not None and row.state is CommandState.UNSENT:
        transaction.put_asked(msgspec.structs.replace(row, state=CommandState.SENT, changed_at=now_ms))


def _note_nobody(transaction: CommandTransaction, message: OutgoingMessage, now_ms: int, why: str) -> None:
    said = decode_message(message.data)
    row = transaction.asked(said.id) if isinstance(said, Request | Withdraw) else None
    if row is not None and not row.state.ended:
        ended_here(transaction, row, CommandState.REFUSED, why, now_ms)
