"""``crystal promote``: this machine becomes the Core, after the present one has sent out all it has; or at once, by force.

::

    the log --it is the Core---------------------> done
            --nobody leads, or --force--> a round --> would anything be lost? --no, or accepted--> claim --> a round --> done
            --another Core--> ask --> a round --it drained--> take the lead, seal --> a round --> done
                                              --no answer---> withdraw; nothing has changed
                                              --killed------> the next round here withdraws; the Core waits a minute at most
"""

import asyncio
import shlex
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from crystal_crypto.errors import CrystalError
from crystal_crypto.hierarchy import Root
from crystal_mirror.devicelog.sync import read_log
from crystal_mirror.errors import BehindTheFloor, Superseded, Unready
from crystal_mirror.handover.successor import HandoverStage, ask, follow_up, take, withdraw
from crystal_mirror.handover.terms import told_by
from crystal_mirror.membership.member import Member
from crystal_mirror.membership.status import device_name
from crystal_mirror.replication.claim import adopt_claim
from crystal_mirror.requests import Flow
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import NoAnswer
from crystal_node.base.wording import ago, counted, one_line
from crystal_node.device.device import Device
from crystal_node.device.runner import store_failure
from crystal_node.sync.moving.status import Loss, look_for_losses
from crystal_node.sync.syncer import Syncer, syncing
from crystal_relay.errors import RelayError

ANSWER_SECONDS = 30.0
"""Default time to wait for the Core."""
GRANT_SECONDS = 600.0
"""How long to wait for a person to grant it on another machine."""
POLL_SECONDS = 5.0
WITHDRAW_SECONDS_MAX = 5.0
QUIET_SECONDS = 1200.0
"""A Core is called quiet after this time: a watcher publishes its position every fifteen minutes."""

Progress = Callable[[str], None]


class PromotionKind(StrEnum):
    """How this machine became the Core."""

    ALREADY = "already"
    PLANNED = "planned"
    FORCED = "forced"
    UNFROZEN = "unfrozen"


@dataclass(frozen=True, slots=True)
class Promoted:
    """The outcome. ``seconds`` until this machine was the Core."""

    way: PromotionKind
    epoch: int
    seconds: float


class WouldLose(BehindTheFloor):
    """Another device has applied entries that this one can no longer get."""

    hint = (
        "Sync that device, or promote it instead: it has what is missing. To go on without it: --force --accept-loss; "
        "the device offers it again when it syncs."
    )


async def promote(
    device: Device,
    kit: Root | None,
    *,
    force: bool,
    accept_loss: bool,
    wait_seconds: float,
    grant_seconds: float = 0.0,
    progress: Progress,
) -> Promoted:
    """Makes this machine the Core. ``kit``: the root, for a machine that may not lead by itself.

    ``grant_seconds``: how long to wait for a missing grant.

    Raises:
        NoAnswer: the Core did not drain in time; nothing has changed.
        WouldLose: by force and without ``accept_loss``.
        Unready: this machine may not lead, and was not allowed to in time.
        Superseded, BehindTheFloor, HomeBusy, StoreFailure: as the claim.
    """
    started = time.monotonic()
    member = device.member
    if kit is not None:
        await _raise_self(device, kit)
    async with syncing(device, "crystal promote", progress) as syncer, syncer.ahead():
        await syncer.run(_read_log(member))
        lead = member.log.lead
        if member.is_core:
            way = PromotionKind.ALREADY
        elif force or lead is None or lead.is_freeze or lead.device == member.device_id:
            way = PromotionKind.UNFROZEN if lead is not None and lead.is_freeze else PromotionKind.FORCED
            await syncer.brief_round()
            losses = await syncer.run(look_for_losses(member))
            if losses and not accept_loss:
                raise WouldLose(loss_words(losses))
            await syncer.claim(kit, force=accept_loss)
        else:
            way = PromotionKind.PLANNED
            await _granted(device, syncer, kit or device.root, grant_seconds, progress)
            await _planned(device, syncer, kit or device.root, wait_seconds, progress)
        taken = time.monotonic() - started
        if way is not PromotionKind.ALREADY:
            await syncer.brief_round()
    assert member.log.lead is not None, "this device leads"
    return Promoted(way, member.log.lead.epoch, taken)


def loss_words(losses: tuple[Loss, ...]) -> str:
    """What a forced promotion would lose, in words."""
    named = ", ".join(
        f"{one_line(loss.name or '?', 40)} ({loss.device.hex()[:8]}), up to epoch {loss.epoch}, slot {loss.slot}"
        for loss in losses
    )
    return f"another device has applied entries that the relay does not show and this machine lacks: {named}"


