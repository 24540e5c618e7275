"""What a vault notices of greedy ones on a slow store, through the relay's application, in virtual time.

A busy machine changes nothing here: times are those that the relay's own decisions make.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import httpx
import pytest

from crystal_relay.client.http import HttpStore
from crystal_relay.limits import KIB, LIST_LIMIT_MAX
from crystal_relay.memory import MemoryStore
from crystal_relay.server import RelaySettings, create_app
from crystal_relay.server.settings import STORE_CONCURRENCY_BUCKET
from crystal_relay.store import Body, Object, Page
from crystal_relay.tokens import recovery_hash, token_hash
from tests.support.limited_store import LimitedStore
from tests.support.relay_server import ENROLL_TOKEN, Member
from tests.support.virtual_time import in_virtual_time

URL = "http://127.0.0.1"
GREEDY, IN_FLIGHT = 10, 32
SECONDS = 0.1
PAUSE_SECONDS = 0.02
REQUESTS = 60
SETTINGS = RelaySettings(
    enroll_token=ENROLL_TOKEN,
    store_concurrency=STORE_CONCURRENCY_BUCKET,
    vault_concurrency=STORE_CONCURRENCY_BUCKET // 2,
)


class SlowStore(MemoryStore):
    """Once it is `slow`, its operations last between one and two times SECONDS."""

    def __init__(self) -> None:
        super().__init__()
        self.slow = False
        self._random = random.Random(7)

    async def put_new(self, key: str, body: bytes | Body) -> None:
        await self._pass()
        await super().put_new(key, body)

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> Object:
        await self._pass()
        return await super().get(key, start=start, length=length)

    async def list(self, prefix: str, *, after: str = "", limit: int = LIST_LIMIT_MAX) -> Page:
        await self._pass()
        return await super().list(prefix, after=after, limit=limit)

    async def _pass(self) -> None:
        if self.slow:
            await asyncio.sleep(SECONDS * (1 + self._random.random()))


@dataclass
class Client:
    """One device of a vault."""

    http: httpx.AsyncClient
    member: Member
    written: int = 0

    async def found(self, transport: httpx.AsyncBaseTransport) -> None:
        """Create its vault."""
        member = self.member
        store = HttpStore(URL, vault=member.vault, token=member.token, transport=transport)
        await store.create_vault(
            enroll_token=ENROLL_TOKEN,
            recovery_hash=recovery_hash(member.recovery),
            device=member.device,
            token_hash=token_hash(member.token),
            proof=member.proof(store.host),
        )

    async def write(self, size: int = 4 * KIB) -> int:
        self.written += 1
        number = self.written
        headers = self.member.authorization | {"If-None-Match": "*"}
        reply = await self.http.put(self._at(number), content=bytes(size), headers=headers)
        assert reply.status_code == 201, reply.text
        return number

    async def read(self, number: int) -> None:
        reply = await self.http.get(self._at(number), headers=self.member.authorization)
        assert reply.status_code == 200, reply.text

    async def list(self) -> None:
        reply = await self.http.get(f"/v2/vaults/{self.member.vault}/list", headers=self.member.authorization)
        assert reply.status_code == 200, reply.text

    def _at(self, number: int) -> str:
        return f"/v2/vaults/{self.member.vault}/objects/blob/{number:032x}"


async def write(client: Client, turn: int) -> None:
    await client.write()


async def read_much(client: Client, turn: int) -> None:
    await client.read(1)


async def list_all(client: Client, turn: int) -> None:
    await client.list()


async def everything(client: Client, turn: int) -> None:
    works: list[Callable[[], Awaitable[object]]] = [
        client.write,
        lambda: client.write(200 * KIB),
        lambda: client.read(1),
        client.list,
    ]
    await works[turn % len(works)]()


@pytest.mark.parametrize("work", [write, read_much, list_all, everything])
def test_p99_of_a_modest_vault_at_most_doubles_beside_ten_greedy_ones(
    work: Callable[[Client, int], Awaitable[None]],
) -> None:
    alone, beside, served = in_virtual_time(lambda: measured(SETTINGS, work))
    assert served > 3 * REQUESTS, "the greedy ones did not keep the store busy"
    assert beside <= 2 * alone


def test_without_turns_it_would_wait_for_all_of_them() -> None:
    """So the measure sees what it is for."""
    settings = RelaySettings(enroll_token=ENROLL_TOKEN, store_concurrency=0, vault_concurrency=0)
    alone, beside, _ = in_virtual_time(lambda: measured(settings, write, requests=4))
    assert beside > 10 * alone


async def measured(
    settings: RelaySettings, work: Callable[[Client, int], Awaitable[None]], *, requests: int = REQUESTS
) -> tuple[float, float, int]:
    """p99 of the modest vault's requests alone and beside the others, in seconds, and what these were served meanwhile."""
    store = SlowStore()
    app = create_app(LimitedStore(store, concurrency=STORE_CONCURRENCY_BUCKET), settings)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url=URL, timeout=None) as http:  # noqa: S113  no waiting here
        modest, *greedy = [Client(http, Member()) for _ in range(1 + GREEDY)]
        for client in (modest, *greedy):
            await client.found(transport)
            await client.write(1024 * KIB)  # from now on its token is known
        relay = app.state.relay
        await relay.usage.counted()
        await relay.last_used.written()
        store.slow = True
        alone = await p99(modest, requests)
        served = 0

        async def ask(client: Client, turn: int) -> None:
            nonlocal served
            while True:
                await work(client, turn)
                served += 1
                turn += 1

        tasks = [asyncio.create_task(ask(client, turn)) for client in greedy for turn in range(IN_FLIGHT)]
        await asyncio.sleep(20 * SECONDS)
        before = served
        beside = await p99(modest, requests)
        served -= before
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in ended), ended
        await relay.aclose()
        return alone, beside, served


async def p99(client: Client, requests: int) -> float:
    clock = asyncio.get_running_loop().time
    seconds: list[float] = []
    for _ in range(requests // 2):
        began = clock()
        number = await client.write()
        seconds.append(clock() - began)
        await asyncio.sleep(PAUSE_SECONDS)
        began = clock()
        await client.read(number)
        seconds.append(clock() - began)
        await asyncio.sleep(PAUSE_SECONDS)
    return sorted(seconds)[-1 - len(seconds) // 100]
