"""The relay's half of direct transfers: who may, what counts, and whose object is there."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from crystal_relay.errors import QuotaExceeded
from crystal_relay.limits import BLOB_BYTES_MAX, DIRECT_BYTES_MIN
from crystal_relay.memory import MemoryStore
from crystal_relay.server import transfers
from crystal_relay.server.transfers import GRANTS_PER_VAULT_MAX
from crystal_relay.store import DirectRequest
from tests.support.direct_memory import SIGNATURE, DirectMemoryStore
from tests.support.relay_server import Member, ServedRelay, enrolled, joined, served

SIZE = DIRECT_BYTES_MIN
BODY = bytes(SIZE)
MD5 = "00" * 16
NOTHING: dict[str, Any] = {
    "method": "",
    "url": "",
    "headers": {},
    "expires_seconds": 0,
    "size": 0,
    "receipt": "",
}
"""What a reply without a grant leaves empty."""


class Counted:
    """A vault's objects, as the quota counts them, in a relay's transfers."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.bytes = 0

    def admit(self, vault: str, size: int) -> None:
        if self.bytes + size > self.limit:
            raise QuotaExceeded("the vault is full")

    def stored(self, vault: str, size: int) -> None:
        self.bytes += size


class Asking:
    """A device that asks about transfers."""

    def __init__(self, relay: ServedRelay, member: Member) -> None:
        self.member = member
        self._base = f"{relay.url}/v2/vaults/{member.vault}/transfers"

    async def begin(self, **asked: object) -> httpx.Response:
        return await self._post(self._base, {"key": "blob/a", "direction": "put", **asked})

    async def put(self, key: str = "blob/a", size: int = SIZE) -> dict[str, Any]:
        answer = await self.begin(key=key, size=size, md5=MD5)
        assert answer.status_code in (200, 201), answer.text
        granted: dict[str, Any] = answer.json()
        return granted

    async def done(self, receipt: str, key: str = "blob/a", size: int = SIZE) -> httpx.Response:
        return await self._post(f"{self._base}/done", {"key": key, "size": size, "receipt": receipt})

    async def _post(self, url: str, body: dict[str, object]) -> httpx.Response:
        async with httpx.AsyncClient(headers=self.member.authorization) as http:
            return await http.post(url, json=body)


@pytest_asyncio.fixture
async def relay() -> AsyncGenerator[ServedRelay]:
    async with served(DirectMemoryStore()) as running:
        yield running


@pytest_asyncio.fixture
async def device(relay: ServedRelay) -> Asking:
    return Asking(relay, await enrolled(relay.url))


def bucket_of(relay: ServedRelay) -> DirectMemoryStore:
    assert isinstance(relay.store, DirectMemoryStore)
    return relay.store


async def arrive(relay: ServedRelay, device: Asking, receipt: str, key: str = "blob/a") -> None:
    await bucket_of(relay).arrive(device.member.prefix + key, BODY, receipt)


async def test_a_put_is_a_success_once_the_object_is_there_and_is_the_one_that_was_put(
    relay: ServedRelay, device: Asking
) -> None:
    granted = await device.put()
    assert (granted["direct"], granted["method"], granted["size"]) == (True, "PUT", SIZE)
    assert device.member.prefix in granted["url"]
    assert (await device.done(granted["receipt"])).status_code == 404
    await arrive(relay, device, granted["receipt"])
    assert bucket_of(relay).announced == []
    for _ in range(2):
        answer = await device.done(granted["receipt"])
        assert (answer.status_code, answer.json()) == (201, {"size": SIZE})
    assert bucket_of(relay).announced[0] == f"{device.member.prefix}blob/a"


async def test_anothers_object_is_no_success_of_ones_own(relay: ServedRelay, device: Asking) -> None:
    mine, other = await device.put(), await device.put()
    await arrive(relay, device, other["receipt"])
    assert (await device.done(mine["receipt"])).json()["error"] == "exists"
    assert (await device.done("f" * 32)).json()["error"] == "exists"
    assert bucket_of(relay).announced, "who waits is woken, whoever wrote it and did not say so"
    assert (await device.done(other["receipt"])).status_code == 201


