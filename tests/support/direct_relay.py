"""A relay over a bucket, in a thread of its own, that knows how many bytes of objects passed through it."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from crystal_relay.s3 import Conditions, S3Address, S3Settings, S3Store
from crystal_relay.s3.bucket import Bucket
from crystal_relay.store import Body, Object, body_size
from tests.support.relay_server import threaded_relay
from tests.support.s3_servers import S3Server
from tests.support.s3_stores import session_of


class CountedStore(S3Store):
    """Counts the bytes of blobs that go through this process."""

    passed_bytes = 0

    async def put_new(self, key: str, body: bytes | Body) -> None:
        if "/blob/" in key:
            self.passed_bytes += body_size(body)
        await super().put_new(key, body)

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> Object:
        found = await super().get(key, start=start, length=length)
        if "/blob/" in key:
            self.passed_bytes += found.length
        return found


@dataclass
class BucketRelay:
    """Where it is, and its store: look at its counters only."""

    url: str
    store: CountedStore


def bucket_store(server: S3Server, *, endpoint: str | None = None) -> CountedStore:
    """A store on a bucket that honours conditions, and that counts as one that takes exactly what was signed.

    Without the start-up probe: it would refuse direct puts on these servers, which take more (`test_signed_requests.py`).
    """
    settings = S3Settings()
    bucket = Bucket(
        S3Address(server.bucket, "relay", endpoint or server.endpoint), settings, session_of(server)
    )
    return CountedStore(bucket, Conditions.HONOURED, settings=settings, direct_puts=True)


@contextmanager
def bucket_relay(server: S3Server) -> Generator[BucketRelay]:
    """One relay over the server's bucket."""
    stores: list[CountedStore] = []

    def make() -> CountedStore:
        stores.append(bucket_store(server))
        return stores[0]

    with threaded_relay(make) as url:
        yield BucketRelay(url, stores[0])
