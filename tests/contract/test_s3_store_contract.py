"""The contract of stores, on buckets of real servers."""

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.contract.store_contract import Opened, StoreContract
from tests.support.s3_servers import S3Server, running_moto
from tests.support.s3_stores import opened_s3_store


class S3Contract(StoreContract):
    """In a bucket of its own, on a server that one class's tests share."""

    paged_keys = 1_050
    race_rounds = 30
    server: S3Server

    @asynccontextmanager
    async def opened(self, tmp_path: Path) -> AsyncGenerator[Opened]:
        async with opened_s3_store(self.server.with_new_bucket(), prefix="relay/one") as store:
            yield Opened(store)


class TestS3StoreOnMoto(S3Contract):
    @pytest.fixture(autouse=True)
    def use(self, moto: S3Server) -> None:
        self.server = moto


@pytest.fixture(scope="module")
def moto() -> Generator[S3Server]:
    with running_moto() as server:
        yield server
