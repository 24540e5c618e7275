"""What the relay counts, how it is exposed, and what stays out of it."""

import asyncio
import time
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from crystal_relay.local import LocalStore
from crystal_relay.memory import MemoryStore
from crystal_relay.server import RelaySettings
from crystal_relay.server.metrics import SERIES_MAX, Exposition, MetricKind, Metrics, MetricSource
from tests.support.relay_server import ENROLL_TOKEN, enrolled, served

REQUEST_SECONDS_MAX = 2e-6
TOKEN = "metrics-token-of-the-tests"
SETTINGS = RelaySettings(enroll_token=ENROLL_TOKEN, metrics_token=TOKEN)


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = Exposition(metrics).text().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_requests_are_counted_by_route_method_and_status() -> None:
    metrics = Metrics()
    for _ in range(3):
        metrics.request("put_object", "PUT", 201, 0.004, 4096, 10)
    metrics.request("put_object", "PUT", 412, 0.2, 4096, 50)
    found = samples(metrics)
    labels = (("method", "PUT"), ("route", "put_object"))
    assert found["crystal_relay_requests_total", (*labels, ("status", "201"))] == 3
    assert found["crystal_relay_requests_total", (*labels, ("status", "412"))] == 1
    route = (("route", "put_object"),)
    assert found["crystal_relay_request_seconds_bucket", (("le", "0.0025"), *route)] == 0
    assert found["crystal_relay_request_seconds_bucket", (("le", "0.005"), *route)] == 3
    assert found["crystal_relay_request_seconds_bucket", (("le", "+Inf"), *route)] == 4
    assert found["crystal_relay_request_seconds_count", route] == 4
    assert abs(found["crystal_relay_request_seconds_sum", route] - 0.212) < 1e-9
    assert found["crystal_relay_received_bytes_total", route] == 4 * 4096
    assert found["crystal_relay_sent_bytes_total", route] == 80


def test_errors_and_other_sources_are_shown() -> None:
    metrics = Metrics()
    metrics.error("quota")
    metrics.error("quota")
    metrics.add(MetricSource("crystal_relay_waits", "Sleeping waits.", MetricKind.GAUGE, (), lambda: {(): 7}))
    metrics.add(
        MetricSource(
            "crystal_relay_swept", "Removed.", MetricKind.COUNTER, ("kind",), lambda: {("invite",): 2}
        )
    )
    found = samples(metrics)
    assert found["crystal_relay_errors_total", (("code", "quota"),)] == 2
    assert found["crystal_relay_waits", ()] == 7
    assert found["crystal_relay_swept_total", (("kind", "invite"),)] == 2
    assert ("process_resident_memory_bytes", ()) in found


def test_clients_cannot_make_series_without_end() -> None:
    metrics = Metrics()
    for number in range(10 * SERIES_MAX):
        metrics.request("none", f"METHOD{number}", 404, 0.0, 0, 0)
    assert len(samples(metrics)) < 50
    for number in range(2 * SERIES_MAX):
        metrics.request(f"route{number}", "GET", 404, 0.0, 0, 0)
    assert metrics.series <= SERIES_MAX + 1
    counted = sum(
        value for (name, _), value in samples(metrics).items() if name == "crystal_relay_requests_total"
    )
    assert counted == 12 * SERIES_MAX


def test_counting_a_request_costs_less_than_two_microseconds() -> None:
    metrics = Metrics()
    rounds: list[float] = []
    calls = 20_000
    for _ in range(5):
        began = time.thread_time()  # other programs' turns do not count
        for _ in range(calls):
            metrics.request("put_object", "PUT", 201, 0.004, 4096, 0)
        rounds.append((time.thread_time() - began) / calls)
    assert min(rounds) < REQUEST_SECONDS_MAX


