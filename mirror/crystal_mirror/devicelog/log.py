"""The device log: the signed chain that says which devices belong to a vault, which one is the Core, and which key is
current.

Header, public part and signature of an entry are clear, so every member comes to the same verdict on every slot, whatever
keys it holds; only names and other private things are sealed in the body. This module judges slots; ``devicelog/sync.py``
reads and writes them. What entries can say is in ``devicelog/records.py``.

A slot is *void* if its bytes do not verify against the log before it: junk, a foreign signature, a lead out of turn. Void
slots are kept, counted and stepped over, so that one junk write cannot jam a vault. The order of the chain decides races.

States of a vault::

    empty --root--> founded --add--> peopled --lead--> led --lead--> led …        (add may come at any time after root)
                                                        led --freeze--> frozen --lead--> led

States of a device::

    unknown --add--> ACTIVE --grant--> ACTIVE, may take the lead --revoke--> REVOKED, for good
                       └───────────────── revoke ───────────────────────────────┘
    The Core, or the last Core of a frozen vault, cannot be revoked: another device takes the lead first, so that its epoch
    has an end.

Signers: the root signs everything; the Core everything but ``root``; a device with a grant its own ``lead``; any device its
own ``name``. Only the root in force counts: a ``root`` entry that it signs replaces it.
"""

from dataclasses import dataclass, replace
from enum import Enum

from crystal_crypto.entry import Channel, Entry, Kind, parse
from crystal_crypto.errors import CryptoError
from crystal_crypto.hierarchy import vault_id
from crystal_crypto.identity import VerifyKey
from crystal_mirror.devicelog.records import (
    MEMBERS_MAX,
    AddRecord,
    Bundles,
    GenerationRecord,
    GrantRecord,
    LeadRecord,
    NameRecord,
    Record,
    RevokeRecord,
    RootRecord,
    decode_record,
)
from crystal_mirror.types import DEVICE_ID_BYTES, INCARNATION_BYTES, ZERO_HASH

ROOT_SENDER = bytes(DEVICE_ID_BYTES)  # §9.1-3
"""The sender of entries that the root's admin key signs."""
NO_INCARNATION = bytes(INCARNATION_BYTES)  # §9.1-1
FIRST_GENERATION = 1
NOBODY = bytes(DEVICE_ID_BYTES)
"""The device of a freeze: no device has this id."""


class Verdict(Enum):
    """The verdict on a slot."""

    VALID = "valid"
    VOID = "void"


@dataclass(frozen=True, slots=True)
class Revocation:
    """A device was revoked: where in the log, who signed it, and up to where its streams still count."""

    slot: int
    sender: bytes
    cutoffs: dict[bytes, int]
    entry: Entry

    def counts(self, incarnation: bytes, sequence: int) -> bool:
        """Whether an entry of the device at this place was accepted before it was revoked."""
        return sequence <= self.cutoffs.get(incarnation, -1)


@dataclass(frozen=True, slots=True)
class MemberInfo:
    """A device of the vault, from its ``add`` entry and later ones. ``named`` is the entry that gives its name."""

    device: bytes
    signing: VerifyKey
    exchange: bytes
    grant: bool
    by_root: bool
    slot: int
    entry: Entry
    named: Entry
    revoked: Revocation | None = None


@dataclass(frozen=True, slots=True)
class Lead:
    """An epoch as its ``lead`` entry begins it: its Core, and the claim that tells the Core from its own clones.

    With ``NOBODY`` as the device it is a *freeze*: the epoch before has no Core any more and no end yet, and nothing is
    written to the mirror. The next Core ends both: it seals the epoch before, as every successor does.
    """

    epoch: int
    device: bytes
    claim: bytes
    slot: int

    @property
    def is_freeze(self) -> bool:
        return self.device == NOBODY


@dataclass(frozen=True, slots=True)
class SealedKeys:
    """A bundle of the log: its generation, its recipient (``ROOT_SENDER``: the recovery key), and the head that it is bound
    to."""

    generation: int
    recipient: bytes
    log_head: bytes
    bundle: bytes


