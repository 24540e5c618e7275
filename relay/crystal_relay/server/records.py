"""The registry's records in the store: small objects. With few exceptions each is written once, and never changed."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from crystal_relay.errors import UNDECODABLE, AlreadyExists, NotFound, StoreDamaged
from crystal_relay.store import Store

AT_ONCE = 8
"""Writes and deletions of one request."""

Record = TypeVar("Record", bound=msgspec.Struct)


class Records:
    """The records in a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def put_new(self, key: str, record: msgspec.Struct) -> None:
        """Write a record. Raises AlreadyExists."""
        await self._store.put_new(key, msgspec.json.encode(record))

    async def replace(self, key: str, record: msgspec.Struct) -> None:
        """Write a record in place of another. Idempotent."""
        await self._store.put(key, msgspec.json.encode(record))

    async def mark(self, key: str) -> None:
        """Write an empty record. Idempotent."""
        try:
            await self._store.put_new(key, b"{}")
        except AlreadyExists:
            return

    async def mark_all(self, keys: Sequence[str]) -> None:
        """As `mark`, a few at once."""
        await _each(self.mark, keys)

    async def delete_all(self, keys: Sequence[str]) -> None:
        """Delete records, a few at once. No error for missing ones."""
        await _each(self._store.delete, keys)

    async def has(self, key: str) -> bool:
        """Whether the key is there."""
        try:
            await (await self._store.get(key)).read()
        except NotFound:
            return False
        return True

    async def read(self, key: str, kind: type[Record]) -> Record:
        """Read a record. Raises NotFound, StoreDamaged."""
        text = await (await self._store.get(key)).read()
        try:
            return msgspec.json.decode(text, type=kind)
        except UNDECODABLE:
            raise StoreDamaged("a record of the relay's registry is damaged") from None

    async def names(self, prefix: str) -> list[str]:
        """The keys under a prefix, in order, without the prefix."""
        names: list[str] = []
        after, more = "", True
        while more:
            page = await self._store.list(prefix, after=after)
            names += [entry.key.removeprefix(prefix) for entry in page.entries]
            more = page.more
            after = page.entries[-1].key if page.entries else after
        return names


async def _each(do: Callable[[str], Awaitable[None]], keys: Sequence[str]) -> None:
    for at in range(0, len(keys), AT_ONCE):
        await asyncio.gather(*map(do, keys[at : at + AT_ONCE]))
