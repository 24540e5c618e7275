"""Members named in one call, devices that are raised to lead, and the recovery secret that is replaced: over real HTTP."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from crystal_relay.client.http import HttpStore
from crystal_relay.errors import (
    BadRequest,
    Forbidden,
    QuotaExceeded,
    RecoveryReplaced,
    RelayError,
    Unauthorized,
    VaultDropped,
    WrongNumber,
)
from crystal_relay.limits import LIST_LIMIT_MAX, RECOVERIES_MAX, VAULT_DEVICES_MAX
from crystal_relay.memory import MemoryStore
from crystal_relay.server.operator import Operator
from crystal_relay.server.registry import Registry
from crystal_relay.store import Body, Object, Page
from crystal_relay.tokens import Preset, new_token, recovery_hash, token_hash
from crystal_relay.wire import TokenRegistration, VaultCreation
from tests.support.relay_server import Member, ServedRelay, enrolled, joined, served

VAULT, FIRST = "a" * 32, "0" * 32


@asynccontextmanager
async def opened(relay: ServedRelay, *members: Member) -> AsyncGenerator[list[HttpStore]]:
    stores = [member.store(relay.url) for member in members]
    try:
        yield stores
    finally:
        for store in stores:
            await store.aclose()


async def is_in(store: HttpStore, member: Member) -> bool:
    try:
        await store.list(member.prefix, limit=1)
    except Unauthorized:
        return False
    return True


async def may_lead(store: HttpStore, member: Member) -> bool:
    try:
        await store.put_new(f"{member.prefix}devlog/{secrets.token_hex(8)}", b"")
    except Forbidden:
        return False
    return True


# --- members ----------------------------------------------------------------------------------------------------------


async def test_one_call_shuts_out_a_device_and_every_token_that_it_let_in(
    relay: ServedRelay, lead: Member
) -> None:
    node, thief = await joined(relay.url, lead), await joined(relay.url, lead, preset="lead")
    planted = Member(vault=lead.vault)
    async with opened(relay, lead, node, thief, planted) as (mine, nodes, stolen, plants):
        await stolen.register_token(
            device=planted.device, token_hash=token_hash(planted.token), preset="lead"
        )
        assert await is_in(plants, planted)
        for repeated in range(3):
            assert await mine.retain_tokens([lead.device, node.device]) == (0 if repeated else 2)
        assert [await is_in(each, lead) for each in (mine, nodes, stolen, plants)] == [
            True,
            True,
            False,
            False,
        ]
        with pytest.raises(Forbidden, match="revoked"):
            await mine.register_token(
                device=planted.device, token_hash=token_hash(planted.token), preset="lead"
            )


async def test_the_roots_holder_retains_and_raises_without_a_token(relay: ServedRelay, lead: Member) -> None:
    node = await joined(relay.url, lead)
    async with opened(relay, lead, node, Member(vault=lead.vault)) as (mine, nodes, holder):
        for call in (
            lambda: holder.retain_tokens([node.device], recovery=secrets.token_bytes(32)),
            lambda: holder.raise_token(node.device, recovery=secrets.token_bytes(32)),
            lambda: nodes.retain_tokens([node.device], recovery=bytes(32)),
        ):
            with pytest.raises(Unauthorized):
                await call()
        await holder.raise_token(node.device, recovery=lead.recovery)
        await holder.retain_tokens([node.device], recovery=lead.recovery)
        assert await may_lead(nodes, node)
        assert not await is_in(mine, lead)


async def test_a_device_without_the_scope_retains_and_raises_nobody(relay: ServedRelay, lead: Member) -> None:
    node = await joined(relay.url, lead)
    async with opened(relay, lead, node) as (mine, nodes):
        for call in (
            lambda: nodes.retain_tokens([node.device]),
            lambda: nodes.raise_token(node.device),
            lambda: nodes.replace_recovery(1, "0" * 64),
        ):
            with pytest.raises(Forbidden):
                await call()
        assert await is_in(mine, lead)
        assert not await may_lead(nodes, node)


async def test_nobody_is_named_by_mistake(relay: ServedRelay, lead: Member) -> None:
    async with opened(relay, lead) as (mine,):
        with pytest.raises(BadRequest):
            await mine.retain_tokens([])
        many = [f"{number:032x}" for number in range(VAULT_DEVICES_MAX - 1)]
        await mine.retain_tokens([lead.device, *many])
        with pytest.raises(RelayError):
            await mine.retain_tokens([lead.device, *many, "f" * 32])
        assert await is_in(mine, lead)


class Meddled(MemoryStore):
    """At the nth operation after `meddle` was set, something else happens first."""

    def __init__(self, moment: int) -> None:
        super().__init__()
        self._left = moment
        self.meddle: Callable[[], Awaitable[object]] | None = None

    async def put_new(self, key: str, body: bytes | Body) -> None:
        await self._operation()
        await super().put_new(key, body)

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> Object:
        await self._operation()
        return await super().get(key, start=start, length=length)

    async def list(self, prefix: str, *, after: str = "", limit: int = LIST_LIMIT_MAX) -> Page:
        await self._operation()
        return await super().list(prefix, after=after, limit=limit)

    async def meddled(self) -> bool:
        """Do it now, if it was not done. Returns whether it was not."""
        meddle, self.meddle = self.meddle, None
        if meddle is not None:
            await meddle()
        return meddle is not None

    async def _operation(self) -> None:
        if self.meddle is not None:
            if not self._left:
                await self.meddled()
            self._left -= 1


async def test_whatever_the_order_a_stranger_lets_nobody_in_beside_the_members() -> None:
    """The registering process remembers the stranger's token; another one shuts it out at each moment in turn."""
    moments, late = 0, False
    while not late:
        late = await _stranger_registers_while_shut_out(moments)
        moments += 1
    assert moments > 6


