"""What a device keeps of a planned change of the Core, and what its cursor says of it.

All of it is in the journal, so that the next process finds it after a crash. Time limits are by this device's own clock; a
clock of 0 means none, and ends nothing.
"""

import msgspec

from crystal_crypto import labels
from crystal_mirror.membership.authority import Authority
from crystal_mirror.membership.cursors import (
    META_ASKS,
    META_DRAINED,
    META_OFFERS,
    META_WARRANT,
    Cursor,
    seen_cursors,
)
from crystal_mirror.membership.member import Member
from crystal_mirror.replication.claim import CLAIM_BYTES, META_NEXT_CLAIM

META_ASKING = "handover.asking"
META_HOLDING = "handover.holding"
META_OFFER = "handover.offer"
META_SPENT = "handover.spent"
COURTESY_MS = 60_000
"""How long the Core holds for one claim, by its own clock."""
LEASE_MS = 30_000
"""An ask or an offer that no process pursues for this long is withdrawn by the device's next round."""


class LeadRequest(msgspec.Struct, frozen=True, array_like=True):
    """This device asks for the lead of ``epoch``. ``at``: when somebody last waited for it here; ``offered``: the Core
    offered it."""

    claim: bytes
    epoch: int
    at: int
    offered: bool


class LeadHold(msgspec.Struct, frozen=True, array_like=True):
    """This Core has drained for a device's claim, and has made that many rounds since."""

    device: bytes
    claim: bytes
    since: int
    rounds: int


class LeadOffer(msgspec.Struct, frozen=True, array_like=True):
    """This Core offers the device the lead. ``at``: when somebody last waited for it here; ``ready``: the relay lets the
    device write as a Core, so that the lead may be signed once it asks."""

    device: bytes
    at: int
    ready: bool


Spent = tuple[bytes, bytes]
"""A device and a claim of it for which this Core has held before."""

_encoder = msgspec.msgpack.Encoder()
_asking: msgspec.msgpack.Decoder[LeadRequest] = msgspec.msgpack.Decoder(LeadRequest)
_holding: msgspec.msgpack.Decoder[LeadHold] = msgspec.msgpack.Decoder(LeadHold)
_offer: msgspec.msgpack.Decoder[LeadOffer] = msgspec.msgpack.Decoder(LeadOffer)
_spent: msgspec.msgpack.Decoder[list[Spent]] = msgspec.msgpack.Decoder(list[Spent])


def asking_of(member: Member) -> LeadRequest | None:
    kept = member.journal.meta_get(META_ASKING)
    return _asking.decode(kept) if kept else None


def holding_of(member: Member) -> LeadHold | None:
    kept = member.journal.meta_get(META_HOLDING)
    return _holding.decode(kept) if kept else None


def offer_of(member: Member) -> LeadOffer | None:
    kept = member.journal.meta_get(META_OFFER)
    return _offer.decode(kept) if kept else None


def spent_by(member: Member) -> list[Spent]:
    """What this Core does not hold for again."""
    kept = member.journal.meta_get(META_SPENT)
    return _spent.decode(kept) if kept else []


def begin_asking(member: Member, root: Authority | None, now_ms: int, *, offered: bool) -> None:
    """Draws a claim for the next epoch and asks with it. ``root`` signs the warrant."""
    assert member.log.lead is not None, "there is a Core"
    asking = LeadRequest(member.random(CLAIM_BYTES), member.log.lead.epoch + 1, now_ms, offered)
    text = warranted(member, member.device_id, asking.claim, asking.epoch)
    with member.journal.transaction() as transaction:
        transaction.meta_set(META_ASKING, _encoder.encode(asking))
        transaction.meta_set(META_ASKS, asking.claim)  # §17.1-1
        transaction.meta_set(META_WARRANT, root.signer.sign(text) if root is not None else None)
        transaction.meta_set(META_NEXT_CLAIM, asking.claim)


