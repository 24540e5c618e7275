"""Cursors: what each device has applied, told to the others. Overwritten, signed, counted, one writer each.

A cursor is a report, not an authority: it never makes a device apply or delete anything, and a device that lies about
itself misleads only readers of that report. Its header names the head of the device log that its writer has verified, so
devices show each other their heads, and a relay that shows two devices two logs is found out.
"""

from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated

import msgspec

from crystal_crypto.entry import Channel, Entry, Frame, Header, Kind, parse, seal
from crystal_crypto.errors import UNDECODABLE, CryptoError
from crystal_crypto.limits import SIGNATURE_BYTES
from crystal_mirror.devicelog.log import DeviceLog, MemberInfo
from crystal_mirror.devicelog.sync import read_log
from crystal_mirror.entries.control_state import packs_slot, snapshot_slot
from crystal_mirror.membership.authority import in_force
from crystal_mirror.membership.member import Member
from crystal_mirror.notices import Notice
from crystal_mirror.requests import Flow, Get, GetMany, Poll, Put, StoreFailure
from crystal_mirror.types import DEVICE_ID_BYTES, HASH_BYTES

META_CURSOR = "cursor.sent"
META_SEEN = "cursors.seen"
META_POLLED = "cursors.polled"
"""In the journal: the prefix that was polled last, and the token that this gave."""
META_ASKS = "handover.asks"
META_DRAINED = "handover.drained"
META_OFFERS = "handover.offers"
META_WARRANT = "handover.warrant"
"""In the journal: what the cursor says of a planned change of the Core (``handover/core.py``)."""
TOLD_AGAIN_MS = 6 * 3600 * 1000
"""Interval, by the device's own clock, after which an unchanged position is reported again to show that the device lives."""
VERSION_CHARS_MAX = 64
COUNT_MAX = 2**53
"""No device reaches a higher count by itself. A thief of its keys must not use up all possible counts."""


@dataclass(frozen=True, slots=True)
class About:
    """What a device reports of itself beside its position. ``now_ms``: its clock, only ever shown; 0: not told. ``token``:
    the hash of the token that it uses at the relay, so that a revoking device can have the relay shut out any other."""

    now_ms: int = 0
    version: str = ""
    token: bytes = b""


_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_Id = Annotated[bytes, msgspec.Meta(max_length=DEVICE_ID_BYTES)]
"""A claim or the id of a device, which have equal lengths; empty for none."""


