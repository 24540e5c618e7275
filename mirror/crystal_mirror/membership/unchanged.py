"""Whether anything was written at the relay since this device last found nothing there to do.

A complete round asks for a token before it reads anything. If it finds nothing to do it keeps the token, with where this device
stands. As long as the relay answers with that token, and this device still stands there, a round reads only what shows that the
relay still has what was verified: the head of the device log and the end of the last mirror slot.

The answer is only the relay's word. A relay that hides what is new can as well show free slots, so it gains nothing by it:
what it hides is noticed in full checks, as before, by what the other devices report. And an answer is believed for
``BELIEVED_MS`` only.
"""

import msgspec

from crystal_mirror.membership.cursors import terms_untold
from crystal_mirror.membership.member import Member
from crystal_mirror.requests import Flow, Poll, StoreFailure

META = "round.unchanged"
BELIEVED_MS = 3600 * 1000
"""By the device's own clock: a round that is later than this after the last complete one reads everything."""


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    token: str
    at_ms: int
    log_head: bytes
    epoch: int
    sequence: int
    core: bool
    cursors_heeded: bool
    """Whether that round also heeded the cursors that were written until then."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Kept)


def ask_unchanged(member: Member, now_ms: int) -> Flow[str]:
    """Asks the relay, and notes the answer in ``member.unchanged``. Returns the token to keep (``keep_unchanged``); "" if the
    relay could not tell, or this device has no clock (``now_ms`` 0)."""
    member.unchanged = False
    if not now_ms:
        return ""
    kept = _kept(member)
    known = kept.token if kept is not None else ""
    try:
        told: str = yield Poll(member.keys.root, known)
    except StoreFailure:
        return ""
    recent = kept is not None and 0 <= now_ms - kept.at_ms < BELIEVED_MS
    stands = kept is not None and kept == _now(member, kept) and _rests(member)
    member.unchanged = bool(told) and told == known and recent and stands  # §11.15-1
    return told


def keep_unchanged(member: Member, token: str, now_ms: int, *, cursors_heeded: bool) -> None:
    """Keeps the token of a complete round that found nothing to do."""
    kept = _kept(member)
    heeded = cursors_heeded or (kept is not None and kept.token == token and kept.cursors_heeded)
    fresh = _now(member, _Kept(token, now_ms, b"", 0, 0, False, heeded))
    if token and _rests(member) and fresh != kept:
        with member.journal.transaction() as transaction:
            transaction.meta_set(META, _encoder.encode(fresh))


def cursors_unchanged(member: Member) -> bool:
    """Whether no cursor was written since this device last heeded them. Belongs behind ``ask_unchanged``."""
    kept = _kept(member)
    return member.unchanged and kept is not None and kept.cursors_heeded


def _rests(member: Member) -> bool:
    """Whether this device has nothing to send and nothing to look into."""
    lead = member.log.lead
    return (
        not member.notices.current()
        and not member.journal.names()
        and not terms_untold(member)
        and not (lead is None or lead.is_freeze)
    )


def _now(member: Member, kept: _Kept) -> _Kept:
    """The same for where this device stands now."""
    position = member.replica.position()
    return msgspec.structs.replace(
        kept, log_head=member.log.head, epoch=position.epoch, sequence=position.sequence, core=member.is_core
    )


def _kept(member: Member) -> _Kept | None:
    data = member.journal.meta_get(META)
    return _decoder.decode(data) if data else None
