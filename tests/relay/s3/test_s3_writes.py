"""Writes whose answer is lost, refused or late: one's own success is recognised, somebody else's never taken for it."""

import asyncio
import secrets
import time
from dataclasses import replace

import pytest

from crystal_relay.errors import AlreadyExists, Busy, NotFound, StoreFull, StoreUnavailable
from crystal_relay.limits import MIB
from crystal_relay.s3 import Conditions, S3Store
from tests.contract.opened import read
from tests.support.fault_proxy import Fault, FaultProxy
from tests.support.s3_servers import S3Server
from tests.support.s3_stores import QUICK, s3_store_on

KEY = "v/a/mirror/1"


@pytest.mark.parametrize("fault", [Fault.LOSE_ANSWER, Fault.BROKEN_AFTER, Fault.STALL_ANSWER])
@pytest.mark.parametrize("size", [10, 2 * MIB])
async def test_a_create_whose_answer_was_lost_is_ones_own_success_when_the_sdk_repeats_it(
    store: S3Store, proxy: FaultProxy, fault: Fault, size: int
) -> None:
    body = secrets.token_bytes(size)
    proxy.next("PUT", fault)
    await store.put_new(KEY, body)
    assert proxy.seen == ["PUT", "PUT", "HEAD"]
    assert await read(store, KEY) == body


async def test_what_somebody_else_created_is_never_ones_own_success(
    server: S3Server, store: S3Store, proxy: FaultProxy
) -> None:
    await store.put_new(KEY, b"same")
    proxy.next("PUT", Fault.BROKEN)
    with pytest.raises(AlreadyExists):
        await store.put_new(KEY, b"same")


async def test_of_two_writers_with_equal_bytes_one_wins_though_answers_are_lost(
    store: S3Store, proxy: FaultProxy
) -> None:
    for number in range(6):
        proxy.next("PUT", Fault.LOSE_ANSWER)
        results = await asyncio.gather(
            *(store.put_new(f"{KEY}{number}", b"same") for _ in range(2)), return_exceptions=True
        )
        assert sorted(map(type, results), key=str) == sorted([type(None), AlreadyExists], key=str)


async def test_a_create_that_cannot_find_out_whose_object_it_is_says_unknown(
    store: S3Store, proxy: FaultProxy
) -> None:
    proxy.next("PUT", Fault.LOSE_ANSWER)
    proxy.next("HEAD", Fault.BROKEN, Fault.BROKEN)
    with pytest.raises(StoreUnavailable):
        await store.put_new(KEY, b"x")
    assert await read(store, KEY) == b"x"


@pytest.mark.parametrize("fault", [Fault.CONFLICT, Fault.TOO_MANY])
async def test_a_create_that_meets_others_is_tried_again(
    store: S3Store, proxy: FaultProxy, fault: Fault
) -> None:
    proxy.next("PUT", fault, fault, fault)
    await store.put_new(KEY, b"x")
    assert proxy.seen == ["PUT"] * 4


async def test_a_create_that_always_meets_others_ends_as_busy_and_stores_nothing(
    store: S3Store, proxy: FaultProxy
) -> None:
    proxy.always = lambda method, _path: Fault.CONFLICT if method == "PUT" else None
    began = time.monotonic()
    with pytest.raises(Busy):
        await store.put_new(KEY, b"x")
    assert time.monotonic() - began < 10
    with pytest.raises(NotFound):
        await store.get(KEY)


@pytest.mark.parametrize("later", [Fault.CONFLICT, Fault.SLOW_DOWN, Fault.FULL])
async def test_conflicts_after_a_try_without_an_answer_are_not_taken_for_nothing_stored(
    store: S3Store, proxy: FaultProxy, later: Fault
) -> None:
    """The try that was lost may be what the others are in conflict with."""
    proxy.next("PUT", Fault.BROKEN, Fault.CONFLICT, Fault.CONFLICT)
    proxy.always = lambda method, _path: later if method == "PUT" else None
    with pytest.raises(StoreUnavailable):
        await store.put_new(KEY, b"x")


async def test_a_lost_success_followed_by_a_conflict_is_recognised(store: S3Store, proxy: FaultProxy) -> None:
    proxy.next("PUT", Fault.LOSE_ANSWER, Fault.CONFLICT)
    await store.put_new(KEY, b"x")
    assert await read(store, KEY) == b"x"


@pytest.mark.parametrize("fault", [Fault.LOSE_ANSWER, Fault.STALL_ANSWER, Fault.BROKEN_AFTER, Fault.STALL])
async def test_a_write_that_never_gets_an_answer_is_of_unknown_outcome(
    store: S3Store, proxy: FaultProxy, fault: Fault
) -> None:
    proxy.always = lambda method, _path: fault if method == "PUT" else None
    for write in (store.put_new(KEY, b"x"), store.put(f"{KEY}-cursor", b"x")):
        with pytest.raises(StoreUnavailable):
            await write


@pytest.mark.parametrize(
    ("fault", "expected"),
    [(Fault.SLOW_DOWN, Busy), (Fault.FULL, StoreFull), (Fault.DENIED, StoreUnavailable)],
)
async def test_a_write_that_was_refused_each_time_stored_nothing(
    store: S3Store, proxy: FaultProxy, fault: Fault, expected: type[Exception]
) -> None:
    proxy.always = lambda method, _path: fault if method == "PUT" else None
    for write in (store.put_new(KEY, b"x"), store.put(KEY, b"x")):
        with pytest.raises(expected):
            await write
    with pytest.raises(NotFound):
        await store.get(KEY)


async def test_a_refusal_after_a_lost_answer_is_not_taken_for_nothing_stored(
    store: S3Store, proxy: FaultProxy
) -> None:
    proxy.next("PUT", Fault.LOSE_ANSWER, Fault.SLOW_DOWN)
    with pytest.raises(StoreUnavailable):
        await store.put(KEY, b"x")
    assert await read(store, KEY) == b"x"


async def test_a_write_goes_on_when_its_caller_leaves_and_wakes_who_waits(
    store: S3Store, proxy: FaultProxy
) -> None:
    token = await store.wait("v/a/", token=None, timeout=0)
    proxy.next("PUT", Fault.STALL_ANSWER)
    writing = asyncio.create_task(store.put_new(KEY, b"x"))
    await asyncio.to_thread(proxy.wait_for, "PUT")
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert await store.wait("v/a/", token=token, timeout=20) != token
    assert await read(store, KEY) == b"x"


async def test_closing_waits_for_writes_that_were_left_behind(server: S3Server, proxy: FaultProxy) -> None:
    settings = replace(QUICK, attempts=2)
    async with s3_store_on(server, Conditions.HONOURED, endpoint=proxy.url, settings=settings) as store:
        proxy.next("PUT", Fault.STALL)
        writing = asyncio.create_task(store.put_new(KEY, b"x"))
        await asyncio.to_thread(proxy.wait_for, "PUT")
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
    found = server.client().get_object(Bucket=server.bucket, Key=KEY)
    assert found["Body"].read() == b"x"