class _Body(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    epoch: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    sequence: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    digest: Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
    pending: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    told_at: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    holds_root: bool
    version: Annotated[str, msgspec.Meta(max_length=VERSION_CHARS_MAX)]
    token: Annotated[bytes, msgspec.Meta(max_length=HASH_BYTES)]
    snapshot: tuple[_Count, _Count] | None = None
    asks: _Id = b""
    drained_for: _Id = b""
    offers: _Id = b""
    warrant: Annotated[bytes, msgspec.Meta(max_length=SIGNATURE_BYTES)] = b""
    packs: tuple[_Count, _Count] | None = None
    behind: Annotated[bytes, msgspec.Meta(max_length=HASH_BYTES)] = b""


class _Sent(msgspec.Struct, frozen=True, array_like=True):
    count: int
    body: _Body
    log_head: bytes
    stored: bytes
    """SHA-256 of the sealed cursor once it is on the relay; empty before."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """A device's own report of where it is. ``count`` rises with every report."""

    device: bytes
    count: int
    epoch: int
    sequence: int
    digest: bytes
    pending: int
    told_at: int
    """By the device's own clock, in milliseconds; 0 if it does not tell."""
    holds_root: bool
    version: str
    token: bytes
    """The hash of its relay token; empty if it does not tell."""
    log_head_known: bool
    snapshot: tuple[int, int] | None = None
    """The slot of the mirror entry that announces the newest snapshot known to this device."""
    asks: bytes = b""
    """The claim with which it asks the Core for the lead; empty if it does not."""
    drained_for: bytes = b""
    """On a Core: the claim for which it has collected and published everything, and holds; empty if it does not."""
    offers: bytes = b""
    """On a Core: the device that it offers the lead to; empty if none."""
    warrant: bytes = b""
    """The root's signature for the claim that it asks with; empty if it asks by its grant, or was offered the lead."""
    packs: tuple[int, int] | None = None
    """The slot of the mirror entry that lists the packs, as far as this device knows (``snapshots/packs.py``)."""
    behind: bytes = b""
    """The hash of the last entry that it applied; empty if not told. Two different logs can lead to the same state."""


class _Seen(msgspec.Struct, frozen=True, array_like=True):
    device: bytes
    count: int
    body: _Body
    log_head: bytes


_encoder = msgspec.msgpack.Encoder()
_body_decoder: msgspec.msgpack.Decoder[_Body] = msgspec.msgpack.Decoder(_Body)
_seen_decoder: msgspec.msgpack.Decoder[list[_Seen]] = msgspec.msgpack.Decoder(list[_Seen])
_polled_decoder: msgspec.msgpack.Decoder[tuple[str, str]] = msgspec.msgpack.Decoder(tuple[str, str])
_NEVER_POLLED = _encoder.encode(("", ""))
_sent_decoder: msgspec.msgpack.Decoder[_Sent] = msgspec.msgpack.Decoder(_Sent)


def put_cursor(member: Member, about: About | None = None, *, look: bool = False) -> Flow[None]:
    """Reports this device's position if it changed since the last report, if that was long ago, or if (``look``) the relay
    does not hold it.

    Raises:
        KeysWithheld: the key in force is not here.
    """
    about = about or About()
    position = member.replica.position()
    kept = member.journal.meta_get(META_CURSOR)
    sent = _sent_decoder.decode(kept) if kept else None
    body = _Body(
        position.epoch,
        position.sequence,
        member.replica.digest().to_bytes(),
        len(member.journal.names()),
        about.now_ms,
        member.root is not None and in_force(member.log, member.root),
        about.version[:VERSION_CHARS_MAX],
        about.token,
        snapshot_slot(member.replica),
        *_terms(member),
        packs_slot(member.replica),
        position.previous,
    )
    key = member.keys.cursor(member.device_id)
    there = ((yield Get(key)) or b"") if look or sent is None else None
    if sent and there and sent.stored not in (b"", sha256(there).digest()):
        moved = _own_count(member, there) >= sent.count
        if moved:
            member.notices.put(
                Notice.COPIED, "another copy of this device has reported its position since this one did"
            )
    if (
        sent
        and msgspec.structs.replace(sent.body, told_at=0) == msgspec.structs.replace(body, told_at=0)
        and sent.log_head == member.log.head
        and abs(about.now_ms - sent.body.told_at) < TOLD_AGAIN_MS  # §15-3
        and sent.stored
        and (there is None or sha256(there).digest() == sent.stored)
    ):
        return
    count = 1 + max(sent.count if sent else -1, _own_count(member, there or b""))  # §15-1
    header = Header(
        kind=Kind.CURSOR,
        channel=Channel.CURSOR,
        vault=member.vault,
        sender=member.device_id,
        incarnation=bytes(8),
        epoch=position.epoch,
        generation=member.generation_key.number,
        log_head=member.log.head,
        sequence=count,  # §15-1
        previous=bytes(32),
    )
    sealed = seal(
        header,
        [Frame(_encoder.encode(body))],
        key=member.generation_key,
        signer=member.identity.signing,
        salt=member.salt(),
    )
    with member.journal.transaction() as transaction:
        transaction.meta_set(META_CURSOR, _encoder.encode(_Sent(count, body, member.log.head, b"")))
    yield Put(key, sealed)
    with member.journal.transaction() as transaction:
        transaction.meta_set(
            META_CURSOR, _encoder.encode(_Sent(count, body, member.log.head, sha256(sealed).digest()))
        )


def has_told(member: Member) -> bool:
    """Whether this device has ever reported a position. No network."""
    return member.journal.meta_get(META_CURSOR) is not None


def terms_untold(member: Member) -> bool:
    """Whether the relay has not been told yet what this device asks for or offers now. No network."""
    kept = member.journal.meta_get(META_CURSOR)
    body = _sent_decoder.decode(kept).body if kept else None
    told = (body.asks, body.drained_for, body.offers, body.warrant) if body else (b"", b"", b"", b"")
    return told != _terms(member)


def _terms(member: Member) -> tuple[bytes, bytes, bytes, bytes]:
    asks, drained, offers, warrant = (
        member.journal.meta_get(name) or b"" for name in (META_ASKS, META_DRAINED, META_OFFERS, META_WARRANT)
    )
    return asks, drained, offers, warrant


def _own_count(member: Member, there: bytes) -> int:
    """The count of this device's cursor on the relay, which is ahead of the kept one after a restore from a backup."""
    try:
        entry = parse(there)
        entry.verify(member.identity.signing.public)
    except CryptoError:
        return -1
    counts = entry.header.kind is Kind.CURSOR and entry.header.sequence <= COUNT_MAX
    return entry.header.sequence if counts else -1


def read_cursors(member: Member, of: bytes | None = None) -> Flow[list[Cursor]]:
    """Reads what the active devices last reported. Left out is what does not verify or is older than what was seen before.

    Reads all of them, or that of one device only, and keeps the result for ``seen_cursors``. If a cursor's writer has
    verified a device log that is not shown here, a notice says so: the relay shows two devices two logs, or hides part of
    one.
    """
    members = member.log.active()  # §15-5, §9.8-5
    asked = [info for info in members if of is None or info.device == of]
    found = yield GetMany(tuple(member.keys.cursor(info.device) for info in asked))
    told = {
        info.device: entry
        for info, data in zip(asked, found, strict=True)
        if data is not None and (entry := _signed_cursor(member.vault, info, data)) is not None
    }
    before = {seen.device: seen for seen in _seen(member)}
    heads = {seen.device: seen.log_head for seen in before.values() if member.log.is_active(seen.device)}
    # The header is clear: a part of the log that is hidden from us may bring the key that its writer sealed with.
    for device, entry in told.items():
        if device not in before or before[device].count <= entry.header.sequence:
            heads[device] = entry.header.log_head
    if not all(member.log.knows_head(head) for head in heads.values()):  # §15-6
        yield from read_log(member.log, member.journal, member.keys, member.notices)
    for device, head in heads.items():  # §15-6
        if not member.log.knows_head(head):
            member.notices.put(
                Notice.PEER_AHEAD,
                f"the cursor of device {device.hex()[:8]} names a device log that is not shown here",
            )
    read: list[_Seen] = []
    for info in members:
        cursor = _opened(member, told[info.device]) if info.device in told else None
        known = before.get(info.device)
        if cursor is None or (known is not None and known.count > cursor.count):  # §15-5
            cursor = known
        if cursor is not None:
            read.append(cursor)
    if read != list(before.values()):
        with member.journal.transaction() as transaction:
            transaction.meta_set(META_SEEN, _encoder.encode(read))
    return [_cursor(member, seen) for seen in read]


def poll_cursors(member: Member) -> Flow[str | None]:
    """Asks whether a cursor that may ask something of this device was written since it last heeded them. None: no. Else a token
    to keep (``keep_polled``) once they were read and heeded; empty if the store could not tell."""
    prefix = _heeded(member)
    if prefix is None:
        return None
    kept, token = _polled_decoder.decode(member.journal.meta_get(META_POLLED) or _NEVER_POLLED)
    known = token if kept == prefix else ""
    try:
        told: str = yield Poll(prefix, known)
    except StoreFailure:
        return ""
    return None if told and told == known else told


def keep_polled(member: Member, token: str) -> None:
    """Keeps what ``poll_cursors`` returned: the cursors that were written until then were heeded."""
    prefix = _heeded(member)
    if prefix is not None:
        with member.journal.transaction() as transaction:
            transaction.meta_set(META_POLLED, _encoder.encode((prefix, token)))


def _heeded(member: Member) -> str | None:
    """The prefix of the cursors that may ask something of this device: a Core heeds all, a Node that of the Core."""
    lead = member.log.lead
    if member.is_core:
        return member.keys.cursor_prefix
    return None if lead is None or lead.is_freeze else member.keys.cursor(lead.device)


def seen_cursors(member: Member) -> list[Cursor]:
    """What ``read_cursors`` last read; no network."""
    return [_cursor(member, seen) for seen in _seen(member)]


def says_root(member: Member, device: bytes) -> bool | None:
    """Whether the device last reported that it keeps the root in force, which it may have got after it was added. None if
    it has reported nothing since that root is in force."""
    return next(
        (
            seen.body.holds_root
            for seen in _seen(member)
            # §9.6-3
            if seen.device == device and member.log.slot_of_head(seen.log_head) >= member.log.root_slot
        ),
        None,
    )


def _seen(member: Member) -> list[_Seen]:
    kept = member.journal.meta_get(META_SEEN)
    return _seen_decoder.decode(kept) if kept else []


def shown_head(log: DeviceLog, info: MemberInfo, data: bytes) -> bytes | None:
    """The head of the device log that a member's cursor names; None if these bytes are no cursor of it."""
    entry = _signed_cursor(log.vault, info, data)
    return None if entry is None else entry.header.log_head


def _signed_cursor(vault: bytes, info: MemberInfo, data: bytes) -> Entry | None:
    """The cursor in these bytes, if the device has signed it as its own; its body may still be out of reach."""
    try:
        entry = parse(data)
        entry.verify(info.signing)
    except CryptoError:
        return None
    header = entry.header
    fits = (
        header.kind is Kind.CURSOR
        and header.channel is Channel.CURSOR
        and header.vault == vault
        and header.sender == info.device
        and header.sequence <= COUNT_MAX
    )
    return entry if fits else None


def _opened(member: Member, entry: Entry) -> _Seen | None:
    header = entry.header
    key = member.key_for(header.generation)
    try:
        body = _body_decoder.decode(entry.open(key)[0]) if key is not None else None  # §15-2
    except (CryptoError, IndexError, *UNDECODABLE):
        return None
    return _Seen(header.sender, header.sequence, body, header.log_head) if body is not None else None


def _cursor(member: Member, seen: _Seen) -> Cursor:
    body = seen.body
    return Cursor(
        seen.device,
        seen.count,
        body.epoch,
        body.sequence,
        body.digest,
        body.pending,
        body.told_at,
        body.holds_root,
        body.version,
        body.token,
        member.log.knows_head(seen.log_head),
        body.snapshot,
        _whole(body.asks),
        _whole(body.drained_for),
        _whole(body.offers),
        body.warrant,
        body.packs,
        body.behind,
    )


def _whole(told: bytes) -> bytes:
    return told if len(told) == DEVICE_ID_BYTES else b""