async def test_an_object_that_came_through_the_relay_is_no_direct_success(
    relay: ServedRelay, device: Asking
) -> None:
    granted = await device.put()
    store = device.member.store(relay.url)
    await store.put_new(f"{device.member.prefix}blob/a", b"x")
    await store.aclose()
    assert (await device.done(granted["receipt"])).json()["error"] == "exists"


async def test_a_wrong_size_when_done_is_refused(relay: ServedRelay, device: Asking) -> None:
    granted = await device.put()
    await arrive(relay, device, granted["receipt"])
    answer = await device.done(granted["receipt"], size=SIZE + 1)
    assert (answer.status_code, answer.json()["error"]) == (400, "size-mismatch")


async def test_small_blobs_and_stores_without_a_bucket_go_through_the_relay(
    relay: ServedRelay, device: Asking
) -> None:
    assert await device.put(size=SIZE - 1) == {"direct": False, "offered": True} | NOTHING
    store = device.member.store(relay.url)
    await store.put_new(f"{device.member.prefix}blob/small", b"x")
    await store.aclose()
    answer = await device.begin(direction="get", key="blob/small")
    assert answer.json() == {"direct": False, "offered": True} | NOTHING
    async with served(MemoryStore()) as plain:
        other = Asking(plain, await enrolled(plain.url))
        assert await other.put() == {"direct": False, "offered": False} | NOTHING
        assert (await other.begin(direction="get")).json() == {"direct": False, "offered": False} | NOTHING
        assert (await other.done("f" * 32)).status_code == 400


async def test_a_get_is_of_what_is_there(relay: ServedRelay, device: Asking) -> None:
    assert (await device.begin(direction="get")).json()["error"] == "not-found"
    await arrive(relay, device, "")
    answer = await device.begin(direction="get")
    assert (answer.status_code, answer.json()["size"], answer.json()["method"]) == (201, SIZE, "GET")


@pytest.mark.parametrize(
    "asked",
    [
        {"key": "mirror/1/1"},
        {"key": "devlog/1"},
        {"key": "blob/../mirror/1"},
        {"key": "blob/"},
        {"key": "blob/.."},
        {"key": "blob/a/b"},
        {"key": "blob/a\n"},
        {"key": "blob/A"},
        {"key": f"v/{'ab' * 16}/blob/a"},
        {"key": "r/vault/x/record"},
        {"key": f"blob/{'a' * 250}"},
        {"size": -1},
        {"size": BLOB_BYTES_MAX + 1},
        {"size": "1"},
        {"md5": ""},
        {"md5": "xy" * 16},
        {"md5": "ab" * 17},
        {"direction": "delete"},
        {"more": 1},
    ],
)
async def test_what_no_object_route_takes_is_refused(device: Asking, asked: dict[str, object]) -> None:
    answer = await device.begin(**{"size": SIZE, "md5": MD5} | asked)
    assert (answer.status_code, answer.json()["error"]) == (400, "bad-request")


async def test_no_tenant_gets_a_request_for_another_vault(relay: ServedRelay, device: Asking) -> None:
    await arrive(relay, device, "")
    stranger = await enrolled(relay.url)
    posing = Asking(relay, Member(vault=device.member.vault, device=stranger.device, token=stranger.token))
    for answer in (
        await posing.begin(direction="get"),
        await posing.begin(size=SIZE, md5=MD5),
        await posing.done("f" * 32),
    ):
        assert answer.status_code == 401
        assert SIGNATURE not in answer.text
    own = Asking(relay, stranger)
    assert (await own.begin(direction="get")).status_code == 404
    assert device.member.vault not in (await own.put())["url"]


async def test_a_device_may_put_blobs_directly_and_a_revoked_one_may_not(
    relay: ServedRelay, device: Asking
) -> None:
    second = await joined(relay.url, device.member)
    assert (await Asking(relay, second).put())["direct"]
    store = device.member.store(relay.url)
    await store.revoke_token(device=second.device)
    await store.aclose()
    assert (await Asking(relay, second).begin(size=SIZE, md5=MD5)).status_code == 401


