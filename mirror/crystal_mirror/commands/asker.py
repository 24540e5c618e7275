"""A request at its asker: it is written into the database, offline too, and goes out with the next ``send``; reports come
in.

::

    UNSENT --put--> SENT --claim--> RUNNING --> DONE, FAILED
                    SENT --> REFUSED, EXPIRED         any but DONE and FAILED --> UNKNOWN, and that still --> DONE, FAILED

A report counts by its rank (``CommandState.rank``), among equals by its number, so reports may come in any order, twice, or
from two copies of the target.
"""

import msgspec

from crystal_mirror.commands.database import (
    AskedRequest,
    CommandDatabase,
    CommandTransaction,
    OutgoingMessage,
    own_database,
)
from crystal_mirror.commands.messages import (
    EXPIRES_AFTER_ENTRIES,
    REQUEST_ID_BYTES,
    Action,
    Arguments,
    CommandState,
    Report,
    Request,
    Withdraw,
    decode_message,
    encode_message,
)
from crystal_mirror.errors import NotAllowed, NotAMember
from crystal_mirror.membership.member import Member

ASKED_KEPT_MAX = 500
"""Ended requests that are kept. The oldest go first."""
OPEN_MAX = 64
"""Open requests of one device; its target takes no more of them."""


def ask(
    member: Member,
    database: CommandDatabase,
    target: bytes,
    action: Action,
    arguments: Arguments,
    now_ms: int,
) -> bytes:
    """Writes down a request. Returns its id. No network.

    Raises:
        NotAMember: the target is no active device of this vault, or this one itself.
        NotAllowed: too many of this device's requests are open.
        Revoked: this device is out.
    """
    member.check_active()
    own_database(member, database)
    if target == member.device_id or not member.log.is_active(target):
        raise NotAMember("only another active device of this vault can be asked")
    position = member.replica.position()
    request = Request(
        member.random(REQUEST_ID_BYTES),
        action.value,
        arguments,
        position.epoch,
        position.sequence + EXPIRES_AFTER_ENTRIES,  # §16.1-5
    )
    data = encode_message(request)
    with database.transaction() as transaction:
        open_now = [row for row in transaction.all_asked() if not row.state.ended]
        if sum(row.target == target for row in open_now) >= OPEN_MAX:
            raise NotAllowed(
                f"{OPEN_MAX} requests to that device have no answer yet",
                hint="`crystal commands list` shows them, `crystal commands cancel` withdraws one.",
            )
        transaction.put_asked(
            AskedRequest(
                id=request.id,
                target=target,
                action=action.value,
                arguments=arguments,
                asked_at=now_ms,
                state=CommandState.UNSENT,
                number=-1,
                text="",
                result=b"",
                done=0,
                total=0,
                changed_at=now_ms,
            )
        )
        transaction.add_outgoing(OutgoingMessage(0, target, data))
        _forget_old(transaction)
    return request.id


def withdraw(member: Member, database: CommandDatabase, request: bytes, now_ms: int) -> AskedRequest | None:
    """Withdraws a request: one that was not sent never is; for any other, the target is told. None if there is no such
    request.

    What has begun is not stopped by it; the target reports how it ends.
    """
    with database.transaction() as transaction:
        row = transaction.asked(request)
        if row is None or row.state.ended:
            return row
        if row.state is not CommandState.UNSENT:
            transaction.add_outgoing(OutgoingMessage(0, row.target, encode_message(Withdraw(request))))
            return row
        for message in transaction.outgoing():
            # One with a place in the stream may have been put, though the reply was lost.
            if not message.sealed and _carries(message, request):
                transaction.remove_outgoing(message.turn)
                return ended_here(
                    transaction, row, CommandState.REFUSED, "withdrawn before it was sent", now_ms
                )
        transaction.add_outgoing(OutgoingMessage(0, row.target, encode_message(Withdraw(request))))
        return row


def take_report(transaction: CommandTransaction, sender: bytes, report: Report, now_ms: int) -> bool:
    """Notes a report of ``sender``. Returns whether it changed anything."""
    row = transaction.asked(report.id)
    if row is None or row.target != sender:  # §16.5-1
        return False
    before, after = row.state.rank, report.state.rank
    if after < before or (after == before and report.number <= row.number):  # §16.5-2
        return False
    if row.state in (CommandState.DONE, CommandState.FAILED):
        return False
    transaction.put_asked(
        msgspec.structs.replace(
            row,
            state=report.state,
            number=report.number,
            text=report.text,
            result=report.result,
            done=report.done,
            total=report.total,
            changed_at=now_ms,
        )
    )
    return True


def ended_here(
    transaction: CommandTransaction, row: AskedRequest, state: CommandState, text: str, now_ms: int
) -> AskedRequest:
    """Ends a request without a report of its target."""
    row = msgspec.structs.replace(row, state=state, text=text, changed_at=now_ms)
    transaction.put_asked(row)
    return row


def _carries(message: OutgoingMessage, request: bytes) -> bool:
    said = decode_message(message.data)
    return isinstance(said, Request) and said.id == request


def _forget_old(transaction: CommandTransaction) -> None:
    ended = [row for row in transaction.all_asked() if row.state.ended]
    for row in ended[: max(0, len(ended) - ASKED_KEPT_MAX)]:
        transaction.remove_asked(row.id)
