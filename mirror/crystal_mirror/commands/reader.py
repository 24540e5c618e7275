"""Reading commands: one listing of the channel; what others have sent to this device since the last one goes into the
database.

What is taken and how far was read commit together. Nothing is run here. An entry counts once, at its place:

    not this device's to read       stepped over by its header
    no member signed it there       junk: stepped over, remembered, not fetched again
    does not follow the one before  stepped over: a copy of its sender wrote on elsewhere, or the relay chose what to show
    its head or key is not here     its stream waits
    does not open, or is malformed  stepped over, counted

A new database does not know what an earlier one may have run: whatever its first reading finds, and whatever was asked at
an earlier place of the mirror, is refused.
"""

from collections import Counter
from dataclasses import dataclass, field

from crystal_crypto.entry import Entry
from crystal_crypto.errors import CryptoError
from crystal_mirror.commands.asker import ended_here, take_report
from crystal_mirror.commands.database import (
    CommandDatabase,
    CommandNotice,
    StreamTail,
    note_command,
    own_database,
)
from crystal_mirror.commands.entries import (
    CLAIM_NAME_BYTES,
    CommandPlace,
    checked_entry,
    claim_hash,
    claim_key,
    key_of,
    open_message,
    parse_place,
)
from crystal_mirror.commands.messages import CommandState, Message, Report, Request, Withdraw
from crystal_mirror.commands.target import META_BEGAN, asked_before, take_request, take_withdrawal
from crystal_mirror.devicelog.sync import read_log
from crystal_mirror.membership.member import Member
from crystal_mirror.requests import Flow, Get, GetMany, List, Listing
from crystal_mirror.types import ZERO_HASH

LIST_PAGE = 1000
FETCH_AT_ONCE = 16
ENTRIES_PER_STREAM_MAX = 64
"""Entries of one stream in one reading."""
NEW_STREAMS_MAX = 64
"""Streams of one device of which nothing was read before, in one reading: a thief of its token can make many."""
JUNK_MAX = 64
"""Places with junk in one stream; beyond these it is not read."""
META_LOOKED = "report"
"""Set once a first reading has come to its end."""


@dataclass
class ReadReport:
    """What a reading brought. ``read``: entries, for any recipient. ``more``: it did not come to the end."""

    requests: int = 0
    reports: int = 0
    read: int = 0
    more: bool = False


@dataclass
class _Found:
    """Places to fetch, by stream and in order, and others' claims of this device's requests."""

    streams: dict[tuple[bytes, bytes], list[CommandPlace]] = field(
        default_factory=dict[tuple[bytes, bytes], list[CommandPlace]]
    )
    claims: list[CommandPlace] = field(default_factory=list[CommandPlace])
    more: bool = False


def read_commands(member: Member, database: CommandDatabase, now_ms: int) -> Flow[ReadReport]:
    """Reads once. Must be driven by one process of the home at a time.

    Raises:
        LogForked, Revoked, StoreFailure: what was taken in is kept.
    """
    own_database(member, database)
    yield from read_log(member.log, member.journal, member.keys)
    member.check_active()
    fresh = _is_fresh(member, database)
    found = yield from _list(member, database)
    report = ReadReport(more=found.more)
    for (device, incarnation), places in sorted(found.streams.items()):
        yield from _read_stream(member, database, device, incarnation, places, report, now_ms, fresh=fresh)
    yield from _read_claims(member, database, found.claims, report, now_ms)
    if fresh and not report.more:
        with database.transaction() as transaction:
            transaction.meta_set(META_LOOKED, b"1")
    _prune(member, database, now_ms)
    return report


def _is_fresh(member: Member, database: CommandDatabase) -> bool:
    with database.transaction() as transaction:
        if transaction.meta_get(META_BEGAN) is None:
            epoch, sequence, _ = member.replica.position()
            transaction.meta_set(META_BEGAN, b"%d %d" % (epoch, sequence))
        return transaction.meta_get(META_LOOKED) is None


