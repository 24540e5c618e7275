"""A relay that serves the prototype's routes too, with a Core and three Nodes of one space."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest_asyncio

from crystal_prototype.relay.extension import PROTOTYPE
from crystal_relay.local import LocalStore
from crystal_relay.server import RelaySettings
from tests.prototype.device import V1Device
from tests.support.relay_server import ENROLL_TOKEN, ServedRelay, served


@pytest_asyncio.fixture
async def relay(tmp_path: Path) -> AsyncGenerator[ServedRelay]:
    store = LocalStore(tmp_path / "relay")
    async with served(store, RelaySettings(enroll_token=ENROLL_TOKEN), extensions=[PROTOTYPE]) as running:
        yield running
    await store.aclose()


@pytest_asyncio.fixture
async def core(relay: ServedRelay) -> AsyncGenerator[V1Device]:
    async with await V1Device.added(relay.url, relay.store, "cc-core", "core") as device:
        yield device


@pytest_asyncio.fixture
async def nodes(relay: ServedRelay) -> AsyncGenerator[list[V1Device]]:
    devices = [await V1Device.added(relay.url, relay.store, f"cc-node-{n}", "node") for n in range(3)]
    yield devices
    for device in devices:
        await device.http.aclose()
