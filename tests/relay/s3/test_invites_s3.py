"""Invites at two relays over one bucket: neither knows more than the bucket, and a device may ask either."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from crystal_relay.client.http import HttpStore
from crystal_relay.client.invite import InviteStore, fetch_sealed_invite
from crystal_relay.errors import AlreadyExists, InviteExpired, InviteUsed, TooManyInvites, Unauthorized
from crystal_relay.invites import InviteState, MailboxSlot, access_hash
from crystal_relay.limits import INVITE_SECONDS, INVITES_OPEN_MAX
from crystal_relay.s3 import Conditions
from crystal_relay.tokens import recovery_hash
from tests.support.invite_world import SETTINGS, Invitation, World, invite_world
from tests.support.relay_server import served
from tests.support.s3_servers import S3Server
from tests.support.s3_stores import s3_store_on


@dataclass
class Pair:
    """A relay, and another one over the same bucket, by the same clock, with the inviting device's client of it."""

    world: World
    elsewhere: HttpStore
    other_url: str


@pytest_asyncio.fixture
async def pair(server: S3Server) -> AsyncGenerator[Pair]:
    async with (
        s3_store_on(server, Conditions.HONOURED) as one,
        s3_store_on(server, Conditions.HONOURED) as two,
        invite_world(one) as world,
        served(two, SETTINGS, clock=world.clock) as other,
    ):
        store = world.lead.store(other.url)
        yield Pair(world, store, other.url)
        await store.aclose()


async def test_an_invite_is_the_same_at_every_relay_over_one_bucket(pair: Pair) -> None:
    world, elsewhere = pair.world, pair.elsewhere
    invitation, expiring = await world.invite(), await world.invite()
    await elsewhere.put_new(invitation.key(MailboxSlot.OFFER), b"offer")

    async def join(url: str, name: bytes) -> bool:
        newcomer = InviteStore(
            url, vault=invitation.vault, mailbox=invitation.mailbox, access=invitation.access
        )
        try:
            assert await newcomer.get(MailboxSlot.OFFER) == b"offer"
            await newcomer.put_new(MailboxSlot.JOIN, name)
        except AlreadyExists:
            return False
        finally:
            await newcomer.aclose()
        return True

    urls = [world.relay.url, pair.other_url]
    joined = await asyncio.gather(*(join(urls[number % 2], b"%d" % number) for number in range(6)))
    assert sum(joined) == 1
    await elsewhere.create_invite(Invitation(invitation.vault).mailbox, "0" * 64)
    assert INVITES_OPEN_MAX == 3
    for each in (world.store, elsewhere):
        with pytest.raises(TooManyInvites):
            await each.create_invite(Invitation(invitation.vault).mailbox, "0" * 64)
    place = bytes(range(16))
    await elsewhere.keep_short_invite(invitation.mailbox, place, b"sealed")
    for url in urls:
        assert await fetch_sealed_invite(url, place) == b"sealed"
    await elsewhere.close_invite(invitation.mailbox, "used")
    for url in urls:
        with pytest.raises(InviteUsed):
            await fetch_sealed_invite(url, place)
    assert (await world.store.invite_state(invitation.mailbox)).state is InviteState.USED
    with pytest.raises(InviteUsed):
        await join(world.relay.url, b"late")
    world.clock.now += INVITE_SECONDS
    with pytest.raises(InviteExpired):
        await elsewhere.put_new(expiring.key(MailboxSlot.OFFER), b"late")
    again = await elsewhere.create_invite(Invitation(invitation.vault).mailbox, access_hash(bytes(32)))
    assert again == INVITE_SECONDS


async def test_a_replaced_recovery_secret_is_refused_at_once_at_every_relay_over_one_bucket(
    pair: Pair,
) -> None:
    world, elsewhere = pair.world, pair.elsewhere
    old, new = world.lead.recovery, bytes(range(32))
    await elsewhere.raise_token(world.lead.device, recovery=old)
    await world.store.replace_recovery(1, recovery_hash(new), recovery=old)
    with pytest.raises(Unauthorized):
        await elsewhere.raise_token(world.lead.device, recovery=old)
    await elsewhere.raise_token(world.lead.device, recovery=new)
