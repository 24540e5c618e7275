"""Claiming the lead by force, and sealing the epochs before.

::

    READER --claim kept--> CLAIMED --lead in the log--> CORE BY THE LOG, position in an older epoch
       CORE BY THE LOG --free slot there--> seal put --> position (new epoch, 0): CORE
                       --slot taken: an entry of the old Core--> applied, next slot
                       --slot taken: another claimant's seal---> follow it; its epoch is sealed next, or supersedes ours

After a crash every step is found again from the log and the journal. No clock decides anything: the order of the log
decides between claimants, create-only between a seal and the old Core's last write.
"""

from dataclasses import dataclass

from crystal_crypto.entry import Kind
from crystal_crypto.hierarchy import Root
from crystal_mirror.devicelog.log import DeviceLog
from crystal_mirror.devicelog.records import Details, LeadRecord
from crystal_mirror.devicelog.sync import append, read_log, restore_log
from crystal_mirror.entries.batches import seal_mirror
from crystal_mirror.errors import BehindTheFloor, ProtocolError, Superseded, Unready
from crystal_mirror.history.slots import SEAL_PUBLIC_BYTES
from crystal_mirror.history.void_slots import find_valid_void
from crystal_mirror.membership.authority import Authority, in_force, seal_record
from crystal_mirror.membership.cursors import Cursor, read_cursors, seen_cursors
from crystal_mirror.membership.member import META_CLAIM, Member
from crystal_mirror.replication.publish import restore_mirror
from crystal_mirror.replication.pull import PullOutcome, PullReport, is_passed, lower_floor, pull, read_floor
from crystal_mirror.replication.rebuild import begin_rebuild, find_fork, finish_rebuild
from crystal_mirror.requests import Flow, GetMany, PutNew, RetryBudget
from crystal_mirror.snapshots.restore import catch_up_by_snapshot, resume_restore, start_from_snapshot

META_NEXT_CLAIM = "claim.next"
CLAIM_BYTES = 16


@dataclass(frozen=True, slots=True)
class ClaimReport:
    """``epoch`` is the epoch that this device is now the Core of."""

    epoch: int


def claim(
    member: Member,
    root: Root | None,
    *,
    force: bool = False,
    abandon: bool = False,
    claimed: bytes = b"",
    now_ms: int = 0,
) -> Flow[ClaimReport]:
    """Makes this device the Core. Needs the root, unless this device has a grant or is the Core at the log's head (a
    restored Core).

    ``abandon`` gives up what this device had verified and nobody holds any more (the relay was emptied, and disks were put
    back); only for a person who was told so by BehindTheFloor. ``claimed``: the claim with which this device asked for the
    lead; otherwise one is drawn. ``now_ms``: its clock, for people to read.

    Raises:
        Superseded: another device claimed first.
        BehindTheFloor: this device, or (without ``force``) another one, has verified more than the relay shows.
        Unready: the vault never had a Core, or this device may not claim.
    """
    if not (yield from read_log(member.log, member.journal, member.keys, member.notices)):
        yield from restore_log(member.log, member.journal, member.keys)
    before = member.log.lead
    if before is None:
        raise Unready("the vault has no Core to take over from")
    yield from _follow(member)
    if abandon:
        lower_floor(member, member.replica.position()[:2])
    if not force:
        yield from _refuse_if_behind_others(member)
    fresh = claimed or member.random(CLAIM_BYTES)
    with member.journal.transaction() as transaction:
        transaction.meta_set(META_NEXT_CLAIM, fresh)

    def build(log: DeviceLog) -> bytes | None:
        lead = log.lead
        assert lead is not None, "a log that had a lead keeps one"
        if lead.epoch != before.epoch:
            return None
        return seal_record(
            log,
            LeadRecord(lead.epoch + 1, member.device_id, fresh),  # §11.9-1
            by=claimant(member, root),
            key=member.generation_key,
            salt=member.salt(),
            details=Details("", "", now_ms, member.device_id),
        )

    yield from append(member.log, member.journal, member.keys, build)
    adopt_claim(member)
    if not member.is_core:
        raise Superseded("another device took the lead first")
    yield from finish_claim(member)
    return ClaimReport(member.replica.position().epoch)


def claimant(member: Member, root: Root | None) -> Authority:
    """The signer of a claim of this device: itself, if it is the Core at the log's head or has a grant; else the root in
    force.

    Raises:
        Revoked, Unready: it may not.
    """
    member.check_active()
    lead, info = member.log.lead, member.log.member(member.device_id)
    if info is not None and (info.grant or (lead is not None and lead.device == member.device_id)):
        return Authority.of_device(member)
    if root is None:
        raise Unready(
            "this device may not take the lead: it has no grant and not the vault's root",
            hint="Give the recovery kit (`crystal promote --kit -`), or grant it on the Core: `crystal devices grant`.",
        )
    if not in_force(member.log, root):
        raise Unready(
            "the root that this device keeps was replaced, and has no power any more",
            hint="Give the newest recovery kit: `crystal promote --kit -`.",
        )
    return Authority.of_root(root)


