"""One round of sync: everything that this device and the relay owe each other, once.

::

    anything written? -> device log -> (a rebuild that a crash left) -> Core: hold or publish / Node: pull
               -> remove what is durable -> push the outbox -> Core: collect and publish -> cursor
               -> what other cursors ask of this device (``handover/core.py``) -> notices
"""

from collections.abc import Callable
from dataclasses import dataclass

from crystal_crypto.errors import CryptoError
from crystal_mirror.devicelog.damage import compare_log
from crystal_mirror.devicelog.sync import log_is_whole, read_log, restore_log
from crystal_mirror.errors import LogForked, Superseded, TransactionStale
from crystal_mirror.handover.core import heed, holds
from crystal_mirror.handover.terms import tidy
from crystal_mirror.history.damage import Damage, find_damage
from crystal_mirror.history.void_slots import find_valid_void, retract_voids
from crystal_mirror.membership.cursors import (
    About,
    has_told,
    keep_polled,
    poll_cursors,
    put_cursor,
    read_cursors,
    seen_cursors,
    terms_untold,
)
from crystal_mirror.membership.member import Member
from crystal_mirror.membership.unchanged import ask_unchanged, cursors_unchanged, keep_unchanged
from crystal_mirror.notices import Notice
from crystal_mirror.repair.audit import audit, may_write_log, restore_slots
from crystal_mirror.replication.claim import adopt_claim, claim, finish_claim
from crystal_mirror.replication.collect import collect
from crystal_mirror.replication.publish import Published, publish, restore_mirror
from crystal_mirror.replication.pull import (
    META_QUARANTINE,
    PullOutcome,
    PullReport,
    damaged_tail,
    is_passed,
    pull,
    raise_floor,
    read_floor,
    tail_agrees,
)
from crystal_mirror.replication.rebuild import begin_rebuild, find_fork, finish_rebuild, rebuild_pending
from crystal_mirror.requests import Flow, Get, RetryBudget
from crystal_mirror.retention.forgets import note_forgets
from crystal_mirror.retention.gc import doubt_relay, drop_below_base, retain
from crystal_mirror.snapshots.blobs import BlobDamaged
from crystal_mirror.snapshots.creation import announce
from crystal_mirror.snapshots.restore import (
    announcement_holds,
    catch_up_by_snapshot,
    forget_unannounced,
    give_snapshot_up,
    restore_pending,
    resume_restore,
    start_from_snapshot,
)
from crystal_mirror.streams.outbox import push, settle, settle_carried
from crystal_mirror.streams.reoffers import note_held_entries
from crystal_mirror.types import START, EntryState

BATCHES_PER_ROUND_MAX = 1_000_000
HANDOVER_BATCHES = 2  # §17.2-1
"""Batches that a Core takes at most before it holds: the next Core takes the rest from the same streams."""
FULL_CHECK_ROUNDS = 64
"""Interval of full checks in rounds, from a process's first round on. A full check covers all void slots (also checked
whenever the log has grown), the device's own streams, and on the Core the whole listing of the mirror."""
FULL_CHECK_MS = 3600 * 1000
"""A process's first round is no full check if another process made one less than this ago: people run `crystal sync` often."""
META_FULL_CHECK = "round.full-check"
"""In the journal: when this device last made a full check, by its clock in milliseconds, and the log's head then."""


@dataclass
class RoundReport:
    """What one round did. Bytes are of sealed entries, without requests and retries."""

    core: bool = False
    bytes_pushed: int = 0
    bytes_pulled: int = 0
    operations_collected: int = 0
    operations_applied: int = 0
    settled: int = 0
    restored: int = 0
    rebuilt: bool = False
    claimed: bool = False
    caught_up: bool = False
    """Everything that the relay shows is applied: the rows are those of the end of the log."""
    relay_lost: bool = False
    """The relay shows less of the mirror than it did."""
    more: bool = False
    """The round ended because of ``enough``: more is offered."""