def _list(member: Member, database: CommandDatabase) -> Flow[_Found]:
    prefix = member.keys.commands_prefix
    found = _Found()
    new: Counter[bytes] = Counter()
    tails: dict[tuple[bytes, bytes], StreamTail] = {}
    awaited = {
        (row.target, claim_hash(member.device_id, row.id)[:CLAIM_NAME_BYTES])
        for row in database.all_asked()
        if row.state in (CommandState.UNSENT, CommandState.SENT)
    }
    after = ""
    while True:
        page: Listing = yield List(prefix, after, LIST_PAGE)
        jump = ""
        keys = page.after(after)
        for key in keys:
            after = key
            if key <= jump:
                continue
            place = parse_place(member, key)
            if place is None:
                continue
            if place.device == member.device_id or not member.log.is_active(place.device):
                jump = f"{prefix}{place.device.hex()}.z"
            elif place.claim:
                if (place.device, place.claim) in awaited:
                    found.claims.append(place)
            else:
                jump = _sort(member, database, place, found, tails, new)
            if page.more and jump > keys[-1]:
                after = jump
                break
        else:
            if not page.more or not keys:
                return found


def _sort(
    member: Member,
    database: CommandDatabase,
    place: CommandPlace,
    found: _Found,
    tails: dict[tuple[bytes, bytes], StreamTail],
    new: Counter[bytes],
) -> str:
    """Notes a place of a stream if it is to be read. Returns the key up to which the listing may be skipped."""
    stream = (place.device, place.incarnation)
    beyond = member.keys.command_prefix(*stream) + "z"
    if stream not in tails:
        tail = database.tail(*stream)
        if tail is None:
            new[place.device] += 1
            if new[place.device] > NEW_STREAMS_MAX:
                found.more = True
                return beyond
        tails[stream] = tail or StreamTail()
    tail, places = tails[stream], found.streams.setdefault(stream, [])
    if len(tail.junk) >= JUNK_MAX:
        return beyond
    if place.sequence <= tail.sequence:
        return member.keys.command(*stream, tail.sequence)
    if place.sequence in tail.junk:
        return ""
    if len(places) >= ENTRIES_PER_STREAM_MAX:
        found.more = True
        return beyond
    places.append(place)
    return ""


def _read_stream(
    member: Member,
    database: CommandDatabase,
    device: bytes,
    incarnation: bytes,
    places: list[CommandPlace],
    report: ReadReport,
    now_ms: int,
    *,
    fresh: bool,
) -> Flow[None]:
    for start in range(0, len(places), FETCH_AT_ONCE):
        some = places[start : start + FETCH_AT_ONCE]
        fetched = yield GetMany(tuple(key_of(member, place) for place in some))
        for place, data in zip(some, fetched, strict=True):
            tail = database.tail(device, incarnation) or StreamTail()
            if data is None or place.sequence <= tail.sequence:
                # §16.3-4
                return  # listed and not shown; or another process of this home reads along
            entry = _checked(member, database, place, data, tail)
            if entry is None:
                continue
            if entry.header.recipient == member.device_id and not _can_open(
                member, database, entry
            ):  # §16.3-3
                return
            message = _opened(member, database, place, entry, tail)
            claimed = False
            if fresh and isinstance(message, Request):
                hashed = claim_hash(device, message.id)
                claimed = (yield Get(claim_key(member, member.device_id, hashed))) is not None
            with database.transaction() as transaction:
                if (transaction.tail(device, incarnation) or StreamTail()) != tail:
                    return
                left = tuple(number for number in tail.junk if number > place.sequence)
                transaction.set_tail(device, incarnation, StreamTail(place.sequence, entry.hash, left))
                report.read += 1
                if isinstance(message, Request):
                    old = fresh or asked_before(transaction, message)  # §16.4-7
                    report.requests += take_request(
                        transaction, place, data, message, now_ms, old=old, claimed=claimed
                    )
                elif isinstance(message, Withdraw):
                    take_withdrawal(transaction, device, message, now_ms)
                elif isinstance(message, Report):
                    report.reports += take_report(transaction, device, message, now_ms)


