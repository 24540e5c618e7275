"""Cutoffs: where the streams of a device end when it is revoked, by incarnation.

What the Core has taken in counts by its acks. Entries on the relay after that count as far as they follow each other
without a gap and are signed by the device: places that a relay merely lists move no end.

Entries that count and were not taken in yet, the revoking device takes into its own outbox, under their own names. So the
revocation names nothing that is still to be read from the relay, where an ex-device in league with it could put other
entries.
"""

from collections.abc import Callable, Sequence

from crystal_crypto.entry import Entry, parse
from crystal_crypto.errors import CryptoError
from crystal_mirror.devicelog.log import MemberInfo
from crystal_mirror.entries.offers import open_offer, stands_at
from crystal_mirror.membership.member import Member
from crystal_mirror.requests import Flow, GetMany, List, Listing
from crystal_mirror.types import ZERO_HASH, Origin

NEW_STREAMS_MAX = 256
"""Incarnations without any entry taken in that are looked at, one request for each. A thief of a device's token can make
any number and must not delay its revocation. What is not looked at is held."""
LIST_PAGE = 1000
FETCH_AT_ONCE = 16


def acked_ends(member: Member, device: bytes) -> dict[bytes, int]:
    """The last sequence of each incarnation of a device that the Core has taken in, as far as is known here."""
    return {
        incarnation: last
        for owner, incarnation, last in member.replica.acks()
        if owner == device and last >= 0
    }


def stream_ends(
    member: Member, device: bytes, take: Callable[[Sequence[Entry]], None] | None = None
) -> Flow[dict[bytes, int]]:
    """The last sequence that counts of each incarnation of a device, without incarnations of which nothing counts.

    ``take`` is called with the entries that count and that the Core has not taken in, some at a time, in order.
    """
    info = member.log.member(device)
    ends = acked_ends(member, device)
    if info is None or info.revoked is not None:
        return ends
    places = yield from listed_places(member, device)
    behind: dict[bytes, list[int]] = {}
    for place in places:
        if place.sequence > ends.get(place.incarnation, -1):
            behind.setdefault(place.incarnation, []).append(place.sequence)
    new = sorted(behind.keys() - ends.keys())[:NEW_STREAMS_MAX]
    for incarnation in (*sorted(behind.keys() & ends.keys()), *new):
        last = yield from _verified_end(
            member, info, incarnation, ends.get(incarnation, -1), behind[incarnation], take
        )
        if last >= 0:
            ends[incarnation] = last
    return ends


def listed_places(member: Member, device: bytes) -> Flow[list[Origin]]:
    """The places of a device's streams that the relay lists, in order."""
    prefix = f"{member.keys.conversations_prefix}{device.hex()}."
    places: list[Origin] = []
    after = ""
    while True:
        page: Listing = yield List(prefix, after, LIST_PAGE)
        keys = page.after(after)
        for key in keys:
            place = member.keys.parse_stream(key)
            if place is not None and place[0] == device:
                places.append(Origin(*place))
        if not page.more or not keys:
            return places
        after = keys[-1]


def _verified_end(
    member: Member,
    info: MemberInfo,
    incarnation: bytes,
    last: int,
    behind: list[int],
    take: Callable[[Sequence[Entry]], None] | None,
) -> Flow[int]:
    """The last sequence up to which the stream goes on after ``last``, entry by entry."""
    previous: bytes | None = ZERO_HASH if last < 0 else None
    for start in range(0, len(behind), FETCH_AT_ONCE):
        some = behind[start : start + FETCH_AT_ONCE]
        found = yield GetMany(tuple(member.keys.conversation(info.device, incarnation, n) for n in some))
        good: list[Entry] = []
        for sequence, data in zip(some, found, strict=True):
            # §9.8-3
            entry = _signed(member, info, incarnation, sequence, data) if sequence == last + 1 else None
            if entry is None or (previous is not None and entry.header.previous != previous):  # §9.8-3
                break
            last, previous = sequence, entry.hash
            good.append(entry)
        if take is not None:
            take(good)
        if len(good) < len(some):
            break
    return last


def take_over(member: Member, entries: Sequence[Entry]) -> int:
    """Takes what verified entries carry into this device's outbox, unless it is done or there already. Returns how many.

    What cannot be opened here stays where it is, and will be held.
    """
    taken = 0
    with member.journal.transaction() as transaction:
        known = {name.origin for name in transaction.names()}
        for entry in entries:
            key = member.key_for(entry.header.generation)
            try:
                offer = open_offer(entry, key) if key is not None else None
            except CryptoError:
                continue
            # §9.8-3
            if offer is not None and offer.origin not in known and not member.replica.done(offer.origin):
                known.add(offer.origin)
                member.seal_row(transaction, offer.data, offer.origin)
                taken += 1
    return taken


def _signed(
    member: Member, info: MemberInfo, incarnation: bytes, sequence: int, data: bytes | None
) -> Entry | None:
    if data is None:
        return None
    try:
        entry = parse(data)
        entry.verify(info.signing)
    except CryptoError:
        return None
    stands = stands_at(
        entry, vault=member.vault, device=info.device, incarnation=incarnation, sequence=sequence
    )
    return entry if stands else None