def sync_round(
    member: Member,
    model: str = "",
    *,
    tell_position: bool = True,
    about: About | None = None,
    heed_cursors: bool = False,
    enough: Callable[[], bool] = lambda: False,
) -> Flow[RoundReport]:
    """Runs one round. ``model`` is the identity of the embedder that answers ``Embed`` requests on a Core.

    ``tell_position``: whether this device's cursor is written if it moved. A caller that makes one round after another need
    not write it in each: it is only a report, and a write for each device and message is the largest cost at the relay.
    ``about``: what is reported with it. ``heed_cursors``: another device's cursor was written since; what it asks for is
    looked at now. ``enough``: called by a Core between two batches; if it returns True the round ends, though more is
    offered.

    The notices of the round are saved even if it ends with an error.

    Raises:
        LogForked: the relay shows another device log.
        Revoked: this device is out.
        KeysWithheld: the newest keys were not sealed to this device; what it could read was taken in.
        StoreFailure: the store could not answer; repeat the round later.
    """
    report = RoundReport()
    about = about or About()
    first = member.rounds == 0
    member.full_check = member.rounds % FULL_CHECK_ROUNDS == 0 and not (
        first and _fully_checked_lately(member, about.now_ms)
    )
    member.notices.begin()
    try:
        token = yield from ask_unchanged(member, about.now_ms)
        member.unchanged &= not (member.full_check or heed_cursors)
        unchanged, heeded = member.unchanged, cursors_unchanged(member)
        yield from _read_or_restore_log(member, report)
        member.check_active()
        # What the log has told since may have changed what is to be checked: who leads, who belongs.
        member.full_check |= first and not _fully_checked_lately(member, about.now_ms)
        if rebuild_pending(member):
            yield from finish_rebuild(member)
            report.rebuilt = True
        if restore_pending(member):
            try:
                yield from resume_restore(member)
            except (BlobDamaged, CryptoError):
                yield from _tell_stuck(member, about)
                raise
            report.rebuilt = True
        adopt_claim(member)
        if member.full_check or member.doubted_head != member.log.head:  # §11.7-6
            yield from _doubt(member, report)
            member.doubted_head = member.log.head
        member.unchanged &= not report.rebuilt
        full = member.full_check
        audited = member.is_core
        if audited:
            yield from _audit(member, report, about, full=full)
        if member.is_core:
            yield from _lead(member, report, model, about.now_ms, enough)
        if not member.is_core:
            try:
                yield from _follow(member, report)
            except (BlobDamaged, CryptoError):
                yield from _tell_stuck(member, about)
                raise
        if not audited:  # after it has heard of a raised floor: what was deleted below it is no damage
            yield from _audit(member, report, about, full=full)
        note_forgets(member, about.now_ms)
        tidy(member, about.now_ms)
        if tell_position or terms_untold(member):
            yield from put_cursor(member, about, look=full)
        # A process may make one round only, so that nobody wakes it when a cursor is written: it looks.
        polls = full or (first and not heeded)
        polled = (yield from poll_cursors(member)) if polls else None  # §15-7
        heeded |= polls
        if full or heed_cursors or report.more or polled is not None:
            yield from read_cursors(member)
            yield from heed(member, about, lambda: _drain(member, report, model, batches=HANDOVER_BATCHES))
            if terms_untold(member):
                yield from put_cursor(member, about)
            if polled is not None:
                keep_polled(member, polled)
        if not unchanged and report.caught_up and not report.more:
            keep_unchanged(member, token, about.now_ms, cursors_heeded=heeded)
        if full and about.now_ms:
            with member.journal.transaction() as transaction:
                transaction.meta_set(
                    META_FULL_CHECK, b"%d %s" % (about.now_ms, member.log.head.hex().encode())
                )
    except Exception:
        _end(member)
        raise
    _end(member)
    return report


def _audit(member: Member, report: RoundReport, about: About, *, full: bool) -> Flow[None]:
    """A relay that lost entries, as an audit finds, may have lost blobs as well."""
    restored = yield from audit(member, about.now_ms, full=full)
    report.restored += restored
    if restored:
        report.relay_lost = True
        doubt_relay(member)


def _fully_checked_lately(member: Member, now_ms: int) -> bool:
    """Whether another process of this device made a full check within the hour by the same device log, and nothing was wrong
    since, nor is this device behind the Core's epoch."""
    kept = member.journal.meta_get(META_FULL_CHECK)
    lead = member.log.last_core
    if not now_ms or kept is None or lead is None or member.replica.position().epoch < lead.epoch:
        return False
    at, head = kept.split()
    recent = 0 <= now_ms - int(at) < FULL_CHECK_MS and bytes.fromhex(head.decode()) == member.log.head
    return recent and not member.notices.current()