def adopt_claim(member: Member) -> None:
    """Takes up a claim of ours that the log shows, also after a crash between the log and the journal."""
    lead = member.log.lead
    if lead is None or lead.device != member.device_id:
        return
    if member.journal.meta_get(META_NEXT_CLAIM) == lead.claim:  # §17.1-3
        with member.journal.transaction() as transaction:
            transaction.meta_set(META_CLAIM, lead.claim)
            transaction.meta_set(META_NEXT_CLAIM, None)


def finish_claim(member: Member) -> Flow[None]:
    """Seals the epochs before ours at the first free slot. Does nothing once our epoch has begun.

    Raises:
        BehindTheFloor: the relay shows less than this device has verified before.
        Superseded: a later claimant has sealed what we were to seal.
    """
    lead = member.log.lead
    assert lead is not None and member.is_core, "only the Core by the log seals"
    retries = RetryBudget("a seal")
    while (position := member.replica.position()).epoch < lead.epoch:  # §11.9-1
        yield from _follow(member)
        position = member.replica.position()
        if position.epoch >= lead.epoch:
            break
        retries.spend()
        if (position.epoch, position.sequence) < read_floor(member):  # §11.9-2
            raise BehindTheFloor(
                f"this device had verified epoch {read_floor(member)[0]}, slot {read_floor(member)[1]}, "
                f"the relay ends at epoch {position.epoch}, slot {position.sequence}"
            )
        sealed = seal_mirror(
            Kind.SEAL,
            [],
            position=position,
            vault=member.vault,
            sender=member.device_id,
            incarnation=bytes(8),
            log_head=member.log.head,
            key=member.generation_key,
            signer=member.identity.signing,
            salt=member.salt(),
            public=lead.epoch.to_bytes(SEAL_PUBLIC_BYTES, "big"),
        )
        yield PutNew(member.keys.mirror(position.epoch, position.sequence), sealed)
    if member.replica.position().epoch > lead.epoch:
        raise Superseded("a later claimant has sealed this device's epoch")


def _follow(member: Member) -> Flow[None]:
    """Applies the believed log to its end; puts back what the relay lost; goes over to another branch where it must."""
    yield from finish_rebuild(member)
    yield from resume_restore(member)
    yield from start_from_snapshot(member)
    pulled = yield from pull(member)
    for _ in range(3):
        # If the next slot is free a seal may be due; or the log was deleted below a snapshot, and goes on after it.
        free = pulled.outcome in (
            PullOutcome.CAUGHT_UP,
            PullOutcome.GAP,
            PullOutcome.LOG_BEHIND,
            PullOutcome.HELD,
        )
        if free and (yield from catch_up_by_snapshot(member)):
            pulled = yield from pull(member)
            continue
        if free and (yield from is_passed(member)):
            raise BehindTheFloor(
                "the log goes on after a part that was deleted, and no snapshot is shown from which this device could follow"
            )
        if pulled.outcome in (PullOutcome.CAUGHT_UP, PullOutcome.GAP):
            return
        if pulled.outcome in (PullOutcome.LOG_BEHIND, PullOutcome.DIVERGED):
            fork = (yield from find_valid_void(member)) or (
                yield from find_fork(member, need_seal=not _led(member), ends=_is_damaged(member, pulled))
            )
            if fork is not None:
                yield from begin_rebuild(member, fork)
            elif pulled.outcome is PullOutcome.LOG_BEHIND:
                yield from restore_mirror(member)
            else:
                break
            pulled = yield from pull(member)
    raise ProtocolError(f"the mirror cannot be followed to its end: {pulled.outcome.value}")


def _is_damaged(member: Member, pulled: PullReport) -> bool:
    """Whether this device is the Core by the log and the relay shows other bytes where it has verified an entry: what is
    lost by that, it and the others offer again."""
    return member.is_core and pulled.outcome is PullOutcome.DIVERGED  # §11.11-3


def _led(member: Member) -> bool:
    """Whether this device's key is the Core's in the epoch where it stands: a branch there is its own or a clone's."""
    lead = member.log.lead_of(member.replica.position().epoch)
    return lead is not None and lead.device == member.device_id


def _refuse_if_behind_others(member: Member) -> Flow[None]:
    position = member.replica.position()
    for cursor in (yield from read_cursors(member)):
        if cursor.device != member.device_id and (cursor.epoch, cursor.sequence) > position[:2]:  # §17.3-1
            raise BehindTheFloor(
                f"device {cursor.device.hex()[:8]} has applied epoch {cursor.epoch}, slot {cursor.sequence - 1}, "
                f"which the relay does not show here"
            )


def lost_by_claim(member: Member) -> Flow[list[Cursor]]:
    """The devices that, by the cursors last read, have applied more than this one has and the relay shows. It would be lost
    if this device took the lead now.

    What the old Core recorded and did not send is no loss: it comes when that Core is back.
    """
    position = member.replica.position()[:2]
    ahead = [
        cursor
        for cursor in seen_cursors(member)
        if cursor.device != member.device_id
        and cursor.sequence
        and (cursor.epoch, cursor.sequence) > position
    ]
    if not ahead:
        return []
    last = yield GetMany(tuple(member.keys.mirror(each.epoch, each.sequence - 1) for each in ahead))
    return [cursor for cursor, there in zip(ahead, last, strict=True) if there is None]
