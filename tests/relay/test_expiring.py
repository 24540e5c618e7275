"""Dropped vaults and what a Core condemns: over real HTTP, swept by a clock of the test's own."""

import asyncio
import time
from typing import Any

import pytest

from crystal_relay.address import http_client
from crystal_relay.errors import BadRequest, VaultDropped
from crystal_relay.limits import CONDEMNED_KEYS_MAX
from crystal_relay.memory import MemoryStore
from crystal_relay.server import RelaySettings
from crystal_relay.server.condemned import PENDING_MAX
from crystal_relay.server.dropped_vaults import RESTORE_SECONDS_MIN, SETTLE_SECONDS
from crystal_relay.server.operator import Operator
from crystal_relay.server.sweeper import Sweeper
from crystal_relay.server.token_records import TOKENS_MAX
from crystal_relay.store import Store
from crystal_relay.tokens import new_token, recovery_hash, token_hash
from crystal_relay.wire import VaultCreation
from tests.support.relay_server import ENROLL_TOKEN, Member, ServedRelay, enrolled, joined, served

INCARNATION = "00112233aabbccdd"


async def keys_of(store: Store, prefix: str) -> list[str]:
    return [entry.key for entry in (await store.list(prefix)).entries]


async def sweep(relay: ServedRelay, *, seconds_later: float = 0.0) -> None:
    await Sweeper(relay.store, clock=lambda: time.time() + seconds_later).run()