async def test_without_a_token_for_it_there_is_no_such_route() -> None:
    async with served(MemoryStore()) as relay, httpx.AsyncClient(base_url=relay.url) as http:
        for headers in ({}, {"Authorization": f"Bearer {TOKEN}"}):
            reply = await http.get("/metrics", headers=headers)
            assert (reply.status_code, reply.json()["error"]) == (404, "no-such-route")
        assert "/metrics" not in (await http.get("/v2/openapi.json")).json()["paths"]


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        f"Bearer {TOKEN}x",
        f"Bearer  {TOKEN}",
        f"bearer {TOKEN}",
        f"Basic {TOKEN}",
        TOKEN,
    ],
)
async def test_without_the_right_token_nothing_is_shown(header: str) -> None:
    async with served(MemoryStore(), SETTINGS) as relay, httpx.AsyncClient(base_url=relay.url) as http:
        reply = await http.get("/metrics", headers={"Authorization": header} if header else {})
        assert (reply.status_code, reply.json()["error"]) == (401, "unauthorized")
        assert "crystal_relay_" not in reply.text
        assert TOKEN not in reply.text


async def test_no_other_token_opens_the_metrics_nor_they_anything_else() -> None:
    async with served(MemoryStore(), SETTINGS) as relay, httpx.AsyncClient(base_url=relay.url) as http:
        lead = await enrolled(relay.url)
        for token in (ENROLL_TOKEN, lead.token):
            reply = await http.get("/metrics", headers={"Authorization": f"Bearer {token}"})
            assert reply.status_code == 401
        headers = {"Authorization": f"Bearer {TOKEN}"}
        assert (await http.get(f"/v2/vaults/{lead.vault}/list", headers=headers)).status_code == 401
        assert (await http.post("/v2/vaults", json={}, headers=headers)).status_code == 401


async def test_disk_vaults_and_the_stores_own_time_are_shown(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    async with served(store, SETTINGS) as relay, httpx.AsyncClient(base_url=relay.url) as http:
        lead = await enrolled(relay.url)
        mine = lead.store(relay.url)
        await mine.put_new(f"{lead.prefix}devlog/0", b"x" * 1000)
        await relay.app.state.relay.usage.counted()
        await (await mine.get(f"{lead.prefix}devlog/0")).read()
        reply = await http.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
        await mine.aclose()
    await store.aclose()
    found = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(reply.text)
        for sample in family.samples
    }
    assert found["crystal_relay_vaults", (("state", "counted"),)] == 1
    assert found["crystal_relay_vaults", (("state", "full"),)] == 0
    # A write that ends while it is counted may count twice until the next count.
    assert found["crystal_relay_vault_objects", ()] in (1, 2)
    assert found["crystal_relay_vault_bytes", ()] in (1000, 2000)
    assert 0 < found["crystal_relay_disk_free_bytes", ()] <= found["crystal_relay_disk_size_bytes", ()]
    assert found["crystal_relay_store_up", ()] == 1
    assert ("crystal_relay_disk_full", ()) in found
    for operation in ("put", "get"):
        assert found["crystal_relay_store_seconds_count", (("operation", operation),)] >= 1
    assert found["crystal_relay_store_queue_seconds_count", (("size", "small"),)] >= 2
    assert found["crystal_relay_store_running", (("size", "small"),)] == 0
    assert found["crystal_relay_store_queued", (("size", "small"),)] == 0


async def test_a_scrape_is_parseable_and_names_nobody() -> None:
    async with served(MemoryStore(), SETTINGS) as relay, httpx.AsyncClient(base_url=relay.url) as http:
        lead = await enrolled(relay.url)
        store = lead.store(relay.url)
        await store.put_new(f"{lead.prefix}devlog/0", b"x" * 1000)
        await (await store.get(f"{lead.prefix}devlog/0")).read()
        path = f"/v2/vaults/{lead.vault}/wait"
        token = (await http.get(path, headers=lead.authorization)).json()["token"]
        sleeping = asyncio.create_task(http.get(path, params={"token": token}, headers=lead.authorization))
        while not relay.app.state.relay.waits.sleeping:  # noqa: ASYNC110  seen from outside
            await asyncio.sleep(0.005)
        reply = await http.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
        await store.put_new(f"{lead.prefix}devlog/1", b"x")
        await sleeping
        await store.aclose()
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = {family.name: family for family in text_string_to_metric_families(reply.text)}
    assert [sample.value for sample in families["crystal_relay_waits"].samples] == [1]
    labels = {
        value for family in families.values() for sample in family.samples for value in sample.labels.values()
    }
    for name in (lead.vault, lead.device, lead.token, "127.0.0.1", TOKEN, ENROLL_TOKEN):
        assert name not in reply.text
    assert not any("/" in label for label in labels)
