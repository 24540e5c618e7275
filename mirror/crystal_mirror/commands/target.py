"""A request at its target: taken in, refused, or run once; and the reports about it.

::

    RECEIVED --checks--> REFUSED, EXPIRED
             --> CLAIMING --claim put: the relay holds this process's bytes--> STARTED --(it runs)--> DONE, FAILED
                          --the relay holds another's----------------------> UNKNOWN
    CLAIMING, STARTED of a process that died --the action may be repeated, TRIES_MAX--> again    otherwise --> UNKNOWN

A claim's bytes are made for this put and kept in memory only, so no copy of the database, however it was made, can take
another's claim for its own. A process that follows one that died between the put and the next commit finds a claim that it
cannot tell from another copy's.

One process of a home runs requests at a time (its caller holds a lock): rows that are CLAIMING or STARTED when it begins
are of a process that died. Whether a request may run is checked when it is to run, with the device log as the relay shows
it now.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from hashlib import sha256

import msgspec

from crystal_crypto.entry import parse
from crystal_crypto.errors import Malformed
from crystal_mirror.commands.asker import OPEN_MAX
from crystal_mirror.commands.database import (
    CommandDatabase,
    CommandNotice,
    CommandTransaction,
    OutgoingMessage,
    ReceivedRequest,
    ReceivedState,
    note_command,
    own_database,
)
from crystal_mirror.commands.entries import (
    CLAIM_NAME_BYTES,
    CLAIMS,
    CommandPlace,
    claim_hash,
    claim_key,
    seal_claim,
    signed_by_me,
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
    encode_message,
    shortened,
)
from crystal_mirror.devicelog.sync import read_log
from crystal_mirror.membership.member import Member
from crystal_mirror.requests import Flow, Get, PutNew, RetryBudget

TRIES_MAX = 3
"""How often an action that may be repeated is begun if the process that runs it dies each time."""
Denied = Callable[[bytes, Action], str]
"""Why the device may not have that action run here; "" if it may."""
ELSEWHERE_TEXT = "another copy of this device took it on, or this one before it was restored; whether it ended is not known"
BROKEN_OFF_TEXT = "the process that ran it ended; whether it was done is not known"
RECEIVED_KEPT_MAX = 4096
"""Requests of one device that are remembered."""
META_BEGAN = "began"
"""Where the mirror stood here when the database was new."""

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
    """Writes down a request, or its refusal. Returns whether it is to be run."""
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
        # The request may be in another stream than its withdrawal, and be read after it.
        row = ReceivedRequest(
            sender, message.id, "", _NOTHING, 0, 0, b"", 0, b"", ReceivedState.RECEIVED, 0, 0, now_ms, ""
        )
    if row.state is ReceivedState.RECEIVED:
        row = msgspec.structs.replace(row, state=ReceivedState.REFUSED, text="withdrawn before it began")
        transaction.put_received(row)
        answer(transaction, row)


def asked_before(transaction: CommandTransaction, request: Request) -> bool:
    """Whether its asker was, when it asked, at an earlier place of the mirror than this device when its database was new."""
    kept = transaction.meta_get(META_BEGAN)
    epoch, sequence = map(int, kept.split()) if kept else (0, 0)
    return (request.epoch, request.sequence - EXPIRES_AFTER_ENTRIES) < (epoch, sequence)


class BeginOutcome(Enum):
    RUN = "it is to be run, now, by who asked"
    ENDED = "it has ended without running"
    LATER = "another process of this home changed it"


@dataclass
class HeldClaims:
    """The claims that this process has put, or tried to, by request. Never written to disk."""

    sealed: dict[tuple[bytes, bytes], bytes] = field(default_factory=dict[tuple[bytes, bytes], bytes])


def next_due(database: CommandDatabase) -> ReceivedRequest | None:
    """The request to begin next: first what a process that died had begun, then in order of arrival."""
    waiting = [row for row in database.all_received() if not row.state.ended]
    return min(waiting, key=lambda row: row.state is ReceivedState.RECEIVED, default=None)


def begin(
    member: Member, database: CommandDatabase, row: ReceivedRequest, claims: HeldClaims, denied: Denied
) -> Flow[BeginOutcome]:
    """Gains the right to run a request, once. On RUN the caller runs it now, and then calls ``finish``.

    Raises:
        StoreFailure, KeysWithheld, Revoked, RelayMisbehaves: nothing runs; try again later.
    """
    if own_database(member, database):
        return BeginOutcome.LATER
    yield from read_log(member.log, member.journal, member.keys)  # §16.4-1
    member.check_active()
    member.ring.current()  # raises KeysWithheld before anything is written
    action = Action(row.action)
    started = row.state is ReceivedState.STARTED
    mine = (row.sender, row.id) in claims.sealed and not started
    died = started or (row.state is ReceivedState.CLAIMING and not mine)
    if started and not action.repeatable:  # §16.4-6
        return _end(database, row, ReceivedState.UNKNOWN, BROKEN_OFF_TEXT)
    if died and row.tries >= TRIES_MAX:  # §16.4-6
        return _end(
            database, row, ReceivedState.UNKNOWN, f"{BROKEN_OFF_TEXT}; it was begun {row.tries} times"
        )
    no = _why_not(member, row, action, denied)
    if no is None and not (yield from _still_there(member, row)):
        no = (ReceivedState.EXPIRED, "the relay does not hold the request any more")
    if no is not None:
        # A request that had begun may have run.
        state = no[0] if row.state is ReceivedState.RECEIVED else ReceivedState.UNKNOWN
        return _end(database, row, state, no[1])
    if not mine:
        before, row = row, msgspec.structs.replace(row, tries=row.tries + 1)
        if row.state is ReceivedState.RECEIVED:
            row = msgspec.structs.replace(row, state=ReceivedState.CLAIMING)
        if not _change(database, before, row):
            return BeginOutcome.LATER
    if row.state is ReceivedState.STARTED:
        return BeginOutcome.RUN
    return (yield from _claim(member, database, row, claims, action))


def progress(database: CommandDatabase, row: ReceivedRequest, text: str, done: int, total: int) -> None:
    """Queues a report of a running request's progress; a later one replaces it if it was not sent yet."""
    with database.transaction() as transaction:
        now = transaction.received(row.sender, row.id)
        if now is None or now.state is not ReceivedState.STARTED:
            return
        now = msgspec.structs.replace(now, number=now.number + 1)
        transaction.put_received(now)
        _drop_progress(transaction, now.id)
        said = Report(now.id, now.number, CommandState.RUNNING, shortened(text), done=done, total=total)
        transaction.add_outgoing(OutgoingMessage(0, now.sender, encode_message(said), replaces=now.id))


