"""Short invites at the relay: who reads the sealed bytes of an invite, until when, and what a stranger can ask for."""

import secrets
from dataclasses import replace

import httpx
import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from crystal_relay.client.invite import fetch_sealed_invite
from crystal_relay.errors import (
    AlreadyExists,
    BadReply,
    BadRequest,
    Forbidden,
    InviteClosed,
    InviteExpired,
    InviteUsed,
    NoSuchRoute,
    NotFound,
    RelayError,
    VaultDropped,
)
from crystal_relay.invites import CloseReason, access_hash
from crystal_relay.limits import (
    INVITE_KEPT_SECONDS,
    INVITE_SECONDS,
    INVITES_KEPT_MAX,
    SHORT_INVITE_BYTES_MAX,
)
from crystal_relay.memory import MemoryStore
from crystal_relay.server import create_app
from crystal_relay.server.dropped_vaults import DroppedVaults
from crystal_relay.server.invites import Invites
from crystal_relay.server.operator import Operator
from crystal_relay.server.short_invites import ShortInvites
from crystal_relay.wire import InviteCreation, ShortInviteCreation
from tests.support.invite_world import SETTINGS, Clock, Invitation, World, refused
from tests.support.relay_server import joined

SEALED = b"\x02" + secrets.token_bytes(286)


async def _kept(world: World, invitation: Invitation) -> bytes:
    place = secrets.token_bytes(16)
    await world.store.keep_short_invite(invitation.mailbox, place, SEALED)
    return place


async def test_whoever_knows_the_place_reads_it_without_credentials_and_nobody_else(world: World) -> None:
    invitation = await world.invite()
    place = await _kept(world, invitation)
    assert await fetch_sealed_invite(world.relay.url, place) == SEALED
    assert await fetch_sealed_invite(world.relay.url, place) == SEALED
    for wrong in (secrets.token_bytes(16), bytes(16), invitation.mailbox, place[::-1]):
        await refused([fetch_sealed_invite(world.relay.url, wrong)], NotFound)
    await refused([fetch_sealed_invite(world.relay.url, place[:15])], BadRequest)


async def test_it_is_deleted_with_the_invite_and_what_became_of_that_is_said_for_a_day(world: World) -> None:
    ends = {"used": InviteUsed, "withdrawn": InviteClosed, "burnt": InviteClosed}
    for reason, error in ends.items():
        invitation = await world.invite()
        place = await _kept(world, invitation)
        await world.store.close_invite(invitation.mailbox, reason)
        assert await world.kept(f"r/vault/{invitation.vault}/invite/{invitation.mailbox.hex()}/short") == []
        world.clock.now += 60
        with pytest.raises(error) as caught:
            await fetch_sealed_invite(world.relay.url, place)
        assert caught.value.seconds_ago == 60
        await refused([world.store.keep_short_invite(invitation.mailbox, place, SEALED)], error)
    await world.sweep()
    assert await world.kept("r/short/") != []
    world.clock.now += INVITE_SECONDS + INVITE_KEPT_SECONDS
    await world.sweep()
    assert await world.kept("r/short/") == await world.kept("r/expiry/") == []


async def test_it_expires_with_the_invite_although_no_sweeper_ran(world: World) -> None:
    invitation = await world.invite()
    place = await _kept(world, invitation)
    world.clock.now += INVITE_SECONDS - 1
    assert await fetch_sealed_invite(world.relay.url, place) == SEALED
    world.clock.now += 1
    with pytest.raises(InviteExpired):
        await fetch_sealed_invite(world.relay.url, place)
    records = f"r/vault/{invitation.vault}/invite/"
    assert f"{records}{invitation.mailbox.hex()}/short" in await world.kept(records)
    await world.sweep()
    assert f"{records}{invitation.mailbox.hex()}/short" not in await world.kept(records)
    with pytest.raises(InviteExpired):
        await fetch_sealed_invite(world.relay.url, place)
    world.clock.now += INVITE_KEPT_SECONDS
    await world.sweep()
    assert await world.kept("r/short/") == await world.kept(records) == await world.kept("r/expiry/") == []
    await refused([fetch_sealed_invite(world.relay.url, place)], NotFound)


async def test_an_invite_has_one_place_and_a_place_one_invite(world: World) -> None:
    invitation, other = await world.invite(), await world.invite()
    place = await _kept(world, invitation)
    await world.store.keep_short_invite(invitation.mailbox, place, SEALED)  # the answer was lost: once more
    await refused(
        [
            world.store.keep_short_invite(invitation.mailbox, place, SEALED[::-1]),
            world.store.keep_short_invite(invitation.mailbox, secrets.token_bytes(16), SEALED),
            world.store.keep_short_invite(other.mailbox, place, SEALED),
        ],
        AlreadyExists,
    )
    assert await world.kept("r/short/") == [f"r/short/{place.hex()}"]
    assert await fetch_sealed_invite(world.relay.url, place) == SEALED
    never = Invitation(world.lead.vault)
    await refused([world.store.keep_short_invite(never.mailbox, secrets.token_bytes(16), SEALED)], NotFound)


