"""Invites over real HTTP: who reaches a mailbox, and who writes what in it."""

import asyncio
import secrets

import pytest

from crystal_relay.client.http import HttpStore
from crystal_relay.errors import (
    AlreadyExists,
    BadRequest,
    BodyTooLarge,
    Forbidden,
    InviteOver,
    InviteUsed,
    NotFound,
    TooManyInvites,
    Unauthorized,
    VaultDropped,
)
from crystal_relay.invites import (
    CloseReason,
    InviteState,
    MailboxSlot,
    access_hash,
    invite_credential,
    mailbox_prefix,
)
from crystal_relay.limits import (
    INVITE_BYTES_MAX,
    INVITE_SECONDS,
    INVITES_KEPT_MAX,
    INVITES_OPEN_MAX,
)
from crystal_relay.memory import MemoryStore
from crystal_relay.server.invites import Invites
from crystal_relay.server.operator import Operator
from crystal_relay.wire import InviteCreation
from tests.support.invite_world import WAKE_SECONDS_MAX, Clock, Invitation, World, refused
from tests.support.relay_server import enrolled, joined


async def test_two_devices_meet_in_a_mailbox_and_wake_each_other(world: World) -> None:
    invitation = await world.invite()
    await world.store.put_new(invitation.key(MailboxSlot.OFFER), b"offer")
    prefix = mailbox_prefix(invitation.vault, invitation.mailbox)
    inviting = await world.store.wait(prefix, token=None, timeout=60)
    async with world.newcomer(invitation) as newcomer:
        assert await newcomer.slots() == {MailboxSlot.OFFER}
        assert await newcomer.get("offer") == b"offer"
        joining = await newcomer.wait(token=None, timeout=60)
        with pytest.raises(NotFound):
            await newcomer.get(MailboxSlot.REVEAL)
        waiting = asyncio.create_task(world.store.wait(prefix, token=inviting, timeout=60))
        await newcomer.put_new(MailboxSlot.JOIN, b"join")
        await asyncio.wait_for(waiting, WAKE_SECONDS_MAX)
        assert await (await world.store.get(invitation.key(MailboxSlot.JOIN))).read() == b"join"
        joining = await newcomer.wait(token=joining, timeout=60)
        asleep = asyncio.create_task(newcomer.wait(token=joining, timeout=60))
        await world.store.put_new(invitation.key(MailboxSlot.WELCOME), b"welcome")
        await asyncio.wait_for(asleep, WAKE_SECONDS_MAX)
        await newcomer.put_new(MailboxSlot.DONE, b"done")
        assert (await world.store.close_invite(invitation.mailbox, "used")).state is InviteState.USED
        assert (await newcomer.state()).state is InviteState.USED
        with pytest.raises(InviteUsed):
            await newcomer.get(MailboxSlot.WELCOME)
    assert await world.kept(f"{world.lead.prefix}invite/") == []


async def test_each_side_writes_its_own_slots_once_and_no_others(world: World) -> None:
    invitation = await world.invite()
    theirs = {MailboxSlot.JOIN, MailboxSlot.DONE}
    async with world.newcomer(invitation) as newcomer:
        for slot in MailboxSlot:
            if slot in theirs:
                await refused([world.store.put_new(invitation.key(slot), b"")], Forbidden)
                await newcomer.put_new(slot, b"newcomer")
                await refused([newcomer.put_new(slot, b"again")], AlreadyExists)
            else:
                await refused([newcomer.put_new(slot, b"")], Forbidden)
                await world.store.put_new(invitation.key(slot), b"inviter")
                key = invitation.key(slot)
                await refused([world.store.put_new(key, b"again")], AlreadyExists)
                await refused([world.store.put(key, b"again")], BadRequest)
        other = await world.invite()
        await refused(
            [world.store.put_new(other.key(MailboxSlot.OFFER), bytes(INVITE_BYTES_MAX + 1))], BodyTooLarge
        )
    for wrong in ("closed", "offer2", "Offer", "a/b", ""):
        key = mailbox_prefix(invitation.vault, invitation.mailbox) + wrong
        await refused([world.store.put_new(key, b"")], BadRequest)
    never = Invitation(world.lead.vault)
    await refused([world.store.put_new(never.key(MailboxSlot.OFFER), b"")], NotFound)


