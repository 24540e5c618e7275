"""What supervisors and load balancers are told, and what asking costs."""

import asyncio
import secrets
import time
from collections import Counter
from urllib.parse import urlsplit

import httpx
import pytest

from crystal_relay.errors import StoreDamaged, StoreUnavailable
from crystal_relay.memory import MemoryStore
from crystal_relay.server import RelaySettings, connection, create_app
from crystal_relay.server.admission import Trust
from crystal_relay.server.health import LOOK_SECONDS, Health, ProcessState
from crystal_relay.store import DiskStatus, Object, Page
from tests.support.relay_server import ENROLL_TOKEN, enrolled, served

ROUTES = ("/health", "/health/live", "/health/ready")


class CountedStore(MemoryStore):
    """Counts what it is asked, and fails or stalls when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.fails: Exception | None = None
        self.stalls = False

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> Object:
        self.calls["get"] += 1
        if self.fails is not None:
            raise self.fails
        if self.stalls:
            await asyncio.Event().wait()
        return await super().get(key, start=start, length=length)

    async def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Page:
        self.calls["list"] += 1
        return await super().list(prefix, after=after, limit=limit)


async def ask(url: str) -> dict[str, int]:
    async with httpx.AsyncClient(base_url=url) as http:
        return {route: (await http.get(route)).status_code for route in ROUTES}


async def test_a_relay_that_serves_says_so() -> None:
    async with served(MemoryStore()) as relay:
        assert await ask(relay.url) == dict.fromkeys(ROUTES, 200)
        async with httpx.AsyncClient(base_url=relay.url) as http:
            assert (await http.get("/health")).json().keys() == {"ok", "service", "protocol", "version"}
            assert (await http.get("/health/ready")).json() == {"ok": True}
            assert (await http.get("/health/live?x=1")).status_code == 400


async def test_strangers_cannot_make_store_operations_by_asking() -> None:
    """On a machine so slow that this lasts, it looks again in its own time, and its timetable's first round may come."""
    store = CountedStore()
    began = time.monotonic()
    async with served(store) as relay, httpx.AsyncClient(base_url=relay.url) as http:
        for _ in range(10):
            await asyncio.gather(*(http.get(route) for route in ROUTES for _ in range(10)))
        assert 1 <= store.calls["get"] <= 1 + (time.monotonic() - began) // LOOK_SECONDS
        assert store.calls["list"] <= 1


@pytest.mark.parametrize("error", [StoreUnavailable("gone"), StoreDamaged("v/secret/key")])
async def test_a_store_that_fails_makes_the_relay_unready_not_dead(error: Exception) -> None:
    store = CountedStore()
    store.fails = error
    async with served(store) as relay:
        assert await ask(relay.url) == {"/health": 503, "/health/live": 200, "/health/ready": 503}
        async with httpx.AsyncClient(base_url=relay.url) as http:
            reply = await http.get("/health/ready")
        assert reply.json()["error"] == "unavailable"
        assert str(error) not in reply.text
        assert store.calls == {"get": 1}


async def test_a_store_that_stalls_holds_up_nobody_for_long() -> None:
    store = CountedStore()
    store.stalls = True
    app = create_app(store, RelaySettings(enroll_token=ENROLL_TOKEN))
    app.state.relay.health._look_seconds_max = 0.05
    app.state.relay.health.serving()
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://relay") as http:
        replies = await asyncio.wait_for(asyncio.gather(*(http.get("/health/ready") for _ in range(20))), 20)
    assert {reply.status_code for reply in replies} == {503}
    assert store.calls == {"get": 1}


async def test_a_client_that_goes_does_not_end_the_look_of_others() -> None:
    store = CountedStore()
    store.stalls = True
    health = Health(store, look_seconds_max=0.2)
    first = asyncio.create_task(health.check_store())
    await asyncio.sleep(0)
    second = asyncio.create_task(health.check_store())
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(StoreUnavailable):
        await second
    assert store.calls == {"get": 1}


async def test_the_store_is_looked_at_again_after_ten_seconds() -> None:
    now = [100.0]
    store = CountedStore()
    store.fails = StoreUnavailable("gone")
    health = Health(store, clock=lambda: now[0])
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await health.check_store()
    store.fails = None
    now[0] += LOOK_SECONDS
    await health.check_store()
    assert store.calls == {"get": 2}


class SmallDisk(MemoryStore):
    """Says how much its disk has left."""

    free = 10_000

    async def disk(self) -> DiskStatus:
        return DiskStatus(self.free, 100_000, self.free < 1_000)


