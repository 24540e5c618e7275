"""What a signed request can be used for at a real bucket: for what it was signed for, and nothing else.

On Ceph's gateway, which checks signatures as AWS does, but takes headers that nobody signed. AWS documents that it refuses
those: `strict_bucket` stands in front of the gateway and does. moto takes any signature in an address, and with its
authorization switched on none at all, so it shows nothing here.
"""

import asyncio
import contextlib
import hashlib
import secrets
from collections.abc import AsyncGenerator

import httpx
import pytest
import pytest_asyncio

from crystal_relay.errors import AlreadyExists, NotFound
from crystal_relay.limits import DIRECT_BYTES_MIN
from crystal_relay.s3 import Conditions, S3Store, direct
from crystal_relay.store import DirectRequest, DirectStore
from tests.contract.opened import read
from tests.support.direct_relay import bucket_store
from tests.support.s3_servers import S3Server, running_moto
from tests.support.s3_stores import opened_s3_store
from tests.support.strict_bucket import strict_bucket

KEY = f"v/{'ab' * 16}/blob/a"
BODY = secrets.token_bytes(DIRECT_BYTES_MIN)
EXPIRY_SECONDS_MAX = 20.0


@pytest_asyncio.fixture
async def store(rgw_server: S3Server) -> AsyncGenerator[S3Store]:
    server = rgw_server.with_new_bucket()
    with strict_bucket(server.endpoint) as endpoint:
        opened = bucket_store(server, endpoint=endpoint)
        yield opened
        await opened.aclose()


async def signed_put(store: S3Store, body: bytes = BODY) -> DirectRequest:
    digest = hashlib.md5(body, usedforsecurity=False).digest()
    return await store.direct_put(KEY, size=len(body), md5=digest)


async def send(
    request: DirectRequest,
    body: bytes = b"",
    *,
    method: str | None = None,
    url: str | None = None,
    without: str = "",
    **changed: str,
) -> int:
    headers = {name: value for name, value in request.headers.items() if name != without}
    headers |= {name.replace("_", "-"): value for name, value in changed.items()}
    async with httpx.AsyncClient() as http:
        return (
            await http.request(method or request.method, url or request.url, headers=headers, content=body)
        ).status_code


async def test_a_signed_put_creates_its_object_and_tells_whose_it_is(store: S3Store) -> None:
    assert isinstance(store, DirectStore)
    request = await signed_put(store)
    with pytest.raises(NotFound):
        await store.head(KEY)
    assert await send(request, BODY) == 200
    assert await read(store, KEY) == BODY
    head = await store.head(KEY)
    assert (head.size, head.receipt) == (len(BODY), request.receipt)


async def test_a_signed_put_overwrites_nothing(store: S3Store) -> None:
    await store.put_new(KEY, b"first")
    request = await signed_put(store)
    assert await send(request, BODY) == 412
    assert await send(request, BODY, without="if-none-match") == 403
    assert await send(request, BODY, if_none_match='"other"') == 403
    assert await read(store, KEY) == b"first"
    head = await store.head(KEY)
    assert head.receipt != request.receipt


@pytest.mark.parametrize(
    ("body", "changed"),
    [
        (BODY[:-1] + bytes([BODY[-1] ^ 1]), {}),
        (BODY[:-1], {"content_length": str(len(BODY) - 1)}),
        (BODY + b"x", {"content_length": str(len(BODY) + 1)}),
        (b"", {"content_length": "0"}),
        (BODY, {"content_md5": "AAAAAAAAAAAAAAAAAAAAAA=="}),
        (BODY, {"x_amz_meta_crystal_write": "0" * 32}),
        (BODY, {"x_amz_meta_other": "x"}),
        (BODY, {"x_amz_copy_source": "/bucket/object"}),
        (BODY, {"x_amz_acl": "public-read"}),
    ],
)
async def test_a_signed_put_takes_no_other_bytes_and_no_other_number(
    store: S3Store, body: bytes, changed: dict[str, str]
) -> None:
    status = await send(await signed_put(store), body, **changed)
    assert status in (400, 403)
    with pytest.raises(NotFound):
        await store.head(KEY)


@pytest.mark.parametrize("method", ["GET", "DELETE", "HEAD", "POST"])
async def test_a_signed_put_is_good_for_nothing_else(store: S3Store, method: str) -> None:
    await store.put_new(KEY, b"first")
    assert await send(await signed_put(store), BODY, method=method) in (403, 405)
    assert await read(store, KEY) == b"first"


