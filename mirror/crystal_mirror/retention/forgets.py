"""Forgets whose text may still be in reach, and since when this device knows of each, whichever device is the Core.

::

    applied, or a forgotten text came in the log --> pending, since now --all of it is gone--> covered
    another within three days ---------------------> the same one: one snapshot is made for all of them

Every device keeps this by its own clock, so that a new Core continues where the one before it stood. A device that looks
for the first time assumes that everything before it is forgotten now: it cannot know.
"""

import msgspec

from crystal_mirror.entries.control_state import Place, forgotten_at, newest_snapshot, published_floor
from crystal_mirror.membership.member import Member

HOUR_MS = 3600 * 1000
DAY_MS = 24 * HOUR_MS
FORGOTTEN_SNAPSHOT_MS = 3 * DAY_MS
"""Time after a forget at which a snapshot without the text is made for its sake alone."""
FORGOTTEN_MS = 7 * DAY_MS
"""Time after a forget at which its text is gone from everything that can be reached."""
META = "forgets"


class PendingForget(msgspec.Struct, frozen=True, array_like=True):
    """The forgets up to ``place`` that are not covered yet, and since when this device knows of one. ``assumed``: it is not
    known that there was one."""

    epoch: int
    sequence: int
    since: int
    assumed: bool = False

    @property
    def place(self) -> Place:
        return (self.epoch, self.sequence)


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    covered: tuple[int, int]
    pending: tuple[PendingForget, ...]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Kept)


def pending_forgets(member: Member) -> tuple[PendingForget, ...]:
    """As last noted, oldest first; at most three."""
    kept = _read(member)
    return kept.pending if kept else ()


def note_forgets(member: Member, now_ms: int) -> tuple[PendingForget, ...]:
    """Notes what was forgotten since the last call, and drops what the Core has covered. No network."""
    if now_ms == 0:
        return pending_forgets(member)
    kept = _read(member)
    at, position = forgotten_at(member.replica), member.replica.position()
    if kept is None:
        before = _before(position.epoch, position.sequence) if at is None else None
        after = _Kept((0, 0), (PendingForget(*before, now_ms, assumed=True),) if before else ())
    else:
        # A clock that was set back must not make a forget wait forever.
        pending = tuple(msgspec.structs.replace(each, since=min(each.since, now_ms)) for each in kept.pending)
        after = _Kept(kept.covered, pending)
        if not member.is_core:
            after = _without_covered(member, after)
    newest = max((each.place for each in after.pending), default=after.covered)
    if at is not None and at > max(newest, after.covered):  # §12.3-5
        after = _Kept(after.covered, _with(after.pending, at, now_ms))
    if after != kept:
        _write(member, after)
    return after.pending


def cover(member: Member, place: Place) -> None:
    """For the Core: nothing is left of what was forgotten up to that slot."""
    kept = _read(member)
    if kept is not None:
        covered = max(kept.covered, place)
        _write(member, _Kept(covered, tuple(each for each in kept.pending if each.place > covered)))


def _with(pending: tuple[PendingForget, ...], at: Place, now_ms: int) -> tuple[PendingForget, ...]:
    last = pending[-1] if pending else None
    if last is not None and now_ms - last.since < FORGOTTEN_SNAPSHOT_MS:  # §12.3-6
        return (*pending[:-1], PendingForget(*at, last.since))
    return (*pending, PendingForget(*at, now_ms))


def _without_covered(member: Member, kept: _Kept) -> _Kept:
    """A device that is not the Core sees only what the Core publishes; the log is what it deletes last."""
    newest = newest_snapshot(member.replica)
    if newest is None:
        return kept
    gone = min(published_floor(member.replica), newest.position[:2])
    covered = max((each.place for each in kept.pending if each.place < gone), default=kept.covered)
    return _Kept(max(covered, kept.covered), tuple(each for each in kept.pending if each.place >= gone))


def _before(epoch: int, sequence: int) -> Place | None:
    """The last slot before that position; None if there is none."""
    if sequence:
        return epoch, sequence - 1
    return (epoch, 0) if epoch > 1 else None


def _read(member: Member) -> _Kept | None:
    data = member.journal.meta_get(META)
    return _decoder.decode(data) if data else None


def _write(member: Member, kept: _Kept) -> None:
    with member.journal.transaction() as transaction:
        transaction.meta_set(META, _encoder.encode(kept))
