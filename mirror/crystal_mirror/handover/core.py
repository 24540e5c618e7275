"""A planned change of the Core, on the Core's side: a device asks for the lead, the Core publishes all it has, and lets go.

All of it is courtesy: it spares both sides a branch to go over to. What counts is the device log and the seal, as for a
claim by force (``replication/claim.py``): the order of the log decides which device is the Core, and the successor's seal
where the epoch before ends. The seal is always the successor's. So any step may be lost, repeated, or come too late.

Asking, on any device (``handover/successor.py``)::

    READER --it asks, its claim is kept and told in its cursor--> ASKED --the Core's cursor says "drained for it"--> DRAINED
    READER --the Core's cursor offers it the lead---------------> ASKED
    ASKED, DRAINED --"lead" in the log, by itself or by the Core--> CLAIMED --its seal--> SEALED --a round--> LEADING
                   --withdrawn, or no process pursues it, or the offer is gone, or another leads--> READER

Giving, on the Core::

    CORE --an ask it may heed--> drains --"drained for it" in its cursor--> HOLDING --the log names the asker--> NODE
    HOLDING --withdrawn, the right is gone, or the courtesy time is over--> CORE: that claim is never held for again
    CORE --it offers the lead--> OFFERING --the device asks--> drains, signs its lead--> NODE
    OFFERING --called off, or no process pursues it--> CORE. While it offers, it holds for no other device

HOLDING accepts and stores what is recorded here, and publishes nothing. It ends by this device's own clock at the latest; a
device without a clock never holds. An asker must be able to take the lead by itself: by its grant, by the root's signature
under its claim (the *warrant*), or by the Core's offer. The Core drains for no other device, whatever its cursor says.
"""

from collections.abc import Callable

from crystal_crypto.errors import CryptoError
from crystal_crypto.identity import VerifyKey
from crystal_mirror.devicelog.log import NOBODY, DeviceLog
from crystal_mirror.devicelog.records import Details, LeadRecord
from crystal_mirror.devicelog.sync import append
from crystal_mirror.errors import NotAllowed, NotAMember, Superseded
from crystal_mirror.handover.terms import (
    COURTESY_MS,
    LeadOffer,
    asking_of,
    begin_asking,
    begin_holding,
    end_asking,
    end_holding,
    hold_on,
    holding_of,
    offer_of,
    set_offer,
    spent_by,
    tidy,
    told_by,
    warranted,
)
from crystal_mirror.membership.authority import Authority, seal_record
from crystal_mirror.membership.cursors import About, Cursor, put_cursor, read_cursors, seen_cursors
from crystal_mirror.membership.member import Member
from crystal_mirror.replication.claim import CLAIM_BYTES
from crystal_mirror.requests import Flow

HOLDING_ROUNDS_MAX = 10_000
"""Rounds after which it holds no longer, whatever its clock says: a stopped clock must not stop a vault."""


def offer(member: Member, device: bytes, about: About, *, ready: bool) -> Flow[None]:
    """Offers a device the lead. Repeat it while somebody waits; else the next round withdraws the offer. The lead is signed
    once the device asks for it and the offer is ``ready``.

    Raises:
        NotAllowed: this device is not the Core.
        NotAMember: the vault has no such other device.
    """
    if not member.is_core:
        raise NotAllowed("only the Core can give the lead away")
    if device == member.device_id or not member.log.is_active(device):
        raise NotAMember("the vault has no such other device")
    set_offer(member, LeadOffer(device, about.now_ms, ready))
    yield from put_cursor(member, about)


def call_off(member: Member, about: About) -> Flow[None]:
    """Withdraws the offer, and tells so in the cursor."""
    set_offer(member, None)
    yield from put_cursor(member, about)


def freeze(member: Member, now_ms: int) -> Flow[int]:
    """Freezes the vault: it has no Core until a device takes the lead. Returns the new epoch. Run it after a round.

    Raises:
        NotAllowed: this device is not the Core.
    """
    if not member.is_core:
        raise NotAllowed("only the Core can freeze its vault")
    yield from _give_lead(member, NOBODY, member.random(CLAIM_BYTES), now_ms)  # §17.2-5, §9.5-2
    tidy(member, now_ms)
    lead = member.log.lead
    if lead is None or not lead.is_freeze:
        raise Superseded("another device took the lead first")
    return lead.epoch


