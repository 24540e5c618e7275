"""What the HTTP client makes of servers that are no relay, lie, break off or hang."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from crystal_relay.errors import (
    AlreadyExists,
    BadReply,
    BodyTooLarge,
    Busy,
    Forbidden,
    NotFound,
    RelayError,
    StoreFull,
    StoreUnavailable,
    TooManyRequests,
    Unauthorized,
)
from crystal_relay.store import Body
from tests.support.odd_server import KEY, PREFIX, client_of, odd_server, reply, says
from tests.support.relay_server import ServedRelay


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (200, BadReply),
        (204, BadReply),
        (301, BadReply),
        (400, BadReply),
        (401, Unauthorized),
        (403, Forbidden),
        (404, BadReply),
        (405, BadReply),
        (408, StoreUnavailable),
        (409, BadReply),
        (412, BadReply),
        (413, BodyTooLarge),
        (418, BadReply),
        (429, TooManyRequests),
        (500, StoreUnavailable),
        (502, StoreUnavailable),
        (503, Busy),
        (504, StoreUnavailable),
        (507, StoreFull),
    ],
)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>captive portal</html>",
        b"{}",
        b'{"error": "other", "message": "x"}',
        b'{"error": "not-found", "message": "\xff"}',
        b'{"more": ' + b"[" * 3000 + b"]" * 3000 + b', "error": "not-found", "message": "x"}',
    ],
)
async def test_only_a_relays_own_words_mean_missing_or_taken(
    status: int, kind: type[RelayError], body: bytes
) -> None:
    """A web server's 404 must not read as "no such object", a proxy's 412 not as "already there"."""
    if status == 204:
        body = b""
    async with odd_server(says(reply(status, body))) as url, client_of(url) as store:
        with pytest.raises(kind) as caught:
            await store.list(PREFIX)
        assert type(caught.value) is kind
        if status not in (200, 204):
            with pytest.raises(kind):
                await store.get(KEY)
            with pytest.raises(kind):
                await store.put_new(KEY, b"x")


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (404, b'{"error": "not-found", "message": "m", "hint": ""}', NotFound),
        (412, b'{"error": "exists", "message": "m", "hint": "", "more": 1}', AlreadyExists),
        (500, b'{"error": "not-found", "message": "m", "hint": ""}', StoreUnavailable),
        (200, b'{"error": "not-found", "message": "m", "hint": ""}', BadReply),
        (500, b'{"error": "internal", "message": "m", "hint": ""}', StoreUnavailable),
        (507, b'{"error": "full", "message": "m", "hint": "h"}', StoreFull),
    ],
)
async def test_a_relays_words_count_with_their_own_status(
    status: int, body: bytes, kind: type[RelayError]
) -> None:
    async with odd_server(says(reply(status, body))) as url, client_of(url) as store:
        with pytest.raises(kind) as caught:
            await store.list(PREFIX)
        assert type(caught.value) is kind


async def test_errors_of_any_length_are_cut() -> None:
    long = b'{"error": "not-found", "message": "' + b"x" * 10_000 + b'", "hint": "' + b"y" * 3_000 + b'"}'
    async with odd_server(says(reply(404, long))) as url, client_of(url) as store:
        with pytest.raises(NotFound) as caught:
            await store.get(KEY)
    assert len(str(caught.value)) <= 300
    assert len(caught.value.hint) <= 300
    async with odd_server(says(reply(404, b"x" * 100_000))) as url, client_of(url) as store:
        with pytest.raises(BadReply):
            await store.get(KEY)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nno length",
        b"HTTP/1.1 206 OK\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
    ],
)
async def test_half_an_answer_is_no_answer(text: bytes) -> None:
    async with odd_server(says(text)) as url, client_of(url) as store:
        with pytest.raises(StoreUnavailable):
            await (await store.get(KEY)).read()
        with pytest.raises(StoreUnavailable):
            await store.list(PREFIX)


@pytest.mark.parametrize(
    "answer",
    [
        reply(200, b"0123456789"),
        reply(206, b"0123456789", b"Content-Range: bytes 0-9/10"),
        reply(206, b"234", b"Content-Range: bytes 1-3/10"),
        reply(206, b"234", b"Content-Range: bytes 2-4/*"),
        reply(206, b"2345", b"Content-Range: bytes 2-5/10"),
        reply(206, b"23", b"Content-Range: bytes 2-3/10"),
        reply(416, b"", b"Content-Range: bytes */10"),
        reply(416, b"", b"Content-Range: nonsense"),
    ],
)
async def test_another_part_than_asked_for_is_refused(answer: bytes) -> None:
    async with odd_server(says(answer)) as url, client_of(url) as store:
        with pytest.raises(StoreUnavailable):
            await (await store.get(KEY, start=2, length=3)).read()


@pytest.mark.parametrize(
    "entries",
    [
        '{"key": "b", "size": 1}, {"key": "a", "size": 1}',
        '{"key": "a", "size": 1}, {"key": "a", "size": 1}',
        '{"key": "a", "size": -1}',
        '{"key": "x/y", "size": "1"}',
        '{"key": "a"}',
        '{"size": 1}',
        '{"key": "a", "size": 1, "more": ' + "[" * 3000 + "]" * 3000 + "}",
        "1",
        ", ".join(f'{{"key": "m{number}", "size": 1}}' for number in range(100, 111)),
    ],
)
async def test_a_list_out_of_order_or_form_is_refused(entries: str) -> None:
    body = b'{"entries": [%s], "more": true}' % entries.encode()
    async with odd_server(says(reply(200, body))) as url, client_of(url) as store:
        with pytest.raises(BadReply):
            await store.list(PREFIX, limit=10)


async def test_a_list_that_goes_back_or_elsewhere_is_refused() -> None:
    body = b'{"entries": [{"key": "mirror/1/5", "size": 1}], "more": true}'
    async with odd_server(says(reply(200, body))) as url, client_of(url) as store:
        assert len((await store.list(f"{PREFIX}mirror/1/")).entries) == 1
        for prefix, after in (
            (f"{PREFIX}mirror/1/", "5"),
            (f"{PREFIX}mirror/1/", "6"),
            (f"{PREFIX}mirror/2/", ""),
        ):
            with pytest.raises(BadReply):
                await store.list(prefix, after=prefix + after if after else "")


async def test_a_list_that_has_more_but_shows_nothing_ends() -> None:
    async with odd_server(says(reply(200, b'{"entries": [], "more": true}'))) as url, client_of(url) as store:
        assert not (await store.list(PREFIX)).more


@pytest.mark.parametrize("text", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc"])
async def test_a_server_that_hangs_is_given_up_in_time(text: bytes) -> None:
    async with odd_server(says(text, then_hang=True)) as url, client_of(url) as store:
        async with asyncio.timeout(20):
            for call in (store.list(PREFIX), store.wait(PREFIX, token="t", timeout=0.1), store.health()):
                with pytest.raises(StoreUnavailable):
                    await call
            with pytest.raises(StoreUnavailable):
                await (await store.get(KEY)).read()


async def test_a_server_that_refuses_a_body_early_is_heard() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(reply(412, b'{"error": "exists", "message": "taken"}'))
        await writer.drain()
        while await reader.read(65_536):
            pass

    async def pieces() -> AsyncGenerator[bytes]:
        for _ in range(64):
            yield bytes(65_536)

    async with odd_server(refuse) as url, client_of(url) as store:
        with pytest.raises(AlreadyExists):
            await store.put_new(f"{PREFIX}blob/0", Body(64 * 65_536, pieces))


async def test_nobody_listens() -> None:
    async with client_of("http://127.0.0.1:1") as store:
        with pytest.raises(StoreUnavailable) as caught:
            await store.health()
        assert caught.value.exit_code == 4
        assert caught.value.hint


async def test_health_tells_relays_from_others(relay: ServedRelay) -> None:
    async with client_of(relay.url) as store:
        assert (await store.health()).protocol == 2
    other = b'{"ok": true, "service": "somebody-elses-relay", "protocol": 2, "version": "1"}'
    async with odd_server(says(reply(200, other))) as url, client_of(url) as store:
        with pytest.raises(BadReply, match="not a Crystal relay"):
            await store.health()