def _tell_stuck(member: Member, about: About) -> Flow[None]:
    """A newcomer that cannot read the snapshot reports that it stands at the beginning; the Core looks into it
    (``repair/audit.py``)."""
    if member.replica.position() == START and not has_told(member):
        yield from put_cursor(member, about)


def _doubt(member: Member, report: RoundReport) -> Flow[None]:
    """Judges all void slots again: a relay that showed junk in place of an entry has led this device astray."""
    fork = yield from find_valid_void(member)
    if fork is not None:
        member.notices.put(
            Notice.MIRROR_TAMPERED, f"the relay had shown junk at epoch {fork.epoch}, slot {fork.sequence}"
        )
        yield from begin_rebuild(member, fork)
        report.rebuilt = True


def _end(member: Member) -> None:
    """Ends a round, also one that failed."""
    member.unchanged = False
    note_held_entries(member.journal, member.notices)
    raise_floor(member)
    member.rounds += 1
    member.notices.save()


def _read_or_restore_log(member: Member, report: RoundReport) -> Flow[None]:
    complete = yield from read_log(
        member.log, member.journal, member.keys, member.notices, head_only=member.unchanged
    )
    member.unchanged &= complete
    may_write = may_write_log(member)
    if complete and may_write and member.full_check:
        complete = yield from log_is_whole(member.log, member.keys)
    if not complete and may_write:
        report.restored += yield from restore_log(member.log, member.journal, member.keys, if_let=True)
        if (yield from read_log(member.log, member.journal, member.keys)):
            return
        # A head that is damaged, and that the relay does not let replace, is named; what was read counts.
        head = member.log.next_slot - 1
        if not (yield from compare_log(member.log, member.journal, member.keys, slots=[head])):
            raise LogForked("the relay does not keep the device log that is put back")


def _follow(member: Member, report: RoundReport) -> Flow[None]:
    lead = member.log.lead
    if lead is not None and lead.device == member.device_id:
        member.notices.put(
            Notice.CLAIM_LOST,
            "the log names this device as Core by a claim that is not known here: another copy of it leads, or this one lost "
            "its state and has to claim the lead again",
        )
    if not member.unchanged:  # if it is, no snapshot was announced since this device last looked
        report.rebuilt |= yield from start_from_snapshot(member)
    pulled = yield from pull(member, tail_only=member.unchanged and not report.rebuilt)
    _count(report, pulled)
    if (
        pulled.outcome in (PullOutcome.LOG_BEHIND, PullOutcome.GAP, PullOutcome.HELD)
        or (pulled.outcome is PullOutcome.CAUGHT_UP and _others_are_ahead(member))
    ) and (yield from catch_up_by_snapshot(member)):
        report.rebuilt = True
        pulled = yield from pull(member)
        _count(report, pulled)
    if announcement_holds(member) is False:  # §12.2-5
        give_snapshot_up(member)
        return
    if pulled.outcome is PullOutcome.QUARANTINED:
        pulled = yield from _replay_once(member, report)
    elif (
        pulled.outcome in (PullOutcome.LOG_BEHIND, PullOutcome.DIVERGED)
        or member.replica.kept(EntryState.UNSENT)
        or _waits_for_a_seal(member)
    ):
        fork = (yield from find_valid_void(member)) or (yield from find_fork(member, need_seal=True))
        if fork is None and _waits_for_a_seal(member):
            fork = yield from find_fork(member, need_seal=True, whole=True)
        if fork is not None:
            yield from begin_rebuild(member, fork)
            report.rebuilt = True
            pulled = yield from pull(member)
            _count(report, pulled)
    report.caught_up = pulled.outcome is PullOutcome.CAUGHT_UP
    report.relay_lost |= pulled.outcome is PullOutcome.LOG_BEHIND
    if report.caught_up:
        # Only now is everything applied here on the relay; what the relay has lost is not durable.
        report.settled += settle(member)
    report.bytes_pushed += yield from push(member)