async def test_a_newcomer_reads_nothing_but_its_mailbox_and_lists_no_vault(world: World) -> None:
    invitation, other = await world.invite(), await world.invite()
    await world.store.put_new(f"{world.lead.prefix}devlog/0", b"for members")
    await world.store.put_new(other.key(MailboxSlot.OFFER), b"for another newcomer")
    credential = invite_credential(invitation.mailbox, invitation.access)

    class Curious(HttpStore):
        def _token_header(self) -> dict[str, str]:
            return {"Authorization": credential}

    curious = Curious(world.relay.url, vault=world.lead.vault, token="", direct=False)
    mine = world.lead.prefix
    await refused(
        [
            curious.get(f"{mine}devlog/0"),
            curious.get(other.key(MailboxSlot.OFFER)),
            curious.list(mine),
            curious.list(f"{mine}devlog/"),
            curious.list(f"{mine}invite/"),
            curious.list(f"{mine}invite/{invitation.mailbox.hex()}"),
            curious.list(mailbox_prefix(other.vault, other.mailbox)),
            curious.wait(mine, token=None, timeout=0),
            curious.wait(mailbox_prefix(other.vault, other.mailbox), token=None, timeout=0),
            curious.put_new(f"{mine}devlog/1", b""),
            curious.put_new(f"{mine}blob/1", b""),
            curious.put_new(other.key(MailboxSlot.JOIN), b""),
            curious.delete(invitation.key(MailboxSlot.JOIN)),
        ],
        Forbidden,
    )
    await refused(
        [
            curious.create_invite(secrets.token_bytes(16), "0" * 64),
            curious.close_invite(invitation.mailbox, CloseReason.USED),
            curious.invite_state(other.mailbox),
            curious.retain_tokens([world.lead.device]),
            curious.raise_token(world.lead.device),
            curious.recovery_number(),
            curious.replace_recovery(1, "0" * 64),
            curious.register_token(device="0" * 32, token_hash="0" * 64, preset="device"),
            curious.revoke_token(device=world.lead.device),
        ],
        Unauthorized,
    )
    assert (await curious.invite_state(invitation.mailbox)).state is InviteState.OPEN
    await curious.aclose()


async def test_a_credential_is_good_for_one_mailbox_of_one_vault(world: World) -> None:
    invitation, other = await world.invite(), await world.invite()
    stranger = await enrolled(world.relay.url)
    for wrong in (
        Invitation(stranger.vault, invitation.mailbox, invitation.access),
        Invitation(secrets.token_hex(16), invitation.mailbox, invitation.access),
        Invitation(invitation.vault, other.mailbox, invitation.access),
        Invitation(invitation.vault, secrets.token_bytes(16), invitation.access),
        Invitation(invitation.vault, invitation.mailbox, secrets.token_bytes(32)),
        Invitation(invitation.vault, invitation.mailbox, bytes.fromhex(access_hash(invitation.access))),
    ):
        async with world.newcomer(wrong) as newcomer:
            await refused(
                [
                    newcomer.put_new("join", b""),
                    newcomer.slots(),
                    newcomer.get("offer"),
                    newcomer.wait(token=None, timeout=0),
                    newcomer.state(),
                ],
                Unauthorized,
            )


async def test_a_device_that_may_not_let_others_in_opens_reads_and_closes_no_invite(world: World) -> None:
    invitation = await world.invite()
    await world.store.put_new(invitation.key(MailboxSlot.OFFER), b"offer")
    node = (await joined(world.relay.url, world.lead)).store(world.relay.url)
    await refused(
        [
            node.create_invite(secrets.token_bytes(16), "0" * 64),
            node.close_invite(invitation.mailbox, CloseReason.BURNT),
            node.invite_state(invitation.mailbox),
            node.get(invitation.key(MailboxSlot.OFFER)),
            node.put_new(invitation.key(MailboxSlot.REVEAL), b""),
            node.put_new(invitation.key(MailboxSlot.JOIN), b""),
            node.wait(mailbox_prefix(invitation.vault, invitation.mailbox), token=None, timeout=0),
        ],
        Forbidden,
    )
    await node.aclose()


async def test_of_many_newcomers_who_race_for_one_invite_one_joins(world: World) -> None:
    invitation = await world.invite()

    async def join(name: bytes) -> bytes | None:
        async with world.newcomer(invitation) as newcomer:
            try:
                await newcomer.put_new(MailboxSlot.JOIN, name)
            except AlreadyExists:
                return None
            return name

    winners = [name for name in await asyncio.gather(*(join(b"%d" % n) for n in range(16))) if name]
    assert len(winners) == 1
    assert await (await world.store.get(invitation.key(MailboxSlot.JOIN))).read() == winners[0]


