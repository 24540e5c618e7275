"""The audit: on a schedule, every device compares all that a newcomer would read on the relay with its own copy.

A device that has read an object does not read it again, so it does not see that the object rots. Each pass looks at a few
objects, and the next one goes on there::

    device log  every slot that was verified here
    mirror      SLOTS_AT_ONCE slots that are kept here
    snapshot    BLOBS_AT_ONCE parts of the newest one, fetched and opened

    on the Core also:
    mirror      every few minutes a page of the list of its slots, a short one at rest: what is lost is put back
    snapshot    whole, if a newcomer reports that it stands at the beginning: a damaged part may be why

    as it was verified --> next
    damaged or lost    --> a finding: named, and looked at again in each round until it is gone
                           device log: the Core, or a holder of the root, puts the verified bytes back
                           mirror:     the Core puts them back, unless what is shown there is an entry by the log
                           snapshot:   the Core makes another one (``snapshot_due``)
"""

from collections.abc import Iterable

import msgspec

from crystal_crypto.errors import CryptoError, WrongKey
from crystal_mirror.devicelog.damage import compare_log, replace_damaged
from crystal_mirror.devicelog.sync import read_log
from crystal_mirror.entries.control_state import Place, newest_snapshot
from crystal_mirror.errors import LogForked
from crystal_mirror.history.slots import SlotKind, judge_slot
from crystal_mirror.history.void_slots import previous_of
from crystal_mirror.membership.authority import in_force
from crystal_mirror.membership.cursors import seen_cursors
from crystal_mirror.membership.member import Member
from crystal_mirror.notices import Notice
from crystal_mirror.requests import Flow, GetMany, List, Listing, Put, PutNew, StoreFailure
from crystal_mirror.snapshots.blobs import BlobDamaged, get_blob
from crystal_mirror.snapshots.creation import damaged_snapshot, note_damaged_snapshot, read_manifest
from crystal_mirror.types import START, EntryState, KeptEntry, Position

META = "audit"
AUDIT_MS = 6 * 3600 * 1000
"""Interval of passes, by the device's own clock."""
SLOTS_AT_ONCE = 64
BLOBS_AT_ONCE = 2
LISTED_MS = 120 * 1000
"""The Core lists a page of the mirror's slots at most this often."""
LIST_NOTED_MS = 3600 * 1000
"""For so long after a process noted a look at that list, it notes no further one: a disk at rest is left alone."""
LIST_PAGE = 1000
"""Slots: 62 KB on the wire."""
LIST_PAGE_AT_REST = 16
"""In a round that takes the relay's word that nothing was written (``membership/unchanged.py``)."""
FINDINGS_MAX = 1000
"""Damaged slots of the mirror that are remembered; of more, the next passes tell."""


class _Audit(msgspec.Struct, array_like=True):
    at: int = 0
    slot: Place = (0, 0)
    """Where the next pass goes on in the mirror."""
    part: int = 0
    """And in the parts of the newest snapshot."""
    log: list[int] = []
    """Damaged slots of the device log."""
    mirror: list[Place] = []
    """Damaged or missing slots of the mirror."""
    listed_at: int = 0
    listed: Place = (0, 0)
    """Where the next page of the mirror's slots begins."""
    stuck: dict[bytes, int] = {}
    """By newcomer: the count of the cursor that reported that it stands at the beginning, and that was looked into."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Audit)


def audit(member: Member, now_ms: int, *, full: bool) -> Flow[int]:
    """Looks at its findings again, and with ``full`` at the next objects, if that is due. Returns how many were put back.

    ``now_ms`` 0: without a clock no pass is due.

    Raises:
        StoreFailure: the store could not answer.
    """
    before = _state(member)
    state = _state(member)
    due = full and now_ms != 0 and not 0 <= now_ms - state.at < AUDIT_MS
    lists = member.is_core and now_ms != 0 and not _listed(member, state, now_ms)
    stuck = member.is_core and bool(_stuck(member, state))
    if not (due or lists or stuck or state.log or state.mirror or damaged_snapshot(member)):
        return 0
    restored = yield from _audit_log(member, state, due=due)
    restored += yield from _audit_mirror(member, state, due=due)
    if lists:
        restored += yield from _list_slots(member, state)
        if state != before or not member.listed_at or not 0 <= now_ms - state.listed_at < LIST_NOTED_MS:
            state.listed_at = now_ms
        member.listed_at = now_ms
    yield from _audit_snapshot(member, state, due=due, whole=stuck)
    if due:
        state.at = now_ms
    if state != before:
        with member.journal.transaction() as transaction:
            transaction.meta_set(META, _encoder.encode(state))
    return restored


def _listed(member: Member, state: _Audit, now_ms: int) -> bool:
    """Whether this process, or another one of this device, listed the mirror's slots a short while ago."""
    return any(0 <= now_ms - at < LISTED_MS for at in (state.listed_at, member.listed_at))