def _others_are_ahead(member: Member) -> bool:
    """Whether a device has reported more than the relay shows here: what lies between may have been deleted."""
    position = member.replica.position()[:2]
    return any((cursor.epoch, cursor.sequence) > position for cursor in seen_cursors(member))


def _waits_for_a_seal(member: Member) -> bool:
    """Whether, in a full check, this device is at the end of an epoch that the log has superseded. A frozen vault's last
    epoch is not to be sealed yet."""
    lead = member.log.last_core
    behind = lead is not None and member.replica.position().epoch < lead.epoch
    return behind and member.full_check  # §11.11-2


def _replay_once(member: Member, report: RoundReport) -> Flow[PullReport]:
    """The state differs from the Core's: replays everything once, and holds if it differs again at the same slot."""
    place = b"%d %d" % member.replica.position()[:2]
    if member.replica.meta_get(META_QUARANTINE) == place:  # §11.3-7
        return PullReport(PullOutcome.QUARANTINED, 0, 0, 0)
    with member.replica.transaction() as transaction:
        transaction.meta_set(META_QUARANTINE, place)
    yield from begin_rebuild(member, None)
    report.rebuilt = True
    pulled = yield from pull(member)
    _count(report, pulled)
    return pulled


def _lead(
    member: Member, report: RoundReport, model: str, now_ms: int, enough: Callable[[], bool]
) -> Flow[None]:
    """The Core's part. Ends with ``is_core`` False if another device turns out to be the Core."""
    report.core = True
    if (yield from holds(member, now_ms)):  # §17.2-2
        report.bytes_pushed += yield from push(member)
        return
    lead = member.log.lead
    assert lead is not None, "a Core leads"
    if member.replica.position().epoch < lead.epoch and not (yield from _finish(member)):
        return
    if not (yield from _stand_on_the_log(member, report)):
        return
    forget_unannounced(member)
    if member.unchanged:  # nobody has offered anything since it was caught up
        report.caught_up = True
        yield from _write_control_entries(member, now_ms)
        return
    report.settled += settle(member)
    report.bytes_pushed += yield from push(member)
    if (yield from _drain(member, report, model, enough)):
        report.caught_up = not report.more
        yield from _write_control_entries(member, now_ms)


def _drain(
    member: Member,
    report: RoundReport,
    model: str,
    enough: Callable[[], bool] = lambda: False,
    batches: int = BATCHES_PER_ROUND_MAX,
) -> Flow[bool]:
    """Collects and publishes until nothing more is offered, or ``enough``. Returns False if something came between."""
    report.more = False
    for _ in range(batches):
        try:
            collected = yield from collect(member, model)
        except TransactionStale:
            return False
        report.operations_collected += collected.operations
        report.bytes_pulled += collected.bytes
        outcome = yield from publish(member)
        if outcome is not Published.DONE:
            member.notices.put(Notice.RESTORED, outcome.value)
            return False
        if not collected.more:
            break
        report.more = True
        if enough():
            break
        report.settled += settle_carried(member)
    report.settled += settle(member)
    return True


def _write_control_entries(member: Member, now_ms: int) -> Flow[None]:
    """Announces a snapshot that is ready, and runs garbage collection."""
    try:
        announced = announce(member)
        if announced and (yield from publish(member)) is not Published.DONE:
            return
        if (yield from retain(member, now_ms)):
            yield from publish(member)
    except TransactionStale:
        return  # in the next round


def _finish(member: Member) -> Flow[bool]:
    try:
        yield from finish_claim(member)
    except Superseded as error:
        member.notices.put(Notice.SUPERSEDED, str(error))
        return False
    return True


