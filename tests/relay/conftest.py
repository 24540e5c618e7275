"""A server in the test's own loop, over a local directory, with one vault on it."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from crystal_relay.local import LocalStore
from crystal_relay.memory import MemoryStore
from crystal_relay.store import Store
from tests.support.invite_world import World, invite_world
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


@pytest_asyncio.fixture(params=["memory", "local"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[World]:
    """For invites: a relay with a clock of the test's own, that does not sweep by itself."""
    store: Store = MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "relay")
    async with invite_world(store) as made:
        yield made
    await store.aclose()