async def condemn(relay: ServedRelay, member: Member, content: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    async with http_client(relay.url, connect=10, idle=10, connections_kept=1) as http:
        path = f"/v2/vaults/{member.vault}/condemned"
        reply = await http.post(path, json=content, headers=member.authorization)
        return reply.status_code, reply.json()


async def test_a_dropped_vault_is_closed_at_once_and_restorable_with_all_it_had() -> None:
    async with served(MemoryStore(), RelaySettings(enroll_token=ENROLL_TOKEN)) as relay:
        member, other = await enrolled(relay.url), await enrolled(relay.url)
        store, theirs = member.store(relay.url), other.store(relay.url)
        await store.put_new(f"{member.prefix}mirror/1/1", b"kept")
        registry = relay.app.state.relay.registry
        until = await registry.drop_vault(member.vault, time.time() + 7 * 86400)
        with pytest.raises(VaultDropped) as caught:
            await store.get(f"{member.prefix}mirror/1/1")
        assert time.strftime("%Y-%m-%d", time.gmtime(until)) in caught.value.hint
        for refused in (
            store.put_new(f"{member.prefix}mirror/1/2", b"x"),
            store.list(member.prefix),
            store.wait(member.prefix, token=None, timeout=0),
            store.register_token(device=member.device, token_hash="0" * 64, preset="device"),
            store.register_token(
                device=member.device, token_hash="0" * 64, preset="lead", recovery=member.recovery
            ),
            store.create_vault(
                enroll_token=ENROLL_TOKEN, recovery_hash="0" * 64, device=member.device, token_hash="0" * 64
            ),
        ):
            with pytest.raises(VaultDropped):
                await refused
        assert (await condemn(relay, member, {"keys": ["mirror/1/1"]}))[1]["error"] == "dropped"
        # Whoever shows no token of the vault learns nothing of its state.
        stranger = Member(vault=member.vault).store(relay.url)
        with pytest.raises(Exception, match="does not know these credentials"):
            await stranger.list(member.prefix)
        await theirs.put_new(f"{other.prefix}mirror/1/1", b"theirs")
        assert await registry.drop_vault(member.vault, time.time()) == until, (
            "a drop is not changed by another"
        )
        await sweep(relay, seconds_later=6 * 86400)
        await registry.restore_vault(member.vault)
        assert await (await store.get(f"{member.prefix}mirror/1/1")).read() == b"kept"
        await sweep(relay, seconds_later=8 * 86400)
        assert await (await store.get(f"{member.prefix}mirror/1/1")).read() == b"kept"
        for each in (store, theirs, stranger):
            await each.aclose()


async def test_a_dropped_vault_goes_when_its_grace_is_over_and_only_it() -> None:
    async with served(MemoryStore(), RelaySettings(enroll_token=ENROLL_TOKEN)) as relay:
        gone, other = await enrolled(relay.url), await enrolled(relay.url)
        # A neighbour in the order of keys.
        near = Member(vault=f"{int(gone.vault, 16) ^ 1:032x}")
        registry = relay.app.state.relay.registry
        await registry.create_vault(VaultCreation(near.vault, "0" * 64, near.device, token_hash(near.token)))
        for member in (gone, other, near):
            store = member.store(relay.url)
            for number in range(30):
                await store.put_new(f"{member.prefix}mirror/1/{number:02d}", b"x")
            await store.aclose()
        await condemn(relay, gone, {"keys": ["mirror/1/99"]})
        before = {
            key
            for key in [*await keys_of(relay.store, "v/"), *await keys_of(relay.store, "r/")]
            if gone.vault not in key
        }
        until = await registry.drop_vault(gone.vault, 0)
        assert until >= time.time() + SETTLE_SECONDS - 2, "writes that were let in before may still arrive"
        await sweep(relay, seconds_later=SETTLE_SECONDS - 60)
        assert len(await keys_of(relay.store, gone.prefix)) == 30
        await sweep(relay, seconds_later=SETTLE_SECONDS + 400)
        after = {*await keys_of(relay.store, "v/"), *await keys_of(relay.store, "r/")}
        assert after == before
        left = [each.vault async for each in Operator(relay.store).vaults()]
        assert left == sorted([other.vault, near.vault])
        assert not await registry.has_vault(gone.vault)
        again = gone.store(relay.url)
        await again.create_vault(
            enroll_token=ENROLL_TOKEN,
            recovery_hash=recovery_hash(gone.recovery),
            device=gone.device,
            token_hash=token_hash(gone.token),
            proof=gone.proof(again.host),
        )
        await again.put_new(f"{gone.prefix}mirror/1/00", b"anew")
        await sweep(relay, seconds_later=SETTLE_SECONDS + 400)
        assert await (await again.get(f"{gone.prefix}mirror/1/00")).read() == b"anew"
        await again.aclose()


async def test_a_vault_is_not_restored_when_its_deletion_may_have_begun() -> None:
    async with served(MemoryStore(), RelaySettings(enroll_token=ENROLL_TOKEN)) as relay:
        member = await enrolled(relay.url)
        now = time.time()
        registry = relay.app.state.relay.registry
        until = await registry.drop_vault(member.vault, now + 86400)
        registry._dropped._clock = lambda: until - RESTORE_SECONDS_MIN + 1
        with pytest.raises(BadRequest):
            await registry.restore_vault(member.vault)
        registry._dropped._clock = lambda: until - RESTORE_SECONDS_MIN - 1
        await registry.restore_vault(member.vault)
        assert await registry.dropped_until(member.vault) is None


async def test_what_a_core_condemns_is_deleted_and_nothing_else() -> None:
    async with served(MemoryStore(), RelaySettings(enroll_token=ENROLL_TOKEN)) as relay:
        member, other = await enrolled(relay.url), await enrolled(relay.url)
        stream = f"conversations/{member.device}.{INCARNATION}"
        for each in (member, other):
            store = each.store(relay.url)
            mine = f"conversations/{each.device}.{INCARNATION}"
            for number in range(6):
                await store.put_new(f"{each.prefix}{mine}/{number:04d}", b"c")
                await store.put_new(f"{each.prefix}mirror/1/{number}", b"m")
            await store.put_new(f"{each.prefix}devlog/0", b"d")
            await store.put_new(f"{each.prefix}conversations/{each.device}.{'f' * 16}/0000", b"c")
            await store.aclose()
        theirs = await keys_of(relay.store, other.prefix)
        status, reply = await condemn(relay, member, {"prefix": f"{stream}/", "through": f"{stream}/0003"})
        assert (status, len(reply["id"])) == (202, 32)
        # The second time is no error, and a key that is not there is none either.
        assert (await condemn(relay, member, {"prefix": f"{stream}/", "through": f"{stream}/0003"}))[0] == 202
        assert (await condemn(relay, member, {"keys": ["mirror/1/0", "mirror/1/77", "mirror/1/5"]}))[0] == 202
        await sweep(relay)
        assert await keys_of(relay.store, member.prefix) == [
            f"{member.prefix}{key}"
            for key in (
                f"{stream}/0004",
                f"{stream}/0005",
                f"conversations/{member.device}.{'f' * 16}/0000",
                "devlog/0",
                "mirror/1/1",
                "mirror/1/2",
                "mirror/1/3",
                "mirror/1/4",
            )
        ]
        assert await keys_of(relay.store, other.prefix) == theirs
        assert await keys_of(relay.store, "r/condemned/") == []
        assert await keys_of(relay.store, "r/expiry/") == []


@pytest.mark.parametrize(
    ("content", "status"),
    [
        ({"keys": ["devlog/0"]}, 403),
        ({"prefix": "devlog/", "through": "devlog/9"}, 403),
        ({"keys": ["mirror/1/1", "devlog/0"]}, 403),
        ({}, 400),
        ({"keys": []}, 400),
        ({"keys": ["mirror/1/1"] * (CONDEMNED_KEYS_MAX + 1)}, 400),
        ({"keys": ["mirror/1/1"], "prefix": "mirror/1/", "through": "mirror/1/1"}, 400),
        ({"prefix": "mirror/1/"}, 400),
        ({"through": "mirror/1/1"}, 400),
        ({"prefix": "mirror/1", "through": "mirror/1/1"}, 400),
        ({"prefix": "mirror/1/", "through": "mirror/2/1"}, 400),
        ({"prefix": "", "through": "mirror/2/1"}, 400),
        ({"prefix": "/", "through": "/1"}, 400),
        ({"keys": ["../other/mirror/1/1"]}, 400),
        ({"keys": ["mirror/../devlog/0"]}, 400),
        ({"prefix": "../", "through": "../x"}, 400),
        ({"keys": ["r/enrollment/0"]}, 400),
        ({"prefix": "r/", "through": "r/z"}, 400),
        ({"keys": [f"mirror/1/{'x' * 240}"]}, 400),
        ({"keys": ["mirror/1/1\n"]}, 400),
        ({"keys": ["mirror/1/1"], "vault": "0" * 32}, 400),
    ],
)
async def test_nothing_but_objects_of_the_vault_can_be_condemned(
    relay: ServedRelay, lead: Member, content: dict[str, Any], status: int
) -> None:
    assert (await condemn(relay, lead, content))[0] == status
    assert await keys_of(relay.store, "r/condemned/") == []
    assert await keys_of(relay.store, "r/expiry/") == []


async def test_only_who_may_delete_may_condemn(relay: ServedRelay, lead: Member) -> None:
    device = await joined(relay.url, lead)
    assert (await condemn(relay, device, {"keys": ["mirror/1/1"]}))[0] == 403
    stranger = await enrolled(relay.url)
    stranger.vault = lead.vault
    assert (await condemn(relay, stranger, {"keys": ["mirror/1/1"]}))[0] == 401


async def test_a_large_condemnation_fits_and_too_many_wait_for_the_sweeper() -> None:
    async with served(MemoryStore(), RelaySettings(enroll_token=ENROLL_TOKEN)) as relay:
        lead = await enrolled(relay.url)
        keys = [f"mirror/1/{'x' * 200}{number:05d}" for number in range(CONDEMNED_KEYS_MAX)]
        assert (await condemn(relay, lead, {"keys": keys}))[0] == 202
        for _ in range(PENDING_MAX - 1):
            assert (await condemn(relay, lead, {"keys": ["mirror/1/1"]}))[0] == 202
        status, reply = await condemn(relay, lead, {"keys": ["mirror/1/1"]})
        assert (status, reply["error"]) == (429, "too-many-requests")
        await sweep(relay)
        assert (await condemn(relay, lead, {"keys": ["mirror/1/1"]}))[0] == 202


async def test_a_running_relay_sweeps_by_itself_and_stops_in_order() -> None:
    store = MemoryStore()
    async with served(store, RelaySettings(enroll_token=ENROLL_TOKEN, sweep_seconds=1)) as relay:
        lead = await enrolled(relay.url)
        client = lead.store(relay.url)
        await client.put_new(f"{lead.prefix}mirror/1/1", b"x")
        assert (await condemn(relay, lead, {"keys": ["mirror/1/1"]}))[0] == 202
        deadline = time.monotonic() + 20
        while await keys_of(store, "v/") or await keys_of(store, "r/condemned/"):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        await client.aclose()
    sweeps = relay.app.state.relay.sweeper.sweeps
    await relay.app.state.relay.aclose()
    assert relay.app.state.relay.sweeper.sweeps == sweeps >= 1


async def test_a_vault_cannot_fill_the_relay_with_tokens() -> None:
    async with served(MemoryStore(), RelaySettings(enroll_token=ENROLL_TOKEN, rate_per_token=0)) as relay:
        lead, other = await enrolled(relay.url), await enrolled(relay.url)
        for number in range(TOKENS_MAX - 1):
            await relay.store.put_new(f"r/vault/{lead.vault}/token/{'0' * 32}/{number:064x}", b"{}")
        client = lead.store(relay.url)
        with pytest.raises(Exception, match="at most 1000 tokens") as caught:
            await client.register_token(
                device=lead.device, token_hash=token_hash(new_token(lead.device)), preset="device"
            )
        assert getattr(caught.value, "code", "") == "quota"
        assert (await joined(relay.url, other)).vault == other.vault
        await client.aclose()