@dataclass(frozen=True, slots=True)
class LogEvent:
    """A valid entry of the log, in order."""

    slot: int
    sender: bytes
    record: Record
    entry: Entry


class DeviceLog:
    """The log as one device has verified it. Grows by ``extend``, slot after slot, and never loses an entry."""

    def __init__(self, vault: bytes) -> None:
        self.vault = vault
        self.next_slot = 0
        self.head = ZERO_HASH
        self.void_slots = 0
        self.trailing_voids = 0
        """How many slots right before ``next_slot`` are void."""
        self.root: RootRecord | None = None
        """The root in force."""
        self.generation = 0
        """The generation in force; 0 before the vault is founded."""
        self.events: list[LogEvent] = []
        self.recovery_keys: list[SealedKeys] = []
        """Every bundle for the root in force, oldest first. The first was made by the root, or with the old one's word."""
        self._root_traces: dict[bytes, list[int]] = {}
        self._admins: set[bytes] = set()
        self._keys: set[bytes] = set()
        self._members: dict[bytes, MemberInfo] = {}
        self._generations: dict[int, Entry] = {}
        self._sealed: dict[bytes, list[SealedKeys]] = {}
        self._leads: dict[int, Lead] = {}
        self._heads = {ZERO_HASH: -1}
        self._last_epoch = 0

    def extend(self, data: bytes) -> Verdict:
        """Judges the bytes of the next slot and adds the slot. Never raises on hostile bytes: those are void."""
        verdict = self._judge(data)
        self.next_slot += 1
        if verdict is None:
            self.void_slots += 1  # §9.3-12
            self.trailing_voids += 1
            return Verdict.VOID
        self.trailing_voids = 0
        entry, record = verdict
        self._take(entry, record, self.next_slot - 1)
        return Verdict.VALID

    def would_take(self, data: bytes) -> bool:
        """Whether these bytes, in the next slot, are a valid entry. Changes nothing."""
        return self._judge(data) is not None

    def retract_voids(self, count: int) -> None:
        """Steps back over that many void slots after the head, which the relay now shows with other bytes. Nothing else
        changes."""
        assert 0 <= count <= self.trailing_voids, "only void slots behind the head are stepped back over"
        self.next_slot -= count
        self.void_slots -= count
        self.trailing_voids -= count

    def members(self) -> list[MemberInfo]:
        """Every device that was ever added, in that order."""
        return list(self._members.values())

    def active(self) -> list[MemberInfo]:
        """The devices that are not revoked, in the order in which they were added."""
        return [info for info in self._members.values() if info.revoked is None]

    def member(self, device: bytes) -> MemberInfo | None:
        """The device, revoked or not; None if it was never added."""
        return self._members.get(device)

    def is_active(self, device: bytes) -> bool:
        info = self._members.get(device)
        return info is not None and info.revoked is None

    def has_key(self, *keys: bytes) -> bool:
        """Whether one of these public keys is, or was, a device's."""
        return not self._keys.isdisjoint(keys)

    @property
    def lead(self) -> Lead | None:
        """The last ``lead`` entry, which may be a freeze; None before the first."""
        return self._leads.get(self._last_epoch)

    @property
    def last_core(self) -> Lead | None:
        """The last ``lead`` that names a device: the one before a freeze, since no two freezes follow each other."""
        lead = self.lead
        return self._leads.get(lead.epoch - 1) if lead is not None and lead.is_freeze else lead

    def lead_of(self, epoch: int) -> Lead | None:
        return self._leads.get(epoch)

    def knows_head(self, head: bytes) -> bool:
        """Whether ``head`` was ever this log's head, as a peer's header claims to have seen."""
        return head in self._heads

    def slot_of_head(self, head: bytes) -> int:
        """The slot of the entry that was the head; -1 before the first, and for an unknown head."""
        return self._heads.get(head, -1)

    @property
    def root_number(self) -> int:
        """How often the root was replaced."""
        return len(self._admins) - 1 if self._admins else 0

    def root_traces(self, device: bytes) -> tuple[int, ...]:
        """The slots by which the device may have, or have had, the root in force: where it made the root, joined with it,
        was added by its signature, or became Core by it. An entry that says its device has no root is only its signer's
        word, and the signer may have stolen the root."""
        return tuple(self._root_traces.get(device, ()))

    def held_root(self, device: bytes) -> bool:
        """Whether there is such a slot. The device may have removed the root since."""
        return device in self._root_traces

    @property
    def root_slot(self) -> int:
        """The slot of the root in force."""
        return next(
            (event.slot for event in reversed(self.events) if isinstance(event.record, RootRecord)), -1
        )

    @property
    def roots(self) -> list[tuple[RootRecord, Entry]]:
        """All roots with their entries, the first one at first."""
        return [(event.record, event.entry) for event in self.events if isinstance(event.record, RootRecord)]

    def generation_entry(self, number: int) -> Entry | None:
        """The entry that began a generation. Its body, opened with that generation's key, holds the keys before."""
        return self._generations.get(number)

    def sealed_keys(self, device: bytes) -> list[SealedKeys]:
        """Every bundle that the log has for a device, oldest first."""
        return list(self._sealed.get(device, ()))

    def _judge(self, data: bytes) -> tuple[Entry, Record] | None:
        try:
            entry = parse(data)
        except CryptoError:
            return None
        header = entry.header
        if (
            header.kind is not Kind.LOG  # §9.3-1, §5.5-8
            or header.channel is not Channel.DEVLOG
            or header.vault != self.vault
            or header.sequence != self.next_slot
            or header.previous != self.head
            or header.log_head != self.head
            or header.incarnation != NO_INCARNATION
        ):
            return None
        record = decode_record(entry.public)
        if record is None or header.generation != self._generation_after(record):  # §9.3-3
            return None
        key = self._authority(header.sender, record)
        if key is None or not self._allowed(record):
            return None
        try:
            entry.verify(key)  # §9.3-11
        except CryptoError:
            return None
        return entry, record

    def _generation_after(self, record: Record) -> int:
        """The generation in force after the record, in which its body is sealed."""
        begins = isinstance(record, RevokeRecord | GenerationRecord) or self.root is None
        return self.generation + 1 if begins else self.generation  # §9.1-2, §9.3-3

    def _authority(self, sender: bytes, record: Record) -> VerifyKey | None:
        """The key that must have signed, or None if this sender may not say this now."""
        if self.root is None:
            if not isinstance(record, RootRecord) or sender != ROOT_SENDER:  # §9.3-4
                return None
            admin = _verify_key(record.admin)
            return admin if admin is not None and vault_id(admin) == self.vault else None  # §9.3-4
        if sender == ROOT_SENDER:
            return _verify_key(self.root.admin)  # §9.3-4, §9.6-1
        member = self._members.get(sender)
        if member is None or member.revoked is not None or isinstance(record, RootRecord):  # §9.3-4
            return None
        leads = self.lead is not None and self.lead.device == sender  # §9.3-4
        for_itself = (isinstance(record, LeadRecord) and member.grant and record.device == sender) or (
            isinstance(record, NameRecord) and record.device == sender
        )
        return member.signing if leads or for_itself else None  # §9.3-4

    def _allowed(self, record: Record) -> bool:
        after = self._generation_after(record)
        match record:
            case RootRecord():
                return (
                    record.generation == after
                    and record.admin not in self._admins  # §9.3-5, §9.6-1
                    and _verify_key(record.admin) is not None
                )
            case AddRecord():
                known = record.device in self._members or record.device == ROOT_SENDER  # §9.3-6, §9.4-1
                return (
                    not known
                    and record.generation == after
                    and len(self._members) < MEMBERS_MAX  # §9.3-6
                    and not {record.signing, record.exchange} & self._keys  # §9.3-6, §9.4-1
                    and record.signing != record.exchange
                    and _verify_key(record.signing) is not None
                )
            case RevokeRecord():
                # §9.3-7, §9.4-2
                leads = self.last_core is not None and self.last_core.device == record.device
                incarnations = [incarnation for incarnation, _ in record.cutoffs]
                return (
                    self.is_active(record.device)
                    and not leads
                    and record.generation == after
                    and incarnations == sorted(set(incarnations))  # §9.3-7
                    and self._for_everybody(record.bundles, besides=record.device)  # §9.3-7
                )
            case GenerationRecord():
                return record.generation == after and self._for_everybody(record.bundles)  # §9.3-8
            case LeadRecord():
                # §9.5-1, §9.3-9
                freezes = record.device == NOBODY and self.lead is not None and not self.lead.is_freeze
                # §9.3-9
                return (freezes or self.is_active(record.device)) and record.epoch == self._last_epoch + 1
            case GrantRecord():
                info = self._members.get(record.device)
                return info is not None and info.revoked is None and not info.grant  # §9.3-10
            case NameRecord():
                return self.is_active(record.device)  # §9.3-10

    def _for_everybody(self, bundles: Bundles, *, besides: bytes = b"") -> bool:
        """Whether the keys are for exactly the active devices, in order."""
        devices = sorted(info.device for info in self.active() if info.device != besides)
        return [device for device, _ in bundles] == devices

    def _take(self, entry: Entry, record: Record, slot: int) -> None:
        before = entry.header.log_head
        self.generation = self._generation_after(record)
        by_root = entry.header.sender == ROOT_SENDER
        # A freeze leaves a trace under NOBODY, which is never looked up.
        if isinstance(record, AddRecord | LeadRecord) and (by_root or _says_root(record)):  # §9.6-2
            self._root_traces.setdefault(record.device, []).append(slot)
        match record:
            case RootRecord():
                if self.root is None:
                    self._generations[record.generation] = entry
                self.root, self._root_traces = record, {record.holder: [slot]}  # §9.6-2
                self._admins.add(record.admin)
                self.recovery_keys = [SealedKeys(record.generation, ROOT_SENDER, before, record.bundle)]
            case AddRecord():
                self._members[record.device] = MemberInfo(
                    device=record.device,
                    signing=VerifyKey.from_bytes(record.signing),
                    exchange=record.exchange,
                    grant=record.grant,
                    by_root=by_root,
                    slot=slot,
                    entry=entry,
                    named=entry,
                )
                self._keys |= {record.signing, record.exchange}
                self._keep(record.generation, before, ((record.device, record.bundle),))
            case RevokeRecord():
                self._change(
                    record.device,
                    revoked=Revocation(slot, entry.header.sender, dict(record.cutoffs), entry),
                )
                self._begin(record, entry)
            case GenerationRecord():
                self._begin(record, entry)
            case LeadRecord():
                self._leads[record.epoch] = Lead(record.epoch, record.device, record.claim, slot)
                self._last_epoch = record.epoch
            case GrantRecord():
                self._change(record.device, grant=True)
            case NameRecord():
                self._change(record.device, named=entry)
        self.head = entry.hash
        self._heads[entry.hash] = slot
        self.events.append(LogEvent(slot, entry.header.sender, record, entry))

    def _begin(self, record: RevokeRecord | GenerationRecord, entry: Entry) -> None:
        before = entry.header.log_head
        self._generations[record.generation] = entry
        self.recovery_keys.append(SealedKeys(record.generation, ROOT_SENDER, before, record.recovery))
        self._keep(record.generation, before, record.bundles)

    def _keep(self, generation: int, log_head: bytes, bundles: Bundles) -> None:
        for device, bundle in bundles:
            self._sealed.setdefault(device, []).append(SealedKeys(generation, device, log_head, bundle))

    def _change(self, device: bytes, **changes: object) -> None:
        self._members[device] = replace(self._members[device], **changes)  # type: ignore[arg-type]


def _says_root(record: Record) -> bool:
    return isinstance(record, AddRecord) and record.holds_root


def _verify_key(raw: bytes) -> VerifyKey | None:
    try:
        return VerifyKey.from_bytes(raw)
    except CryptoError:
        return None