def newcomer_is_stuck(member: Member) -> bool:
    """Whether a newcomer has reported that it stands at the beginning, and this Core did not look into it yet. No network."""
    return member.is_core and bool(_stuck(member, _state(member)))


def may_write_log(member: Member) -> bool:
    """Whether this device may put entries of the device log back at the relay."""
    return member.is_core or (member.root is not None and in_force(member.log, member.root))


def restore_slots(member: Member, places: Iterable[Place], *, if_let: bool = False) -> Flow[list[Place]]:
    """Puts back these slots of the mirror, as they are kept here, where the relay lacks them or shows what is no entry. Returns
    which were. Needs the Core's token scope. ``if_let``: what the relay refuses is left as it is.

    Raises:
        StoreFailure: the store could not answer, or without ``if_let`` refuses it.
    """
    restored: list[Place] = []
    for kept in _kept(member, places):
        try:
            if (yield from _restore_slot(member, kept)):
                restored.append((kept.epoch, kept.sequence))
        except StoreFailure as failure:
            if not (if_let and failure.refused):
                raise
    return restored


def _restore_slot(member: Member, kept: KeptEntry) -> Flow[bool]:
    key = member.keys.mirror(kept.epoch, kept.sequence)
    (shown,) = yield GetMany((key,))
    if shown is None:
        yield PutNew(key, kept.data)  # §11.13-1
        return True
    if shown == kept.data or _is_entry(member, kept, shown):
        return False
    # Nothing keeps this write from replacing an entry by a Core that this device has not heard of.
    yield from read_log(member.log, member.journal, member.keys, member.notices)
    (shown,) = yield GetMany((key,))
    if not member.is_core or shown in (None, kept.data) or _is_entry(member, kept, shown):
        return False
    yield Put(key, kept.data)  # §11.13-3
    return True


def _audit_log(member: Member, state: _Audit, *, due: bool) -> Flow[int]:
    if not due and not state.log:
        return 0
    try:
        state.log = yield from compare_log(
            member.log, member.journal, member.keys, member.notices, slots=None if due else state.log
        )
    except LogForked:
        return 0  # named; the round stops where it stands on such an entry
    if not state.log or not may_write_log(member):
        return 0
    restored = yield from replace_damaged(member.journal, member.keys, state.log, if_let=True)
    state.log = yield from compare_log(member.log, member.journal, member.keys, slots=state.log)
    return restored


def _audit_mirror(member: Member, state: _Audit, *, due: bool) -> Flow[int]:
    entries = _kept(member, state.mirror)
    if due:
        entries += _next_slots(member, state)
    differs = yield from _differing(member, entries)
    restored: list[Place] = []
    if differs and member.is_core:
        places = [(kept.epoch, kept.sequence) for kept in differs]
        restored = yield from restore_slots(member, places, if_let=True)
        differs = yield from _differing(member, differs)
    state.mirror = sorted({(kept.epoch, kept.sequence) for kept in differs})[:FINDINGS_MAX]
    if state.mirror or restored:
        epoch, sequence = (state.mirror or restored)[0]
        member.notices.put(
            Notice.MIRROR_DAMAGED,
            f"{len(state.mirror or restored)} slots of the mirror, from epoch {epoch}, slot {sequence} on"
            + ("" if state.mirror else "; they were put back"),
        )
    return len(restored)


def _list_slots(member: Member, state: _Audit) -> Flow[int]:
    """Puts back what the relay lacks within one page of its list of the mirror. Returns how many."""
    oldest = member.replica.oldest_kept()
    if oldest is None:
        return 0
    epoch, first = max(oldest, state.listed)
    last = member.replica.last_entry(epoch)
    if last is None or last.sequence < first:
        state.listed = (epoch + 1, 0) if epoch < member.replica.position().epoch else (0, 0)
        return 0
    prefix = member.keys.epoch_prefix(epoch)
    limit = LIST_PAGE_AT_REST if member.unchanged else LIST_PAGE
    page: Listing = yield List(prefix, member.keys.mirror(epoch, first - 1) if first else "", limit)
    slots = {slot for key in page.keys if (slot := member.keys.parse_slot(prefix, key)) is not None}
    end = max(slots, default=first) if page.more else last.sequence
    missing = sorted(set(range(first, end + 1)) - slots)
    restored = yield from restore_slots(member, [(epoch, slot) for slot in missing], if_let=True)
    state.listed = (epoch, end + 1) if page.more else (epoch + 1, 0)
    if epoch >= member.replica.position().epoch and not page.more:
        state.listed = (0, 0)
    if restored:
        member.notices.put(
            Notice.MIRROR_DAMAGED,
            f"{len(restored)} slots of the mirror, from epoch {epoch}, slot {restored[0][1]} on; they were put back",
        )
    return len(restored)