async def test_a_full_disk_is_told_and_takes_nothing_out_of_service(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whoever is sent elsewhere could neither read nor delete, which makes room."""
    now = [100.0]
    store = SmallDisk()
    app = create_app(store, RelaySettings(enroll_token=ENROLL_TOKEN))
    health: Health = app.state.relay.health
    health._clock = lambda: now[0]  # pyright: ignore[reportPrivateUsage]  the app makes it, with the true clock
    health.serving()
    answers: list[tuple[int, object]] = []
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://relay") as http:
        for free in (10_000, 999, 500, 5_000):
            store.free = free
            reply = await http.get("/health/ready")
            answers.append((reply.status_code, reply.json()))
            assert health.disk == DiskStatus(free, 100_000, free < 1_000)
            now[0] += LOOK_SECONDS
    assert answers == [
        (200, {"ok": True}),
        (200, {"ok": True, "full": "disk"}),
        (200, {"ok": True, "full": "disk"}),
        (200, {"ok": True}),
    ]
    assert [made.getMessage() for made in caplog.records if made.name == "crystal_relay.server"] == [
        "full: the disk has 999 bytes left. Free space on the relay's disk.",
        "the disk has space again: 5000 bytes",
    ]


async def test_a_relay_that_starts_or_stops_is_not_ready() -> None:
    app = create_app(MemoryStore(), RelaySettings(enroll_token=ENROLL_TOKEN))
    health: Health = app.state.relay.health
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://relay") as http:
        assert (await http.get("/health/ready")).status_code == 503
        assert (await http.get("/health/live")).status_code == 200
        health.serving()
        assert (await http.get("/health/ready")).status_code == 200
        health.stopping()
        reply = await http.get("/health/ready")
        assert (reply.status_code, reply.json()["error"]) == (503, "unavailable")
        assert (await http.get("/health/live")).status_code == 200


async def test_a_stopping_server_says_so_on_connections_that_are_still_open() -> None:
    """A long poll is answered by the stop; until then the state has changed."""
    async with served(MemoryStore()) as relay:
        lead = await enrolled(relay.url)
        states = [relay.app.state.relay.health.state]
        async with httpx.AsyncClient(base_url=relay.url, headers=lead.authorization) as http:
            path = f"/v2/vaults/{lead.vault}/wait"
            token = (await http.get(path)).json()["token"]
            sleeping = asyncio.create_task(http.get(path, params={"token": token}))
            while not relay.app.state.relay.waits.sleeping:  # noqa: ASYNC110  seen from outside
                await asyncio.sleep(0.005)
            relay.server.stop()
            assert (await sleeping).status_code == 200
        states.append(relay.app.state.relay.health.state)
    assert states == [ProcessState.SERVING, ProcessState.STOPPING]


async def test_a_draining_server_serves_on_and_lets_its_clients_go() -> None:
    """What a proxy needs to take its requests elsewhere before anything is refused."""
    async with served(MemoryStore(), drain_seconds=600.0) as relay:
        lead = await enrolled(relay.url)
        waits = relay.app.state.relay.waits
        async with httpx.AsyncClient(base_url=relay.url, headers=lead.authorization) as http:
            path = f"/v2/vaults/{lead.vault}"
            first = await http.get(f"{path}/wait")
            assert "connection" not in first.headers
            sleeping = asyncio.create_task(
                http.get(f"{path}/wait", params={"token": first.json()["token"], "prefix": "mirror/"})
            )
            while not waits.sleeping:  # noqa: ASYNC110  seen from outside
                await asyncio.sleep(0.005)
            relay.server.stop()
            while (ready := await http.get("/health/ready")).status_code == 200:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            assert (ready.status_code, ready.headers["connection"]) == (503, "close")
            for _ in range(3):  # each on a connection of its own, so it accepts
                wrote = await http.put(
                    f"{path}/objects/blob/{secrets.token_hex(8)}",
                    content=b"sealed",
                    headers={"If-None-Match": "*"},
                )
                assert (wrote.status_code, wrote.headers["connection"]) == (201, "close")
            assert (await http.get("/health/live")).status_code == 200
            assert waits.sleeping == 1
            relay.server.stop()
            answered = await sleeping
            assert answered.json() == first.json(), "it says come back"
            assert answered.headers["connection"] == "close"


async def test_the_first_request_of_a_connection_made_before_the_stop_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A proxy opens a connection and writes at once; the relay may read that after it was told to stop."""
    monkeypatch.setattr(connection, "LAST_REQUEST_SECONDS_MAX", 60.0)  # whatever the machine does meanwhile
    async with served(MemoryStore()) as relay:
        parts = urlsplit(relay.url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        while not relay.app.state.relay.admission.count(Trust.ANONYMOUS):  # noqa: ASYNC110  seen from outside
            await asyncio.sleep(0.005)
        relay.server.stop()
        while relay.app.state.relay.health.state is not ProcessState.STOPPING:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        writer.write(b"GET /health/live HTTP/1.1\r\nHost: relay\r\n\r\n")
        answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"connection: close" in answer
