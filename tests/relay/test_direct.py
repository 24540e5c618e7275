"""The client's half of direct transfers, against relays and buckets that lie, leak or break off."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from crystal_relay.client.direct import GrantRefused, checked_grant
from crystal_relay.client.http import HttpStore
from crystal_relay.errors import AlreadyExists, Closed, NotFound, StoreUnavailable
from crystal_relay.limits import DIRECT_BYTES_MIN
from crystal_relay.wire import Direction, TransferReply, TransferRequest
from tests.support.lying_relay import (
    BODY,
    KEY,
    MISSING,
    OURS,
    RECEIPT,
    SIGNATURE,
    STORED,
    TAKEN,
    WHOLE,
    XML,
    Stage,
    stage,
)
from tests.support.odd_server import PREFIX, TOKEN, odd_server, reply, says
from tests.support.recorder import error_reply, json_reply, recorder


async def test_no_credential_ever_reaches_the_buckets_host() -> None:
    cookie = reply(200, b"", b"Set-Cookie: s=1; Path=/", b"WWW-Authenticate: Bearer")
    async with stage(lambda asked: cookie if asked.method == "PUT" else WHOLE) as at:
        for _ in range(2):
            await at.put()
            await at.get()
        got = bytes(at.bucket.bytes)
        assert len(at.bucket.asked) == 4
        assert TOKEN.encode() not in got
        assert TOKEN.partition(".")[2].encode() not in got
        usual = {"host", "accept", "accept-encoding", "connection", "user-agent"}
        for asked in at.bucket.asked:
            names = [name for name, _ in asked.headers]
            assert len(names) == len(set(names))
            assert set(names) <= usual | OURS.keys() | {"x-amz-meta-crystal-write"}
        put = at.bucket.asked[0]
        assert put.body == BODY
        assert {name: put.header(name) for name in OURS} == OURS


BAD_URLS = [
    "http://bucket.example.com/o",
    "http://10.0.0.1/o",
    "http://127.1/o",
    "http://2130706433/o",
    "https://user:password@bucket.example.com/o",
    "https://user@127.0.0.1/o",
    "http://127.0.0.1@bucket.example.com/o",
    "http://127.0.0.1:9\\@bucket.example.com/o",
    "https://bucket.example.com/o#fragment",
    "https://bucket.example.com:0/o",
    "https://bucket.example.com:99999/o",
    "https:///o",
    "https://[::1/o",
    "ftp://bucket.example.com/o",
    "file:///etc/passwd",
    "bucket.example.com/o",
    "https://bucket.example.com/o\r\nHost: x",
    "https://bucket.example.com/ o",
    "https://bücket.example.com/o",
    "https://bucket.example.com/" + "o" * 9000,
    "",
]
BAD_HEADERS = [
    {"Authorization": "Bearer x"},
    {"Cookie": "a=b"},
    {"Host": "other.example.com"},
    {"Transfer-Encoding": "chunked"},
    {"Range": "bytes=0-1"},
    {"X-Forwarded-For": "1.2.3.4"},
    {"x-amz-": "x"},
    {"x-amz-meta-a b": "x"},
    {"x-amz-meta-a": "x\r\nAuthorization: y"},
    {"x-amz-meta-a": "ü"},
    {"x-amz-meta-a": "x" * 2000},
    {"x-amz-meta-a": "x", "X-Amz-Meta-A": "y"},
    {f"x-amz-meta-{number}": "x" for number in range(20)},
    {"If-None-Match": '"etag"'},
    {"Content-Length": "1"},
    {"Content-MD5": "AAAAAAAAAAAAAAAAAAAAAA=="},
]
BAD_GRANTS: list[dict[str, Any]] = [
    *({"url": url} for url in BAD_URLS),
    *({"headers": headers} for headers in BAD_HEADERS),
    {"method": "DELETE"},
    {"method": "POST"},
    {"size": len(BODY) - 1},
    {"size": 2**40},
    {"size": -1},
]


@pytest.mark.parametrize("grant", [*BAD_GRANTS, {"receipt": ""}, {"receipt": "x" * 200}], ids=repr)
async def test_a_put_that_the_relay_should_not_have_granted_goes_through_the_relay(
    grant: dict[str, Any],
) -> None:
    async with stage(grant=grant) as at:
        await at.put()
        await at.put()
        assert at.bucket.bytes == b""
        assert at.relay.count("/objects/blob/a") == 2
        assert at.relay.count("/transfers") == 1, "it is not asked again for a while"


@pytest.mark.parametrize("grant", BAD_GRANTS, ids=repr)
async def test_a_get_that_the_relay_should_not_have_granted_goes_through_the_relay(
    grant: dict[str, Any],
) -> None:
    if grant.get("size") == len(BODY) - 1:
        grant = {"size": DIRECT_BYTES_MIN - 1}
    async with stage(grant=grant) as at:
        await at.get()
        assert at.bucket.bytes == b""
        assert at.relay.count("/objects/blob/a") == 1


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080/o", "https://localhost/o", "https://[::1]/o"])
def test_a_relay_elsewhere_sends_nobody_to_a_service_on_the_devices_own_machine(url: str) -> None:
    asked = TransferRequest("blob/a", Direction.GET)
    granted = TransferReply(direct=True, offered=True, method="GET", url=url, size=len(BODY))
    assert checked_grant(granted, asked, may_be_loopback=True).url == url
    with pytest.raises(GrantRefused):
        checked_grant(granted, asked, may_be_loopback=False)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_redirects_at_the_bucket_are_not_followed(status: int) -> None:
    async with recorder(lambda _: WHOLE) as elsewhere:
        redirect = reply(status, b"", b"Location: " + elsewhere.url.encode())
        async with stage(redirect, done=MISSING) as at:
            with pytest.raises(StoreUnavailable):
                await at.put()
        async with stage(redirect) as at:
            with pytest.raises(StoreUnavailable):
                await at.get()
        assert elsewhere.bytes == b""


LOST = None
ANSWERS = [reply(status, b"" if status == 200 else XML) for status in (200, 204, 400, 404, 412, 500, 503)]


@pytest.mark.parametrize(
    "said", [*ANSWERS, LOST, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhal", b"\x00\xff"]
)
async def test_the_relays_word_decides_what_became_of_a_put_whatever_the_bucket_said(
    said: bytes | None,
) -> None:
    """A lost reply is one's own success, another's object is not, and a bucket that says "stored" of nothing lies."""
    for verdict, error in ((STORED, None), (TAKEN, AlreadyExists), (MISSING, StoreUnavailable)):
        async with stage(lambda _: said, done=verdict) as at:
            if error is None:
                await at.put()
            else:
                with pytest.raises(error):
                    await at.put()
            assert len(at.bucket.asked) == 1
            assert at.relay.count("/objects/blob/a") == 0


async def test_a_conflict_at_the_bucket_is_tried_again() -> None:
    answers = [reply(409, XML), reply(409, XML), reply(200)]
    async with stage(lambda _: answers.pop(0)) as at:
        await at.put()
        assert len(at.bucket.asked) == 3
    async with stage(reply(409, XML), done=MISSING) as at:
        with pytest.raises(StoreUnavailable):
            await at.put()
        assert len(at.bucket.asked) == 4


async def test_an_expired_request_is_renewed_once() -> None:
    answers = [reply(403, XML), reply(200), reply(403, XML), WHOLE]
    async with stage(lambda _: answers.pop(0)) as at:
        await at.put()
        await at.get()
        assert at.relay.count("/transfers") == 4
    async with stage(reply(403, XML), done=MISSING) as at:
        with pytest.raises(StoreUnavailable):
            await at.put()
        assert len(at.bucket.asked) == 2
        await at.put()  # through the relay
        assert len(at.bucket.asked) == 2
    async with stage(reply(403, XML)) as at:
        with pytest.raises(StoreUnavailable):
            await at.get()
        await at.get()
        assert len(at.bucket.asked) == 2


@pytest.mark.parametrize("size", [0, len(BODY) - 1, len(BODY) + 1])
async def test_a_success_of_another_size_is_none(size: int) -> None:
    async with stage(done=json_reply(201, {"size": size})) as at:
        with pytest.raises(StoreUnavailable):
            await at.put()


@pytest.mark.parametrize(
    "said",
    [
        reply(404, XML),
        reply(412, XML),
        reply(500, XML),
        reply(200, BODY[:-1]),
        reply(200, BODY + b"x"),
        reply(204),
        reply(206, BODY, b"Content-Range: bytes 0-%d/%d" % (len(BODY) - 1, len(BODY))),
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY[:1000],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + BODY,
        b"SSH-2.0-OpenSSH\r\n",
        b"",
        LOST,
    ],
)
async def test_a_bucket_that_gives_something_else_is_an_error_and_the_relay_serves_instead(
    said: bytes | None,
) -> None:
    """Never "not found", never fewer bytes."""
    async with stage(lambda _: said) as at:
        with pytest.raises(StoreUnavailable):
            await at.get()
        await at.get()
        assert len(at.bucket.asked) == 1


@pytest.mark.parametrize(
    "headers",
    [
        (206, b"Content-Range: bytes 0-299999/%d" % len(BODY)),
        (206, b"Content-Range: bytes 5-9/%d" % (len(BODY) + 1)),
        (206, b"Content-Range: nonsense"),
        (200, b"X: y"),
    ],
)
async def test_another_part_than_asked_for_is_an_error(headers: tuple[int, bytes]) -> None:
    async with stage(reply(headers[0], BODY[5:], headers[1])) as at:
        with pytest.raises(StoreUnavailable):
            await at.store.get(KEY, start=5)


@pytest.mark.parametrize("call", [Stage.put, Stage.get])
async def test_a_bucket_that_cannot_be_reached_is_gone_around(
    call: Callable[[Stage], Coroutine[Any, Any, None]],
) -> None:
    async with stage(bucket="http://127.0.0.1:1") as at:
        await call(at)
        await call(at)
        assert at.relay.count("/transfers") == 1
        assert at.relay.count("/objects/blob/a") == 2


async def test_a_bucket_that_hangs_is_given_up_in_time() -> None:
    async with odd_server(says(b"", then_hang=True)) as url:
        for call in (Stage.get, Stage.put):
            async with asyncio.timeout(20), stage(bucket=url, done=MISSING) as at:
                with pytest.raises(StoreUnavailable):
                    await call(at)


async def test_a_relay_that_does_not_offer_it_is_asked_once() -> None:
    for no, times in (
        (json_reply(200, {"direct": False, "offered": False}), 2),  # once each way
        (error_reply(404, "no-such-route"), 1),
        (reply(404, XML), 1),
    ):
        async with stage(begin=no) as at:
            for _ in range(3):
                await at.put()
                await at.get()
            assert at.relay.count("/transfers") == times
    async with stage(begin=json_reply(200, {"direct": False, "offered": True})) as at:
        for _ in range(3):
            await at.put()
        assert at.relay.count("/transfers") == 3
    async with stage(begin=MISSING) as at:
        with pytest.raises(NotFound):
            await at.get()


async def test_a_store_that_may_not_goes_through_the_relay() -> None:
    async with stage() as at:
        store = HttpStore(at.url, vault=PREFIX.split("/")[1], token=TOKEN, direct=False)
        await store.put_new(KEY, BODY)
        await store.aclose()
        assert at.relay.count("/transfers") == 0


async def test_signed_addresses_are_in_no_log_message_or_repr(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    said: list[str] = []
    async with stage() as at:
        await at.put()
        await at.get()
    for answer in (reply(500, XML), reply(403, XML), b"", reply(200, BODY[1:])):
        for call in (Stage.put, Stage.get):
            async with stage(answer, done=MISSING) as at:
                with pytest.raises(StoreUnavailable) as caught:
                    await call(at)
                said += [str(caught.value), repr(caught.value), caught.value.hint]
    assert any(record.name == "httpx" for record in caplog.records)
    said += [record.getMessage() for record in caplog.records]
    said.append(
        repr(
            TransferReply(direct=True, offered=True, url=SIGNATURE, headers={"a": SIGNATURE}, receipt=RECEIPT)
        )
    )
    for text in said:
        assert SIGNATURE not in text
    assert RECEIPT not in said[-1]


async def test_a_closed_store_is_closed_for_direct_transfers_too() -> None:
    async with stage() as at:
        await at.put()
        await at.store.aclose()
        with pytest.raises(Closed):
            await at.put()
        with pytest.raises(Closed):
            await at.get()