def finish(
    database: CommandDatabase, row: ReceivedRequest, state: ReceivedState, text: str, result: bytes = b""
) -> None:
    """Ends a request that ran: ``DONE``, ``FAILED``, or ``UNKNOWN`` if it was interrupted. Its report commits with it."""
    with database.transaction() as transaction:
        now = transaction.received(row.sender, row.id)
        if now is None or now.state is not ReceivedState.STARTED:
            return
        _drop_progress(transaction, now.id)
        now = msgspec.structs.replace(now, state=state, text=shortened(text), number=now.number + 1)
        transaction.put_received(now)
        said = Report(now.id, now.number, CommandState[state.name], now.text, result)
        transaction.add_outgoing(OutgoingMessage(0, now.sender, encode_message(said)))


def _why_not(
    member: Member, row: ReceivedRequest, action: Action, denied: Denied
) -> tuple[ReceivedState, str] | None:
    if not member.log.is_active(row.sender):  # §16.4-2
        return ReceivedState.REFUSED, "its sender is out of the vault"
    position = member.replica.position()[:2]
    if row.state is not ReceivedState.STARTED and position > (row.epoch, row.sequence):  # §16.4-2
        return ReceivedState.EXPIRED, "the memory has gone on too far since it was asked"
    if action.core_only and not member.is_core:  # §16.4-2
        return ReceivedState.REFUSED, "this device does not lead"
    why = denied(row.sender, action)  # §16.4-2
    return (ReceivedState.REFUSED, why) if why else None


