"""Malformed and oversized requests: each is refused in words, and harms nobody."""

import asyncio
import contextlib
from collections.abc import Generator
from urllib.parse import parse_qsl

import httpx
import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from crystal_relay.errors import BadRequest
from crystal_relay.limits import BLOB_BYTES_MAX, ENTRY_BYTES_MAX, LOG_ENTRY_BYTES_MAX
from crystal_relay.memory import MemoryStore
from crystal_relay.server.requests import query_of
from crystal_relay.server.settings import HEAD_BYTES_MAX, HEADERS_MAX
from tests.support.hand_written import connected, get_head, put_head
from tests.support.raw_http import RawReply, raw_request
from tests.support.relay_server import Member, enrolled, threaded_relay


@pytest.fixture(scope="module")
def url() -> Generator[str]:
    """One server for all these tests."""
    with threaded_relay(MemoryStore) as address:
        yield address


@pytest_asyncio.fixture
async def lead(url: str) -> Member:
    return await enrolled(url)


async def put(url: str, member: Member, key: str, data: bytes) -> None:
    store = member.store(url)
    await store.put_new(member.prefix + key, data)
    await store.aclose()


async def stored(url: str, member: Member) -> list[str]:
    store = member.store(url)
    page = await store.list(member.prefix)
    await store.aclose()
    return [entry.key for entry in page.entries]


# --- addresses ---


@pytest.mark.parametrize(
    "path",
    [
        "devlog/../../../r/enrollment/x",
        "devlog/..%2f..%2f..%2fr/enrollment/x",
        "devlog%2f0",
        "devlog/%30",
        "devlog/%2e%2e/x",
        "devlog/.",
        "devlog/..",
        "devlog//0",
        "/devlog/0",
        "devlog/0/",
        "devlog/0;x=1",
        "devlog/\\0",
        "devlog/0\xe4",
        "devlog/%C3%A4",
        "devlog/%00",
        "devlog/%",
        "devlog/%zz",
        "devlog/0%0d%0aX:%20y",
        "devlog/0 x",
        "devlog/0\tx",
        "DEVLOG/0",
        "devlog/A",
        "r/vault/x/record",
        "devlog/" + "x" * 300,
        "",
        "devlog",
    ],
)
async def test_no_spelling_of_a_path_leads_elsewhere(url: str, lead: Member, path: str) -> None:
    await put(url, lead, "devlog/0", b"data")
    reply = await raw_request(url, get_head(lead, f"/v2/vaults/{lead.vault}/objects/{path}"))
    assert reply.status in (400, 404), reply
    assert b"data" not in reply.body
    if reply.status == 404:
        assert reply.json["error"] == "no-such-route"


@pytest.mark.parametrize("vault", ["..", ".", "%2e%2e", "v", "0" * 31, "0" * 32 + "%00", "0" * 31 + "A", "*"])
async def test_no_spelling_of_a_vault_leads_elsewhere(url: str, lead: Member, vault: str) -> None:
    reply = await raw_request(url, get_head(lead, f"/v2/vaults/{vault}/list"))
    assert reply.status in (400, 404)


@pytest.mark.parametrize(
    "query",
    [
        "?prefix=../",
        "?prefix=..%2f",
        "?prefix=%00",
        "?prefix=%C3%A4",
        "?prefix=%FF",
        "?prefix=a//",
        "?prefix=/",
        "?prefix=a&prefix=b",
        "?limit=0",
        "?limit=1001",
        "?limit=-1",
        "?limit=1e2",
        "?limit=0x10",
        "?limit=010",
        "?limit=",
        "?limit=%EF%BC%91",
        "?limit=99999999999999999999999",
        "?after=A",
        "?after=../x",
        "?unknown=1",
        "?limit",
        "?=1",
        "?&",
        "?" + "a=1&" * 500,
        "?prefix=" + "x" * 3000,
    ],
)
async def test_odd_queries_are_refused(url: str, lead: Member, query: str) -> None:
    reply = await raw_request(url, get_head(lead, f"/v2/vaults/{lead.vault}/list{query}"))
    assert reply.status == 400, reply
    assert set(reply.json) == {"error", "message", "hint"}


@pytest.mark.parametrize("timeout", ["-1", "61", "nan", "inf", "1e1", "", "x", "0x1", "60.0001"])
async def test_odd_waiting_times_are_refused(url: str, lead: Member, timeout: str) -> None:
    reply = await raw_request(url, get_head(lead, f"/v2/vaults/{lead.vault}/wait?timeout={timeout}"))
    assert reply.status == 400


