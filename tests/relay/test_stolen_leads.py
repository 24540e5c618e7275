"""Who has stolen a lead's token, against who has the recovery secret: nothing that the thief does at the relay lasts."""

import secrets

import pytest

from crystal_relay.errors import (
    AlreadyExists,
    BodyTooLarge,
    Forbidden,
    NotFound,
    QuotaExceeded,
    Unauthorized,
)
from crystal_relay.limits import LOG_ENTRY_BYTES_MAX, VAULT_DEVICES_MAX
from crystal_relay.memory import MemoryStore
from crystal_relay.server import token_records
from crystal_relay.server.registry import Registry
from crystal_relay.server.token_records import TOKENS_MAX, TOKENS_RESERVED
from crystal_relay.tokens import Preset, new_token, token_hash
from crystal_relay.wire import TokenRegistration, VaultCreation
from tests.relay.test_membership import Meddled, is_in, may_lead, opened
from tests.support.relay_server import Member, ServedRelay, enrolled, joined, served

VAULT, FIRST, OTHER = "a" * 32, "0" * 32, "1" * 32


async def plant_tokens(relay: ServedRelay, owner: Member, count: int) -> None:
    """As many registrations would leave them."""
    for _ in range(count):
        name = secrets.token_hex(32)
        text = b'{"version":1,"token_hash":"' + name.encode() + b'","preset":"device"}'
        await relay.store.put_new(f"r/vault/{owner.vault}/token/{secrets.token_hex(16)}/{name}", text)


# --- room for tokens --------------------------------------------------------------------------------------------------


async def test_a_thief_that_fills_the_vault_with_tokens_does_not_lock_out_who_has_the_recovery_secret(
    relay: ServedRelay, lead: Member
) -> None:
    thief, fresh = await joined(relay.url, lead, preset="lead"), Member(vault=lead.vault)
    await plant_tokens(relay, lead, TOKENS_MAX - 2)
    async with opened(relay, lead, thief, fresh) as (mine, stolen, holder):
        with pytest.raises(QuotaExceeded, match="at most 1000 tokens"):
            await stolen.register_token(device="1" * 32, token_hash="1" * 64, preset="device")
        await stolen.retain_tokens([thief.device])
        assert not await is_in(mine, lead)
        for _ in range(2):
            await holder.register_token(
                device=fresh.device,
                token_hash=token_hash(fresh.token),
                preset="lead",
                recovery=lead.recovery,
            )
        assert await may_lead(holder, fresh)
        assert await holder.retain_tokens([fresh.device], recovery=lead.recovery) == 1
        assert not await is_in(stolen, thief)
        for number in range(3):  # there is room again, without the recovery secret
            await holder.register_token(device="2" * 32, token_hash=f"{number:064x}", preset="device")


async def test_the_places_of_the_recovery_secret_are_bounded_and_come_back(
    relay: ServedRelay, lead: Member
) -> None:
    await plant_tokens(relay, lead, TOKENS_MAX - 1)
    async with opened(relay, lead) as (mine,):
        for repeated in range(2):
            for number in range(TOKENS_RESERVED):
                await mine.register_token(
                    device=lead.device,
                    token_hash=f"{number + repeated * TOKENS_RESERVED:064x}",
                    preset="device",
                    recovery=lead.recovery,
                )
            if not repeated:
                with pytest.raises(QuotaExceeded, match="used up"):
                    await mine.register_token(
                        device=lead.device, token_hash="f" * 64, preset="device", recovery=lead.recovery
                    )
                only = {bytes.fromhex(lead.device): token_hash(lead.token)}
                shut_out = await mine.retain_tokens([lead.device], tokens=only, recovery=lead.recovery)
                assert shut_out == TOKENS_MAX - 1 + TOKENS_RESERVED
                await plant_tokens(relay, lead, TOKENS_MAX - 1)


async def test_a_token_that_was_shut_out_is_not_let_in_again_though_its_record_went(
    relay: ServedRelay, lead: Member
) -> None:
    thief = await joined(relay.url, lead, preset="lead")
    async with opened(relay, lead, thief) as (mine, stolen):
        await mine.retain_tokens([lead.device], recovery=lead.recovery)
        assert not (await relay.store.list(f"r/vault/{lead.vault}/token/{thief.device}/")).entries
        assert not await is_in(stolen, thief)
        for recovery in (None, lead.recovery):
            with pytest.raises(Forbidden, match="revoked"):
                await mine.register_token(
                    device=thief.device,
                    token_hash=token_hash(thief.token),
                    preset="lead",
                    recovery=recovery,
                )
        await mine.revoke_token(device=thief.device, token_hash=token_hash(thief.token))


