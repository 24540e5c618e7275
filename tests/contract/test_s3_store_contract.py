"""The contract of stores, on buckets of real servers: two that honour conditional writes, two that do not.

What a server makes of conditions is known here; that the start-up probe finds it out is tested in tests/relay/s3.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from crystal_relay.limits import LIST_LIMIT_MAX
from crystal_relay.s3 import Conditions
from tests.contract.opened import read, rounds
from tests.contract.store_contract import Opened, StoreContract
from tests.support.s3_servers import S3Server
from tests.support.s3_stores import s3_store_on


class S3Contract(StoreContract):
    """In a bucket of its own, on a server that all tests share. Pages of the full size are shown on Ceph."""

    many_keys = 100
    paged_keys = 130
    page_keys = 40
    conditions = Conditions.HONOURED
    server: S3Server

    @asynccontextmanager
    async def opened(self, tmp_path: Path) -> AsyncGenerator[Opened]:
        place = self.server.with_new_bucket()
        async with s3_store_on(place, self.conditions, prefix="relay/one") as store:
            yield Opened(store)


class TestS3StoreOnMoto(S3Contract):
    race_rounds = rounds(25)  # some 100 requests a second are all that it does

    @pytest.fixture(autouse=True)
    def use(self, moto_server: S3Server) -> None:
        self.server = moto_server


class TestS3StoreOnCeph(S3Contract):
    race_rounds = rounds(200)
    many_keys = 300
    paged_keys = 1_050
    page_keys = LIST_LIMIT_MAX

    @pytest.fixture(autouse=True)
    def use(self, rgw_server: S3Server) -> None:
        self.server = rgw_server


class TestS3StoreOnSwift(S3Contract):
    """Its conditions are not atomic: the relay puts writers in order itself."""

    conditions = Conditions.NOT_HONOURED
    race_rounds = 8
    many_keys = 60  # some 30 writes a second is all that it does

    @pytest.fixture(autouse=True)
    def use(self, swift_server: S3Server) -> None:
        self.server = swift_server


class TestS3StoreOnRclone(S3Contract):
    """It ignores conditions."""

    race_rounds = rounds(50)
    conditions = Conditions.NOT_HONOURED

    @pytest.fixture(autouse=True)
    def use(self, rclone_server: S3Server) -> None:
        self.server = rclone_server

    async def test_an_overwritten_object_is_never_seen_mixed_or_missing(self, at: Opened) -> None:
        """Not to be had here: this server writes in place, and who reads meanwhile gets an error or a mixture.

        Devices notice, since all they store is sealed; docs/decisions/0013 says so. What holds is the end: after the
        writes the object is one of the two that came last, whole.
        """
        bodies = [bytes([number]) * (1 + number * 20_000) for number in range(20)]
        for first, second in zip(bodies[::2], bodies[1::2], strict=True):
            await asyncio.gather(at.store.put(at.cursor, first), at.store.put(at.cursor, second))
            assert await read(at.store, at.cursor) in (first, second)