async def _stranger_registers_while_shut_out(moment: int) -> bool:
    """Returns whether the registration was over by then."""
    store = Meddled(moment)
    async with served(store) as relay:
        lead = await enrolled(relay.url)
        thief, planted = await joined(relay.url, lead, preset="lead"), Member(vault=lead.vault)
        async with opened(relay, lead, thief, planted) as (mine, stolen, plants):
            assert await is_in(stolen, thief)
            store.meddle = lambda: Registry(store, cache_seconds=300).retain(lead.vault, {lead.device: None})
            with suppress(Unauthorized, Forbidden):
                await stolen.register_token(
                    device=planted.device, token_hash=token_hash(planted.token), preset="lead"
                )
            late = await store.meddled()
            relay.app.state.relay.registry.forget(lead.vault)
            assert [await is_in(each, lead) for each in (mine, stolen, plants)] == [True, False, False]
    return late


async def test_a_device_that_joins_after_the_members_were_named_is_in() -> None:
    registry = Registry(MemoryStore(), cache_seconds=0)
    token = new_token(FIRST)
    await registry.create_vault(VaultCreation(VAULT, "b" * 64, FIRST, token_hash(token)))
    await registry.retain(VAULT, {FIRST: None})
    newcomer = new_token("1" * 32)
    await registry.register(VAULT, TokenRegistration("1" * 32, token_hash(newcomer), Preset.DEVICE))
    assert (await registry.identify(VAULT, "1" * 32, newcomer)).device == "1" * 32
    assert await registry.retain(VAULT, {FIRST: None, "1" * 32: None}) == 0


# --- leads ------------------------------------------------------------------------------------------------------------


async def test_a_raised_device_leads_at_once_with_the_tokens_it_has_and_those_to_come(
    relay: ServedRelay, lead: Member
) -> None:
    node = await joined(relay.url, lead)
    fresh = Member(vault=lead.vault, device=node.device)
    async with opened(relay, lead, node, fresh) as (mine, nodes, renewed):
        assert not await may_lead(nodes, node)
        for _ in range(2):
            await mine.raise_token(node.device)
        assert await may_lead(nodes, node)
        await nodes.register_token(device=node.device, token_hash=token_hash(fresh.token), preset="device")
        assert await may_lead(renewed, fresh)
        await mine.revoke_token(device=node.device)
        assert [await is_in(each, node) for each in (nodes, renewed)] == [False, False]


async def test_raising_devices_without_end_fills_no_relay() -> None:
    store = MemoryStore()
    registry = Registry(store, cache_seconds=0)
    for number in range(VAULT_DEVICES_MAX):
        await store.put_new(f"r/vault/{VAULT}/lead/{0:012d}/{number:032x}", b"{}")
    for device in ("0" * 32, "f" * 32):
        await registry.register(VAULT, TokenRegistration(device, "1" * 64, Preset.DEVICE))
    await registry.raise_device(VAULT, "0" * 32)
    with pytest.raises(QuotaExceeded):
        await registry.raise_device(VAULT, "f" * 32)
    await registry.raise_device(VAULT, "f" * 32, by_recovery=True)


# --- the recovery secret ----------------------------------------------------------------------------------------------


async def test_a_replaced_recovery_secret_is_refused_at_once_at_every_process() -> None:
    store = MemoryStore()
    async with served(store) as one, served(store) as other:
        lead = await enrolled(one.url)
        old, new = lead.recovery, secrets.token_bytes(32)
        async with opened(one, lead) as (mine,), opened(other, lead) as (theirs,):
            await theirs.raise_token(lead.device, recovery=old)
            assert await mine.recovery_number() == 0
            for _ in range(2):  # also by the one that it replaced: the reply may have been lost
                await mine.replace_recovery(1, recovery_hash(new), recovery=old)
            for each in (mine, theirs):
                assert await each.recovery_number() == 1
                for call in (
                    each.raise_token(lead.device, recovery=old),
                    each.retain_tokens([lead.device], recovery=old),
                    each.register_token(device="1" * 32, token_hash="1" * 64, preset="lead", recovery=old),
                    each.revoke_token(device=lead.device, recovery=old),
                    each.replace_recovery(1, "2" * 64, recovery=old),
                    each.replace_recovery(2, "2" * 64, recovery=old),
                ):
                    with pytest.raises(Unauthorized):
                        await call
                await each.raise_token(lead.device, recovery=new)
            await theirs.replace_recovery(2, recovery_hash(old), recovery=new)
            await mine.raise_token(lead.device, recovery=old)
            with pytest.raises(Unauthorized):
                await mine.raise_token(lead.device, recovery=new)