@pytest.mark.parametrize("method", ["PUT", "DELETE", "POST"])
async def test_a_signed_get_changes_nothing(store: S3Store, method: str) -> None:
    await store.put_new(KEY, b"first")
    request = await store.direct_get(KEY)
    assert await send(request) == 200
    assert await send(request, BODY, method=method, content_length=str(len(BODY))) in (403, 405)
    assert await read(store, KEY) == b"first"


async def test_a_signed_request_is_for_its_key_and_its_bucket_only(store: S3Store) -> None:
    other = KEY.replace("ab", "cd")
    await store.put_new(other, BODY)
    await store.put_new(KEY, BODY)
    for request in (await store.direct_get(KEY), await signed_put(store)):
        body = BODY if request.method == "PUT" else b""
        assert await send(request, body, url=request.url.replace("ab" * 16, "cd" * 16)) == 403
        listing = request.url.replace(f"/relay/{KEY}", "/")
        assert listing != request.url
        assert await send(request, body, url=listing) == 403


async def test_a_signed_request_expires(store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "EXPIRES_SECONDS", 1)
    put, get = await signed_put(store), await store.direct_get(KEY)
    async with asyncio.timeout(EXPIRY_SECONDS_MAX):
        while await send(get) != 403:  # noqa: ASYNC110 - it is the bucket's clock that decides
            await asyncio.sleep(0.1)
    assert await send(put, BODY) == 403
    with pytest.raises(NotFound):
        await store.head(KEY)


async def test_sixteen_signed_puts_sent_at_once_have_one_winner(store: S3Store) -> None:
    bodies = [bytes([number]) * DIRECT_BYTES_MIN for number in range(16)]
    requests = [await signed_put(store, body) for body in bodies]
    statuses = await asyncio.gather(
        *(send(request, body) for request, body in zip(requests, bodies, strict=True))
    )
    assert sorted(statuses) == [200, *[412] * 15]
    winner = statuses.index(200)
    assert (await store.head(KEY)).receipt == requests[winner].receipt
    with pytest.raises(AlreadyExists):
        await store.put_new(KEY, b"x")


@pytest.mark.parametrize(
    ("endpoint", "reachable"),
    [
        (None, True),
        ("https://s3.example.com", True),
        ("http://127.0.0.1:9000", True),
        ("http://s3:9000", False),
        ("http://10.0.0.1:9000", False),
    ],
)
def test_devices_are_not_sent_to_buckets_over_plain_http(endpoint: str | None, reachable: bool) -> None:
    assert direct.is_reachable(endpoint) is reachable


async def test_a_bucket_that_takes_exactly_what_was_signed_is_found_out(rgw_server: S3Server) -> None:
    server = rgw_server.with_new_bucket()
    with strict_bucket(server.endpoint) as endpoint:
        async with opened_s3_store(server, endpoint=endpoint) as store:
            assert store.direct_puts
            assert store.direct_gets
            assert (await store.list("r/probe/")).entries == ()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rgw", "moto", "moto-auth"])
async def test_no_puts_are_signed_for_a_bucket_that_takes_what_was_not_signed(
    request: pytest.FixtureRequest, name: str
) -> None:
    """Else a tenant could have the relay's own secrets, or another vault's objects, copied to where it may read."""
    with contextlib.ExitStack() as running:
        server: S3Server = (
            request.getfixturevalue("rgw_server").with_new_bucket()
            if name == "rgw"
            else running.enter_context(running_moto(auth=name == "moto-auth"))
        )
        async with opened_s3_store(server) as store:
            assert store.conditions is Conditions.HONOURED
            assert not store.direct_puts
            assert store.direct_gets
            assert (await store.list("r/probe/")).entries == ()


async def test_cephs_gateway_would_copy_the_relays_secrets(rgw_server: S3Server) -> None:
    """Why the above: should this fail, the gateway has learned to refuse it, and direct puts are safe there."""
    async with opened_s3_store(rgw_server.with_new_bucket()) as store:
        await store.put_new("r/secret/peers", b"secret")
        source = f"/{store.bucket.address.bucket}/r/secret/peers"
        assert await send(await signed_put(store), BODY, x_amz_copy_source=source) == 200
        assert await read(store, KEY) == b"secret"


async def test_a_bucket_that_ignores_conditions_is_not_used_directly(rclone_server: S3Server) -> None:
    async with opened_s3_store(rclone_server.with_new_bucket()) as store:
        assert store.conditions is Conditions.NOT_HONOURED
        assert not (store.direct_puts or store.direct_gets)
