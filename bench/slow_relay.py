"""A relay over a store that is slow as a distant bucket is: it takes so many operations at once, each lasts so long.

python -m bench.slow_relay [--first-come]     prints its address once it serves

`--first-come`: without the queue that lets vaults take turns, for comparison.
"""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import replace

from bench.relay_load import on_uvloop
from crystal_relay.limits import LIST_LIMIT_MAX
from crystal_relay.memory import MemoryStore
from crystal_relay.server import RelaySettings, create_app
from crystal_relay.server.serving import Server, listen
from crystal_relay.server.settings import STORE_CONCURRENCY_BUCKET
from crystal_relay.store import Body, Object, Page
from tests.support.limited_store import LimitedStore
from tests.support.relay_server import ENROLL_TOKEN

AT_ONCE = STORE_CONCURRENCY_BUCKET
SECONDS = 0.1
"""Of one operation: a bucket on another continent."""


class SlowStore(MemoryStore):
    """Each operation takes `SECONDS` more."""

    async def put_new(self, key: str, body: bytes | Body) -> None:
        await asyncio.sleep(SECONDS)
        await super().put_new(key, body)

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> Object:
        await asyncio.sleep(SECONDS)
        return await super().get(key, start=start, length=length)

    async def list(self, prefix: str, *, after: str = "", limit: int = LIST_LIMIT_MAX) -> Page:
        await asyncio.sleep(SECONDS)
        return await super().list(prefix, after=after, limit=limit)


async def serve(*, in_turn: bool) -> None:
    """Until it is killed."""
    settings = RelaySettings(
        enroll_token=ENROLL_TOKEN, store_concurrency=AT_ONCE, vault_concurrency=AT_ONCE // 2
    )
    if not in_turn:
        settings = replace(settings, store_concurrency=0, vault_concurrency=0)
    store = LimitedStore(SlowStore(), concurrency=AT_ONCE)
    server = Server(create_app(store, settings), listen("127.0.0.1", 0))
    await server.serve(ready=lambda: print(server.url, flush=True), signals=True)


def main(arguments: Sequence[str]) -> None:
    """Serve."""
    on_uvloop(lambda: serve(in_turn="--first-come" not in arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
