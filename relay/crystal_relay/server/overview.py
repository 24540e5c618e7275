"""The records of all vaults or tokens at once: what lists of ten thousand are made from.

    r/index     what earlier lists have read of records that never change: {"records": {key: text}}

An `Overview` is the store for whoever reads records one by one: each kind was listed once, beyond a page in sixteen shares,
so that a record that is missing costs no request, and one in the index none either. The index is only a copy: without it, or
with a damaged one, a list takes longer. The sweeper deletes it with a vault, which may be made again under its id. A list that
runs meanwhile brings nothing of that vault back: it keeps nothing of a dropped one, and that takes half an hour to go.
"""

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec

from crystal_relay.errors import UNDECODABLE, NotFound
from crystal_relay.limits import LIST_LIMIT_MAX
from crystal_relay.server.dropped_vaults import dropped_key
from crystal_relay.server.usage import VaultUsage
from crystal_relay.store import Body, Listed, Object, Page, Store

INDEX_KEY = "r/index"
VAULTS = "r/vault/"
TOKENS = "r/enrollment/"
USES = "r/enrolled/"
AT_ONCE = 128
"""Records that are read at the same time."""
NEW_RECORDS_MIN = 64
"""Records that an index lacks, or has in vain, for it to be written again."""
_OBJECTS = "v/"
_SHARES = "0123456789abcdef"
"""What follows each of these prefixes is a hex digit: of a vault's id, or of a hash."""
_RECORD_BYTES_MAX = 1024

_Take: TypeAlias = Callable[[tuple[Listed, ...]], None]


class _Index(msgspec.Struct, frozen=True):
    records: dict[str, str]


_DECODER = msgspec.json.Decoder(_Index)


class Overview:
    """A `Store` whose keys under some prefixes were listed. Writes go to the store itself. One event loop."""

    def __init__(
        self, store: Store, prefixes: Iterable[str], names: list[str], index: dict[str, str]
    ) -> None:
        """Use `read` instead."""
        self._store = store
        self._prefixes = tuple(prefixes)
        self._keys = sorted(names)
        self._there = frozenset(self._keys)
        self._index = index
        self._new = 0
        self._usage: dict[str, VaultUsage] = {}

    @classmethod
    async def read(cls, store: Store, *prefixes: str, with_usage: bool = False) -> "Overview":
        """List what is under the prefixes. `with_usage`: count every vault's objects, too; one request for each 1,000."""
        names: list[str] = []
        sizes: dict[str, tuple[int, int]] = {}

        def note(entries: tuple[Listed, ...]) -> None:
            names.extend(entry.key for entry in entries)

        def count(entries: tuple[Listed, ...]) -> None:
            for entry in entries:
                vault = entry.key.split("/", 2)[1]
                objects, size = sizes.get(vault, (0, 0))
                sizes[vault] = (objects + 1, size + entry.size)

        listings = [(prefix, note) for prefix in prefixes] + ([(_OBJECTS, count)] if with_usage else [])
        index, _ = await asyncio.gather(
            _read_index(store), asyncio.gather(*(_list_all(store, prefix, take) for prefix, take in listings))
        )
        overview = cls(store, prefixes, names, index)
        overview._usage = {vault: VaultUsage(size, objects) for vault, (objects, size) in sizes.items()}
        return overview

    def vaults(self) -> list[str]:
        """The ids of all vaults that have a record, in order."""
        return list(dict.fromkeys(key.split("/", 3)[2] for key in self._keys if key.startswith(VAULTS)))

    def usage(self, vault: str) -> VaultUsage:
        """Objects and bytes of a vault, if they were counted."""
        return self._usage.get(vault, VaultUsage(0, 0))

    async def save_index(self) -> None:
        """Write the index again if much of it is new, or in vain."""
        gone = [key for key in self._index if self._is_listed(key) and not self._is_kept(key)]
        if self._new + len(gone) >= NEW_RECORDS_MIN:
            for key in gone:
                del self._index[key]
            await self._store.put(INDEX_KEY, msgspec.json.encode(_Index(self._index)))

    # --- the port ---

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> Object:
        if not self._is_listed(key):
            return await self._store.get(key, start=start, length=length)
        if key not in self._there:
            raise NotFound("there is no such object")
        text = self._index.get(key)
        if text is None:
            whole = await (await self._store.get(key)).read()
            if _never_changes(key) and self._is_kept(key) and len(whole) <= _RECORD_BYTES_MAX:
                self._index[key] = whole.decode(errors="replace")
                self._new += 1
        else:
            whole = text.encode()
        return Object.of(whole, start=start, length=length)

    async def list(self, prefix: str, *, after: str = "", limit: int = LIST_LIMIT_MAX) -> Page:
        if not self._is_listed(prefix):
            return await self._store.list(prefix, after=after, limit=limit)
        # A key's size is not kept: no record's is asked for.
        at = bisect_right(self._keys, after) if after > prefix else bisect_left(self._keys, prefix)
        found: list[Listed] = []
        for key in self._keys[at : at + limit + 1]:
            if not key.startswith(prefix):
                break
            found.append(Listed(key, 0))
        return Page(tuple(found[:limit]), len(found) > limit)

    async def put_new(self, key: str, body: bytes | Body) -> None:
        await self._store.put_new(key, body)

    async def put(self, key: str, body: bytes | Body) -> None:
        await self._store.put(key, body)

    async def delete(self, key: str) -> None:
        await self._store.delete(key)

    async def wait(self, prefix: str, *, token: str | None, timeout: float) -> str:
        return await self._store.wait(prefix, token=token, timeout=timeout)

    async def aclose(self) -> None:
        """Nothing: the store is the caller's."""

    # --- inside ---

    def _is_kept(self, key: str) -> bool:
        """Whether a listed record belongs in the index: it is there, and its vault, if it has one, is not about to go."""
        vault = key.removesuffix("/origin")
        return key in self._there and (
            vault == key or dropped_key(vault.removeprefix(VAULTS)) not in self._there
        )

    def _is_listed(self, key: str) -> bool:
        return key.startswith(self._prefixes)


async def _list_all(store: Store, prefix: str, take: _Take) -> None:
    """Give `take` what is under a prefix: its first page, and the rest in shares at once."""
    page = await store.list(prefix)
    take(page.entries)
    if page.more:
        last = page.entries[-1].key
        shares = [prefix + share for share in _SHARES if prefix + share >= last[: len(prefix) + 1]]
        await asyncio.gather(*(_list(store, share, last, take) for share in shares))


async def _list(store: Store, prefix: str, after: str, take: _Take) -> None:
    more = True
    while more:
        page = await store.list(prefix, after=after)
        take(page.entries)
        more = page.more
        after = page.entries[-1].key if page.entries else after


async def _read_index(store: Store) -> dict[str, str]:
    try:
        return _DECODER.decode(await (await store.get(INDEX_KEY)).read()).records
    except (NotFound, *UNDECODABLE):
        return {}


def _never_changes(key: str) -> bool:
    return key.endswith("/origin") or key.startswith(TOKENS)
