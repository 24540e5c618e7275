"""Cursors: what each device has applied, told to the others. Overwritten, signed, counted, one writer each.

A cursor is a report, never an authority: nothing is deleted and no position moves because of one in this version. A device
that lies about itself deceives only those who read about it.
"""

from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated

import msgspec

from crystal_crypto.entry import Channel, Frame, Header, Kind, parse, seal
from crystal_crypto.errors import CryptoError
from crystal_mirror.member import Member
from crystal_mirror.requests import Flow, Get, GetMany, Put

META_CURSOR = "cursor.sent"


class _Body(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    epoch: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    sequence: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    digest: Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
    pending: Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class _Sent(msgspec.Struct, frozen=True, array_like=True):
    count: int
    body: _Body
    log_head: bytes
    stored: bytes
    """SHA-256 of the sealed cursor once it is on the relay, before that nothing."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """A device's own word on where it is. ``count`` rises with every report of it."""

    device: bytes
    count: int
    epoch: int
    sequence: int
    digest: bytes
    pending: int
    log_head_known: bool


_encoder = msgspec.msgpack.Encoder()
_body_decoder: msgspec.msgpack.Decoder[_Body] = msgspec.msgpack.Decoder(_Body)
_sent_decoder: msgspec.msgpack.Decoder[_Sent] = msgspec.msgpack.Decoder(_Sent)


def put_cursor(member: Member, *, look: bool = False) -> Flow[None]:
    """Reports this device's position if it changed since the last report, or if (``look``) the relay does not hold that."""
    position = member.replica.position()
    body = _Body(
        position.epoch, position.sequence, member.replica.digest().to_bytes(), len(member.journal.names())
    )
    key = member.keys.cursor(member.device_id)
    kept = member.journal.meta_get(META_CURSOR)
    sent = _sent_decoder.decode(kept) if kept else None
    if (
        sent
        and (sent.body, sent.log_head) == (body, member.log.head)
        and sent.stored
        and not (look and sha256((yield Get(key)) or b"").digest() != sent.stored)
    ):
        return
    count = sent.count + 1 if sent else 0
    header = Header(
        kind=Kind.CURSOR,
        channel=Channel.CURSOR,
        vault=member.vault,
        sender=member.device_id,
        incarnation=bytes(8),
        epoch=position.epoch,
        generation=member.generation_key.number,
        log_head=member.log.head,
        sequence=count,
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


def read_cursors(member: Member) -> Flow[list[Cursor]]:
    """What the members last said of themselves; what does not verify is left out."""
    members = member.log.members()
    found = yield GetMany(tuple(member.keys.cursor(info.device) for info in members))
    cursors: list[Cursor] = []
    for info, data in zip(members, found, strict=True):
        if data is None:
            continue
        try:
            entry = parse(data)
            header = entry.header
            entry.verify(info.signing)
            key = member.key_for(header.generation)
            if (
                header.kind is not Kind.CURSOR
                or header.channel is not Channel.CURSOR
                or header.vault != member.vault
                or header.sender != info.device
                or key is None
            ):
                continue
            body = _body_decoder.decode(entry.open(key)[0])
        except (CryptoError, msgspec.MsgspecError, IndexError):
            continue
        cursors.append(
            Cursor(
                info.device,
                header.sequence,
                body.epoch,
                body.sequence,
                body.digest,
                body.pending,
                member.log.knows_head(header.log_head),
            )
        )
    return cursors
