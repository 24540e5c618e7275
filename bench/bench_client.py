"""What a request costs a device: processor time of the relay's client, beside aiohttp and a client that does the least.

All three create objects of 4 KB at a bare server, which is a process of its own; measured is this process alone.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from bench.harness import Row, value_at_most
from bench.lean_client import LeanClient
from bench.relay_load import SMALL_BYTES, bare_server
from crystal_relay.client.http import HttpStore

VAULT = "a" * 32
TOKEN = "t" * 64
BODY = os.urandom(SMALL_BYTES)
AT_ONCE = (1, 16)
MILLISECONDS_MAX = 0.4

_Put = Callable[[str], Awaitable[None]]
"""Creates the object of that path within the vault."""


def run(quick: bool) -> list[Row]:
    """Rows for the result table."""
    count, rounds = (400, 3) if quick else (2_000, 7)
    rows: list[Row] = []
    with bare_server() as url:
        for at_once in AT_ONCE:
            times: dict[str, list[float]] = {name: [] for name in _CLIENTS}
            for turn in range(-1, rounds):
                for name, opened in _CLIENTS.items():
                    spent = asyncio.run(_spent(opened(url), count, at_once))
                    if turn >= 0:  # the first turn warms up
                        times[name].append(spent)
            ours, *others = (median(each) for each in times.values())
            name = f"processor time of a 4 KB PUT in the client, {at_once} at once"
            rows += [
                Row(
                    name=name if other == "aiohttp" else f"{name} (again)",
                    value=ours,
                    unit="ms",
                    baseline=other,
                    baseline_value=theirs,
                    target=value_at_most(MILLISECONDS_MAX) if other == "aiohttp" else None,
                )
                for other, theirs in zip(list(_CLIENTS)[1:], others, strict=True)
            ]
    return rows


async def _spent(opening: contextlib.AbstractAsyncContextManager[_Put], count: int, at_once: int) -> float:
    """Milliseconds of processor time for each object."""
    async with opening as put:
        paths = (f"conversations/{'d' * 32}.{'0' * 16}/{at:016d}" for at in range(count + at_once))

        async def go_on(limit: int) -> None:
            for _, path in zip(range(limit), paths, strict=False):
                await put(path)

        await asyncio.gather(*(go_on(1) for _ in range(at_once)))  # connections are open
        began = time.process_time()
        await asyncio.gather(*(go_on(count // at_once) for _ in range(at_once)))
        return (time.process_time() - began) * 1000 / (count // at_once * at_once)


@asynccontextmanager
async def _ours(url: str) -> AsyncGenerator[_Put]:
    store = HttpStore(url, vault=VAULT, token=TOKEN)
    yield lambda path: store.put_new(f"v/{VAULT}/{path}", BODY)
    await store.aclose()


@asynccontextmanager
async def _aiohttp(url: str) -> AsyncGenerator[_Put]:
    aiohttp: Any = import_module("aiohttp")
    headers = {"Authorization": f"Bearer {TOKEN}", "If-None-Match": "*"}
    async with aiohttp.ClientSession(url, headers=headers) as session:

        async def put(path: str) -> None:
            async with session.put(f"/v2/vaults/{VAULT}/objects/{path}", data=BODY) as response:
                assert response.status == 201
                await response.read()

        yield put


@asynccontextmanager
async def _lean(url: str) -> AsyncGenerator[_Put]:
    client = LeanClient(url, f"Host: {urlsplit(url).netloc}\r\nAuthorization: Bearer {TOKEN}\r\n".encode())
    yield lambda path: client.put_new(f"/v2/vaults/{VAULT}/objects/{path}", BODY)
    await client.aclose()


_CLIENTS: dict[str, Callable[[str], contextlib.AbstractAsyncContextManager[_Put]]] = {
    "ours": _ours,
    "aiohttp": _aiohttp,
    "a client that does the least": _lean,
}