def renew_asking(member: Member, now_ms: int) -> None:
    """Records that somebody still waits for the ask."""
    asking = asking_of(member)
    if asking is not None and not _fresh(asking.at, now_ms, LEASE_MS // 6):
        _set(member, META_ASKING, _encoder.encode(msgspec.structs.replace(asking, at=now_ms)))


def end_asking(member: Member) -> None:
    """Ends the ask. The claim stays: if a lead with it turns up in the log, it is this device's."""
    with member.journal.transaction() as transaction:
        for name in (META_ASKING, META_ASKS, META_WARRANT):
            transaction.meta_set(name, None)


def begin_holding(member: Member, device: bytes, claim: bytes, now_ms: int) -> None:
    with member.journal.transaction() as transaction:
        transaction.meta_set(META_HOLDING, _encoder.encode(LeadHold(device, claim, now_ms, 0)))
        transaction.meta_set(META_DRAINED, claim)


def hold_on(member: Member, holding: LeadHold) -> None:
    """Counts one more round of holding."""
    _set(member, META_HOLDING, _encoder.encode(msgspec.structs.replace(holding, rounds=holding.rounds + 1)))


def end_holding(member: Member, spent: list[Spent]) -> None:
    with member.journal.transaction() as transaction:
        transaction.meta_set(META_HOLDING, None)
        transaction.meta_set(META_DRAINED, None)
        transaction.meta_set(META_SPENT, _encoder.encode(spent))


def set_offer(member: Member, offer: LeadOffer | None) -> None:
    with member.journal.transaction() as transaction:
        transaction.meta_set(META_OFFER, _encoder.encode(offer) if offer else None)
        transaction.meta_set(META_OFFERS, offer.device if offer else None)


def tidy(member: Member, now_ms: int) -> None:
    """Ends what the log, or time, has put an end to: an ask that was granted, overtaken or abandoned; such an offer; and
    everything that a device told as Core, when it is not the Core any more. Every round does so."""
    asking, lead, offer = asking_of(member), member.log.lead, offer_of(member)
    if asking is not None and lead is not None:
        arrived = member.is_core and member.replica.position().epoch == lead.epoch
        overtaken = not member.is_core and lead.epoch >= asking.epoch
        # §17.1-3
        if arrived or overtaken or (not asking.offered and not _fresh(asking.at, now_ms, LEASE_MS)):
            end_asking(member)
    if offer is not None and not (member.is_core and _fresh(offer.at, now_ms, LEASE_MS)):  # §17.2-4
        set_offer(member, None)
    if not member.is_core and (holding_of(member) is not None or spent_by(member)):
        end_holding(member, [])


def due_in_ms(member: Member, now_ms: int) -> int | None:
    """Milliseconds until this device has to make a round for a handover at the latest; None if it need not. No network."""
    asking, holding, offer = asking_of(member), holding_of(member), offer_of(member)
    ends = [
        *([asking.at + LEASE_MS] if asking is not None and not asking.offered else []),
        *([holding.since + COURTESY_MS] if holding is not None else []),
        *([offer.at + LEASE_MS] if offer is not None else []),
    ]
    return max(0, min(ends) - now_ms) if ends else None


def warranted(member: Member, device: bytes, claim: bytes, epoch: int) -> bytes:
    """What the root signs for a device that asks: good for this claim and this epoch only."""
    return labels.HANDOVER + member.vault + device + claim + epoch.to_bytes(8, "big")  # §17.1-4


def told_by(member: Member, device: bytes) -> Cursor | None:
    """What the device last told of itself, as far as this one has read."""
    return next((cursor for cursor in seen_cursors(member) if cursor.device == device), None)


def _fresh(at: int, now_ms: int, span_ms: int) -> bool:
    return now_ms == 0 or 0 <= now_ms - at < span_ms


def _set(member: Member, name: str, value: bytes | None) -> None:
    with member.journal.transaction() as transaction:
        transaction.meta_set(name, value)