@pytest.mark.parametrize(
    "value",
    [
        "bytes=-5",
        "bytes=5-1",
        "bytes=0-1,3-4",
        "bytes=a-b",
        "bytes=",
        "0-1",
        "items=0-1",
        "bytes=0 -1",
        "bytes=-",
        "b",
    ],
)
async def test_odd_ranges_are_refused(url: str, lead: Member, value: str) -> None:
    await put(url, lead, "devlog/0", b"0123456789")
    path = f"/v2/vaults/{lead.vault}/objects/devlog/0"
    assert (await raw_request(url, get_head(lead, path, f"Range: {value}"))).status == 400
    assert (
        await raw_request(url, get_head(lead, path, "Range: bytes=0-1", "Range: bytes=0-1"))
    ).status == 400


async def test_ranges_are_answered_as_http_says(url: str, lead: Member) -> None:
    await put(url, lead, "devlog/0", b"0123456789")
    path = f"/v2/vaults/{lead.vault}/objects/devlog/0"
    for asked, said, body in (
        ("bytes=0-0", "bytes 0-0/10", b"0"),
        ("bytes=3-5", "bytes 3-5/10", b"345"),
        ("bytes=8-", "bytes 8-9/10", b"89"),
        ("bytes=5-100", "bytes 5-9/10", b"56789"),
    ):
        reply = await raw_request(url, get_head(lead, path, f"Range: {asked}"))
        assert (reply.status, reply.headers["content-range"], reply.body) == (206, said, body)
    reply = await raw_request(url, get_head(lead, path, "Range: bytes=10-"))
    assert (reply.status, reply.headers["content-range"]) == (416, "bytes */10")
    assert (await raw_request(url, get_head(lead, path, "Range: bytes=11-"))).status == 416


async def test_a_head_request_tells_the_size_and_sends_nothing(url: str, lead: Member) -> None:
    await put(url, lead, "blob/0", bytes(300_000))
    head = get_head(lead, f"/v2/vaults/{lead.vault}/objects/blob/0").replace(b"GET", b"HEAD", 1)
    async with connected(url) as connection:
        for _ in range(2):
            await connection.send(head)
            reply = await connection.reply(head_only=True)
            assert (reply.status, reply.headers["content-length"]) == (200, "300000")


# --- things that are not HTTP ---


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
        b"hello\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /health HTTP/9.9\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: relay\r\nbad header\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: relay\r\nX: a\x00b\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost : relay\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: relay\r\n\r\n",
        b"GET http://[::1 HTTP/1.1\r\nHost: relay\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: relay\r\n\r\n",
        b"CONNECT a:1 HTTP/1.1\r\nHost: relay\r\n\r\n",
        b"POST /v2/vaults HTTP/1.1\r\nHost: relay\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v2/vaults HTTP/1.1\r\nHost: relay\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"POST /v2/vaults HTTP/1.1\r\nHost: relay\r\nContent-Length: -1\r\n\r\n",
        b"POST /v2/vaults HTTP/1.1\r\nHost: relay\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        b"POST /v2/vaults HTTP/1.1\r\nHost: relay\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"TRACE /health HTTP/1.1\r\nHost: relay\r\n\r\n",
    ],
)
async def test_what_is_not_http_is_refused_and_harms_nobody(url: str, data: bytes) -> None:
    async with connected(url) as connection:
        await connection.send(data)
        # Closed without a word is an answer too.
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            assert 400 <= (await connection.reply()).status < 500
    assert (await raw_request(url, b"GET /health HTTP/1.1\r\nHost: relay\r\n\r\n")).status == 200


