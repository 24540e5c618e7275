"""Records of the device log: what an entry can say, as values and as bytes.

A record is the clear *public part* of a log entry: a MessagePack array, tagged first, decoded strictly. ``devicelog/log.py``
judges who may sign which::

    ["root", admin key, recovery key, holder, generation, keys for the recovery key]      the root, first or replaced
    ["add", device, signing key, exchange key, grant, holds root, generation, keys]       a device joins
    ["revoke", device, cutoffs, generation, keys for the recovery key, keys for devices]  a device is out; a new generation
    ["generation", generation, keys for the recovery key, keys for devices]               a new generation
    ["lead", epoch, device, claim]                                                        a device becomes the Core
    ["grant", device]                                                                     a device may take the lead by itself
    ["name", device]                                                                      a device has another name

The sealed body holds ``Details`` (frame 0), which only members read, and in ``revoke`` and ``generation`` the earlier
generation keys, the newest first (frame 1), so that the newest key gives access to all. A maker that leaves a key out or
forges one does harm until the next generation only, which brings what its own maker holds.
"""

from typing import Annotated

import msgspec

from crystal_crypto.entry import Entry
from crystal_crypto.errors import UNDECODABLE, CryptoError
from crystal_crypto.hierarchy import GenerationKey
from crystal_mirror.types import DEVICE_ID_BYTES

MEMBERS_MAX = 1000
"""Devices of a vault, revoked ones included."""
CUTOFFS_MAX = 4096
"""Incarnations of one device that a revocation names."""
OLDER_KEYS_MAX = 8192
"""Earlier keys that the entry of a generation carries: more than there are months in six hundred years."""
DETAIL_CHARS_MAX = 200
"""Of a name and of a system. Longer ones in an entry are cut when read."""

Bytes8 = Annotated[bytes, msgspec.Meta(min_length=8, max_length=8)]
Bytes16 = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
Bytes32 = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
Bundle = Annotated[bytes, msgspec.Meta(min_length=32, max_length=1024)]
Generation = Annotated[int, msgspec.Meta(ge=1, le=2**32 - 1)]  # §9.3-2
Epoch = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
Place = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Cutoffs = Annotated[tuple[tuple[Bytes8, Place], ...], msgspec.Meta(max_length=CUTOFFS_MAX)]  # §9.3-2
Bundles = Annotated[tuple[tuple[Bytes16, Bundle], ...], msgspec.Meta(max_length=MEMBERS_MAX)]


class RootRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="root"):
    """The keys that stand for the root. ``holder`` is the device that made it; ``bundle`` the current generation's keys."""

    admin: Bytes32
    recovery: Bytes32
    holder: Bytes16
    generation: Generation
    bundle: Bundle


class AddRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="add"):
    """A device joins: its public keys, whether it may lead by its own signature, whether it has the root, and its keys."""

    device: Bytes16
    signing: Bytes32
    exchange: Bytes32
    grant: bool
    holds_root: bool
    generation: Generation
    bundle: Bundle


class RevokeRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="revoke"):
    """A device is revoked, and all others get a new generation in the same entry.

    ``cutoffs``: for each of its incarnations, the last sequence that still counts. ``bundles``: for every other active
    device, in order of their ids.
    """

    device: Bytes16
    cutoffs: Cutoffs
    generation: Generation
    recovery: Bundle
    bundles: Bundles


class GenerationRecord(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="generation"
):
    """A new generation for every active device, in order of their ids."""

    generation: Generation
    recovery: Bundle
    bundles: Bundles


class LeadRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="lead"):
    """A device becomes the Core of a new epoch. ``claim`` is random, so that a clone of the device does not know it."""

    epoch: Epoch
    device: Bytes16
    claim: Bytes16


class GrantRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="grant"):
    """A device may take the lead by its own signature from here on."""

    device: Bytes16


class NameRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="name"):
    """A device has another name from here on; the name is in the sealed body."""

    device: Bytes16


Record = RootRecord | AddRecord | RevokeRecord | GenerationRecord | LeadRecord | GrantRecord | NameRecord


class Details(msgspec.Struct, frozen=True, array_like=True):
    """The private part of a log entry, which only members read. ``at`` is the maker's clock in milliseconds; ``by`` the
    device at which the entry was made, 16 zero bytes if unknown (an entry signed by the root does not tell)."""

    name: str
    system: str
    at: int
    by: bytes = bytes(DEVICE_ID_BYTES)


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)
_details: msgspec.msgpack.Decoder[Details] = msgspec.msgpack.Decoder(Details)


def encode_record(record: Record) -> bytes:
    return _encoder.encode(record)


def decode_record(public: bytes) -> Record | None:
    """The record in an entry's public part; None if it is not a record of this version."""
    try:
        return _decoder.decode(public)  # §9.2-1, §9.3-2
    except UNDECODABLE:
        return None


def encode_details(details: Details) -> bytes:
    return _encoder.encode(details)


def entry_details(entry: Entry, key: GenerationKey | None) -> Details | None:
    """The private part of a log entry; None if there is none or this key does not open it."""
    if key is None:
        return None
    try:
        frames = entry.open(key)
        details = _details.decode(frames[0]) if frames else None  # §9.2-3
    except (CryptoError, *UNDECODABLE):
        return None
    if details is None or max(len(details.name), len(details.system)) <= DETAIL_CHARS_MAX:
        return details
    cut = details.name[:DETAIL_CHARS_MAX], details.system[:DETAIL_CHARS_MAX]
    return msgspec.structs.replace(details, name=cut[0], system=cut[1])
