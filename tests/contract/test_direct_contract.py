"""The contract of stores, on the HTTP client of a relay over a bucket: with big blobs straight to the bucket, and without."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from crystal_relay.client import direct as client_direct
from crystal_relay.client.http import HttpStore
from crystal_relay.errors import AlreadyExists
from crystal_relay.limits import DIRECT_BYTES_MIN
from crystal_relay.server import transfers
from tests.contract.opened import WAKE_SECONDS_MAX, read
from tests.contract.store_contract import Opened, StoreContract
from tests.support.direct_relay import BucketRelay, bucket_relay
from tests.support.relay_server import enrolled
from tests.support.s3_servers import S3Server, running_moto


class InBlobs(Opened):
    """Everything that is written once is a blob, so that everything can go directly."""

    @property
    def channel(self) -> str:
        return f"{self.root}blob/"

    def key(self, name: str, epoch: str = "") -> str:
        return f"{self.channel}{epoch}.{name}" if epoch else f"{self.channel}{name}"


class BucketContract(StoreContract):
    """Through a relay over a bucket, which one class's tests share, each in its own vault."""

    paged_keys = 1_005
    many_keys = 150
    race_rounds = 10
    server: str
    direct = False
    relay: BucketRelay

    @pytest.fixture(autouse=True)
    def use(self, request: pytest.FixtureRequest) -> None:
        self.relay = request.getfixturevalue(f"relay_over_{self.server}")

    @asynccontextmanager
    async def opened(self, tmp_path: Path) -> AsyncGenerator[Opened]:
        member = await enrolled(self.relay.url)
        client = HttpStore(self.relay.url, vault=member.vault, token=member.token, direct=self.direct)
        yield InBlobs(client, member.vault, member.device)
        await client.aclose()


class DirectContract(BucketContract):
    """Every object with a byte in it goes directly. Lists never do: pages of the full size are shown through the relay."""

    direct = True
    paged_keys = 130
    page_keys = 40

    @pytest.fixture(autouse=True)
    def nothing_is_too_small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for module in (client_direct, transfers):
            monkeypatch.setattr(module, "DIRECT_BYTES_MIN", 1)

    @pytest.fixture(autouse=True)
    def nothing_passes_through_the_relay(self, use: None) -> Generator[None]:
        before = self.relay.store.passed_bytes
        yield
        assert self.relay.store.passed_bytes == before


class TestDirectOverMoto(DirectContract):
    server = "moto"
    many_keys = 100  # some 100 requests a second are all that it does


class TestDirectOverRgw(DirectContract):
    server = "rgw"


class TestThroughTheRelayOverRgw(BucketContract):
    server = "rgw"


@pytest.fixture(params=["moto", "rgw"])
def relay(request: pytest.FixtureRequest) -> BucketRelay:
    found: BucketRelay = request.getfixturevalue(f"relay_over_{request.param}")
    return found


@pytest.fixture(scope="module")
def relay_over_moto() -> Generator[BucketRelay]:
    with running_moto() as server, bucket_relay(server) as relay:
        yield relay


@pytest.fixture(scope="module")
def relay_over_rgw(rgw_server: S3Server) -> Generator[BucketRelay]:
    with bucket_relay(rgw_server.with_new_bucket()) as relay:
        yield relay


async def test_big_blobs_do_not_pass_through_the_relay_and_small_ones_do(relay: BucketRelay) -> None:
    member = await enrolled(relay.url)
    store = member.store(relay.url)
    before = relay.store.passed_bytes
    big = secrets.token_bytes(DIRECT_BYTES_MIN)
    await store.put_new(f"{member.prefix}blob/big", big)
    assert await read(store, f"{member.prefix}blob/big") == big
    assert relay.store.passed_bytes == before
    small = secrets.token_bytes(DIRECT_BYTES_MIN - 1)
    await store.put_new(f"{member.prefix}blob/small", small)
    assert await read(store, f"{member.prefix}blob/small") == small
    assert relay.store.passed_bytes == before + 2 * len(small)
    await store.aclose()


async def test_sixteen_writers_of_one_big_blob_some_directly_have_one_winner(relay: BucketRelay) -> None:
    member = await enrolled(relay.url)
    stores = [
        HttpStore(relay.url, vault=member.vault, token=member.token, direct=number % 4 > 0)
        for number in range(16)
    ]
    for number in range(15):
        key = f"{member.prefix}blob/{number:08d}"
        bodies = [bytes([writer]) * DIRECT_BYTES_MIN for writer in range(16)]
        results = await asyncio.gather(
            *(store.put_new(key, body) for store, body in zip(stores, bodies, strict=True)),
            return_exceptions=True,
        )
        won = [writer for writer, result in enumerate(results) if result is None]
        assert len(won) == 1
        assert all(isinstance(result, AlreadyExists) for result in results if result is not None)
        assert await read(stores[0], key) == bodies[won[0]]
        assert await read(stores[1], key) == bodies[won[0]]
    for store in stores:
        await store.aclose()


async def test_writers_of_the_same_bytes_have_one_winner_too(relay: BucketRelay) -> None:
    member = await enrolled(relay.url)
    stores = [member.store(relay.url) for _ in range(8)]
    body = secrets.token_bytes(DIRECT_BYTES_MIN)
    results = await asyncio.gather(
        *(store.put_new(f"{member.prefix}blob/same", body) for store in stores), return_exceptions=True
    )
    assert results.count(None) == 1
    for store in stores:
        await store.aclose()


async def test_a_direct_put_wakes_who_waits(relay: BucketRelay) -> None:
    member = await enrolled(relay.url)
    writer, reader = member.store(relay.url), member.store(relay.url)
    token = await reader.wait(f"{member.prefix}blob/", token=None, timeout=0)
    sleeping = asyncio.create_task(reader.wait(f"{member.prefix}blob/", token=token, timeout=30))
    await writer.put_new(f"{member.prefix}blob/new", secrets.token_bytes(DIRECT_BYTES_MIN))
    assert await asyncio.wait_for(sleeping, WAKE_SECONDS_MAX) != token
    await writer.aclose()
    await reader.aclose()