async def test_only_a_device_that_may_invite_keeps_one_and_only_a_small_one(world: World) -> None:
    invitation = await world.invite()
    node = (await joined(world.relay.url, world.lead)).store(world.relay.url)
    await refused([node.keep_short_invite(invitation.mailbox, secrets.token_bytes(16), SEALED)], Forbidden)
    await node.aclose()
    for wrong in (b"", bytes(SHORT_INVITE_BYTES_MAX + 1)):
        await refused(
            [world.store.keep_short_invite(invitation.mailbox, secrets.token_bytes(16), wrong)], BadRequest
        )
    assert await world.kept("r/short/") == []
    place = secrets.token_bytes(16)
    await world.store.keep_short_invite(invitation.mailbox, place, bytes(SHORT_INVITE_BYTES_MAX))
    assert await fetch_sealed_invite(world.relay.url, place) == bytes(SHORT_INVITE_BYTES_MAX)


async def test_a_dropped_vaults_invites_are_closed_to_strangers_too(world: World) -> None:
    invitation = await world.invite()
    place = await _kept(world, invitation)
    operator = Operator(world.relay.store, registry=world.relay.app.state.relay.registry, clock=world.clock)
    await operator.drop(world.lead.vault, 3600)
    await refused([fetch_sealed_invite(world.relay.url, place)], VaultDropped)


async def test_a_stranger_who_tries_places_is_shut_out_after_a_hundred() -> None:
    """Two addresses, of which one guesses: the other is served."""
    clock, store = Clock(), MemoryStore()
    place = "ab" * 16
    short = ShortInvites(store, Invites(store, clock=clock), DroppedVaults(store, clock=clock))
    await short.invites.open("a" * 32, InviteCreation("c" * 32, access_hash(bytes(32))))
    await short.keep("a" * 32, "c" * 32, ShortInviteCreation(place, SEALED))
    app = create_app(store, replace(SETTINGS, rate_unauthorized=1 / 3600), clock=clock)

    def client(address: str) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(app, client=(address, 50_000))
        return httpx.AsyncClient(transport=transport, base_url="http://relay.example.org")

    async with client("203.0.113.7") as guessing, client("203.0.113.8") as other:
        statuses = [
            (await guessing.get(f"/v2/invites/{secrets.token_hex(16)}")).status_code for _ in range(3)
        ]
        assert statuses == [404, 429, 429]
        refused_now = await guessing.get(f"/v2/invites/{place}")
        assert refused_now.status_code == 429
        assert int(refused_now.headers["retry-after"]) > 0
        assert (await other.get(f"/v2/invites/{place}")).status_code == 200


async def test_the_places_that_a_vault_takes_are_those_of_its_invites() -> None:
    clock, store = Clock(), MemoryStore()
    short = ShortInvites(store, Invites(store, clock=clock), DroppedVaults(store, clock=clock))
    for number in range(INVITES_KEPT_MAX + 8):
        mailbox, place = f"{number:032x}", secrets.token_hex(16)
        try:
            await short.invites.open("a" * 32, InviteCreation(mailbox, "0" * 64))
            await short.keep("a" * 32, mailbox, ShortInviteCreation(place, SEALED))
            await short.invites.close("a" * 32, mailbox, CloseReason.WITHDRAWN)
        except RelayError:
            continue
    assert len((await store.list("r/short/")).entries) == INVITES_KEPT_MAX


async def test_a_process_killed_between_its_two_writes_is_completed_by_the_next_try() -> None:
    clock, store = Clock(), MemoryStore()
    short = ShortInvites(store, Invites(store, clock=clock), DroppedVaults(store, clock=clock))
    vault, mailbox, place = "a" * 32, "c" * 32, "ab" * 16
    await short.invites.open(vault, InviteCreation(mailbox, "0" * 64))
    creation = ShortInviteCreation(place, SEALED)
    await short.keep(vault, mailbox, creation)
    await store.delete(f"r/short/{place}")
    with pytest.raises(NotFound):
        await short.read(place)
    await short.keep(vault, mailbox, creation)
    assert (await short.read(place)).sealed == SEALED


async def test_a_server_that_is_no_relay_or_an_older_one_is_told_apart() -> None:
    nowhere = b'{"error": "no-such-route", "message": "there is nothing at that address", "hint": ""}'
    for status, body, error in ((404, nowhere, NoSuchRoute), (200, b"<html>", BadReply)):

        async def server(
            scope: Scope, receive: Receive, send: Send, status: int = status, body: bytes = body
        ) -> None:
            assert not [name for name, _ in scope["headers"] if name == b"authorization"]
            await Response(body, status)(scope, receive, send)

        transport = httpx.ASGITransport(server)
        await refused(
            [fetch_sealed_invite("https://relay.example.org", secrets.token_bytes(16), transport=transport)],
            error,
        )