async def test_of_two_replacements_under_one_number_one_wins() -> None:
    for _ in range(2):
        store = MemoryStore()
        async with served(store) as one, served(store) as other:
            lead = await enrolled(one.url)
            wanted = [secrets.token_bytes(32) for _ in range(8)]
            async with opened(one, lead) as (mine,), opened(other, lead) as (theirs,):
                ended = await asyncio.gather(
                    *(
                        (mine, theirs)[number % 2].replace_recovery(
                            1, recovery_hash(each), recovery=lead.recovery
                        )
                        for number, each in enumerate(wanted)
                    ),
                    return_exceptions=True,
                )
                won = [each for each, failed in zip(wanted, ended, strict=True) if failed is None]
                assert len(won) == 1
                assert all(isinstance(each, WrongNumber | Unauthorized) for each in ended if each is not None)
                for each in wanted:
                    if each is won[0]:
                        await theirs.raise_token(lead.device, recovery=each)
                    else:
                        with pytest.raises(Unauthorized):
                            await theirs.raise_token(lead.device, recovery=each)


async def test_a_stolen_token_replaces_no_recovery_secret(relay: ServedRelay, lead: Member) -> None:
    async with opened(relay, lead) as (stolen,):
        with pytest.raises(Forbidden, match="recovery secret"):
            await stolen.replace_recovery(1, "1" * 64)
        await stolen.raise_token(lead.device, recovery=lead.recovery)


async def test_a_token_that_a_thief_planted_under_an_honest_devices_id_goes_with_the_others(
    relay: ServedRelay, lead: Member
) -> None:
    node, thief = await joined(relay.url, lead), await joined(relay.url, lead, preset="lead")
    planted = Member(vault=lead.vault, device=node.device)
    async with opened(relay, lead, node, thief, planted) as (mine, nodes, stolen, plants):
        await stolen.register_token(device=node.device, token_hash=token_hash(planted.token), preset="lead")
        assert await is_in(plants, planted)
        used = {bytes.fromhex(each.device): token_hash(each.token) for each in (lead, node)}
        assert await mine.retain_tokens([lead.device, node.device], tokens=used) == 2
        assert [await is_in(nodes, node), await is_in(plants, planted), await is_in(stolen, thief)] == [
            True,
            False,
            False,
        ]


async def test_replacements_are_numbered_in_turn(relay: ServedRelay, lead: Member) -> None:
    shown = [lead.recovery, *(secrets.token_bytes(32) for _ in range(3))]
    async with opened(relay, lead) as (mine,):
        for wrong in (2, 3, RECOVERIES_MAX):
            with pytest.raises(WrongNumber, match="number 0"):
                await mine.replace_recovery(wrong, "1" * 64, recovery=lead.recovery)
        for number in (1, 2, 3):
            for _ in range(2):
                await mine.replace_recovery(number, recovery_hash(shown[number]), recovery=shown[number - 1])
            with pytest.raises(WrongNumber):
                await mine.replace_recovery(number, "f" * 64, recovery=shown[number])
        for wrong in (0, -1, RECOVERIES_MAX + 1):
            with pytest.raises(BadRequest):
                await mine.replace_recovery(wrong, "1" * 64, recovery=shown[3])
        with pytest.raises(Unauthorized):
            await mine.replace_recovery(4, "4" * 64, recovery=lead.recovery)


async def test_a_dropped_vaults_recovery_secret_is_not_replaced(relay: ServedRelay, lead: Member) -> None:
    operator = Operator(relay.store, registry=relay.app.state.relay.registry)
    await operator.drop(lead.vault, 3600)
    async with opened(relay, lead) as (mine,):
        for secret in (None, lead.recovery):
            with pytest.raises(VaultDropped):
                await mine.replace_recovery(1, "1" * 64, recovery=secret)


async def test_who_shows_a_secret_that_counted_once_is_told_so_and_nobody_else_is(
    relay: ServedRelay, lead: Member
) -> None:
    shown = [lead.recovery, *(secrets.token_bytes(32) for _ in range(3))]
    async with opened(relay, lead) as (mine,):
        for number, secret in enumerate(shown[1:], start=1):
            await mine.replace_recovery(number, recovery_hash(secret), recovery=shown[number - 1])
        for old in shown[:-1]:
            with pytest.raises(RecoveryReplaced):
                await mine.raise_token(lead.device, recovery=old)
        with pytest.raises(Unauthorized) as refused:
            await mine.raise_token(lead.device, recovery=secrets.token_bytes(32))
        assert not isinstance(refused.value, RecoveryReplaced)
        await mine.raise_token(lead.device, recovery=shown[-1])
