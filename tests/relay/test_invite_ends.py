"""How invites end, by the relay's clock, and what is said afterwards: over real HTTP."""

import asyncio
import secrets
import time

import pytest

from crystal_relay.errors import (
    InviteClosed,
    InviteExpired,
    InviteUsed,
    NotFound,
    Unauthorized,
)
from crystal_relay.invites import (
    CloseReason,
    InviteState,
    MailboxSlot,
    access_hash,
    mailbox_prefix,
)
from crystal_relay.limits import (
    INVITE_KEPT_SECONDS,
    INVITE_SECONDS,
)
from tests.support.invite_world import WAKE_SECONDS_MAX, World, refused


async def test_after_ten_minutes_it_is_over_although_no_sweeper_ran(world: World) -> None:
    invitation = await world.invite()
    await world.store.put_new(invitation.key(MailboxSlot.OFFER), b"offer")
    prefix = mailbox_prefix(invitation.vault, invitation.mailbox)
    async with world.newcomer(invitation) as newcomer:
        world.clock.now += INVITE_SECONDS - 1
        assert await newcomer.get("offer") == b"offer"
        assert (await newcomer.state()).expires_in == 1
        began = time.monotonic()
        token = await newcomer.wait(token=None, timeout=0)
        assert await newcomer.wait(token=token, timeout=60) == token  # no longer than the invite lives
        assert time.monotonic() - began < WAKE_SECONDS_MAX
        world.clock.now += 181
        await refused(
            [
                newcomer.get("offer"),
                newcomer.slots(),
                newcomer.put_new("join", b"late"),
                newcomer.wait(token=token, timeout=60),
                world.store.put_new(invitation.key(MailboxSlot.REVEAL), b"late"),
                world.store.get(invitation.key(MailboxSlot.OFFER)),
                world.store.wait(prefix, token=None, timeout=60),
                world.store.create_invite(invitation.mailbox, access_hash(invitation.access)),
            ],
            InviteExpired,
        )
        with pytest.raises(InviteExpired, match="3 minutes ago") as caught:
            await newcomer.get("offer")
        assert caught.value.seconds_ago == 180
        for info in (await newcomer.state(), await world.store.invite_state(invitation.mailbox)):
            assert (info.state, info.expires_in, info.expired_ago) == (InviteState.EXPIRED, 0, 180)
        assert await world.kept(prefix) == [invitation.key(MailboxSlot.OFFER)]


async def test_its_slots_go_when_it_expires_and_what_it_was_is_told_for_a_day(world: World) -> None:
    invitation = await world.invite()
    await world.store.put_new(invitation.key(MailboxSlot.OFFER), b"offer")
    await world.store.put_new(f"{world.lead.prefix}devlog/0", b"stays")
    world.clock.now += INVITE_SECONDS - 1
    await world.sweep()
    assert len(await world.kept(f"{world.lead.prefix}invite/")) == 1
    world.clock.now += 2
    await world.sweep()
    assert await world.kept(world.lead.prefix) == [f"{world.lead.prefix}devlog/0"]
    world.clock.now += INVITE_KEPT_SECONDS - 10
    # What was on its way for long is not forgotten.
    await world.relay.store.put_new(invitation.key(MailboxSlot.REVEAL), b"late")
    await world.sweep()
    assert (await world.store.invite_state(invitation.mailbox)).expired_ago == INVITE_KEPT_SECONDS - 9
    world.clock.now += 10
    await world.sweep()
    await refused([world.store.invite_state(invitation.mailbox)], NotFound)
    async with world.newcomer(invitation) as newcomer:
        await refused([newcomer.state()], Unauthorized)
    assert await world.kept(world.lead.prefix) == [f"{world.lead.prefix}devlog/0"]
    assert await world.kept(f"r/vault/{world.lead.vault}/invite/") == []
    assert await world.kept("r/expiry/") == []


async def test_after_it_was_closed_nobody_uses_it_and_the_first_reason_stays(world: World) -> None:
    for reason, error in (
        (CloseReason.USED, InviteUsed),
        (CloseReason.WITHDRAWN, InviteClosed),
        (CloseReason.BURNT, InviteClosed),
    ):
        invitation = await world.invite()
        await world.store.put_new(invitation.key(MailboxSlot.OFFER), b"offer")
        async with world.newcomer(invitation) as newcomer:
            token = await newcomer.wait(token=None, timeout=0)
            asleep = asyncio.create_task(newcomer.wait(token=token, timeout=60))
            await asyncio.sleep(0.05)
            await world.store.close_invite(invitation.mailbox, reason)
            await asyncio.wait_for(asleep, WAKE_SECONDS_MAX)  # closing wakes who waits
            assert await world.kept(f"{world.lead.prefix}invite/") == []
            world.clock.now += 5
            for repeated in CloseReason:
                info = await world.store.close_invite(invitation.mailbox, repeated)
                assert (info.state, info.expired_ago) == (InviteState(reason), 5)
            await refused(
                [
                    newcomer.put_new("join", b""),
                    newcomer.get("offer"),
                    world.store.put_new(invitation.key(MailboxSlot.END), b""),
                    world.store.create_invite(invitation.mailbox, access_hash(invitation.access)),
                ],
                error,
            )
            assert (await newcomer.state()).state is InviteState(reason)
    await refused([world.store.close_invite(secrets.token_bytes(16), "used")], NotFound)
