"""The device log: the one signed chain that says who belongs to a vault and who leads it.

A log entry's header, public part and signature are clear, so that every member, whatever keys it holds, comes to the same
verdict on every slot; only names and other private things are sealed in the body. This module judges slots; it reads
and writes nothing (``logsync.py`` does).

A slot is *void* if its bytes do not verify against the log before it: junk, a foreign signature, a lead out of turn. Void
slots are kept, counted and stepped over, so that one junk write cannot jam a vault. The order of the chain decides races.

Entries (public part, MessagePack arrays, tagged)::

    ["root", admin key, recovery key, generation, sealed keys for the recovery key]     slot of founding, signed by the root
    ["add", device, signing key, exchange key, grant, generation, sealed keys for it]   signed by the root or the lead
    ["lead", epoch, device, claim]                                                      signed by the root, the lead, or a
                                                                                        device with a grant, for itself

States of a vault, as its log tells them::

    empty --root--> founded --add--> peopled --lead--> led --lead--> led …        (add may come at any time after root)
"""

from dataclasses import dataclass
from enum import Enum
from typing import Annotated

import msgspec

from crystal_crypto.entry import Channel, Entry, Frame, Header, Kind, parse, seal
from crystal_crypto.errors import CryptoError
from crystal_crypto.hierarchy import GenerationKey, vault_id
from crystal_crypto.identity import SigningKey, VerifyKey
from crystal_mirror.types import DEVICE_ID_BYTES, INCARNATION_BYTES, ZERO_HASH

ROOT_SENDER = bytes(DEVICE_ID_BYTES)
"""The sender of entries that the root's admin key signs."""
NO_INCARNATION = bytes(INCARNATION_BYTES)
FIRST_GENERATION = 1
PUBLIC_BYTES_MAX = 4096
MEMBERS_MAX = 1000

Bytes16 = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
Bytes32 = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
Bundle = Annotated[bytes, msgspec.Meta(min_length=32, max_length=1024)]
Generation = Annotated[int, msgspec.Meta(ge=1, le=2**32 - 1)]
Epoch = Annotated[int, msgspec.Meta(ge=1, le=2**53)]


class RootRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="root"):
    """The vault's first word: the keys that the root stands for, and generation 1 sealed to the recovery key."""

    admin: Bytes32
    recovery: Bytes32
    generation: Generation
    bundle: Bundle


class AddRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="add"):
    """A device joins: its public keys, whether it may lead by its own signature, and the keys sealed to it."""

    device: Bytes16
    signing: Bytes32
    exchange: Bytes32
    grant: bool
    generation: Generation
    bundle: Bundle


class LeadRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="lead"):
    """A device becomes the Core of a new epoch. ``claim`` is random: a clone of the device does not know it."""

    epoch: Epoch
    device: Bytes16
    claim: Bytes16


Record = RootRecord | AddRecord | LeadRecord


class DeviceDetails(msgspec.Struct, frozen=True, array_like=True):
    """The sealed body of an ``add``: what only members may read. ``added_at`` is the adder's clock, in milliseconds."""

    name: str
    system: str
    added_at: int


class Verdict(Enum):
    """What a slot turned out to be."""

    VALID = "valid"
    VOID = "void"


@dataclass(frozen=True, slots=True)
class MemberInfo:
    """A device of the vault, from its ``add`` entry. ``log_head`` is the head that its key bundle is bound to."""

    device: bytes
    signing: VerifyKey
    exchange: bytes
    grant: bool
    by_root: bool
    slot: int
    log_head: bytes
    generation: int
    bundle: bytes
    entry: Entry


@dataclass(frozen=True, slots=True)
class Lead:
    """A reign: the epoch, its Core, and the claim that tells the Core from its own clones."""

    epoch: int
    device: bytes
    claim: bytes
    slot: int


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)
_details: msgspec.msgpack.Decoder[DeviceDetails] = msgspec.msgpack.Decoder(DeviceDetails)