def _still_there(member: Member, row: ReceivedRequest) -> Flow[bool]:
    """Whether the relay holds the request itself. The relay keeps its claim longer: without the request, a missing claim
    proves nothing."""
    there = yield Get(member.keys.command(row.sender, row.incarnation, row.stream_sequence))
    return there is not None and sha256(there).digest() == row.digest  # §16.4-3


def _claim(
    member: Member, database: CommandDatabase, row: ReceivedRequest, claims: HeldClaims, action: Action
) -> Flow[BeginOutcome]:
    info = member.log.member(row.sender)
    assert info is not None, "its sender is active"
    hashed = claim_hash(row.sender, row.id)
    key = claim_key(member, member.device_id, hashed)
    place = CommandPlace(member.device_id, CLAIMS, 0, hashed[:CLAIM_NAME_BYTES])
    retries = RetryBudget("a claim of this device")
    while True:
        sealed = claims.sealed.get((row.sender, row.id))
        if sealed is None or parse(sealed).header.generation < member.log.generation:
            if sealed is not None and (yield Get(key)) is not None:
                break
            try:
                sealed = seal_claim(member, Report(row.id, 0, CommandState.RUNNING), info, row.id)
            except Malformed as error:  # the device gave an invalid public key
                return _end(database, row, ReceivedState.REFUSED, f"it could not be answered: {error}")
            claims.sealed[row.sender, row.id] = sealed
        yield PutNew(key, sealed)  # §16.4-4
        # Read back even when it was created: some stores report success to several writers and keep one's bytes.
        there = yield Get(key)
        if there == sealed:  # §16.4-5
            return _start(database, row)
        if there is not None:
            break
        retries.spend()
    theirs = signed_by_me(member, place, (yield Get(key)) or b"")
    if not theirs:
        with database.transaction() as transaction:
            note_command(
                transaction,
                CommandNotice.TAMPERED,
                f"foreign bytes as claim of a request of {row.sender.hex()[:8]}",
            )
    if theirs and action.repeatable and row.tries > 1:  # §16.4-6
        return _start(database, row)  # an earlier process of this home may have put it
    if theirs:
        with database.transaction() as transaction:
            note_command(transaction, CommandNotice.COPIED, "another copy of this device took a request on")
    return _end(database, row, ReceivedState.UNKNOWN, ELSEWHERE_TEXT)  # §16.4-5


def _start(database: CommandDatabase, row: ReceivedRequest) -> BeginOutcome:
    started = msgspec.structs.replace(row, state=ReceivedState.STARTED)
    return BeginOutcome.RUN if _change(database, row, started) else BeginOutcome.LATER


def _end(database: CommandDatabase, row: ReceivedRequest, state: ReceivedState, text: str) -> BeginOutcome:
    with database.transaction() as transaction:
        if transaction.received(row.sender, row.id) != row:
            return BeginOutcome.LATER
        ended = msgspec.structs.replace(row, state=state, text=shortened(text))
        transaction.put_received(ended)
        answer(transaction, ended)
    return BeginOutcome.ENDED


def _change(database: CommandDatabase, before: ReceivedRequest, after: ReceivedRequest) -> bool:
    with database.transaction() as transaction:
        if transaction.received(before.sender, before.id) != before:
            return False
        transaction.put_received(after)
    return True


def _drop_progress(transaction: CommandTransaction, request: bytes) -> None:
    assert len(request) == REQUEST_ID_BYTES
    for message in transaction.outgoing():
        if message.replaces == request and not message.sealed:
            transaction.remove_outgoing(message.turn)
