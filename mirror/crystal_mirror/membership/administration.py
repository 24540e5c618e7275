"""Administration of a vault: adding, revoking and naming devices, new generations, another root. Each is an entry of the
log.

Each flow decides at the log's head, and decides again if another entry was first: the right to sign, the devices that get
keys, and whether there is anything left to do. So each may be repeated after a crash at any point.

Revoking::

    ACTIVE --what it had stored is taken--> its streams' ends known --"revoke" in the log--> REVOKED, new generation
      had the root: --"root" in the log--> the root it had is void  ─┘
    The relay's tokens go afterwards, removed by the flow's driver: the log counts without them.

A new generation's key is drawn for one attempt, and is in use only once its entry is in the verified log, from which every
device opens it. At no moment is anything sealed under a key that a crash could lose.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from crystal_crypto.bundle import seal_bundle
from crystal_crypto.errors import Malformed, TooLarge
from crystal_crypto.hierarchy import GenerationKey, Root
from crystal_crypto.identity import ExchangePublic, VerifyKey
from crystal_crypto.limits import BUNDLE_BYTES, KEY_BYTES
from crystal_mirror.devicelog.log import ROOT_SENDER, DeviceLog, MemberInfo
from crystal_mirror.devicelog.records import (
    CUTOFFS_MAX,
    MEMBERS_MAX,
    OLDER_KEYS_MAX,
    AddRecord,
    Bundles,
    Details,
    GenerationRecord,
    GrantRecord,
    NameRecord,
    RevokeRecord,
    RootRecord,
)
from crystal_mirror.devicelog.sync import append, own_slots, read_log
from crystal_mirror.errors import NameTaken, NotAllowed, NotAMember, Revoked, RootHeld, Unready
from crystal_mirror.membership.authority import Authority, authority, in_force, seal_record
from crystal_mirror.membership.cutoffs import acked_ends, stream_ends, take_over
from crystal_mirror.membership.member import Member
from crystal_mirror.membership.names import free_name, names_in
from crystal_mirror.membership.status import details_of, device_name
from crystal_mirror.requests import Flow

GENERATION_DAYS_MAX = 30
"""The age, by the Core's clock, at which a generation is followed by another. Only hygiene: no clock decides what counts."""
_DAY_MS = 24 * 3600 * 1000
_UNKNOWN_KEY = bytes(KEY_BYTES)
"""In place of an older key that is not here; it opens nothing."""
_UNSEALED = bytes(BUNDLE_BYTES)
"""In place of a bundle for a device whose public key nothing can be sealed to: it must not keep others from new keys."""


@dataclass(frozen=True, slots=True)
class NewDevice:
    """A device to be added: its id and public keys, as it stated them."""

    device: bytes
    signing: VerifyKey
    exchange: ExchangePublic


@dataclass(frozen=True, slots=True)
class Added:
    """The new device's place in the log. ``fresh`` is False if it was there already."""

    slot: int
    entry_hash: bytes
    head: bytes
    fresh: bool


@dataclass(frozen=True, slots=True)
class RevokeReport:
    """Result of a revocation. ``fresh`` is False if the device was revoked before. ``accepted`` counts the entries of its
    streams that still count."""

    device: bytes
    name: str | None
    generation: int
    accepted: int
    fresh: bool


def add_device(
    member: Member, newcomer: NewDevice, *, name: str, system: str, now_ms: int, grant: bool = False
) -> Flow[Added]:
    """Adds a device by this device's authority, with the generation in force; older keys follow from it. A name that an active
    device has gets a number.

    Raises:
        NotAllowed: this device cannot administer the vault.
        Revoked: that device's identity was revoked; it has to come with a new one.
        Malformed: its keys are not keys, or are another device's.
        TooLarge: the vault has the maximum number of devices.
    """
    log = member.log

    def build(log: DeviceLog) -> bytes | None:
        known = log.member(newcomer.device)
        if known is not None:
            if known.revoked is not None:
                raise Revoked("that device was revoked; it has to come with a new identity")
            if (known.signing, known.exchange) != (newcomer.signing, newcomer.exchange.to_bytes()):
                raise Malformed("another device of the vault has that id")
            return None
        keys = newcomer.signing.to_bytes(), newcomer.exchange.to_bytes()
        if newcomer.device == ROOT_SENDER or keys[0] == keys[1] or log.has_key(*keys):
            raise Malformed("these are another device's keys, or no device's")
        if len(log.members()) >= MEMBERS_MAX:
            raise TooLarge(f"a vault has at most {MEMBERS_MAX} devices, revoked ones included")
        key = member.generation_key
        record = AddRecord(
            device=newcomer.device,
            signing=newcomer.signing.to_bytes(),
            exchange=newcomer.exchange.to_bytes(),
            grant=grant,
            holds_root=False,
            generation=key.number,
            bundle=seal_bundle(
                newcomer.exchange,
                generation=key,
                secret=member.secret,
                vault=log.vault,
                recipient_id=newcomer.device,
                log_head=log.head,
            ),
        )
        free = free_name(name, names_in(log, member.key_for))
        return _sealed(member, record, Details(free, system, now_ms, member.device_id))

    fresh = yield from append(log, member.journal, member.keys, build)
    info = log.member(newcomer.device)
    assert info is not None, "it is in the log"
    return Added(info.slot, info.entry.hash, log.head, fresh)


