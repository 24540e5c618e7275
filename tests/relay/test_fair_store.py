"""Vaults take turns at a store that is slow, whatever the number of each one's requests."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest

from crystal_relay.errors import Busy, NotFound, StoreUnavailable
from crystal_relay.limits import BLOB_BYTES_MAX, KIB
from crystal_relay.local import LocalStore
from crystal_relay.memory import MemoryStore
from crystal_relay.server import RelaySettings, fair_store
from crystal_relay.server.dropped_vaults import SETTLE_SECONDS
from crystal_relay.server.fair_store import FairStore, Turns
from crystal_relay.server.settings import QUEUED_SECONDS_MAX
from crystal_relay.store import Body, DirectStore, Object
from tests.support.relay_server import ENROLL_TOKEN, Member, enrolled, joined, served

NARROW = RelaySettings(
    enroll_token=ENROLL_TOKEN, store_concurrency=2, vault_concurrency=2, rate_per_token=0, rate_per_address=0
)
GREEDY, OF_EACH = 10, 12


class GatedStore(MemoryStore):
    """Once `closed`, its writes wait until they are let through, and are noted in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False
        self.inside: list[tuple[str, asyncio.Future[None]]] = []
        self.order: list[str] = []

    async def put_new(self, key: str, body: bytes | Body) -> None:
        if self.closed and key.startswith("v/"):
            self.order.append(key.split("/")[1])
            gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.inside.append((key, gate))
            await gate
        await super().put_new(key, body)

    def let_one_through(self) -> None:
        self.inside.pop(0)[1].set_result(None)


async def until(holds: Callable[[], bool]) -> None:
    """How long it takes is the machine's matter."""
    async with asyncio.timeout(120):
        while not holds():  # noqa: ASYNC110  seen from outside
            await asyncio.sleep(0.005)


async def put(http: httpx.AsyncClient, member: Member, number: int) -> int:
    reply = await http.put(
        f"/v2/vaults/{member.vault}/objects/blob/{number:032x}",
        content=b"sealed",
        headers=member.authorization | {"If-None-Match": "*"},
    )
    return reply.status_code


async def test_a_modest_vault_is_served_beside_ten_greedy_ones() -> None:
    """Through HTTP. Without turns its write would come after all 120 of the others."""
    store = GatedStore()
    limits = httpx.Limits(max_connections=None)
    async with (
        served(store, NARROW) as relay,
        httpx.AsyncClient(base_url=relay.url, limits=limits, timeout=300) as http,
    ):
        greedy = [await enrolled(relay.url) for _ in range(GREEDY)]
        modest = await enrolled(relay.url)
        for number, member in enumerate((*greedy, modest)):
            assert await put(http, member, 1_000 + number) == 201  # its token is known from now on
        turns = relay.app.state.relay.fair_store.small
        store.closed = True
        many = [
            asyncio.create_task(put(http, member, number)) for member in greedy for number in range(OF_EACH)
        ]
        await until(lambda: turns.waiting == GREEDY * OF_EACH - 2)
        for _ in range(2 * GREEDY):
            before = len(store.order)
            store.let_one_through()
            await until(lambda: len(store.order) > before)  # noqa: B023  at once
        assert Counter(store.order[2 : 2 + 2 * GREEDY]).keys() == {each.vault for each in greedy}
        came_at = len(store.order)
        one = asyncio.create_task(put(http, modest, 0))
        await until(lambda: turns.waiting == GREEDY * OF_EACH - came_at + 1)
        while not one.done() or not all(each.done() for each in many):
            if store.inside:
                store.let_one_through()
            await asyncio.sleep(0.002)
        assert {await each for each in (*many, one)} == {201}
    assert store.order.index(modest.vault) - came_at <= 2, "it is next, and waits for none of them"
    assert len(store.order) == GREEDY * OF_EACH + 1


async def test_a_sleeping_wait_takes_no_place() -> None:
    settings = RelaySettings(enroll_token=ENROLL_TOKEN, store_concurrency=1, vault_concurrency=1)
    async with served(MemoryStore(), settings) as relay, httpx.AsyncClient(base_url=relay.url) as http:
        member = await enrolled(relay.url)
        path = f"/v2/vaults/{member.vault}/wait"
        token = (await http.get(path, headers=member.authorization)).json()["token"]
        waits = [
            asyncio.create_task(
                http.get(path, params={"token": token}, headers=member.authorization, timeout=300)
            )
            for _ in range(4)
        ]
        await until(lambda: relay.app.state.relay.waits.sleeping == 4)
        assert relay.app.state.relay.fair_store.small.running == 0
        assert await put(http, member, 0) == 201
        assert {(await each).status_code for each in waits} == {200}


