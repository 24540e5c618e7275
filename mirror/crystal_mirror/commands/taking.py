"""Taking in: what a request or a withdrawal that was read makes of the book at its target. Nothing is run here."""

from hashlib import sha256

import msgspec

from crystal_mirror.commands.asking import OPEN_MAX
from crystal_mirror.commands.messages import (
    EXPIRES_AFTER_ENTRIES,
    Action,
    Arguments,
    CommandState,
    Report,
    Request,
    Withdraw,
    encode_message,
)
from crystal_mirror.commands.ports import CommandTransaction, OutgoingMessage, ReceivedRequest, ReceivedState
from crystal_mirror.commands.sealing import CommandPlace
from crystal_mirror.commands.troubles import CommandNotice, note_command

RECEIVED_KEPT_MAX = 4096
"""Requests of one device that are remembered."""
META_BEGAN = "began"
"""Where the mirror stood here when the book was new."""

FRESH_TEXT = "asked before this device kept its list of commands; nothing was run: sync, and ask again"
FRESH_BEGUN_TEXT = "begun before this device kept its list of commands; how it ended is not known here"
_NOTHING = Arguments()


def take_request(
    transaction: CommandTransaction,
    place: CommandPlace,
    data: bytes,
    request: Request,
    now_ms: int,
    *,
    old: bool,
    claimed: bool,
) -> bool:
    """Writes a request down, or its refusal. Returns whether it is to be run."""
    if transaction.received(place.device, request.id) is not None:  # §16.2-5, §16.3-5
        return False
    theirs = [row for row in transaction.all_received() if row.sender == place.device]
    state, text = ReceivedState.RECEIVED, ""
    if old:
        state = ReceivedState.UNKNOWN if claimed else ReceivedState.REFUSED  # §16.4-7
        text = FRESH_BEGUN_TEXT if claimed else FRESH_TEXT
    elif request.action not in set(Action):  # §16.1-2
        state, text = ReceivedState.REFUSED, f"this version does not know {request.action}"
    elif (
        len(theirs) >= RECEIVED_KEPT_MAX
        or sum(row.state is ReceivedState.RECEIVED for row in theirs) >= OPEN_MAX
    ):
        state, text = ReceivedState.REFUSED, "too many requests of that device wait here"
        note_command(transaction, CommandNotice.OVERFULL, f"requests of {place.device.hex()[:8]}")
    row = ReceivedRequest(
        sender=place.device,
        id=request.id,
        action=request.action,
        arguments=request.arguments,
        epoch=request.epoch,
        sequence=request.sequence,
        incarnation=place.incarnation,
        stream_sequence=place.sequence,
        digest=sha256(data).digest(),
        state=state,
        tries=0,
        number=0,
        received_at=now_ms,
        text=text,
    )
    if len(theirs) < RECEIVED_KEPT_MAX:
        transaction.put_received(row)
    if state.ended:
        answer(transaction, row)
    return not state.ended


def answer(transaction: CommandTransaction, row: ReceivedRequest) -> None:
    """Queues the report that a request has ended in its state."""
    said = Report(row.id, row.number + 1, CommandState[row.state.name], row.text)
    transaction.add_outgoing(OutgoingMessage(0, row.sender, encode_message(said)))


def take_withdrawal(transaction: CommandTransaction, sender: bytes, message: Withdraw, now_ms: int) -> None:
    row = transaction.received(sender, message.id)
    if row is None:
        known = sum(each.sender == sender for each in transaction.all_received())
        if known >= RECEIVED_KEPT_MAX:
            note_command(transaction, CommandNotice.OVERFULL, f"withdrawals of {sender.hex()[:8]}")
            return
        # It may stand in another stream than its withdrawal, and be read after it.
        row = ReceivedRequest(
            sender, message.id, "", _NOTHING, 0, 0, b"", 0, b"", ReceivedState.RECEIVED, 0, 0, now_ms, ""
        )
    if row.state is ReceivedState.RECEIVED:
        row = msgspec.structs.replace(row, state=ReceivedState.REFUSED, text="withdrawn before it began")
        transaction.put_received(row)
        answer(transaction, row)


def asked_before(transaction: CommandTransaction, request: Request) -> bool:
    """Whether its asker stood, when it asked, at an earlier place of the mirror than this device when its book was new."""
    kept = transaction.meta_get(META_BEGAN)
    epoch, sequence = map(int, kept.split()) if kept else (0, 0)
    return (request.epoch, request.sequence - EXPIRES_AFTER_ENTRIES) < (epoch, sequence)