def revoke(
    member: Member, device: bytes, *, now_ms: int, root: Root | None = None, leave_root: bool = False
) -> Flow[RevokeReport]:
    """Revokes a device, with a new generation for all others in the same entry.

    Run a round of sync before, so that what the device had stored is taken in first. ``root``: the root in force, if this
    device does not keep it (from the recovery kit). ``leave_root``: revoke even a device that may have the root, whose
    holder can then join again and read on: for when the root is nowhere else.

    Raises:
        NotAMember: no such device.
        NotAllowed: this device cannot administer the vault, or it would revoke itself.
        Unready: the device is the Core; another one has to take the lead first.
        RootHeld: the device may have the root in force (``may_have_root``): ``rotate_root`` comes first.
    """
    yield from read_log(member.log, member.journal, member.keys, member.notices)
    taken: list[int] = []
    if _may_take_over(member, device, root):
        yield from stream_ends(member, device, lambda entries: taken.append(take_over(member, entries)))
        member.mend()
    # Only what the Core has taken in: other stored entries are in this device's outbox now.
    cutoffs = tuple(sorted(acked_ends(member, device).items()))[:CUTOFFS_MAX]  # §9.8-2

    def build(log: DeviceLog) -> bytes | None:
        info = log.member(device)
        if info is None:
            raise NotAMember(f"the vault has no device {device.hex()[:8]}")
        if info.revoked is not None:
            return None
        if device == member.device_id:
            raise NotAllowed(
                "a device cannot revoke itself", hint="Revoke it on another one: `crystal devices revoke`."
            )
        lead = log.lead
        if lead is not None and lead.device == device:  # §9.4-2
            raise Unready(
                "that device is the Core, and its epoch has to have an end first",
                hint="Take the lead on this machine: `crystal promote`, then revoke it.",
            )
        if lead is not None and lead.is_freeze:
            raise Unready(
                "nobody leads this vault: it is frozen, and the last Core's epoch has to have an end first",
                hint="Take the lead on this machine: `crystal promote`, then revoke it.",
            )
        if lead is not None and member.replica.position().epoch != lead.epoch:  # §9.8-1
            raise Unready(
                "the last Core's epoch has not ended for this device yet",
                hint="Run `crystal sync` here and on the Core, then try again.",
            )
        if not leave_root and may_have_root(member, device):
            raise RootHeld("that device may have the vault's root, and could take itself in again")
        return _begin_generation(
            member,
            lambda key, recovery, bundles: RevokeRecord(device, cutoffs, key.number, recovery, bundles),
            Details("", "", now_ms, member.device_id),
            besides=device,
            root=root,
        )

    fresh = yield from append(member.log, member.journal, member.keys, build)
    info = member.log.member(device)
    assert info is not None and info.revoked is not None, "the log has it out"
    accepted = sum(last + 1 for last in info.revoked.cutoffs.values()) + sum(taken)
    return RevokeReport(device, device_name(member, device), member.log.generation, accepted, fresh)


def _may_take_over(member: Member, device: bytes, root: Root | None) -> bool:
    """Whether this device can get as far as revoking the other; ``revoke`` reports why not."""
    if device == member.device_id or not member.log.is_active(device):
        return False
    try:
        authority(member, root)
    except NotAllowed:
        return False
    return True


def may_have_root(member: Member, device: bytes) -> bool:
    """Whether the log allows that the device has the root, so that revoking it takes another root first.

    This device's own journal tells what this device wrote about others: devices that it added with the root did not get it.
    """
    if device == member.device_id:
        return member.log.held_root(device)
    return not own_slots(member.journal).issuperset(member.log.root_traces(device))  # §9.6-2


def renew_generation(member: Member, *, now_ms: int, root: Root | None = None) -> Flow[int]:
    """Begins a new generation without a revocation. Returns its number. Raises NotAllowed."""
    before = member.log.generation

    def build(log: DeviceLog) -> bytes | None:
        if log.generation != before:
            return None
        return _begin_generation(
            member,
            lambda key, recovery, bundles: GenerationRecord(key.number, recovery, bundles),
            Details("", "", now_ms, member.device_id),
            root=root,
        )

    yield from append(member.log, member.journal, member.keys, build)
    return member.log.generation


def generation_due(member: Member, now_ms: int) -> bool:
    """Whether this device, as Core, should begin a new generation: that in force is older than ``GENERATION_DAYS_MAX``."""
    if not member.is_core:
        return False
    entry = member.log.generation_entry(member.log.generation)
    details = details_of(member, entry) if entry is not None else None
    if details is None:
        return False
    # A generation from the future was made by a clock that was wrong: it is as old as one can be.
    return abs(now_ms - details.at) > GENERATION_DAYS_MAX * _DAY_MS  # §9.7-7


