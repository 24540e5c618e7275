"""The runner between flows and stores: replies, failures thrown into the flow, bounds on what a relay sends."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from crystal_crypto.limits import ENTRY_BYTES_MAX
from crystal_mirror.requests import (
    Embed,
    Flow,
    Get,
    GetMany,
    GetPart,
    List,
    Listing,
    Put,
    PutBlob,
    PutNew,
    Request,
    StoreFailure,
)
from crystal_node.device.runner import (
    GETS_AT_ONCE,
    BadRelayReply,
    RelayHasNoRoom,
    RelayRefused,
    Runner,
    store_failure,
)
from crystal_relay import errors
from crystal_relay.local import LocalStore
from crystal_relay.memory import MemoryStore
from crystal_relay.store import Body, Listed, Object, Page

_PREFIX = "v/00000000000000000000000000000000/"


class _Wrapped(MemoryStore):
    """A memory store in which one call can be replaced."""

    def __init__(self, **replaced: Callable[..., Awaitable[Any]]) -> None:
        super().__init__()
        self._replaced = replaced

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> Object:
        if "get" in self._replaced:
            found: Object = await self._replaced["get"](key)
            return found
        return await super().get(key, start=start, length=length)

    async def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Page:
        if "list" in self._replaced:
            page: Page = await self._replaced["list"](prefix)
            return page
        return await super().list(prefix, after=after, limit=limit)

    async def put_new(self, key: str, body: bytes | Body) -> None:
        if "put_new" in self._replaced:
            await self._replaced["put_new"](key)
        await super().put_new(key, body)


def _asking(*requests: Request) -> Flow[list[Any]]:
    replies: list[Any] = []
    for request in requests:
        replies.append((yield request))  # noqa: PERF401  a generator expression cannot yield
    return replies


class _Embedder:
    identity, dimensions = "lengths/1", 1

    def embed_windows(self, texts: Sequence[str]) -> list[list[bytes]]:
        return [[len(text).to_bytes(2, "little")] for text in texts]

    def embed_query(self, text: str) -> Any:
        raise AssertionError("a sync round asks for no query")


async def test_each_request_gets_its_reply() -> None:
    runner = Runner(MemoryStore(), _Embedder)
    key = _PREFIX + "a"
    replies = await runner.run(
        _asking(
            Get(key),
            PutNew(key, b"one"),
            PutNew(key, b"two"),
            Get(key),
            Put(_PREFIX + "b", b"three"),
            GetMany((_PREFIX + "b", _PREFIX + "none", key)),
            List(_PREFIX, "", 1),
            List(_PREFIX, key, 1000),
            Embed(("ab", "")),
        )
    )
    assert replies == [
        None,
        True,
        False,
        b"one",
        None,
        [b"three", None, b"one"],
        Listing((key,), more=True),
        Listing((_PREFIX + "b",), more=False),
        [[b"\x02\x00"], [b"\x00\x00"]],
    ]
    assert runner.traffic.bytes_up == len(b"one") + len(b"two") + len(b"three")
    assert runner.traffic.bytes_down == len(b"one") * 2 + len(b"three")


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (errors.StoreUnavailable("away"), StoreFailure, 4),
        (errors.Busy("busy"), StoreFailure, 4),
        (errors.BadReply("hotel"), StoreFailure, 4),
        (errors.Unauthorized("who?"), RelayRefused, 5),
        (errors.Forbidden("no"), RelayRefused, 5),
        (errors.StoreFull("full"), RelayHasNoRoom, 8),
        (errors.StoreDamaged("damaged"), RelayHasNoRoom, 8),
        (errors.BodyTooLarge("large"), BadRelayReply, 6),
        (errors.BadRequest("bad"), BadRelayReply, 6),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
async def test_a_failure_is_thrown_into_the_flow_which_may_go_on(
    error: errors.RelayError, kind: type[StoreFailure], code: int
) -> None:
    async def fail(_key: str) -> None:
        raise error

    def flow() -> Flow[tuple[StoreFailure, Any]]:
        try:
            yield PutNew(_PREFIX + "a", b"")
        except StoreFailure as failure:
            return failure, (yield Get(_PREFIX + "a"))
        raise AssertionError("the failure was not thrown")

    failure, then = await Runner(_Wrapped(put_new=fail), None).run(flow())
    assert isinstance(failure, kind)
    assert (failure.exit_code, then) == (code, None)
    assert failure.hint
    assert type(failure) is type(store_failure(error))


@pytest.mark.parametrize(
    "error",
    [
        errors.VaultDropped("closed", hint="until Monday"),
        errors.VaultDeleted("gone"),
        errors.QuotaExceeded("much"),
    ],
)
def test_a_dropped_or_full_vault_comes_with_the_relays_advice_not_that_for_a_lost_token_or_a_full_disk(
    error: errors.RelayError,
) -> None:
    assert store_failure(error).hint == error.hint


async def test_one_failure_among_many_reads_is_one_failure() -> None:
    async def fail(key: str) -> Object:
        if key.endswith("3"):
            raise errors.StoreUnavailable("away")
        return Object.of(b"x")

    with pytest.raises(StoreFailure, match="away"):
        await Runner(_Wrapped(get=fail), None).run(_asking(GetMany(tuple(f"{_PREFIX}{n}" for n in range(6)))))


async def test_many_reads_go_side_by_side_within_a_bound() -> None:
    running = most = 0

    async def slow(_key: str) -> Object:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.005)
        running -= 1
        return Object.of(b"x")

    await Runner(_Wrapped(get=slow), None).run(_asking(GetMany(tuple(f"{_PREFIX}{n}" for n in range(100)))))
    assert most == GETS_AT_ONCE


async def test_an_endless_object_is_read_up_to_one_byte_over_the_limit() -> None:
    store = MemoryStore()
    await store.put_new(_PREFIX + "a", bytes(ENTRY_BYTES_MAX * 3))
    (found,) = await Runner(store, None).run(_asking(Get(_PREFIX + "a")))
    assert len(found) == ENTRY_BYTES_MAX + 1


@pytest.mark.parametrize(
    "keys", [["b", "a"], ["a", "a"], ["a", "../x"]], ids=["out of order", "twice", "not asked for"]
)
async def test_a_listing_that_would_lead_in_circles_is_refused(keys: list[str]) -> None:
    async def lie(prefix: str) -> Page:
        return Page(tuple(Listed(key if "." in key else prefix + key, 1) for key in keys), more=True)

    with pytest.raises(BadRelayReply):
        await Runner(_Wrapped(list=lie), None).run(_asking(List(_PREFIX, "", 10)))


async def test_a_cancelled_run_closes_its_flow() -> None:
    closed: list[bool] = []

    async def hang(_key: str) -> Object:
        await asyncio.sleep(3600)
        raise AssertionError

    def flow() -> Flow[None]:
        try:
            yield Get(_PREFIX + "a")
        finally:
            closed.append(True)

    task = asyncio.create_task(Runner(_Wrapped(get=hang), None).run(flow()))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert closed == [True]


async def test_an_embedding_error_ends_the_run_as_itself() -> None:
    class Broken(_Embedder):
        def embed_windows(self, texts: Sequence[str]) -> list[list[bytes]]:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await Runner(MemoryStore(), Broken).run(_asking(Embed(("x",))))


async def test_a_proxy_that_lets_no_blob_through_is_named_as_what_it_may_be() -> None:
    async def refused(_key: str) -> None:
        raise errors.BodyTooLarge("the relay's address answered with HTTP status 413")

    with pytest.raises(BadRelayReply) as caught:
        await Runner(_Wrapped(put_new=refused), None).run(_asking(PutBlob(_PREFIX + "blob/a", b"x")))
    assert "client_max_body_size" in (caught.value.hint or "")


def _files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


@pytest.mark.parametrize("lost", [False, True], ids=["truncated", "missing"])
async def test_an_object_whose_file_the_relay_lost_or_truncated_is_damaged_and_can_be_replaced(
    tmp_path: Path, *, lost: bool
) -> None:
    store = LocalStore(tmp_path, inline_bytes_max=100)
    try:
        runner, key, whole = Runner(store, None), _PREFIX + "a", bytes(range(200))
        await runner.run(_asking(PutNew(key, whole), PutNew(_PREFIX + "b", b"other")))
        (file,) = (path for path in _files(tmp_path) if path.read_bytes() == whole)
        if lost:
            file.unlink()
        else:
            file.write_bytes(whole[:50])
        shown = await runner.run(_asking(Get(key), GetPart(key, 0, 10), GetMany((key, _PREFIX + "b"))))
        assert shown == [b"", b"", [b"", b"other"]]
        assert (await runner.run(_asking(Put(key, whole), Get(key))))[1] == whole
    finally:
        await store.aclose()
