"""A bucket of one's own behind a proxy that does what networks and servers do."""

from collections.abc import AsyncGenerator, Generator
from dataclasses import replace

import pytest
import pytest_asyncio

from crystal_relay.s3 import Conditions, S3Store
from tests.support.fault_proxy import FaultProxy, fault_proxy
from tests.support.s3_servers import S3Server
from tests.support.s3_stores import QUICK, s3_store_on


@pytest.fixture
def server(moto_server: S3Server) -> S3Server:
    return moto_server.with_new_bucket()


@pytest.fixture
def proxy(server: S3Server) -> Generator[FaultProxy]:
    with fault_proxy(server.endpoint) as proxy:
        yield proxy


@pytest_asyncio.fixture
async def store(server: S3Server, proxy: FaultProxy) -> AsyncGenerator[S3Store]:
    """Behind the proxy; the SDK tries twice."""
    async with s3_store_on(
        server, Conditions.HONOURED, endpoint=proxy.url, settings=replace(QUICK, attempts=2)
    ) as store:
        yield store


@pytest_asyncio.fixture
async def alone(server: S3Server, proxy: FaultProxy) -> AsyncGenerator[S3Store]:
    """The same on a bucket that is said not to honour conditions; the SDK tries once."""
    async with s3_store_on(
        server, Conditions.NOT_HONOURED, endpoint=proxy.url, settings=replace(QUICK, attempts=1)
    ) as store:
        yield store