def holds(member: Member, now_ms: int) -> Flow[bool]:
    """Whether this Core publishes nothing in this round, because it has drained for a device that still asks.

    Reads the cursors while it holds: a request that was withdrawn, or whose maker may not lead any more, ends it at once.
    """
    holding = holding_of(member)
    if holding is None:
        return False
    yield from read_cursors(member)
    asker = told_by(member, holding.device)
    still = asker is not None and asker.asks == holding.claim and _may_ask(member, asker)
    if still and 0 <= now_ms - holding.since < COURTESY_MS and holding.rounds < HOLDING_ROUNDS_MAX:  # §17.2-3
        hold_on(member, holding)
        return True
    spent = [*(each for each in spent_by(member) if _stands(member, *each)), (holding.device, holding.claim)]
    end_holding(member, spent)
    return False


def heed(member: Member, about: About, drain: Callable[[], Flow[bool]]) -> Flow[None]:
    """Does what the cursors that were just read ask of this device: a Core drains for a device that may lead and holds, or
    signs the lead that it has offered; a Node asks for the lead that it is offered. ``drain`` collects and publishes
    everything; it returns False if it could not."""
    if not member.is_core:
        _answer(member, about.now_ms)
        return
    lead = member.log.lead
    assert lead is not None, "a Core leads"
    if holding_of(member) is not None or member.replica.position().epoch != lead.epoch:
        return
    offered, spent = offer_of(member), spent_by(member)
    asking = [cursor for cursor in seen_cursors(member) if cursor.asks and _may_ask(member, cursor)]
    if offered is not None:
        # §17.2-4
        asker = next((each for each in asking if each.device == offered.device and offered.ready), None)
    else:
        fresh = (each for each in asking if about.now_ms and (each.device, each.asks) not in spent)  # §17.2-3
        asker = next(fresh, None)
    if asker is None or not (yield from drain()) or not member.is_core:  # §17.2-1
        return
    if offered is not None:
        yield from _give_lead(member, asker.device, asker.asks, about.now_ms)
        tidy(member, about.now_ms)
        return
    begin_holding(member, asker.device, asker.asks, about.now_ms)


def is_called(member: Member) -> bool:
    """Whether the cursors that were last read ask anything of this device that it has not heeded. No network."""
    if not member.is_core:
        lead, asking = member.log.lead, asking_of(member)
        core = told_by(member, lead.device) if lead is not None else None
        offers = core is not None and core.offers == member.device_id
        return offers != (asking is not None and asking.offered)
    holding, spent = holding_of(member), spent_by(member)
    if holding is not None:
        return not _stands(member, holding.device, holding.claim)
    asking_too = (each for each in seen_cursors(member) if each.asks and _may_ask(member, each))
    return any((each.device, each.asks) not in spent for each in asking_too)


def look_for_calls(member: Member) -> Flow[bool]:
    """Reads the cursors that may ask something of this device, and returns whether one does. Cheaper than a round."""
    lead = member.log.lead
    yield from read_cursors(member, None if member.is_core or lead is None else lead.device)
    return is_called(member)


def _answer(member: Member, now_ms: int) -> None:
    """A Node takes up what the Core offers it, and withdraws when the offer is gone."""
    lead, asking = member.log.lead, asking_of(member)
    core = told_by(member, lead.device) if lead is not None else None
    offers = core is not None and core.offers == member.device_id
    if offers and asking is None:
        begin_asking(member, None, now_ms, offered=True)
    elif not offers and asking is not None and asking.offered:
        end_asking(member)


def _give_lead(member: Member, device: bytes, claimed: bytes, now_ms: int) -> Flow[None]:
    """Signs the next lead, as the Core at the log's head. Another ``lead`` that is there first stands."""
    before = member.log.lead
    assert before is not None, "a Core leads"

    def build(log: DeviceLog) -> bytes | None:
        gone = device != NOBODY and not log.is_active(device)
        if log.lead is None or log.lead.epoch != before.epoch or gone:
            return None
        return seal_record(
            log,
            LeadRecord(before.epoch + 1, device, claimed),
            by=Authority.of_device(member),
            key=member.generation_key,
            salt=member.salt(),
            details=Details("", "", now_ms, member.device_id),
        )

    yield from append(member.log, member.journal, member.keys, build)


def _may_ask(member: Member, cursor: Cursor) -> bool:
    """Whether the device could take the lead without being let: then draining for it is better."""
    log, info = member.log, member.log.member(cursor.device)
    if info is None or info.revoked is not None or cursor.device == member.device_id:  # §17.1-4
        return False
    offered = offer_of(member)
    if info.grant or (offered is not None and offered.device == cursor.device):
        return True
    if log.root is None or log.lead is None or not cursor.warrant:
        return False
    text = warranted(member, cursor.device, cursor.asks, log.lead.epoch + 1)
    try:
        VerifyKey.from_bytes(log.root.admin).verify(cursor.warrant, text)  # §17.1-4
    except CryptoError:
        return False
    return True


def _stands(member: Member, device: bytes, claimed: bytes) -> bool:
    told = told_by(member, device)
    return told is not None and told.asks == claimed