def rotate_root(member: Member, old: Root, new: Root, *, now_ms: int) -> Flow[bool]:
    """Replaces the root in force by ``new``, which only the old root's signature can do. Returns whether this call did it.

    ``new`` must be on disk before: once the entry is in the log, it is the vault's only root.

    Raises:
        NotAllowed: ``old`` is not the root in force.
    """

    def build(log: DeviceLog) -> bytes | None:
        if in_force(log, new):
            return None
        if not in_force(log, old):  # §9.6-1
            raise NotAllowed(
                "that root is not in force", hint="Give the newest recovery kit; an older one has no power."
            )
        key = member.generation_key
        record = RootRecord(
            admin=new.admin.public.to_bytes(),
            recovery=new.recovery.public.to_bytes(),
            holder=member.device_id,
            generation=key.number,
            bundle=seal_bundle(
                new.recovery.public,
                generation=key,
                secret=member.secret,
                vault=log.vault,
                recipient_id=ROOT_SENDER,
                log_head=log.head,
            ),
        )
        details = Details("", "", now_ms, member.device_id)
        return seal_record(
            log, record, by=Authority.of_root(old), key=key, salt=member.salt(), details=details
        )

    return (yield from append(member.log, member.journal, member.keys, build))


def grant_lead(member: Member, device: bytes, *, now_ms: int) -> Flow[bool]:
    """Lets a device take the lead by its own signature. Returns whether this call did it. Raises NotAMember, NotAllowed."""

    def build(log: DeviceLog) -> bytes | None:
        info = _active(log, device)
        details = Details("", "", now_ms, member.device_id)
        return None if info.grant else _sealed(member, GrantRecord(device), details)

    return (yield from append(member.log, member.journal, member.keys, build))


def rename(member: Member, device: bytes, name: str, *, now_ms: int) -> Flow[bool]:
    """Gives a device another name. Returns whether this call did it. Raises NotAMember, NotAllowed, NameTaken."""

    def build(log: DeviceLog) -> bytes | None:
        info = _active(log, device)
        known = details_of(member, info.named)
        if known is not None and known.name == name:
            return None
        others = names_in(log, member.key_for, besides=device)
        free = free_name(name, others)
        if free != name:
            raise NameTaken(f"another device is called {name}", hint=f"Choose another name, such as {free}.")
        details = Details(name, known.system if known else "", now_ms, member.device_id)
        return _sealed(member, NameRecord(device), details)

    return (yield from append(member.log, member.journal, member.keys, build))


def _active(log: DeviceLog, device: bytes) -> MemberInfo:
    info = log.member(device)
    if info is None or info.revoked is not None:
        raise NotAMember(f"the vault has no device {device.hex()[:8]}")
    return info


def _sealed(member: Member, record: AddRecord | GrantRecord | NameRecord, details: Details) -> bytes:
    return seal_record(
        member.log,
        record,
        by=authority(member),
        key=member.generation_key,
        salt=member.salt(),
        details=details,
    )


def _begin_generation(
    member: Member,
    record: Callable[[GenerationKey, bytes, Bundles], RevokeRecord | GenerationRecord],
    details: Details,
    *,
    besides: bytes = b"",
    root: Root | None = None,
) -> bytes:
    """A sealed entry that begins the next generation, with its keys for every active device but ``besides``."""
    log = member.log
    by = authority(member, root)
    before = member.generation_key
    key = GenerationKey(before.number + 1, member.random(32))
    assert log.root is not None, "a vault with devices has a root"
    recipients = [(ROOT_SENDER, log.root.recovery)]
    recipients += sorted((info.device, info.exchange) for info in log.active() if info.device != besides)
    (_, recovery), *bundles = _seal_all(member, key, recipients)
    return seal_record(
        log,
        record(key, recovery, tuple(bundles)),
        by=by,
        key=key,
        salt=member.salt(),
        details=details,
        older=[
            member.key_for(number) or GenerationKey(number, _UNKNOWN_KEY)
            for number in range(before.number, max(0, before.number - OLDER_KEYS_MAX), -1)  # §9.2-4
        ],
    )


def _seal_all(
    member: Member, key: GenerationKey, recipients: Sequence[tuple[bytes, bytes]]
) -> list[tuple[bytes, bytes]]:
    sealed: list[tuple[bytes, bytes]] = []
    for recipient, exchange in recipients:
        try:
            bundle = seal_bundle(
                ExchangePublic.from_bytes(exchange),
                generation=key,
                secret=member.secret,
                vault=member.vault,
                recipient_id=recipient,
                log_head=member.log.head,
            )
        except Malformed:
            bundle = _UNSEALED
        sealed.append((recipient, bundle))
    return sealed
