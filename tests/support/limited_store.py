"""A store that takes only so many operations at once, as a bucket behind a pool of connections does."""

import asyncio
from collections.abc import Sequence

from crystal_relay.batches import Found, Written, read_many, write_many
from crystal_relay.deletion import condemner_of
from crystal_relay.limits import LIST_LIMIT_MAX
from crystal_relay.store import Body, Object, Page, Store


class LimitedStore:
    """At most `concurrency` calls at once; others queue. `wait` and reading an opened object do not count."""

    def __init__(self, store: Store, *, concurrency: int) -> None:
        self._store = store
        self._slots = asyncio.Semaphore(concurrency)

    async def put_new(self, key: str, body: bytes | Body) -> None:
        async with self._slots:
            await self._store.put_new(key, body)

    async def put(self, key: str, body: bytes | Body) -> None:
        async with self._slots:
            await self._store.put(key, body)

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> Object:
        async with self._slots:
            return await self._store.get(key, start=start, length=length)

    async def list(self, prefix: str, *, after: str = "", limit: int = LIST_LIMIT_MAX) -> Page:
        async with self._slots:
            return await self._store.list(prefix, after=after, limit=limit)

    async def delete(self, key: str) -> None:
        async with self._slots:
            await self._store.delete(key)

    async def read_many(self, keys: Sequence[str], bytes_max: int) -> Sequence[Found]:
        """As `BatchStore`."""
        async with self._slots:
            return await read_many(self._store, keys, bytes_max)

    async def write_many(self, objects: Sequence[tuple[str, bytes]]) -> Sequence[Written]:
        """As `BatchStore`."""
        async with self._slots:
            return await write_many(self._store, objects)

    async def condemn(self, *, keys: Sequence[str] = (), prefix: str = "", through: str = "") -> None:
        """As `Condemner`."""
        async with self._slots:
            await condemner_of(self._store).condemn(keys=keys, prefix=prefix, through=through)

    async def wait(self, prefix: str, *, token: str | None, timeout: float) -> str:
        return await self._store.wait(prefix, token=token, timeout=timeout)

    async def aclose(self) -> None:
        await self._store.aclose()
