"""What the relay need not keep of the commands: the Core has it deleted, by its own clock, at most once a day.

    entries of streams   30 days after the Core first saw them, 60 at most
    claims               90 days after it did, and only while no entry that was asked to be deleted is still listed

A claim must outlive its request's entry: a copy of the target that finds the request and no claim runs it. A request whose
own entry is gone does not run any more. Asking is idempotent, and recorded only when it was answered. A wrong clock changes
the times but not the order of the two.
"""

import msgspec

from crystal_crypto.errors import UNDECODABLE
from crystal_mirror.commands.entries import CommandPlace, claim_key, parse_place
from crystal_mirror.membership.member import Member
from crystal_mirror.requests import Condemn, Flow, List, Listing

LOOK_MS = 24 * 3600 * 1000
ENTRIES_MS = 30 * LOOK_MS
CLAIMS_MS = 90 * LOOK_MS
CLAIMS_KEPT_MAX = 20_000
CONDEMNED_AT_ONCE = 500
LIST_PAGE = 1000
META = "commands.expiring"
"""In the journal."""


class _Seen(msgspec.Struct, array_like=True):
    """The last entry of a stream up to which everything was seen, and when; and the last one whose deletion was asked for."""

    through: int
    at: int
    asked: int = -1


class _State(msgspec.Struct, array_like=True):
    """Streams and claims by their keys, less the prefix."""

    looked_at: int = 0
    streams: dict[str, _Seen] = {}
    claims: dict[str, int] = {}


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_State)


def expire(member: Member, now_ms: int) -> Flow[bool]:
    """Asks for deletions, if a day has passed since the last time. For a Core. Returns whether it did. Raises StoreFailure."""
    state = _read(member)
    if not member.is_core or now_ms == 0 or abs(now_ms - state.looked_at) < LOOK_MS:
        return False
    lowest, highest, claims = yield from _listed(member)
    state.streams = {name: state.streams[name] for name in state.streams.keys() & highest.keys()}
    lingering = False
    for name, through in sorted(highest.items()):
        seen = state.streams.setdefault(name, _Seen(through, now_ms))
        seen.at = min(seen.at, now_ms)
        lingering |= lowest[name] <= seen.asked
        due = now_ms - seen.at >= ENTRIES_MS  # §16.6-1
        if due or lowest[name] <= seen.asked:
            asked = seen.through if due else seen.asked
            device, incarnation = (bytes.fromhex(part) for part in name.split("."))
            prefix = member.keys.command_prefix(device, incarnation)
            yield Condemn(prefix=prefix, through=member.keys.command(device, incarnation, asked))
            seen.asked = asked
            if due:
                seen.through, seen.at = through, now_ms
            _write(member, state)
    kept = {key: min(state.claims.get(key, now_ms), now_ms) for key in claims[:CLAIMS_KEPT_MAX]}
    # §16.6-1
    due_claims = [key for key, since in kept.items() if now_ms - since >= CLAIMS_MS and not lingering]
    state.claims = kept
    for start in range(0, len(due_claims), CONDEMNED_AT_ONCE):
        yield Condemn(keys=tuple(due_claims[start : start + CONDEMNED_AT_ONCE]))
    state.looked_at = now_ms
    _write(member, state)
    return True


def _listed(member: Member) -> Flow[tuple[dict[str, int], dict[str, int], list[str]]]:
    """The first and the last sequence of each stream that is listed, and the keys of the claims."""
    prefix = member.keys.commands_prefix
    lowest: dict[str, int] = {}
    highest: dict[str, int] = {}
    claims: list[str] = []
    after = ""
    while True:
        page: Listing = yield List(prefix, after, LIST_PAGE)
        keys = page.after(after)
        for key in keys:
            place = parse_place(member, key)
            if place is None:
                continue
            if place.claim:
                claims.append(claim_key(member, place.device, place.claim))
                continue
            name = _name(place)
            lowest.setdefault(name, place.sequence)
            highest[name] = place.sequence
        if not page.more or not keys:
            return lowest, highest, claims
        after = keys[-1]


def _name(place: CommandPlace) -> str:
    return f"{place.device.hex()}.{place.incarnation.hex()}"


def _read(member: Member) -> _State:
    kept = member.journal.meta_get(META)
    try:
        return _decoder.decode(kept) if kept else _State()
    except UNDECODABLE:  # written by another version: deletions only wait longer
        return _State()


def _write(member: Member, state: _State) -> None:
    with member.journal.transaction() as transaction:
        transaction.meta_set(META, _encoder.encode(state))