async def test_a_body_that_arrives_slowly_takes_no_place_until_it_is_there() -> None:
    settings = RelaySettings(store_concurrency=1, vault_concurrency=1)
    store = FairStore(MemoryStore(), settings)
    arrive = asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        yield b"x" * 100
        await arrive.wait()
        yield b"x" * 100

    slow = asyncio.create_task(store.put_new("v/a/blob/0", Body(200, pieces)))
    await asyncio.sleep(0)
    await store.put_new("v/b/blob/0", Body(3, lambda: _pieces(b"abc")))
    assert store.large.running == 0
    assert not slow.done()
    arrive.set()
    await slow
    assert await (await store.get("v/a/blob/0")).read() == b"x" * 200
    assert (store.large.running, store.small.running) == (0, 0)


async def test_too_many_of_one_vault_are_refused_and_no_other_vault_notices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fair_store, "QUEUED_OF_VAULT_MAX", 3)
    gated = GatedStore()
    gated.closed = True
    store = FairStore(gated, RelaySettings(store_concurrency=1, vault_concurrency=1))
    first = [asyncio.create_task(store.put_new(f"v/a/blob/{number}", b"x")) for number in range(4)]
    await asyncio.sleep(0)
    with pytest.raises(Busy):
        await store.put_new("v/a/blob/9", b"x")
    other = asyncio.create_task(store.put_new("v/b/blob/0", b"x"))
    while not all(each.done() for each in (*first, other)):
        if gated.inside:
            gated.let_one_through()
        await asyncio.sleep(0)
    assert gated.order.index("b") <= 2


async def test_a_vault_whose_queue_is_full_does_not_keep_the_relay_from_counting_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else it could store beyond its quota for as long as it asks for more than the store takes."""
    monkeypatch.setattr(fair_store, "QUEUED_OF_VAULT_MAX", 2)
    store = GatedStore()
    async with served(store, NARROW) as served_relay:
        member = await enrolled(served_relay.url)
        async with httpx.AsyncClient(base_url=served_relay.url) as http:
            assert await put(http, member, 0) == 201
        relay = served_relay.app.state.relay
        await relay.usage.counted()
        relay.usage.forget(member.vault)
        store.closed = True
        writes = [
            asyncio.create_task(relay.fair_store.put_new(f"v/{member.vault}/blob/{number}", b"x"))
            for number in range(4)
        ]
        await until(lambda: relay.fair_store.small.waiting == 2)
        relay.usage.admit(member.vault, 1)
        await relay.usage.counted()
        assert relay.usage.totals().vaults == 1
        store.closed = False
        while not all(write.done() for write in writes):
            if store.inside:
                store.let_one_through()
            await asyncio.sleep(0)


async def test_a_stolen_token_does_not_keep_its_owner_from_revoking_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thief's requests fill the vault's queue; the owner's look-ups and the revocation wait behind none of them."""
    monkeypatch.setattr(fair_store, "QUEUED_OF_VAULT_MAX", 4)
    store = GatedStore()
    async with served(store, NARROW) as served_relay:
        owner = await enrolled(served_relay.url)
        thief = await joined(served_relay.url, owner)
        relay = served_relay.app.state.relay
        async with httpx.AsyncClient(base_url=served_relay.url, timeout=300) as http:
            assert await put(http, thief, 1_000) == 201
            store.closed = True
            writes = [asyncio.create_task(put(http, thief, number)) for number in range(6)]
            await until(lambda: relay.fair_store.small.waiting == 4)
            relay.forget(owner.vault)
            revoking = asyncio.create_task(
                http.delete(
                    f"/v2/vaults/{owner.vault}/tokens/{thief.device}",
                    headers={"Authorization": f"Crystal-Recovery {owner.recovery.hex()}"},
                )
            )
            while not revoking.done():  # one place is enough, whenever one of the thief's ends
                if relay.fair_store.small._queue.waiting_of(f"v/{owner.vault}", ahead=True):
                    store.let_one_through()
                await asyncio.sleep(0.005)
            assert (await revoking).status_code == 200
            store.closed = False
            while not all(write.done() for write in writes):
                if store.inside:
                    store.let_one_through()
                await asyncio.sleep(0.005)


