"""A server in the test's own loop, over a local directory, with one vault on it."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest_asyncio

from crystal_relay.local import LocalStore
from tests.support.relay_server import Member, ServedRelay, enrolled, served


@pytest_asyncio.fixture
async def relay(tmp_path: Path) -> AsyncGenerator[ServedRelay]:
    store = LocalStore(tmp_path / "relay")
    async with served(store) as running:
        yield running
    await store.aclose()


@pytest_asyncio.fixture
async def lead(relay: ServedRelay) -> Member:
    return await enrolled(relay.url)
