"""The contract of stores, on the stores that need no server."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from crystal_relay.decorators import Pace, PacedStore, RetryingStore
from crystal_relay.limits import MIB
from crystal_relay.local import LocalStore
from crystal_relay.memory import MemoryStore
from tests.contract.store_contract import Opened, StoreContract


class TestMemoryStore(StoreContract):
    @asynccontextmanager
    async def opened(self, tmp_path: Path) -> AsyncGenerator[Opened]:
        store = MemoryStore()
        yield Opened(store)
        await store.aclose()


class TestLocalStore(StoreContract):
    @asynccontextmanager
    async def opened(self, tmp_path: Path) -> AsyncGenerator[Opened]:
        store = LocalStore(tmp_path / "store")
        yield Opened(store)
        await store.aclose()


class TestLocalStoreOfFilesOnly(StoreContract):
    @asynccontextmanager
    async def opened(self, tmp_path: Path) -> AsyncGenerator[Opened]:
        store = LocalStore(tmp_path / "store", inline_bytes_max=0)
        yield Opened(store)
        await store.aclose()


class TestDecoratedStore(StoreContract):
    @asynccontextmanager
    async def opened(self, tmp_path: Path) -> AsyncGenerator[Opened]:
        paces = Pace(256 * MIB), Pace(256 * MIB)
        store = RetryingStore(PacedStore(LocalStore(tmp_path / "store"), up=paces[0], down=paces[1]))
        yield Opened(store)
        await store.aclose()
