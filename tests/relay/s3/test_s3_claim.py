"""One process alone where the store puts nobody in order: a second is refused, a dead one is not waited for for ever."""

import asyncio
import os
import signal
import time
from dataclasses import replace
from typing import Any

import pytest

from crystal_relay.errors import AlreadyExists, Busy, InUse, StoreDamaged, StoreUnavailable
from crystal_relay.s3 import Conditions, S3Settings, S3Store
from crystal_relay.s3.bucket import LISTS_MAX, Bucket, Content
from crystal_relay.s3.claim import BucketClaim, boot_time
from tests.contract.opened import read
from tests.support.fault_proxy import Fault, FaultProxy, fault_proxy
from tests.support.s3_holder import holder_of
from tests.support.s3_servers import S3Server
from tests.support.s3_stores import QUICK, QUICK_CLAIM, address_of, opened_s3_store, quiet, session_of


@pytest.fixture
def server(rclone_server: S3Server) -> S3Server:
    return rclone_server.with_new_bucket()


def claims(server: S3Server) -> list[str]:
    listed = server.client().list_objects_v2(Bucket=server.bucket, Prefix="r/sole/")
    return [entry["Key"] for entry in listed.get("Contents", ())]


async def test_a_second_relay_on_a_store_without_conditions_refuses_to_start(server: S3Server) -> None:
    async with opened_s3_store(server) as first:
        assert first.conditions is Conditions.NOT_HONOURED
        with pytest.raises(InUse) as caught:
            async with opened_s3_store(server):
                pass
        assert "other relay" in caught.value.hint
        await first.put_new("v/a/x", b"still writes")
        assert len(claims(server)) == 1
    assert claims(server) == []
    async with opened_s3_store(server) as later:
        assert await read(later, "v/a/x") == b"still writes"


async def test_of_two_that_start_at_once_never_both_write(server: S3Server) -> None:
    opened: list[bool] = []

    async def start() -> bool:
        try:
            async with opened_s3_store(server):
                opened.append(True)
                async with asyncio.timeout(60):
                    while len(opened) < 3:  # noqa: ASYNC110  (none leaves before all have tried)
                        await asyncio.sleep(0.05)
        except InUse:
            opened.append(False)
            raise
        return True

    results = await asyncio.gather(start(), start(), start(), return_exceptions=True)
    assert results.count(True) <= 1
    assert all(isinstance(result, InUse) for result in results if result is not True)


async def test_a_relay_that_was_killed_is_followed_once_its_claim_is_dead(server: S3Server) -> None:
    said: list[str] = []
    with holder_of(server, dict(os.environ)) as first:
        with pytest.raises(InUse):
            async with opened_s3_store(server):
                pass
        first.kill()
        first.wait()
        assert len(claims(server)) == 1
        began = time.monotonic()
        async with opened_s3_store(server, announce=said.append) as second:
            assert time.monotonic() - began >= QUICK_CLAIM.dead
            await second.put_new("v/a/x", b"x")
            assert len(claims(server)) == 1
    assert any("Waiting" in line for line in said)


async def test_a_relay_that_slept_too_long_does_not_drive_out_its_follower(server: S3Server) -> None:
    with holder_of(server, dict(os.environ)) as sleeper:
        os.kill(sleeper.pid, signal.SIGSTOP)
        async with opened_s3_store(server) as follower:
            os.kill(sleeper.pid, signal.SIGCONT)
            for _ in range(20):
                await asyncio.sleep(0.05)
                await follower.put_new(f"v/a/{time.monotonic_ns()}", b"x")


def claim_on(server: S3Server, endpoint: str) -> BucketClaim:
    bucket = Bucket(address_of(server, endpoint=endpoint), replace(QUICK, attempts=1), session_of(server))
    return BucketClaim(bucket, QUICK_CLAIM, clock=boot_time, announce=quiet)


async def until_it_writes(claim: BucketClaim, *, writes: bool) -> None:
    async with asyncio.timeout(10):
        while True:
            try:
                claim.check()
            except StoreUnavailable:
                if not writes:
                    return
            else:
                if writes:
                    return
            await asyncio.sleep(0.02)


