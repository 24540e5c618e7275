"""Asking the Core for the lead: the steps of the device that is to become the Core. ``handover/core.py`` draws both sides."""

from enum import Enum

from crystal_crypto.hierarchy import Root
from crystal_mirror.devicelog.log import ROOT_SENDER
from crystal_mirror.devicelog.sync import read_log
from crystal_mirror.errors import Superseded, Unready
from crystal_mirror.handover.terms import asking_of, begin_asking, end_asking, renew_asking, tidy, told_by
from crystal_mirror.membership.cursors import About, put_cursor, read_cursors
from crystal_mirror.membership.member import Member
from crystal_mirror.replication.claim import ClaimReport, adopt_claim, claim, claimant, finish_claim
from crystal_mirror.requests import Flow


class HandoverStage(Enum):
    """How far a device is on its way to the lead."""

    READER = "reader"
    ASKED = "asked"
    DRAINED = "drained"
    CLAIMED = "claimed"
    SEALED = "sealed"
    LEADING = "leading"


def stage_of(member: Member) -> HandoverStage:
    """How far this device is, as far as it has read. No network."""
    asking, lead = asking_of(member), member.log.lead
    if member.is_core and lead is not None:
        if member.replica.position().epoch < lead.epoch:
            return HandoverStage.CLAIMED
        return HandoverStage.LEADING if asking is None else HandoverStage.SEALED
    if asking is None or lead is None:
        return HandoverStage.READER
    core = told_by(member, lead.device)
    return (
        HandoverStage.DRAINED
        if core is not None and core.drained_for == asking.claim
        else HandoverStage.ASKED
    )


def ask(member: Member, root: Root | None, about: About) -> Flow[None]:
    """Asks the Core for the lead, in this device's cursor. ``root``: the root in force, if it is at hand.

    Continues an ask for which the Core already holds; otherwise draws a new claim, since a claim is held for once.

    Raises:
        Unready: the vault has no Core to ask, or this device may not lead.
        KeysWithheld, StoreFailure.
    """
    yield from read_log(member.log, member.journal, member.keys, member.notices)
    lead = member.log.lead
    if lead is None or lead.is_freeze or member.is_core:
        raise Unready("there is no other Core to ask")
    by = claimant(member, root)
    if stage_of(member) is not HandoverStage.DRAINED:
        begin_asking(member, by if by.sender == ROOT_SENDER else None, about.now_ms, offered=False)
    yield from put_cursor(member, about)


def follow_up(member: Member, about: About) -> Flow[HandoverStage]:
    """Reads what became of the ask, and renews it. Raises Revoked, StoreFailure."""
    yield from read_log(member.log, member.journal, member.keys, member.notices)
    member.check_active()
    adopt_claim(member)
    yield from read_cursors(member)
    renew_asking(member, about.now_ms)
    tidy(member, about.now_ms)
    return stage_of(member)


def take(member: Member, root: Root | None, about: About, *, accept_loss: bool = False) -> Flow[ClaimReport]:
    """Takes the lead that was asked for: writes it to the log, applies everything, seals the epoch before.

    Raises:
        Superseded: another device was first.
        BehindTheFloor: another device has applied more than the relay shows (not with ``accept_loss``).
        Unready: this device may not, or did not ask.
    """
    yield from read_log(member.log, member.journal, member.keys, member.notices)
    adopt_claim(member)
    asking, lead = asking_of(member), member.log.lead
    if member.is_core:
        yield from finish_claim(member)
        return ClaimReport(member.replica.position().epoch)
    if asking is None or lead is None:
        raise Unready("this device has not asked for the lead")
    if lead.epoch + 1 != asking.epoch:  # §17-1
        raise Superseded("another device took the lead first")
    # §17.1-2
    return (yield from claim(member, root, force=accept_loss, claimed=asking.claim, now_ms=about.now_ms))


def withdraw(member: Member, about: About) -> Flow[None]:
    """Withdraws the ask, and tells so in the cursor. If a lead by this claim is in the log all the same, it is taken up
    when it is read."""
    end_asking(member)
    yield from put_cursor(member, about)
