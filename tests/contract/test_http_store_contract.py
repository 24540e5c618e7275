"""The contract of stores, on the HTTP client with a real server behind it."""

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from crystal_relay.local import LocalStore
from crystal_relay.memory import MemoryStore
from tests.contract.opened import rounds
from tests.contract.store_contract import Opened, StoreContract
from tests.support.relay_server import embedded_member, enrolled, threaded_relay


class HttpContract(StoreContract):
    """Through a real server, which one class's tests share, each in its own vault."""

    race_rounds = rounds(50)
    many_keys = 150
    paged_keys = 1_050
    url: str

    @asynccontextmanager
    async def opened(self, tmp_path: Path) -> AsyncGenerator[Opened]:
        member = await enrolled(self.url)
        client = member.store(self.url)
        yield Opened(client, member.vault, member.device)
        await client.aclose()


class TestHttpStoreOverMemory(HttpContract):
    @pytest.fixture(autouse=True)
    def use(self, relay_over_memory: str) -> None:
        self.url = relay_over_memory


class TestHttpStoreOverLocal(HttpContract):
    @pytest.fixture(autouse=True)
    def use(self, relay_over_local: str) -> None:
        self.url = relay_over_local


class TestHttpStoreOverAnEmbeddedRelay(StoreContract):
    """Of a directory that this process serves itself."""

    race_rounds = rounds(50)
    many_keys = 150
    paged_keys = 1_050

    @asynccontextmanager
    async def opened(self, tmp_path: Path) -> AsyncGenerator[Opened]:
        member = await embedded_member(tmp_path / "relay")
        client = member.embedded_store(tmp_path / "relay")
        yield Opened(client, member.vault, member.device)
        await client.aclose()


@pytest.fixture(scope="module")
def relay_over_memory() -> Generator[str]:
    with threaded_relay(MemoryStore) as url:
        yield url


@pytest.fixture(scope="module")
def relay_over_local(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    with threaded_relay(lambda: LocalStore(tmp_path_factory.mktemp("relay"))) as url:
        yield url