async def test_a_caller_that_goes_away_gives_its_place_to_the_next() -> None:
    gated = GatedStore()
    gated.closed = True
    store = FairStore(gated, RelaySettings(store_concurrency=1, vault_concurrency=1))
    tasks = [asyncio.create_task(store.put_new(f"v/a/blob/{number}", b"x")) for number in range(4)]
    await asyncio.sleep(0)
    tasks[1].cancel()  # waits
    tasks[0].cancel()  # runs: the next has its turn at this moment
    await asyncio.wait(tasks[:2])
    tasks[2].cancel()  # was given the turn
    await asyncio.wait(tasks[2:3])
    await asyncio.sleep(0)
    while not tasks[3].done():
        if gated.inside:
            gate = gated.inside.pop(0)[1]
            if not gate.done():
                gate.set_result(None)
        await asyncio.sleep(0)
    await tasks[3]
    assert (store.small.running, store.small.waiting) == (0, 0)


@pytest.mark.parametrize("running", [True, False])
async def test_callers_that_go_away_at_once_leave_no_place_taken(running: bool) -> None:
    """The first one's place is given to the next before that one runs, and knows that it was cancelled too."""
    gated = GatedStore()
    gated.closed = True
    store = FairStore(gated, RelaySettings(store_concurrency=1, vault_concurrency=1))
    tasks = [asyncio.create_task(store.put_new(f"v/{vault}/blob/0", b"x")) for vault in "abc"]
    await asyncio.sleep(0)
    for task in tasks if running else tasks[1:]:
        task.cancel()
    if not running:
        gated.inside.pop(0)[1].set_result(None)
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(each) for each in ended[1:]] == 2 * [asyncio.CancelledError]
    assert (store.small.running, store.small.waiting) == (0, 0)
    gated.closed = False
    await store.put_new("v/d/blob/0", b"x")


async def test_strangers_do_not_become_many_by_naming_vaults() -> None:
    """Look-ups of vaults that have let nobody in share one queue; those of the others count as theirs."""
    store = FairStore(MemoryStore(), RelaySettings())
    flow_of = store._flow_of  # pyright: ignore[reportPrivateUsage]  without it: only by many waits
    flows = {flow_of(f"r/vault/{number:032x}/token/x") for number in range(100)}
    assert flows == {fair_store.SHARED}
    assert flow_of("v/abc/blob/1") == "v/abc"
    assert flow_of("r/vault/abc/token/x") == "v/abc"
    assert flow_of("r/condemned/abc/1") == "v/abc"
    assert flow_of("w/abc/general/1") == "w/abc"
    for other in ("", "r/", "r/vault/", "r/enrollment/abcd", "v/", "x"):
        assert flow_of(other) == fair_store.SHARED


async def test_times_in_the_store_are_counted_by_operation() -> None:
    store = FairStore(MemoryStore(), RelaySettings())
    await store.put_new("v/a/blob/0", b"x" * 100)
    await store.put_new("v/a/blob/1", Body(300 * KIB, lambda: _pieces(b"x" * 300 * KIB)))
    found: Object = await store.get("v/a/blob/0")
    assert await found.read() == b"x" * 100
    with pytest.raises(NotFound):
        await store.get("v/a/blob/9")
    await store.list("v/a/")
    await store.delete("v/a/blob/0")
    counted = {name: sum(histogram.counts) for name, histogram in store.seconds.items()}
    assert counted == {"put": 2, "get": 2, "list": 1, "delete": 1, "head": 0, "sign": 0}
    assert sum(store.small.queued.counts) == 5
    assert sum(store.large.queued.counts) == 1


async def test_a_store_without_direct_requests_offers_none() -> None:
    store = FairStore(MemoryStore(), RelaySettings())
    assert isinstance(store, DirectStore)
    assert not store.direct_puts
    assert not store.direct_gets


async def _pieces(whole: bytes) -> AsyncIterator[bytes]:
    yield whole


