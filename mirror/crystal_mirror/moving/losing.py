"""What would be lost if this device took the lead now: what another device has applied and the relay does not show any more.

A Core that is gone also takes with it what it had recorded and not sent. That comes when it is back, and is no loss by itself.
"""

from crystal_mirror.cursors import Cursor, seen_cursors
from crystal_mirror.member import Member
from crystal_mirror.requests import Flow, GetMany


def lost_by_claim(member: Member) -> Flow[list[Cursor]]:
    """The devices that say that they have applied more than this one has and the relay shows. By the cursors last read."""
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