def _stuck(member: Member, state: _Audit) -> dict[bytes, int]:
    """The newcomers that have reported that they stand at the beginning, and that were not looked into."""
    if newest_snapshot(member.replica) is None:
        return {}
    return {
        cursor.device: cursor.count
        for cursor in seen_cursors(member)
        if (cursor.epoch, cursor.sequence) == START[:2] and state.stuck.get(cursor.device) != cursor.count
    }


def _audit_snapshot(member: Member, state: _Audit, *, due: bool, whole: bool) -> Flow[None]:
    newest = newest_snapshot(member.replica)
    if newest is None:
        note_damaged_snapshot(member, None)
        return
    if damaged_snapshot(member) not in (None, newest.manifest):
        note_damaged_snapshot(member, None)  # there is another one since
    if damaged_snapshot(member) is None and (due or whole):
        try:
            manifest = yield from read_manifest(member, newest)
            first = 0 if whole else state.part
            end = len(manifest.parts) if whole else min(first + BLOBS_AT_ONCE, len(manifest.parts))
            for number in range(first, end):
                yield from get_blob(member, manifest.parts[number])
            state.part = end if end < len(manifest.parts) else 0
        except WrongKey:
            state.part = 0  # a key that the log has did not reach this device: it cannot judge
        except (BlobDamaged, CryptoError):
            note_damaged_snapshot(member, newest.manifest)
    if whole:
        state.stuck |= _stuck(member, state)
    if damaged_snapshot(member) is not None:
        member.notices.put(Notice.SNAPSHOT_LOST, "the relay's copy of the newest snapshot is damaged")


def _next_slots(member: Member, state: _Audit) -> list[KeptEntry]:
    """The next kept slots, from where the last pass ended; from the oldest one when all were looked at."""
    oldest, position = member.replica.oldest_kept(), member.replica.position()
    if oldest is None:
        return []
    epoch, sequence = max(oldest, state.slot)
    found: list[KeptEntry] = []
    while epoch <= position.epoch:
        page = member.replica.entries(epoch, sequence, SLOTS_AT_ONCE - len(found))
        found += page
        if len(found) >= SLOTS_AT_ONCE:
            state.slot = (epoch, page[-1].sequence + 1)
            return _sent(found)
        if page:
            sequence = page[-1].sequence + 1
        else:
            epoch, sequence = epoch + 1, 0
    state.slot = (0, 0)
    return _sent(found)


def _kept(member: Member, places: Iterable[Place]) -> list[KeptEntry]:
    return _sent(
        [
            kept
            for epoch, sequence in places
            for kept in member.replica.entries(epoch, sequence, 1)
            if kept.sequence == sequence
        ]
    )


def _sent(entries: list[KeptEntry]) -> list[KeptEntry]:
    return [kept for kept in entries if kept.state is EntryState.SENT]


def _differing(member: Member, entries: list[KeptEntry]) -> Flow[list[KeptEntry]]:
    """Those that the relay lacks, or shows with bytes that are no entry by the log."""
    if not entries:
        return []
    there = yield GetMany(tuple(member.keys.mirror(kept.epoch, kept.sequence) for kept in entries))
    return [
        kept
        for kept, shown in zip(entries, there, strict=True)
        if shown != kept.data and (shown is None or not _is_entry(member, kept, shown))
    ]


def _is_entry(member: Member, kept: KeptEntry, shown: bytes) -> bool:
    """Whether what is shown in a slot is an entry that its epoch's Core signed for it, whatever it follows."""
    place = Position(kept.epoch, kept.sequence, previous_of(member, kept.epoch, kept.sequence))
    return judge_slot(shown, place, member.log).kind is not SlotKind.VOID


def _state(member: Member) -> _Audit:
    kept = member.journal.meta_get(META)
    return _decoder.decode(kept) if kept else _Audit()
