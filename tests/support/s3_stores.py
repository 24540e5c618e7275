"""The relay's store in a bucket of a test's server."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from crystal_relay.notify import Notifier
from crystal_relay.s3 import Conditions, S3Address, S3Settings, S3Store, open_s3_store, parse_s3_address
from crystal_relay.s3.bucket import Bucket
from crystal_relay.s3.claim import ClaimTimes
from tests.support.s3_servers import S3Server
from tests.support.s3_servers.server import REGION

QUICK = S3Settings(connect_seconds=1.0, read_seconds=1.0, attempts=3)
"""For tests of failures: they need not wait for long."""
QUICK_CLAIM = ClaimTimes(renew=0.2, lapse=1.5, dead=2.5, look=0.05)


def quiet(line: str) -> None:
    """For what a relay would say to its operator."""
    assert line


def session_of(server: S3Server) -> Any:
    """The SDK's session with the server's keys. All read the SDK's descriptions of services once, for that takes longest."""
    from boto3.session import Session
    from botocore.session import Session as Core

    core = Core()
    loader = _descriptions()
    core.register_component("data_loader", loader)
    session = Session(
        aws_access_key_id=server.access_key,
        aws_secret_access_key=server.secret_key,
        region_name=REGION,
        botocore_session=core,
    )
    loader.search_paths[:] = dict.fromkeys(loader.search_paths)  # each session adds the same one
    return session


@cache
def _descriptions() -> Any:
    from botocore.loaders import Loader

    return Loader()


def address_of(server: S3Server, *, prefix: str = "", endpoint: str | None = None) -> S3Address:
    """Of the server's bucket; `endpoint`: where a proxy listens in its place."""
    return parse_s3_address(f"s3://{server.bucket}/{prefix}", endpoint or server.endpoint)


@asynccontextmanager
async def s3_store_on(
    server: S3Server,
    conditions: Conditions,
    *,
    prefix: str = "",
    endpoint: str | None = None,
    settings: S3Settings | None = None,
) -> AsyncGenerator[S3Store]:
    """On a server of which it is known what it makes of conditions: without the probe, and without a claim."""
    settings = settings if settings is not None else S3Settings()
    address = address_of(server, prefix=prefix, endpoint=endpoint)
    bucket = Bucket(address, settings, session_of(server))
    store = S3Store(bucket, conditions, settings=settings)
    try:
        yield store
    finally:
        await store.aclose()


@asynccontextmanager
async def opened_s3_store(
    server: S3Server,
    *,
    prefix: str = "",
    endpoint: str | None = None,
    settings: S3Settings | None = None,
    claim_times: ClaimTimes = QUICK_CLAIM,
    notifier: Notifier | None = None,
    announce: Callable[[str], None] | None = None,
) -> AsyncGenerator[S3Store]:
    """Opened as a relay does it, and closed at the end."""
    store = await open_s3_store(
        address_of(server, prefix=prefix, endpoint=endpoint),
        announce=announce if announce is not None else quiet,
        notifier=notifier,
        settings=settings,
        claim_times=claim_times,
        session=session_of(server),
    )
    try:
        yield store
    finally:
        await store.aclose()