class DeviceLog:
    """The log as one device has verified it. Grows by ``extend``, one slot after the other, and never loses an entry."""

    def __init__(self, vault: bytes) -> None:
        self.vault = vault
        self.next_slot = 0
        self.head = ZERO_HASH
        self.void_slots = 0
        self.trailing_voids = 0
        """How many slots right before ``next_slot`` are void."""
        self.root: RootRecord | None = None
        self.root_entry: Entry | None = None
        self._members: dict[bytes, MemberInfo] = {}
        self._leads: dict[int, Lead] = {}
        self._heads: set[bytes] = {ZERO_HASH}
        self._last_epoch = 0

    def extend(self, data: bytes) -> Verdict:
        """Judges the bytes of the next slot and takes them in. Never raises on hostile bytes: those are void."""
        verdict = self._judge(data)
        self.next_slot += 1
        if verdict is None:
            self.void_slots += 1
            self.trailing_voids += 1
            return Verdict.VOID
        self.trailing_voids = 0
        entry, record = verdict
        self._take(entry, record, self.next_slot - 1)
        return Verdict.VALID

    def retract_voids(self, count: int) -> None:
        """Steps back over that many void slots behind the head: the relay shows them otherwise now. Changes nothing else."""
        assert 0 <= count <= self.trailing_voids, "only void slots behind the head are stepped back over"
        self.next_slot -= count
        self.void_slots -= count
        self.trailing_voids -= count

    def members(self) -> list[MemberInfo]:
        return list(self._members.values())

    def member(self, device: bytes) -> MemberInfo | None:
        return self._members.get(device)

    @property
    def lead(self) -> Lead | None:
        """The latest reign, or None before the first."""
        return self._leads.get(self._last_epoch)

    def lead_of(self, epoch: int) -> Lead | None:
        return self._leads.get(epoch)

    def knows_head(self, head: bytes) -> bool:
        """Whether ``head`` was ever this log's head: what a peer's header claims to have seen."""
        return head in self._heads

    def _judge(self, data: bytes) -> tuple[Entry, Record] | None:
        try:
            entry = parse(data)
        except CryptoError:
            return None
        header = entry.header
        if (
            header.kind is not Kind.LOG
            or header.channel is not Channel.DEVLOG
            or header.vault != self.vault
            or header.sequence != self.next_slot
            or header.previous != self.head
            or header.log_head != self.head
            or header.incarnation != NO_INCARNATION
            or len(entry.public) > PUBLIC_BYTES_MAX
        ):
            return None
        try:
            record = _decoder.decode(entry.public)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
        key = self._authority(header.sender, record)
        if key is None or not self._allowed(record):
            return None
        try:
            entry.verify(key)
        except CryptoError:
            return None
        return entry, record

    def _authority(self, sender: bytes, record: Record) -> VerifyKey | None:
        """The key that must have signed, or None if this sender may not say this now."""
        if isinstance(record, RootRecord):
            admin = _verify_key(record.admin)
            if sender != ROOT_SENDER or admin is None or vault_id(admin) != self.vault:
                return None
            return admin
        if self.root is None:
            return None
        if sender == ROOT_SENDER:
            return _verify_key(self.root.admin)
        member = self._members.get(sender)
        if member is None:
            return None
        leads = self.lead is not None and self.lead.device == sender
        claims_for_itself = isinstance(record, LeadRecord) and member.grant and record.device == sender
        return member.signing if leads or claims_for_itself else None

    def _allowed(self, record: Record) -> bool:
        match record:
            case RootRecord():
                return self.root is None and _verify_key(record.recovery) is not None
            case AddRecord():
                known = record.device in self._members or record.device == ROOT_SENDER
                return (
                    not known and len(self._members) < MEMBERS_MAX and _verify_key(record.signing) is not None
                )
            case LeadRecord():
                return record.device in self._members and record.epoch == self._last_epoch + 1

    def _take(self, entry: Entry, record: Record, slot: int) -> None:
        match record:
            case RootRecord():
                self.root, self.root_entry = record, entry
            case AddRecord():
                self._members[record.device] = MemberInfo(
                    device=record.device,
                    signing=VerifyKey.from_bytes(record.signing),
                    exchange=record.exchange,
                    grant=record.grant,
                    by_root=entry.header.sender == ROOT_SENDER,
                    slot=slot,
                    log_head=entry.header.log_head,
                    generation=record.generation,
                    bundle=record.bundle,
                    entry=entry,
                )
            case LeadRecord():
                self._leads[record.epoch] = Lead(record.epoch, record.device, record.claim, slot)
                self._last_epoch = record.epoch
        self.head = entry.hash
        self._heads.add(entry.hash)


def _verify_key(raw: bytes) -> VerifyKey | None:
    try:
        return VerifyKey.from_bytes(raw)
    except CryptoError:
        return None


def seal_record(
    log: DeviceLog,
    record: Record,
    *,
    sender: bytes,
    signer: SigningKey,
    key: GenerationKey,
    salt: bytes,
    details: DeviceDetails | None = None,
) -> bytes:
    """The sealed bytes of ``record`` for the log's next slot.

    ``sender`` is the device that signs, or ``ROOT_SENDER`` with the root's admin key. Pure: the log is not changed.
    """
    header = Header(
        kind=Kind.LOG,
        channel=Channel.DEVLOG,
        vault=log.vault,
        sender=sender,
        incarnation=NO_INCARNATION,
        epoch=log.lead.epoch if log.lead else 0,
        generation=key.number,
        log_head=log.head,
        sequence=log.next_slot,
        previous=log.head,
    )
    frames = [Frame(_encoder.encode(details))] if details else []
    return seal(header, frames, key=key, signer=signer, public=_encoder.encode(record), salt=salt)


def read_details(member: MemberInfo, key: GenerationKey) -> DeviceDetails | None:
    """The private part of a member's ``add`` entry, or None if this key does not open it."""
    try:
        frames = member.entry.open(key)
        return _details.decode(frames[0]) if frames else None
    except (CryptoError, msgspec.MsgspecError):
        return None