async def test_who_waits_too_long_for_a_turn_is_told_to_try_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair_store, "QUEUED_SECONDS_MAX", 0.0)
    gated = GatedStore()
    gated.closed = True
    store = FairStore(gated, RelaySettings(store_concurrency=1, vault_concurrency=1))
    running = asyncio.create_task(store.put_new("v/a/blob/0", b"x"))
    await asyncio.sleep(0)
    with pytest.raises(Busy, match="too slow"):
        await store.put_new("v/a/blob/1", b"x")
    assert (store.small.running, store.small.waiting) == (1, 0)
    gated.let_one_through()
    await running
    assert store.small.running == 0


async def test_who_came_later_is_told_so_as_well_when_its_own_time_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fair_store, "QUEUED_SECONDS_MAX", 0.1)
    turns = Turns(at_once=1, of_vault_at_once=1, clock=time.monotonic)
    await turns.enter("v/a", 1)
    waiting: list[asyncio.Task[None]] = []
    for _ in range(3):
        waiting.append(asyncio.create_task(turns.enter("v/a", 1)))
        await asyncio.sleep(0.03)
    async with asyncio.timeout(20):
        for each in waiting:
            with pytest.raises(Busy):
                await each
    assert (turns.running, turns.waiting) == (1, 0)


async def test_who_goes_away_when_its_time_ends_leaves_no_place_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fair_store, "QUEUED_SECONDS_MAX", 0.01)
    turns = Turns(at_once=1, of_vault_at_once=1, clock=time.monotonic)
    await turns.enter("v/a", 1)
    waiting = asyncio.create_task(turns.enter("v/a", 1))
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_later(0.011, waiting.cancel)
    time.sleep(0.05)  # noqa: ASYNC251  both timers are due in the same turn of the loop
    with pytest.raises((asyncio.CancelledError, Busy)):
        await waiting
    assert (turns.running, turns.waiting) == (1, 0)
    turns.leave("v/a")
    assert turns.running == 0


def test_a_dropped_vault_is_deleted_only_when_no_write_of_before_can_arrive() -> None:
    settings = RelaySettings()
    slowest = settings.body_seconds_max(BLOB_BYTES_MAX) + QUEUED_SECONDS_MAX + settings.auth_cache_seconds
    assert slowest <= SETTLE_SECONDS


async def test_the_latest_request_tells_whether_the_store_answers() -> None:
    """A bucket is looked at only when somebody asks whether the relay is ready; devices ask it all the time."""

    class Away(MemoryStore):
        away = False

        async def get(self, key: str, *, start: int = 0, length: int | None = None) -> Object:
            if self.away:
                raise StoreUnavailable("away")
            return await super().get(key, start=start, length=length)

    store = Away()
    async with served(store) as relay:
        member = await enrolled(relay.url)
        health = relay.app.state.relay.health
        client = member.store(relay.url)
        for away in (False, True, False):
            store.away = away
            with pytest.raises(StoreUnavailable if away else NotFound):
                await client.get(f"{member.prefix}devlog/0")
            assert health.answers is not away
        store.away = True
        with pytest.raises(StoreUnavailable):
            await health.check_store()
        assert health.answers is False
        await client.aclose()


async def test_a_read_from_memory_takes_its_turn_like_any_other(tmp_path: Path) -> None:
    local = LocalStore(tmp_path)
    store = FairStore(local, RelaySettings(store_concurrency=2, vault_concurrency=1))
    key = "v/a/devlog/0"
    assert store.recall(key) is None
    await store.put_new(key, b"body")

    def recalled() -> bytes | None:
        found = store.recall(key, start=1, length=2)
        return found.held if found is not None else None

    def counted() -> tuple[int, int]:
        return sum(store.seconds["get"].counts), sum(store.small.queued.counts)

    gets, turns = counted()
    assert recalled() == b"od"  # nothing else is there
    assert counted() == (gets + 1, turns + 1)
    await store.small.enter("v/b", 1)
    assert recalled() == b"od"  # another vault's operation runs
    assert counted() == (gets + 2, turns + 3)
    await store.small.enter("v/a", 1)
    assert recalled() is None, "the vault has as many as it may: it has to wait"
    assert counted() == (gets + 2, turns + 4)
    store.small.leave("v/a")
    store.small.leave("v/b")
    assert (store.small.running, store.small.is_idle) == (0, True)
    await local.aclose()