async def test_at_no_moment_of_making_room_is_a_token_in_that_was_shut_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(token_records, "MARKS_KEPT_MAX", 0)
    moment, late = 0, False
    while not late:
        store = Meddled(moment)
        registry, other = (Registry(store, cache_seconds=300) for _ in range(2))
        token = new_token(OTHER)
        await registry.create_vault(VaultCreation(VAULT, "b" * 64, FIRST, "c" * 64))
        await registry.register(VAULT, TokenRegistration(OTHER, token_hash(token), Preset.LEAD))
        await other.revoke(VAULT, OTHER, None)
        store.meddle = lambda by=other: by.retain(VAULT, {FIRST: None}, by_recovery=True)
        with pytest.raises(Unauthorized):
            await registry.identify(VAULT, OTHER, token)
        late = await store.meddled()
        assert not (await store.list(f"r/vault/{VAULT}/revoked/")).entries
        with pytest.raises(Unauthorized):
            await registry.identify(VAULT, OTHER, token)
        moment += 1
    assert moment > 2


async def test_filling_and_emptying_a_vault_again_and_again_fills_no_relay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(token_records, "MARKS_KEPT_MAX", 10)
    store = MemoryStore()
    registry = Registry(store, cache_seconds=0)
    for number in range(50):
        await registry.register(VAULT, TokenRegistration(FIRST, f"{number:064x}", Preset.DEVICE))
        await registry.raise_device(VAULT, FIRST)
        await registry.name_leads(VAULT, frozenset({FIRST}), after=number)
        await registry.retain(VAULT, {OTHER: None}, by_recovery=True)
    assert len((await store.list("r/")).entries) == 10 + 2, "the first and the newest naming"
    assert await registry.leads_number(VAULT) == 50


# --- who leads --------------------------------------------------------------------------------------------------------


async def test_devices_that_have_no_token_are_not_raised(relay: ServedRelay, lead: Member) -> None:
    node = await joined(relay.url, lead)
    async with opened(relay, lead) as (mine,):
        for recovery in (None, lead.recovery):
            with pytest.raises(NotFound):
                await mine.raise_token("f" * 32, recovery=recovery)
        await mine.revoke_token(device=node.device)
        with pytest.raises(NotFound):
            await mine.raise_token(node.device)
    assert not (await relay.store.list(f"r/vault/{lead.vault}/lead/")).entries


async def test_a_thief_that_uses_up_all_raises_keeps_no_honest_device_from_its_grant(
    relay: ServedRelay, lead: Member
) -> None:
    node, next_one = await joined(relay.url, lead), await joined(relay.url, lead)
    for number in range(VAULT_DEVICES_MAX):
        await relay.store.put_new(f"r/vault/{lead.vault}/lead/{0:012d}/{number:032x}", b"{}")
    async with opened(relay, lead, node, next_one) as (mine, nodes, others):
        with pytest.raises(QuotaExceeded):
            await mine.raise_token(node.device)
        await mine.raise_token(node.device, recovery=lead.recovery)
        assert await may_lead(nodes, node)
        everyone = [lead.device, node.device, next_one.device]
        await mine.retain_tokens(everyone, leads=[lead.device, node.device])
        await mine.raise_token(next_one.device)
        assert [await may_lead(nodes, node), await may_lead(others, next_one)] == [True, True]