def _checked(
    member: Member, database: CommandDatabase, place: CommandPlace, data: bytes, tail: StreamTail
) -> Entry | None:
    """The entry at its place; None for junk, which is noted."""
    info = member.log.member(place.device)
    assert info is not None, "only members' streams are read"
    try:
        return checked_entry(member, info, place, data)
    except CryptoError as error:
        with database.transaction() as transaction:
            note_command(transaction, CommandNotice.TAMPERED, f"{_where(place)}: {error}")
            if not place.claim and transaction.tail(place.device, place.incarnation) in (tail, None):
                junk = StreamTail(tail.sequence, tail.hash, (*tail.junk, place.sequence))  # §16.3-1
                transaction.set_tail(place.device, place.incarnation, junk)
        return None


def _can_open(member: Member, database: CommandDatabase, entry: Entry) -> bool:
    """Whether the head and key that opening takes are here. The log was just read: what it lacks, the relay does not show."""
    if not member.log.knows_head(entry.header.log_head):
        notice, detail = CommandNotice.PEER_AHEAD, "a command names a device log that is not shown here"
    elif member.key_for(entry.header.generation) is None:
        notice, detail = CommandNotice.UNREADABLE, "a command needs a key that has not arrived"
    else:
        return True
    with database.transaction() as transaction:
        note_command(transaction, notice, detail)
    return False


def _opened(
    member: Member, database: CommandDatabase, place: CommandPlace, entry: Entry, tail: StreamTail
) -> Message | None:
    """The message to this device; None if there is none."""
    header = entry.header
    broken = (place.sequence == 0 and header.previous != ZERO_HASH) or (  # §16.3-2
        place.sequence == tail.sequence + 1 and tail.hash and header.previous != tail.hash
    )
    if header.recipient != member.device_id and not broken:
        return None
    try:
        if broken and not place.claim:
            notice, detail = CommandNotice.TAMPERED, "it does not follow the entry before it"
        else:
            return open_message(member, entry)
    except CryptoError as error:
        notice, detail = CommandNotice.UNREADABLE, str(error)
    with database.transaction() as transaction:
        note_command(transaction, notice, f"{_where(place)}: {detail}")
    return None


def _read_claims(
    member: Member, database: CommandDatabase, claims: list[CommandPlace], report: ReadReport, now_ms: int
) -> Flow[None]:
    """Reads claims: a claim tells its asker that the request runs."""
    for start in range(0, len(claims), FETCH_AT_ONCE):
        some = claims[start : start + FETCH_AT_ONCE]
        fetched = yield GetMany(tuple(key_of(member, place) for place in some))
        for place, data in zip(some, fetched, strict=True):
            entry = _checked(member, database, place, data, StreamTail()) if data is not None else None
            if entry is None or entry.header.recipient != member.device_id:
                continue
            said = (
                _opened(member, database, place, entry, StreamTail())
                if _can_open(member, database, entry)
                else None
            )
            if not isinstance(said, Report) or claim_hash(member.device_id, said.id) != entry.header.previous:
                continue
            with database.transaction() as transaction:
                report.reports += take_report(transaction, place.device, said, now_ms)


def _prune(member: Member, database: CommandDatabase, now_ms: int) -> None:
    """Forgets requests that have ended and could only come again as expired ones; ends those to revoked devices."""
    position = member.replica.position()[:2]
    with database.transaction() as transaction:
        for row in transaction.all_received():
            if row.state.ended and (row.epoch, row.sequence) < position and row.action:  # §16.3-5
                transaction.remove_received(row.sender, row.id)
        for asked in transaction.all_asked():
            if not asked.state.ended and not member.log.is_active(asked.target):
                ended_here(
                    transaction, asked, CommandState.REFUSED, "that device is out of the vault", now_ms
                )


def _where(place: CommandPlace) -> str:
    what = "a claim" if place.claim else f"command {place.sequence}"
    return f"{what} of device {place.device.hex()[:8]}"
