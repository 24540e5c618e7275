"""``crystal demote``: the Core hands the lead to a machine of its choice, or to none.

::

    a round --> offer in the cursor --the machine asks--> the relay lets it write --> drain, "lead" signed for it --> GIVEN
                                    --no answer, or killed--> called off, by this or by the next round; nothing has changed
    GIVEN --its seal--> it is the Core
    a round --> freeze: "lead" signed for nobody
"""

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass

from crystal_crypto.errors import CrystalError
from crystal_mirror.errors import NotAllowed
from crystal_mirror.handover.core import call_off, freeze, offer
from crystal_mirror.handover.terms import told_by
from crystal_mirror.membership.cursors import read_cursors
from crystal_mirror.membership.member import Member
from crystal_mirror.membership.status import device_name
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import NoAnswer
from crystal_node.base.wording import counted, one_line
from crystal_node.device.device import Device
from crystal_node.device.runner import store_failure
from crystal_node.sync.moving.promotion import POLL_SECONDS, WITHDRAW_SECONDS_MAX, Progress
from crystal_node.sync.syncer import Syncer, syncing
from crystal_relay.errors import RelayError

_PURPOSE = "crystal demote"


@dataclass(frozen=True, slots=True)
class Demoted:
    """The outcome. ``begun``: the new Core has sealed the former epoch."""

    epoch: int
    begun: bool
    seconds: float


async def hand_over(device: Device, target: bytes, *, wait_seconds: float, progress: Progress) -> Demoted:
    """Hands the lead to that device.

    Raises:
        NotAllowed: this machine is not the Core.
        NotAMember: the vault has no such other device.
        NoAnswer: the device did not answer in time; nothing has changed.
        HomeBusy, StoreFailure.
    """
    started = time.monotonic()
    member = device.member
    async with syncing(device, _PURPOSE, progress) as syncer, syncer.ahead():
        await _round_as_core(member, syncer)
        name = one_line(device_name(member, target) or target.hex()[:8], 40)
        try:
            await syncer.run(offer(member, target, syncer.about(), ready=False))
            progress(f"offered {name} the lead")
            await _given(device, target, syncer, wait_seconds, name)
        except BaseException:
            await _call_off(member, syncer)
            raise
        progress(f"everything was sent out; {name} has the lead in the device log")
        begun = await _begun(member, syncer, max(POLL_SECONDS, started + wait_seconds - time.monotonic()))
    assert member.log.lead is not None, "another device leads"
    return Demoted(member.log.lead.epoch, begun, time.monotonic() - started)


async def freeze_vault(device: Device) -> int:
    """Leaves the vault without a Core. Returns the frozen epoch. Raises NotAllowed, Superseded, HomeBusy, StoreFailure."""
    member = device.member
    async with syncing(device, _PURPOSE) as syncer, syncer.ahead():
        await _round_as_core(member, syncer)
        epoch = await syncer.run(freeze(member, now_ms()))
        await syncer.brief_round()
        return epoch


async def _round_as_core(member: Member, syncer: Syncer) -> None:
    await syncer.brief_round()
    if not member.is_core:
        raise NotAllowed(
            "this machine is not the Core",
            hint="Run it there: `crystal role` names the Core. Or `crystal promote` here.",
        )


async def _given(device: Device, target: bytes, syncer: Syncer, wait_seconds: float, name: str) -> None:
    member = device.member
    deadline = time.monotonic() + wait_seconds
    token: str | None = None
    while True:
        await syncer.run(read_cursors(member))
        told = told_by(member, target)
        if told is not None and told.asks:
            await _raise(device, target)
            await syncer.run(offer(member, target, syncer.about(), ready=True))
            await syncer.brief_round(heed_cursors=True)
        lead = member.log.lead
        if lead is not None and not member.is_core:
            if lead.device != target:
                raise NotAllowed("another device took the lead meanwhile", hint="`crystal role` names it.")
            return
        left = deadline - time.monotonic()
        if left <= 0:
            raise NoAnswer(
                f"{name} did not answer within {counted(round(wait_seconds), 'second')}: is it asleep, or is no "
                "agent running there? Nothing has changed",
                hint="Wake it, or run `crystal sync` on it while this waits (--wait SECONDS).",
            )
        token = await syncer.wait(member.keys.cursor(target), token, min(left, POLL_SECONDS))
        await syncer.run(offer(member, target, syncer.about(), ready=False))


async def _begun(member: Member, syncer: Syncer, wait_seconds: float) -> bool:
    """Waits a short time for the seal by which the new Core begins its epoch."""
    deadline = time.monotonic() + min(wait_seconds, 2 * POLL_SECONDS)
    token: str | None = None
    lead = member.log.lead
    assert lead is not None, "another device leads"
    while True:
        await syncer.brief_round()
        if member.replica.position().epoch >= lead.epoch:
            return True
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        token = await syncer.wait(member.keys.mirror_prefix, token, min(left, POLL_SECONDS))


async def _raise(device: Device, target: bytes) -> None:
    """Has the relay let the device write as a Core, which it needs before it can begin."""
    async with device.at_relay() as relay:
        try:
            await relay.raise_token(target)
        except RelayError as error:
            raise store_failure(error) from error


async def _call_off(member: Member, syncer: Syncer) -> None:
    with suppress(TimeoutError, CrystalError, RelayError):
        async with asyncio.timeout(WITHDRAW_SECONDS_MAX):
            await syncer.run(call_off(member, syncer.about()), wait_seconds=WITHDRAW_SECONDS_MAX)