async def _planned(
    device: Device, syncer: Syncer, root: Root | None, wait_seconds: float, progress: Progress
) -> None:
    member = device.member
    lead = member.log.lead
    assert lead is not None, "there is a Core to ask"
    name = one_line(device_name(member, lead.device) or lead.device.hex()[:8], 40)
    await syncer.run(ask(member, root, syncer.about()))
    try:
        progress(f"asked {name} for the lead{_quiet(device, lead.device)}")
        await syncer.brief_round()  # while it drains
        if not await _drained(device, syncer, wait_seconds):
            raise NoAnswer(
                f"{name} did not answer within {counted(round(wait_seconds), 'second')}: is it asleep, or is no "
                "agent running there? Nothing has changed",
                hint=f"Wake it, or run `crystal sync` on it while this waits (--wait SECONDS). If {name} is gone: "
                "`crystal promote --force`.",
            )
        progress(f"{name} has sent out everything it had, and waits; taking the lead")
        await syncer.run(take(member, root, syncer.about()))
    except BaseException:
        await _withdraw(device, syncer)
        raise


async def _granted(
    device: Device, syncer: Syncer, root: Root | None, seconds: float, progress: Progress
) -> None:
    """Waits until this machine may lead. Raises Unready, which names the machine that can allow it."""
    member = device.member
    info, lead = member.log.member(member.device_id), member.log.lead
    if root is not None or info is None or info.grant or lead is None:
        return
    core = one_line(device_name(member, lead.device) or lead.device.hex()[:8], 40)
    command = f"crystal devices grant {shlex.quote(one_line(device.name, 40))}"
    if seconds:
        progress(
            f"{core} can allow this machine to become the Core. Run there: {command}\n"
            f"Waiting for that, {counted(round(seconds / 60), 'minute')} at most; Ctrl-C ends it, and nothing changes"
        )
    deadline = time.monotonic() + seconds
    token: str | None = None
    while True:
        await syncer.run(_read_log(member))
        info, left = member.log.member(member.device_id), deadline - time.monotonic()
        if info is not None and info.grant:
            return
        if left <= 0:
            raise Unready(
                f"this machine may not become the Core yet; {core} can allow it",
                hint=f"On {core}: {command}. Or give the recovery kit here: `crystal promote --kit -`.",
            )
        token = await syncer.wait(member.keys.log_prefix, token, min(left, POLL_SECONDS))


async def _drained(device: Device, syncer: Syncer, wait_seconds: float) -> bool:
    """Waits until the Core has drained, or has signed the lead. Raises Superseded if another device took the lead."""
    member = device.member
    deadline = time.monotonic() + wait_seconds
    token: str | None = None
    lead = member.log.lead
    assert lead is not None, "there is a Core to ask"
    prefix = member.keys.cursor(lead.device)
    while True:
        stage = await syncer.run(follow_up(member, syncer.about()))
        if stage is HandoverStage.READER:
            raise Superseded("another device took the lead meanwhile")
        if stage is not HandoverStage.ASKED:
            return True
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        token = await syncer.wait(prefix, token, min(left, POLL_SECONDS))


async def _withdraw(device: Device, syncer: Syncer) -> None:
    """Withdraws the request, also on Ctrl-C. Where the relay is gone, the Core times out by itself."""
    with suppress(TimeoutError, CrystalError, RelayError):
        async with asyncio.timeout(WITHDRAW_SECONDS_MAX):
            await syncer.run(withdraw(device.member, syncer.about()), wait_seconds=WITHDRAW_SECONDS_MAX)


def _read_log(member: Member) -> Flow[None]:
    yield from read_log(member.log, member.journal, member.keys, member.notices)
    member.check_active()
    adopt_claim(member)


async def _raise_self(device: Device, root: Root) -> None:
    """Has the relay let this machine write as a Core."""
    async with device.at_relay() as relay:
        try:
            await relay.raise_token(device.member.device_id, recovery=root.relay_secret)
        except RelayError as error:
            raise store_failure(error) from error


def _quiet(device: Device, core: bytes) -> str:
    told = told_by(device.member, core)
    seconds = (now_ms() - told.told_at) / 1000 if told is not None and told.told_at else 0.0
    return f", which was last heard {ago(seconds)} ago" if seconds > QUIET_SECONDS else ""
