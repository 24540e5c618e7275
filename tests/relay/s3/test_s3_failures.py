"""Stores that fail, stall, lie or break off: an error each time, never a short object or a false success."""

import logging
import socket
import time
from dataclasses import replace
from typing import Any

import pytest

from crystal_relay.errors import BadReply, NotFound, StoreDamaged, StoreUnavailable
from crystal_relay.limits import MIB
from crystal_relay.s3 import Conditions, S3Store
from tests.contract.opened import read
from tests.support.fault_proxy import Fault, FaultProxy
from tests.support.s3_servers import S3Server
from tests.support.s3_stores import QUICK, s3_store_on

KEY = "v/a/mirror/1"


@pytest.mark.parametrize("size", [10_000, 3 * MIB])
@pytest.mark.parametrize("fault", [Fault.CUT_BODY, Fault.STALL_BODY, Fault.LONGER])
async def test_a_body_that_breaks_off_is_an_error(
    store: S3Store, proxy: FaultProxy, fault: Fault, size: int
) -> None:
    await store.put_new(KEY, b"x" * size)
    proxy.always = lambda method, _path: fault if method == "GET" else None
    for start, length in ((0, None), (1, None), (0, size - 1)):
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            await read(store, KEY, start=start, length=length)
        assert time.monotonic() - began < 10


@pytest.mark.parametrize("fault", [Fault.STALL, Fault.BROKEN, Fault.LOSE_ANSWER, Fault.DENIED, Fault.PORTAL])
async def test_a_store_that_fails_is_unavailable_for_reads(
    store: S3Store, proxy: FaultProxy, fault: Fault
) -> None:
    await store.put_new(KEY, b"x")
    proxy.always = lambda _method, _path: fault
    for call in (store.get(KEY), store.get(KEY, start=1, length=1), store.list("v/a/")):
        with pytest.raises(StoreUnavailable):
            await call
    proxy.always = lambda _method, _path: None
    assert await read(store, KEY) == b"x"


async def test_a_read_that_fails_once_is_repeated(store: S3Store, proxy: FaultProxy) -> None:
    await store.put_new(KEY, b"x")
    proxy.next("GET", Fault.BROKEN, None, Fault.LOSE_ANSWER)
    assert await read(store, KEY) == b"x"
    assert [entry.key for entry in (await store.list("v/")).entries] == [KEY]


async def test_a_web_page_in_place_of_an_answer_is_no_success(store: S3Store, proxy: FaultProxy) -> None:
    proxy.always = lambda _method, _path: Fault.PORTAL
    for call in (
        store.put_new(KEY, b"x"),
        store.put(KEY, b"x"),
        store.delete(KEY),
        store.get(KEY),
        store.get(KEY, start=1),
        store.list("v/"),
    ):
        with pytest.raises(BadReply):
            await call
    proxy.always = lambda _method, _path: None
    with pytest.raises(NotFound):
        await store.get(KEY)


async def test_a_delete_that_fails_is_an_error(store: S3Store, proxy: FaultProxy) -> None:
    await store.put_new(KEY, b"x")
    proxy.always = lambda method, _path: Fault.BROKEN if method == "DELETE" else None
    with pytest.raises(StoreUnavailable):
        await store.delete(KEY)
    assert await read(store, KEY) == b"x"


async def test_nothing_that_listens_is_unavailable_soon(store: S3Store, proxy: FaultProxy) -> None:
    proxy.always = lambda _method, _path: Fault.STALL
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        await store.get(KEY)
    assert time.monotonic() - began < 10


async def test_a_list_out_of_order_is_refused(store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        await store.put_new(f"v/{name}", b"x")
    honest = store.bucket.client.list_objects_v2

    def backwards(**asked: object) -> dict[str, object]:
        answer: dict[str, object] = honest(**asked)
        contents = answer["Contents"]
        assert isinstance(contents, list)
        return {**answer, "Contents": contents[::-1]}

    monkeypatch.setattr(store.bucket.client, "list_objects_v2", backwards)
    with pytest.raises(StoreDamaged):
        await store.list("v/")


async def test_a_list_of_more_than_was_asked_for_is_refused(
    store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        await store.put_new(f"v/{name}", b"x")
    honest = store.bucket.client.list_objects_v2

    def generous(**asked: Any) -> Any:
        return honest(**asked | {"MaxKeys": 1000})

    monkeypatch.setattr(store.bucket.client, "list_objects_v2", generous)
    with pytest.raises(StoreUnavailable):
        await store.list("v/", limit=2)


@pytest.mark.parametrize("change", [-1, 1])
async def test_another_part_than_was_asked_for_is_an_error(
    store: S3Store, monkeypatch: pytest.MonkeyPatch, change: int
) -> None:
    await store.put_new(KEY, bytes(1000))
    honest = store.bucket.client.get_object

    def other(Range: str, **asked: object) -> object:  # noqa: N803  (the SDK's name)
        start, _, last = Range.removeprefix("bytes=").partition("-")
        return honest(Range=f"bytes={start}-{(int(last) if last else 999) + change}", **asked)

    monkeypatch.setattr(store.bucket.client, "get_object", other)
    for start, length in ((0, 10), (500, 100)):
        with pytest.raises(StoreUnavailable):
            await read(store, KEY, start=start, length=length)


async def test_names_of_others_in_the_bucket_are_passed_over(store: S3Store) -> None:
    client, name = store.bucket.client, store.bucket.address.bucket
    for key in ("v/A", "v/B c", "v/d/", "v/e//f"):
        client.put_object(Bucket=name, Key=key, Body=b"theirs")
    await store.put_new("v/z", b"ours")
    for limit in (1, 2, 1000):
        page = await store.list("v/", limit=limit)
        assert [entry.key for entry in page.entries] == ["v/z"]


async def test_a_failure_is_logged_once_without_the_name_of_the_object(
    store: S3Store, proxy: FaultProxy, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    proxy.always = lambda _method, _path: Fault.DENIED
    for _ in range(5):
        with pytest.raises(StoreUnavailable) as caught:
            await store.list("v/secret-name/")
        assert "secret-name" not in str(caught.value)
    said = [record for record in caplog.records if record.name.startswith("crystal_relay.s3")]
    assert len(said) <= 1
    assert "secret-name" not in caplog.text


@pytest.mark.parametrize("size", [10, 8 * MIB])
async def test_a_store_that_accepts_and_reads_nothing_is_unavailable_soon(
    server: S3Server, size: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}"
        settings = replace(QUICK, attempts=2)
        async with s3_store_on(server, Conditions.HONOURED, endpoint=endpoint, settings=settings) as store:
            began = time.monotonic()
            with pytest.raises(StoreUnavailable):
                await store.put_new(KEY, b"x" * size)
            assert time.monotonic() - began < 15