async def test_a_fourth_open_invite_is_refused_until_one_of_them_is_over(world: World) -> None:
    made = [Invitation(world.lead.vault) for _ in range(8)]

    async def create(one: Invitation) -> bool:
        try:
            await world.store.create_invite(one.mailbox, access_hash(one.access))
        except TooManyInvites:
            return False
        return True

    outcomes = await asyncio.gather(*map(create, made))
    assert sum(outcomes) == INVITES_OPEN_MAX
    opened = [one for one, ok in zip(made, outcomes, strict=True) if ok]
    refused_one = made[outcomes.index(False)]
    with pytest.raises(TooManyInvites, match="3 open"):
        await world.store.create_invite(refused_one.mailbox, access_hash(refused_one.access))
    assert await create(opened[0])  # the same again is no fourth
    await world.store.close_invite(opened[0].mailbox, "withdrawn")
    assert await create(refused_one)
    assert not await create(Invitation(world.lead.vault))
    stranger = (await enrolled(world.relay.url)).store(world.relay.url)
    await stranger.create_invite(secrets.token_bytes(16), "0" * 64)
    await stranger.aclose()
    world.clock.now += INVITE_SECONDS
    assert await create(Invitation(world.lead.vault))


async def test_a_mailbox_is_opened_once_to_one_secret(world: World) -> None:
    invitation = await world.invite()
    world.clock.now += 100
    again = await world.store.create_invite(invitation.mailbox, access_hash(invitation.access))
    assert again == INVITE_SECONDS - 100
    with pytest.raises(AlreadyExists):
        await world.store.create_invite(invitation.mailbox, access_hash(secrets.token_bytes(32)))
    async with world.newcomer(invitation) as newcomer:
        assert (await newcomer.state()).state is InviteState.OPEN


async def test_a_dropped_vaults_newcomers_are_refused_as_its_devices_are(world: World) -> None:
    invitation = await world.invite()
    operator = Operator(world.relay.store, registry=world.relay.app.state.relay.registry, clock=world.clock)
    await operator.drop(world.lead.vault, 3600)
    async with world.newcomer(invitation) as newcomer:
        await refused([newcomer.state(), newcomer.put_new("join", b"")], VaultDropped)
    async with world.newcomer(Invitation(invitation.vault, invitation.mailbox)) as newcomer:
        await refused([newcomer.state()], Unauthorized)


# --- several processes over one store ---------------------------------------------------------------------------------


async def test_processes_that_open_invites_at_once_never_open_one_too_many() -> None:
    for _ in range(20):
        store = MemoryStore()
        processes = [Invites(store) for _ in range(6)]
        vault = "a" * 32
        ended = await asyncio.gather(
            *(each.open(vault, InviteCreation(secrets.token_hex(16), "0" * 64)) for each in processes),
            return_exceptions=True,
        )
        opened = [each for each in ended if not isinstance(each, TooManyInvites)]
        assert len(opened) <= INVITES_OPEN_MAX
        kept = (await store.list(f"r/vault/{vault}/invite/")).entries
        assert len(kept) == len(opened)


async def test_what_one_process_closed_is_over_at_the_others_at_once() -> None:
    store = MemoryStore()
    one, other = Invites(store), Invites(store)
    mailbox = secrets.token_hex(16)
    await one.open("a" * 32, InviteCreation(mailbox, "0" * 64))
    assert await other.check_open("a" * 32, mailbox) > 0
    replies = await asyncio.gather(
        *(each.close("a" * 32, mailbox, reason) for each in (one, other) for reason in CloseReason)
    )
    assert len({reply.state for reply in replies}) == 1
    for each in (one, other):
        with pytest.raises(InviteOver):
            await each.check_open("a" * 32, mailbox)


async def test_invites_without_end_fill_no_relay() -> None:
    clock = Clock()
    invites = Invites(MemoryStore(), clock=clock)
    for number in range(INVITES_KEPT_MAX):
        await invites.open("a" * 32, InviteCreation(f"{number:032x}", "0" * 64))
        await invites.close("a" * 32, f"{number:032x}", CloseReason.WITHDRAWN)
    with pytest.raises(TooManyInvites, match="within a day"):
        await invites.open("a" * 32, InviteCreation("f" * 32, "0" * 64))