async def test_an_upgrade_is_not_taken(url: str) -> None:
    for protocol_name in ("websocket", "h2c"):
        request = (
            f"GET /health HTTP/1.1\r\nHost: relay\r\nConnection: Upgrade\r\nUpgrade: {protocol_name}\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        assert (await raw_request(url, request.encode())).status == 200


# --- sizes ---


async def test_heads_have_a_limit_in_bytes_and_in_number(url: str, lead: Member) -> None:
    path = f"/v2/vaults/{lead.vault}/list"
    assert (await raw_request(url, get_head(lead, path, "X: " + "x" * (HEAD_BYTES_MAX - 1000)))).status == 200
    assert (await raw_request(url, get_head(lead, path, "X: " + "x" * HEAD_BYTES_MAX))).status == 431
    many = [f"X-{number}: 1" for number in range(HEADERS_MAX)]
    assert (await raw_request(url, get_head(lead, path, *many[: HEADERS_MAX - 2]))).status == 200
    assert (await raw_request(url, get_head(lead, path, *many))).status == 431


@pytest.mark.parametrize("endless", [b"X: " + b"x" * 1000, b"X: y\r\n" * 200, b"x" * 1000])
async def test_an_endless_head_is_cut_off(url: str, endless: bytes) -> None:
    async with connected(url) as connection:
        await connection.send(b"GET /health HTTP/1.1\r\nHost: relay\r\n")
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < 40 * HEAD_BYTES_MAX:
                await connection.send(endless)
                await asyncio.sleep(0)
                sent += len(endless)
        assert await connection.is_closed(5)


async def test_each_channel_has_its_limit(url: str, lead: Member) -> None:
    for key, limit in (
        ("devlog/0", LOG_ENTRY_BYTES_MAX),
        ("mirror/1/0", ENTRY_BYTES_MAX),
        ("blob/0", BLOB_BYTES_MAX),
    ):
        async with connected(url) as connection:
            await connection.send(put_head(lead, key, limit + 1))
            reply = await connection.reply()
            assert (reply.status, reply.json["error"]) == (413, "too-large")
        async with connected(url) as connection:
            await connection.send(put_head(lead, key, limit) + bytes(limit))
            assert (await connection.reply()).status == 201
    assert len(await stored(url, lead)) == 3


@pytest.mark.parametrize("size", ["", "x", "-1", "+1", "1.0", "0x10", "00", "9" * 30])
async def test_a_size_has_to_be_declared_in_one_form(url: str, lead: Member, size: str) -> None:
    async with connected(url) as connection:
        await connection.send(put_head(lead, "devlog/0", size))
        try:
            reply = await connection.reply()
        except (asyncio.IncompleteReadError, ConnectionError):
            reply = RawReply(400, {}, b"")
    assert reply.status in (400, 411)
    assert await stored(url, lead) == []


async def test_a_chunked_body_is_refused_and_not_waited_for(url: str, lead: Member) -> None:
    async with connected(url) as connection:
        await connection.send(
            put_head(lead, "devlog/0", "", "Transfer-Encoding: chunked") + b"5\r\nhello\r\n"
        )
        reply = await connection.reply()
        assert (reply.status, reply.headers["connection"]) == (411, "close")
        assert await connection.is_closed(5)
    assert await stored(url, lead) == []


@pytest.mark.parametrize("other", ['"etag"', "**", "*, *", 'W/"x"', ""])
async def test_only_one_condition_is_known(url: str, lead: Member, other: str) -> None:
    async with httpx.AsyncClient(headers=lead.authorization) as http:
        address = f"{url}/v2/vaults/{lead.vault}/objects/cursor/{lead.device}"
        reply = await http.put(address, content=b"x", headers={"If-None-Match": other})
    assert reply.status_code == 400
    assert await stored(url, lead) == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"{",
        b"\xff",
        b'{"device": 1}',
        b'{"device": "' + b"0" * 32 + b'", "token_hash": "' + b"0" * 64 + b'", "preset": "constructor"}',
        b'{"device": "'
        + b"0" * 32
        + b'", "token_hash": "'
        + b"0" * 64
        + b'", "preset": "lead", "scopes": []}',
        b'{"device": "' + b"0" * 32 + b'\\n", "token_hash": "' + b"0" * 64 + b'", "preset": "lead"}',
        b"[" * 4000,
    ],
)
async def test_json_that_does_not_fit_is_refused(url: str, lead: Member, body: bytes) -> None:
    headers = lead.authorization | {"Content-Type": "application/json"}
    async with httpx.AsyncClient(headers=headers) as http:
        reply = await http.post(f"{url}/v2/vaults/{lead.vault}/tokens", content=body)
        assert reply.status_code == 400, reply.text
        assert reply.json()["error"] == "bad-request"
        reply = await http.post(f"{url}/v2/vaults/{lead.vault}/tokens", content=body + b" " * 5000)
        assert reply.status_code == 413


@given(
    st.lists(
        st.sampled_from([*"ab=&+%;/", "%2F", "%2", "%C3%A9", "%FF", "prefix", "limit", "1"]), max_size=12
    ).map("".join)
)
def test_a_query_is_read_as_urllib_reads_it(text: str) -> None:
    allowed = ("prefix", "after", "limit", "a", "b")
    try:
        pairs = parse_qsl(
            text, keep_blank_values=True, strict_parsing=bool(text), max_num_fields=len(allowed)
        )
    except ValueError:
        wanted = None
    else:
        names = [name for name, _ in pairs]
        wanted = dict(pairs) if len(set(names)) == len(names) and set(names) <= set(allowed) else None
    try:
        found = query_of({"query_string": text.encode()}, allowed)
    except BadRequest:
        found = None
    assert found == wanted