def _stand_on_the_log(member: Member, report: RoundReport) -> Flow[bool]:
    """Makes sure that what this Core has published is what the relay shows, before it writes more.

    Returns False when another device turned out to be the Core.
    """
    if not member.unchanged:
        yield from retract_voids(member)
    full = member.full_check
    if full and (yield from is_passed(member)):
        return (
            yield from _begin_epoch(
                member, report, "the log goes on after this Core's place, which was deleted"
            )
        )
    tail = yield from tail_agrees(member)
    member.unchanged &= tail is PullOutcome.CAUGHT_UP
    if tail is PullOutcome.LOG_BEHIND:
        member.notices.put(Notice.MIRROR_ROLLED_BACK, "the relay lost mirror entries; they are put back")
        report.relay_lost = True
        doubt_relay(member)
    if tail is PullOutcome.DIVERGED and (place := (yield from damaged_tail(member))) is not None:
        member.notices.put(
            Notice.MIRROR_DAMAGED,
            f"epoch {place[0]}, slot {place[1]} was damaged at the relay; it is put back",
        )
        report.restored += len((yield from restore_slots(member, [place], if_let=True)))
        if not _still_leads(member):
            return False
        tail = yield from tail_agrees(member)
    if tail is PullOutcome.LOG_BEHIND or full:
        report.restored += yield from restore_mirror(member)
        tail = yield from tail_agrees(member)
    damaged = (yield from _unmended_damage(member, report)) if full else None
    if not _still_leads(member):
        return False
    if damaged is not None and damaged.below_base:
        member.notices.put(Notice.MIRROR_TAMPERED, "the relay shows other bytes below the snapshot")
        drop_below_base(member)
        damaged = None
    elif damaged is not None:
        member.notices.put(
            Notice.MIRROR_TAMPERED,
            f"the relay shows other bytes at epoch {fork.epoch}, slot {fork.sequence} than were verified"
            if (fork := damaged.fork)
            else "a device has applied what the relay does not show any more",
        )
        if damaged.fork:
            yield from begin_rebuild(member, damaged.fork)
            report.rebuilt = True
    behind_floor = member.replica.position()[:2] < read_floor(member)  # §11.9-2
    outcome = Published.CLONED if behind_floor else Published.FORKED
    if member.unchanged and not behind_floor:  # §11.15-1
        return True
    if tail is PullOutcome.CAUGHT_UP and not behind_floor and damaged is None:
        outcome = yield from publish(member)
        if outcome is Published.DONE:
            return True
    yield from read_log(member.log, member.journal, member.keys, member.notices)
    if not member.is_core:
        return False
    fork = yield from find_fork(member, need_seal=False)
    if fork is not None and _have_beyond(member, fork.epoch, fork.sequence):
        yield from begin_rebuild(member, fork)
        report.rebuilt = True
    if outcome is Published.SUPERSEDED:
        member.notices.put(Notice.SUPERSEDED, "another device has sealed this Core's epoch")
        return False
    return (yield from _begin_epoch(member, report, outcome.value))


def _unmended_damage(member: Member, report: RoundReport) -> Flow[Damage | None]:
    """Damage that keeps a peer back and cannot be undone by putting back what was verified here."""
    retries = RetryBudget("a slot of the mirror")
    put_back = False
    while True:
        damaged = yield from find_damage(member)  # §11.11-1
        if damaged is None or damaged.fork is None:
            # Who had stepped over the damage steps back when it looks again; the next full check tells.
            return None if put_back and damaged is not None and not damaged.below_base else damaged
        place = (damaged.fork.epoch, damaged.fork.sequence)
        if not (yield from restore_slots(member, [place], if_let=True)):
            return damaged
        if (yield Get(member.keys.mirror(*place))) != member.replica.entries(*place, 1)[0].data:
            return damaged
        member.notices.put(
            Notice.MIRROR_DAMAGED,
            f"epoch {place[0]}, slot {place[1]} was damaged at the relay; it was put back",
        )
        report.restored += 1
        put_back = True
        retries.spend()


def _begin_epoch(member: Member, report: RoundReport, why: str) -> Flow[bool]:
    """For a Core with a copy of itself, or whose base is gone: follows the log and claims another epoch."""
    yield from read_log(member.log, member.journal, member.keys, member.notices)
    if not member.is_core:
        return False
    member.notices.put(Notice.RESTORED, f"{why}; this Core begins a new epoch")
    yield from claim(member, member.root, force=True)
    report.claimed = True
    return True


def _still_leads(member: Member) -> bool:
    """Whether this device is the Core by the device log as it was read while something was put back."""
    return member.is_core


def _have_beyond(member: Member, epoch: int, sequence: int) -> bool:
    return member.replica.position()[:2] > (epoch, sequence)


def _count(report: RoundReport, pulled: PullReport) -> None:
    report.operations_applied += pulled.operations
    report.bytes_pulled += pulled.bytes
