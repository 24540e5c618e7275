"""Offers: the entries of a device's own stream, each of which carries one operation to the Core.

Body: frame 0 is ``[origin]`` (MessagePack; nil, or the operation's permanent name when it differs from the entry's place in
the stream), frame 1 the operation's bytes. One operation is one session's text or one memory, so no zstd frame holds the
texts of two conversations.
"""

from dataclasses import dataclass
from typing import Annotated

import msgspec

from crystal_crypto.entry import Channel, Entry, Frame, Header, Kind, seal
from crystal_crypto.errors import UNDECODABLE, Malformed
from crystal_crypto.hierarchy import GenerationKey
from crystal_crypto.identity import SigningKey
from crystal_mirror.operations import Operation, decode_operation
from crystal_mirror.ports import Stream
from crystal_mirror.types import Origin

Bytes8 = Annotated[bytes, msgspec.Meta(min_length=8, max_length=8)]
Bytes16 = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
Sequence = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
PackedOrigin = tuple[Bytes16, Bytes8, Sequence]


class _OfferHead(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    origin: PackedOrigin | None


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[_OfferHead] = msgspec.msgpack.Decoder(_OfferHead)


@dataclass(frozen=True, slots=True)
class Offer:
    """An opened offer: its place in its maker's stream, and the operation with its permanent name."""

    carrier: Origin
    origin: Origin
    data: bytes
    operation: Operation


def seal_offer(
    operation: bytes,
    *,
    origin: Origin | None,
    stream: Stream,
    device: bytes,
    vault: bytes,
    epoch: int,
    log_head: bytes,
    key: GenerationKey,
    signer: SigningKey,
    salt: bytes,
) -> bytes:
    """Seals an operation for the next place of ``stream``. With ``origin`` None the place is its name."""
    header = Header(
        kind=Kind.OFFER,
        channel=Channel.CONVERSATIONS,
        vault=vault,
        sender=device,
        incarnation=stream.incarnation,
        epoch=epoch,
        generation=key.number,
        log_head=log_head,
        sequence=stream.sequence,
        previous=stream.previous,
    )
    packed = (origin.device, origin.incarnation, origin.sequence) if origin else None
    frames = [Frame(_encoder.encode(_OfferHead(packed)), compress=False), Frame(operation)]
    return seal(header, frames, key=key, signer=signer, salt=salt)


def open_offer(entry: Entry, key: GenerationKey) -> Offer:
    """Opens an offer whose signature and place were checked.

    Raises:
        WrongKey: sealed with another key, or the bytes were changed.
        Malformed: authentic, but not an offer of this version.
    """
    frames = entry.open(key)
    if len(frames) != 2:
        raise Malformed(f"an offer has 2 frames, not {len(frames)}")  # §10.3-2
    try:
        head = _decoder.decode(frames[0])  # §10.3-2
    except UNDECODABLE as error:
        raise Malformed(f"not an offer of this version: {error}") from error
    header = entry.header
    carrier = Origin(header.sender, header.incarnation, header.sequence)
    return Offer(
        carrier=carrier,
        origin=Origin(*head.origin) if head.origin else carrier,  # §10.3-1
        data=frames[1],
        operation=decode_operation(frames[1]),
    )


def stands_at(entry: Entry, *, vault: bytes, device: bytes, incarnation: bytes, sequence: int) -> bool:
    """Whether the entry's header names exactly this place in this stream, which a copy from elsewhere does not."""
    header = entry.header
    return (
        header.kind is Kind.OFFER  # §10.3-2, §10.3-3, §5.5-8
        and header.channel is Channel.CONVERSATIONS
        and header.vault == vault
        and header.sender == device
        and header.incarnation == incarnation
        and header.sequence == sequence
    )