async def test_signed_addresses_are_in_no_log_of_the_relay(
    relay: ServedRelay, device: Asking, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "crystal_relay")
    granted = await device.put()
    await arrive(relay, device, granted["receipt"])
    await device.begin(direction="get")
    await device.done(granted["receipt"])
    ours = [record for record in caplog.records if record.name.startswith("crystal_relay")]
    assert ours
    for record in ours:
        assert SIGNATURE not in record.getMessage()
        assert granted["receipt"] not in record.getMessage()
    signed = await bucket_of(relay).direct_put("v/a/blob/a", size=1, md5=b"")
    assert SIGNATURE not in repr(signed)
    assert signed.receipt not in repr(signed)


class TestQuota:
    """Counted against the quota: what is granted while it may be used, what is done, what expired in silence."""

    @pytest.fixture
    def count(self, relay: ServedRelay, monkeypatch: pytest.MonkeyPatch) -> Counted:
        count = Counted(3 * SIZE)
        self.now = 0.0
        grants = transfers.OpenGrants(count, lambda: self.now)
        served_transfers = relay.app.state.relay.transfers
        monkeypatch.setattr(served_transfers, "_quota", count)
        monkeypatch.setattr(served_transfers, "_grants", grants)
        monkeypatch.setattr(served_transfers, "_clock", lambda: self.now)
        return count

    async def test_open_grants_take_room(self, device: Asking, count: Counted) -> None:
        for name in ("a", "b", "c"):
            await device.put(f"blob/{name}")
        answer = await device.begin(key="blob/d", size=SIZE, md5=MD5)
        assert (answer.status_code, answer.json()["error"]) == (507, "quota")
        assert count.bytes == 0

    async def test_puts_asked_for_at_once_take_no_more_room_than_one_after_the_other(
        self, relay: ServedRelay, device: Asking, count: Counted, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sign = DirectMemoryStore.direct_put

        async def slowly(self: DirectMemoryStore, key: str, *, size: int, md5: bytes) -> DirectRequest:
            await asyncio.sleep(0.3)
            return await sign(self, key, size=size, md5=md5)

        monkeypatch.setattr(DirectMemoryStore, "direct_put", slowly)
        asked = [device.begin(key=f"blob/{number}", size=SIZE, md5=MD5) for number in range(12)]
        answers = await asyncio.gather(*asked)
        assert sorted(answer.status_code for answer in answers) == [201] * 3 + [507] * 9

    async def test_an_object_counts_once_however_often_it_is_done(
        self, relay: ServedRelay, device: Asking, count: Counted
    ) -> None:
        granted = await device.put()
        await arrive(relay, device, granted["receipt"])
        for _ in range(3):
            assert (await device.done(granted["receipt"])).status_code == 201
        assert count.bytes == SIZE
        self.now = 10_000
        await device.put("blob/b")
        assert count.bytes == SIZE

    async def test_who_keeps_silent_gets_no_more_room(self, device: Asking, count: Counted) -> None:
        for name in ("a", "b", "c"):
            await device.put(f"blob/{name}")
        self.now = 10_000
        answer = await device.begin(key="blob/d", size=SIZE, md5=MD5)
        assert answer.status_code == 507
        assert count.bytes == 3 * SIZE

    async def test_a_lost_race_gives_its_room_back_and_another_keys_receipt_does_not(
        self, relay: ServedRelay, device: Asking, count: Counted
    ) -> None:
        mine, other = await device.put("blob/a"), await device.put("blob/b")
        await arrive(relay, device, "someone else's", "blob/a")
        assert (await device.done(other["receipt"], "blob/a")).status_code == 412
        assert (await device.done(mine["receipt"], "blob/a")).status_code == 412
        self.now = 10_000
        await device.put("blob/c")
        assert count.bytes == SIZE, "of blob/b alone, which may have arrived"

    async def test_beyond_so_many_open_grants_blobs_go_through_the_relay(
        self, device: Asking, count: Counted, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        count.limit = GRANTS_PER_VAULT_MAX * SIZE
        monkeypatch.setattr(transfers, "GRANTS_PER_VAULT_MAX", 2)
        assert [(await device.put(f"blob/{name}"))["direct"] for name in "abc"] == [True, True, False]
        self.now = 10_000
        assert (await device.put("blob/d"))["direct"]
