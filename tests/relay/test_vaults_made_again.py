"""A vault that was dropped, deleted and made again: what of the earlier one must not reach the new one."""

import msgspec
import pytest

from crystal_relay.memory import MemoryStore
from crystal_relay.server import RelaySettings
from crystal_relay.server.operator import Operator
from crystal_relay.server.overview import NEW_RECORDS_MIN
from crystal_relay.store import Page
from crystal_relay.tokens import recovery_hash, token_hash
from tests.relay.test_sweeper import NOW, VAULTS, dropped, keys_of, put_all, sweeper
from tests.support.relay_server import ENROLL_TOKEN, Member, served


@pytest.mark.parametrize("objects", [1, 1500])
async def test_a_vault_that_was_made_again_is_not_deleted_by_a_process_that_is_late(objects: int) -> None:
    vault = VAULTS[0]
    again = {f"v/{vault}/mirror/1/zz{number}": b"new" for number in range(3)} | {
        f"r/vault/{vault}/record": b"new"
    }

    class Late(MemoryStore):
        """Before its last page of objects comes, another process finishes, and the vault is made again."""

        left = 1 + objects // 1000

        async def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Page:
            if prefix == f"v/{vault}/":
                self.left -= 1
                if self.left == 0:
                    await sweeper(self).run()
                    assert not await keys_of(self, f"r/vault/{vault}/")
                    await put_all(self, again.items())
            return await super().list(prefix, after=after, limit=limit)

    store = Late()
    await put_all(store, dropped(vault).items())
    await put_all(store, [(f"v/{vault}/mirror/1/{number:06d}", b"old") for number in range(objects)])
    await sweeper(store).run()
    assert await keys_of(store) == again.keys()


async def test_terms_written_while_the_earlier_vault_went_do_not_close_the_new_one() -> None:
    """`vaults suspend` on a vault that is being removed: its record came after the sweeper had listed the others."""
    member = Member()
    store = MemoryStore()
    await put_all(
        store, [(f"r/vault/{member.vault}/terms", b'{"access": "suspended", "since": 1, "reason": "spam"}')]
    )
    async with served(store) as relay:
        await founded(relay.url, member)
        client = member.store(relay.url)
        await client.put_new(f"{member.prefix}devlog/0", b"x")
        await client.aclose()


async def test_a_list_that_runs_while_a_vault_goes_brings_its_origin_back_in_no_later_list() -> None:
    vaults = [f"{number:032x}" for number in range(NEW_RECORDS_MIN + 1)]
    gone = vaults[0]
    store = MemoryStore()
    for vault in vaults:
        await put_all(
            store, [(f"r/vault/{vault}/record", b"{}"), (f"r/vault/{vault}/origin", origin("first"))]
        )
    await put_all(store, dropped(gone).items())
    summaries = Operator(store, clock=lambda: NOW).vaults()
    listed = [summary async for summary in summaries if summary.vault != gone or await _removed(store)]
    assert len(listed) == len(vaults)
    await put_all(store, [(f"r/vault/{gone}/record", b"{}"), (f"r/vault/{gone}/origin", origin("second"))])
    again = {summary.vault: summary async for summary in Operator(store, clock=lambda: NOW).vaults()}
    assert again[gone].token == "second"
    assert {again[vault].token for vault in vaults[1:]} == {"first"}


async def test_a_vault_made_again_on_the_same_day_is_used_on_that_day() -> None:
    store, member = MemoryStore(), Member()
    now = [float(NOW)]
    settings = RelaySettings(enroll_token=ENROLL_TOKEN, auth_cache_seconds=0)
    async with served(store, settings, clock=lambda: now[0]) as relay:
        used = relay.app.state.relay.last_used
        client = member.store(relay.url)
        for _ in range(2):
            await founded(relay.url, member)
            await client.list(member.prefix)
            await used.written()
            assert await used.day(member.vault) == "2027-01-15"
            for key in await keys_of(store, f"r/vault/{member.vault}/"):
                await store.delete(key)
        await client.aclose()


async def _removed(store: MemoryStore) -> bool:
    """Another process finishes while a list has read only a part."""
    await sweeper(store).run()
    return True


async def founded(url: str, member: Member) -> None:
    client = member.store(url)
    await client.create_vault(
        enroll_token=ENROLL_TOKEN,
        recovery_hash=recovery_hash(member.recovery),
        device=member.device,
        token_hash=token_hash(member.token),
        proof=member.proof(client.host),
    )
    await client.aclose()


def origin(token: str) -> bytes:
    return msgspec.json.encode({"token": token, "created": NOW, "quota_bytes": 0})