async def test_a_claimant_that_cannot_renew_refuses_writes_until_it_has(server: S3Server) -> None:
    with fault_proxy(server.endpoint) as proxy:
        claim = claim_on(server, proxy.url)
        await claim.take()
        claim.check()
        proxy.always = lambda _method, _path: Fault.BROKEN
        began = time.monotonic()
        await until_it_writes(claim, writes=False)
        assert time.monotonic() - began < QUICK_CLAIM.dead
        proxy.always = lambda _method, _path: None
        await until_it_writes(claim, writes=True)
        await claim.aclose()
        assert claims(server) == []


async def test_a_claimant_whose_place_was_taken_goes_on_refusing(server: S3Server) -> None:
    with fault_proxy(server.endpoint) as proxy:
        lost = claim_on(server, proxy.url)
        await lost.take()
        proxy.always = lambda _method, _path: Fault.BROKEN
        await until_it_writes(lost, writes=False)
        second = claim_on(server, server.endpoint)
        await second.take()
        proxy.always = lambda _method, _path: None
        for _ in range(30):
            await asyncio.sleep(0.05)
            second.check()
            with pytest.raises(StoreUnavailable):
                lost.check()
        await second.aclose()
        await until_it_writes(lost, writes=True)
        await lost.aclose()


async def test_a_bucket_that_honours_conditions_respects_a_living_claim(
    moto_server: S3Server, server: S3Server
) -> None:
    place = moto_server.with_new_bucket()
    claim = claim_on(place, place.endpoint)
    await claim.take()
    with pytest.raises(InUse):
        async with opened_s3_store(place):
            pass
    await claim.aclose()
    Bucket(address_of(place), S3Settings(), session_of(place)).put("r/sole/left", Content.of(b"7"))
    async with opened_s3_store(place):
        assert claims(place) == []


class _ListsTwice(Bucket):
    """A bucket whose first lists show an object twice, as some do while that object is written."""

    twice = 0

    def _list(self, prefix: str, limit: int, asked: dict[str, Any]) -> dict[str, Any]:
        answer = super()._list(prefix, limit, asked)
        if self.twice:
            self.twice -= 1
            answer["Contents"] = [{"Key": self._name(f"{prefix}same"), "Size": 1}] * 2
        return answer


def claim_on_a_bucket_that_lists_twice(server: S3Server, times: int) -> BucketClaim:
    bucket = _ListsTwice(address_of(server), replace(QUICK, attempts=1), session_of(server))
    bucket.twice = times
    return BucketClaim(bucket, QUICK_CLAIM, clock=boot_time, announce=quiet)


async def test_a_list_that_shows_a_claim_twice_while_it_is_renewed_is_asked_for_again(
    server: S3Server,
) -> None:
    claim = claim_on_a_bucket_that_lists_twice(server, 1)
    await claim.take()
    claim.check()
    second = claim_on_a_bucket_that_lists_twice(server, 1)
    with pytest.raises(InUse):
        await second.take()
    await claim.aclose()


async def test_a_bucket_that_never_lists_in_order_is_not_asked_for_ever(server: S3Server) -> None:
    claim = claim_on_a_bucket_that_lists_twice(server, LISTS_MAX)
    with pytest.raises(StoreDamaged):
        await claim.take()
    assert claims(server) == [], "it leaves nothing behind"


async def test_a_write_of_unknown_outcome_leaves_its_key_in_doubt(server: S3Server) -> None:
    settings = replace(QUICK, attempts=1)
    with fault_proxy(server.endpoint) as proxy:
        async with opened_s3_store(server, endpoint=proxy.url, settings=settings) as store:
            await _check_doubt(store, proxy, "v/a/x")


async def _check_doubt(store: S3Store, proxy: FaultProxy, key: str) -> None:
    lost = [True]

    def lose_the_key(method: str, path: str) -> Fault | None:
        return Fault.STALL if lost and method == "PUT" and path.endswith(key) else None

    proxy.always = lose_the_key
    with pytest.raises(StoreUnavailable):
        await store.put_new(key, b"first")
    lost.clear()
    with pytest.raises(Busy):
        await store.put_new(key, b"second")
    await store.put_new(key, b"first")
    with pytest.raises(AlreadyExists):
        await store.put_new(key, b"first")
    assert await read(store, key) == b"first"
