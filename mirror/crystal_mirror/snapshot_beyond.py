"""What stands behind the end: a free slot with entries behind it is a place that was let go of, not one to write at.

A device that was restored from an old copy, or that knows little yet, may stand where the log was deleted long ago. The relay
shows it a free slot there, as it shows one at the true end; but behind the true end nothing stands.
"""

from crystal_crypto.entry import parse
from crystal_crypto.errors import CryptoError
from crystal_mirror.member import Member
from crystal_mirror.pull import PullOutcome, last_kept, tail_agrees
from crystal_mirror.requests import Flow, GetMany, Has, List, Listing
from crystal_mirror.slots import SlotKind, judge_slot
from crystal_mirror.types import Position

LOOKED_AT = 16
"""Slots behind the free one that are looked at. Junk behind an end is nobody's, and stops nobody."""


def is_passed(member: Member) -> Flow[bool]:
    """Whether our next slot is free, and an entry by who led there stands in a later one.

    Not so if the relay still has the slot before: then the free one is a gap, or the end of a history that another one
    replaced. What is let go of goes from the start.
    """
    position = member.replica.position()
    if last_kept(member, position) is not None and (yield from tail_agrees(member)) is PullOutcome.CAUGHT_UP:
        return False
    key = member.keys.mirror(position.epoch, position.sequence)
    there = yield Has((key,))
    if there[0]:
        return False
    page: Listing = yield List(member.keys.mirror_prefix, key, LOOKED_AT)
    keys = page.after(key)[:LOOKED_AT]
    if not keys:
        return False
    found: list[bytes | None] = yield GetMany(tuple(keys))
    for data in found:
        try:
            header = parse(data or b"").header
        except CryptoError:
            continue
        place = Position(header.epoch, header.sequence, header.previous)
        if place[:2] <= position[:2]:
            continue
        if judge_slot(data or b"", place, member.log).kind in (SlotKind.BATCH, SlotKind.SEAL):
            return True
    return False