@pytest.mark.parametrize("way", ["raised", "let in as a lead"])
async def test_a_plain_member_that_a_thief_had_lead_leads_no_more_once_it_was_named_who_does(
    relay: ServedRelay, lead: Member, way: str
) -> None:
    thief = await joined(relay.url, lead, preset="lead")
    member = await joined(relay.url, lead, preset="device" if way == "raised" else "lead")
    async with opened(relay, lead, thief, member) as (mine, stolen, members):
        if way == "raised":
            await stolen.raise_token(member.device)
        assert await may_lead(members, member)
        await mine.retain_tokens([lead.device, member.device])
        assert await may_lead(members, member), "nothing was said of who leads"
        await mine.retain_tokens([lead.device, member.device], leads=[lead.device])
        assert [await is_in(members, member), await may_lead(members, member)] == [True, False]
        for call in (
            lambda: members.raise_token(member.device),
            lambda: members.retain_tokens([lead.device, member.device], leads=[member.device]),
            lambda: members.register_token(device=member.device, token_hash="1" * 64, preset="lead"),
        ):
            with pytest.raises(Forbidden):
                await call()
        assert await may_lead(mine, lead)
        await mine.raise_token(member.device)
        assert await may_lead(members, member), "it can be raised again"


@pytest.mark.parametrize("act", ["raise", "name", "register"])
async def test_whatever_the_order_who_led_by_a_thiefs_word_does_not_go_on_leading_by_its_own(
    act: str,
) -> None:
    """It asks while it leads; another process names who does at each moment in turn."""
    moment, late = 0, False
    while not late:
        late = await _goes_on_while_others_are_named(moment, act)
        moment += 1
    assert moment > 6


async def _goes_on_while_others_are_named(moment: int, act: str) -> bool:
    """Returns whether its request was over by then."""
    store = Meddled(moment)
    async with served(store) as relay:
        lead = await enrolled(relay.url)
        member = await joined(relay.url, lead)
        second = Member(vault=lead.vault, device=member.device)
        async with opened(relay, lead, member, second) as (mine, members, seconds):
            await mine.raise_token(member.device)
            assert await may_lead(members, member)
            both = [lead.device, member.device]
            by_owner = Registry(store, cache_seconds=300)

            async def named() -> None:
                while not await by_owner.name_leads(
                    lead.vault, frozenset({lead.device}), after=await by_owner.leads_number(lead.vault)
                ):
                    continue
                await by_owner.retain(lead.vault, dict.fromkeys(both))

            store.meddle = named
            try:
                if act == "raise":
                    await members.raise_token(member.device)
                elif act == "name":
                    await members.retain_tokens(both, leads=[member.device])
                else:
                    await members.register_token(
                        device=second.device, token_hash=token_hash(second.token), preset="lead"
                    )
            except Forbidden:
                pass
            late = await store.meddled()
            relay.app.state.relay.registry.forget(lead.vault)
            assert not await may_lead(members, member)
            assert not await is_in(seconds, second) or not await may_lead(seconds, second)
            assert await may_lead(mine, lead)
    return late


async def test_an_honest_device_that_is_not_named_keeps_its_token_and_leads_again_by_the_recovery_secret(
    relay: ServedRelay, lead: Member
) -> None:
    holder = await joined(relay.url, lead, preset="lead")
    fresh = Member(vault=lead.vault, device=holder.device)
    async with opened(relay, lead, holder, fresh) as (mine, holders, renewed):
        assert await mine.retain_tokens([lead.device, holder.device], leads=[lead.device]) == 0
        assert [await is_in(holders, holder), await may_lead(holders, holder)] == [True, False]
        with pytest.raises(AlreadyExists):  # as its preset is another now
            await holders.register_token(
                device=holder.device,
                token_hash=token_hash(holder.token),
                preset="lead",
                recovery=lead.recovery,
            )
        await renewed.register_token(
            device=fresh.device, token_hash=token_hash(fresh.token), preset="lead", recovery=lead.recovery
        )
        assert [await may_lead(renewed, fresh), await may_lead(holders, holder)] == [True, False]
        await holders.raise_token(holder.device, recovery=lead.recovery)
        assert await may_lead(holders, holder)


# --- the device log ---------------------------------------------------------------------------------------------------


async def test_a_thief_writes_no_larger_junk_into_the_device_log_than_an_entry_can_be(
    relay: ServedRelay, lead: Member
) -> None:
    async with opened(relay, lead) as (stolen,):
        with pytest.raises(BodyTooLarge):
            await stolen.put_new(f"{lead.prefix}devlog/0", bytes(LOG_ENTRY_BYTES_MAX + 1))
        await stolen.put_new(f"{lead.prefix}devlog/0", bytes(LOG_ENTRY_BYTES_MAX))
        await stolen.put_new(f"{lead.prefix}mirror/1/0", bytes(LOG_ENTRY_BYTES_MAX + 1))
