"""A space has its quota, an address and a device their rates; the prototype's devices are told in their words."""

from typing import Any

import pytest
from starlette.requests import Request

from crystal_prototype.relay.extension import PROTOTYPE
from crystal_prototype.relay.routes import V1Routes
from crystal_relay.errors import RelayAtCap
from crystal_relay.memory import MemoryStore
from crystal_relay.server import RelaySettings
from crystal_relay.server.rates import Rates
from tests.prototype.device import V1Device
from tests.support.relay_server import ENROLL_TOKEN, enrolled, served


async def test_a_full_space_is_507_and_harms_no_other() -> None:
    store = MemoryStore()
    async with (
        served(store, RelaySettings(quota_bytes=10_000), extensions=[PROTOTYPE]) as relay,
        await V1Device.added(relay.url, store, "cc-core", "core", "full") as core,
        await V1Device.added(relay.url, store, "cc-core", "core", "roomy") as other,
    ):
        for number in range(9):
            await core.drop("conversations", b"%d" % number * 1_000)
        await relay.app.state.relay.extensions["v1"].usage.counted()
        refused = await core.http.post("/drop/conversations", content=b"x" * 2_000)
        assert (refused.status_code, refused.json().keys()) == (507, {"error"})
        assert (await other.drop("mirror", b"x" * 2_000))["ok"]
    await store.aclose()


async def test_too_many_requests_of_a_device_are_429_with_a_time() -> None:
    store = MemoryStore()
    async with (
        served(store, RelaySettings(rate_per_token=0.5), extensions=[PROTOTYPE]) as relay,
        await V1Device.added(relay.url, store, "cc-one", "core") as one,
        await V1Device.added(relay.url, store, "cc-two", "core") as two,
    ):
        replies = [await one.http.get("/pickup/conversations") for _ in range(8)]
        refused = [reply for reply in replies if reply.status_code == 429]
        assert 0 < len(refused) < 8
        assert refused[0].json().keys() == {"error"}
        assert int(refused[0].headers["retry-after"]) >= 1
        assert (await two.http.get("/pickup/conversations")).status_code == 200
    await store.aclose()


async def test_an_address_that_guesses_tokens_is_stopped_before_the_store_is_asked() -> None:
    store = MemoryStore()
    settings = RelaySettings(rate_unauthorized=0.5)
    routes = V1Routes(store, settings, Rates(settings))
    scope: dict[str, Any] = {
        "type": "http",
        "method": "GET",
        "query_string": b"",
        "client": ("203.0.113.9", 1),
    }
    scope |= {"headers": [(b"authorization", b"Bearer " + b"A" * 43)], "path_params": {"channel": "mirror"}}
    statuses = [(await routes.list_blobs(Request(scope))).status_code for _ in range(8)]
    assert statuses[0] == 403
    assert statuses[-1] == 429
    await store.aclose()


async def test_drops_count_towards_the_relays_cap() -> None:
    store = MemoryStore()
    settings = RelaySettings(enroll_token=ENROLL_TOKEN, cap_bytes=20_000)
    async with (
        served(store, settings, extensions=[PROTOTYPE]) as relay,
        await V1Device.added(relay.url, store, "cc-core", "core", "full") as core,
    ):
        running = relay.app.state.relay
        lead = await enrolled(relay.url)
        client = lead.store(relay.url)
        await client.put_new(f"{lead.prefix}blob/a", bytes(9_000))
        await core.drop("conversations", bytes(10_000))
        await running.cap.counted()
        with pytest.raises(RelayAtCap):
            await client.put_new(f"{lead.prefix}blob/b", bytes(3_000))
        refused = await core.http.post("/drop/conversations", content=bytes(3_000))
        assert (refused.status_code, refused.json().keys()) == (507, {"error"})
        await client.aclose()
    async with served(store, settings, extensions=[PROTOTYPE]) as relay:  # counted anew
        running = relay.app.state.relay
        running.cap.count()
        await running.cap.counted()
        with pytest.raises(RelayAtCap):
            running.usage.admit(lead.vault, 3_000)
    await store.aclose()
