"""Damage in the device log: the relay shows a slot with other bytes than were verified, or a part of the log is not shown.

Everybody who has read past a damaged slot goes on as before; a reader from the start takes it for void, and with it all that
follows. Two things reveal that, one on either side::

    verified here, other bytes there   --signed by who could sign the log--> FORKED: another history, nothing is touched
                                       --anything else---------------------> DAMAGED: who may write the log puts the entry back
    void here, signed by a member, after an entry that is nowhere here    --> something before it is damaged, or hidden
"""

from collections.abc import Iterable
from hashlib import sha256

from crystal_crypto.entry import Channel, Entry, Kind, parse
from crystal_crypto.errors import CryptoError
from crystal_crypto.identity import VerifyKey
from crystal_mirror.devicelog.log import ROOT_SENDER, DeviceLog
from crystal_mirror.devicelog.records import RootRecord
from crystal_mirror.errors import LogDamaged, LogForked
from crystal_mirror.notices import Notice, NoticeBoard
from crystal_mirror.ports import Journal, JournalView
from crystal_mirror.requests import Flow, GetMany, Put, StoreFailure
from crystal_mirror.store_keys import StoreKeys

PAGE = 64


def compare_log(
    log: DeviceLog,
    journal: JournalView,
    keys: StoreKeys,
    notices: NoticeBoard | None = None,
    *,
    slots: Iterable[int] | None = None,
) -> Flow[list[int]]:
    """The slots, of these or of all, that the relay shows with other bytes than were verified here. Slots that are void here,
    or that the relay lacks, do not count.

    Raises:
        LogForked: somebody who could sign this log signed other bytes for one of them.
    """
    chosen = None if slots is None else set(slots)
    kept = [
        (slot, data)
        for slot, data, void in journal.log_entries()[: log.next_slot]
        if not void and (chosen is None or slot in chosen)
    ]
    damaged: list[int] = []
    for start in range(0, len(kept), PAGE):
        some = kept[start : start + PAGE]
        there = yield GetMany(tuple(keys.log(slot) for slot, _ in some))
        for (slot, data), shown in zip(some, there, strict=True):
            if shown is None or shown == data:
                continue
            if _signed_in(log, shown) is not None:  # §9.3-15
                if notices:
                    notices.put(Notice.LOG_FORKED, f"slot {slot} of the device log has other bytes")
                raise LogForked(
                    f"the relay's device log differs at slot {slot}: {sha256(shown).hexdigest()[:16]} there, "
                    f"{sha256(data).hexdigest()[:16]} here"
                )
            damaged.append(slot)
    if damaged and notices:
        notices.put(Notice.LOG_DAMAGED, damage_words(damaged))
    return damaged


def damage_words(slots: list[int]) -> str:
    """Which entries are damaged, for people."""
    named = ", ".join(str(slot) for slot in slots[:5]) + (", …" if len(slots) > 5 else "")
    return f"the relay's copy of the device log is damaged at slot {named}: no new device can read past it"


def replace_damaged(
    journal: Journal, keys: StoreKeys, slots: list[int], *, if_let: bool = False
) -> Flow[int]:
    """Puts the verified bytes of these slots in place of what the relay shows. Returns how many. Needs the Core's token
    scope. ``if_let``: what the relay refuses is left as it is; a relay of an earlier version writes nothing over.

    Raises:
        StoreFailure: the store could not answer, or without ``if_let`` refuses it.
    """
    kept = journal.log_entries()
    replaced = 0
    for slot in slots:
        try:
            yield Put(keys.log(slot), kept[slot][1])  # §11.13-3
        except StoreFailure as failure:
            if not (if_let and failure.refused):
                raise
        else:
            replaced += 1
    return replaced


def check_shown(log: DeviceLog, journal: JournalView) -> None:
    """For a newcomer: raises LogDamaged if the log as read here leaves out entries that one of its signers has seen.

    A member does not ask this before it appends: one junk entry of an active device would keep it from being revoked.
    """
    place = unread_place(log, journal)
    if place is not None:
        raise LogDamaged(  # §9.3-16
            f"the relay's device log cannot be read past slot {place}: what stands there is damaged"
        )


def unread_place(log: DeviceLog, journal: JournalView) -> int | None:
    """The first slot that seems to be damaged, since entries after it cannot be read; None if there is none.

    Judged from what is kept: a void slot that somebody who still belongs has signed, for this place, after an entry that stands
    nowhere. Void slots that follow each other are a branch that was given up, and tell nothing.
    """
    voids = [(slot, data) for slot, data, void in journal.log_entries()[: log.next_slot] if void]
    signed = [(slot, entry) for slot, data in voids if (entry := _signed_in(log, data)) is not None]
    known = {entry.hash for _, entry in signed}
    for slot, entry in signed:
        header = entry.header
        before = header.previous
        current = header.sender == ROOT_SENDER or log.is_active(header.sender)
        if header.sequence == slot and current and before not in known and not log.knows_head(before):
            return max((event.slot for event in log.events if event.slot < slot), default=-1) + 1
    return None


def _signed_in(log: DeviceLog, data: bytes) -> Entry | None:
    """The entry in these bytes, if one who may, or might once, sign this log has signed it."""
    try:
        entry = parse(data)
    except CryptoError:
        return None
    header = entry.header
    if header.kind is not Kind.LOG or header.channel is not Channel.DEVLOG or header.vault != log.vault:
        return None
    for key in _keys_of(log, header.sender):
        try:
            entry.verify(key)
        except CryptoError:
            continue
        return entry
    return None


def _keys_of(log: DeviceLog, sender: bytes) -> list[VerifyKey]:
    if sender != ROOT_SENDER:
        info = log.member(sender)
        return [] if info is None else [info.signing]
    roots = [event.record.admin for event in reversed(log.events) if isinstance(event.record, RootRecord)]
    return [VerifyKey.from_bytes(admin) for admin in roots]
