"""The client's HTTP transport against servers that answer byte by byte as a test says."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from crystal_relay.http1 import BUFFER_BYTES_MAX, HEAD_BYTES_MAX, Http1Client, Http1Transport

EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"

Answering = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


class Peer:
    """A server on loopback, and what came to it."""

    def __init__(self, answering: Answering) -> None:
        self._answering = answering
        self.connections = 0
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await self._answering(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has gone, as many of these tests want
        finally:
            writer.transport.abort()


@asynccontextmanager
async def peer(answering: Answering) -> AsyncGenerator[Peer]:
    made = Peer(answering)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield made


@asynccontextmanager
async def client(made: Peer, *, seconds: float = 20.0, kept: int = 16) -> AsyncGenerator[httpx.AsyncClient]:
    """`seconds` limit reading and writing, not connecting."""
    times = httpx.Timeout(20.0, read=seconds, write=seconds)
    async with httpx.AsyncClient(
        base_url=made.url, transport=Http1Transport(kept=kept), timeout=times
    ) as http:
        yield http


async def request_of(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """The next request's head and body, which must have a length."""
    head = await reader.readuntil(b"\r\n\r\n")
    size = next(
        (
            int(line.split(b":")[1])
            for line in head.lower().split(b"\r\n")
            if line.startswith(b"content-length:")
        ),
        0,
    )
    return head, await reader.readexactly(size)


def saying(*pieces: bytes, then: str = "wait") -> Answering:
    """Each request is answered by these bytes; then the connection is closed, or waits for the next one."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await request_of(reader)
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            if then == "close":
                writer.close()
                await writer.wait_closed()
                return

    return answer


async def test_one_connection_carries_requests_that_follow_each_other() -> None:
    async with peer(saying(OK)) as made, client(made) as http:
        for _ in range(5):
            assert (await http.put("/x", content=b"body")).text == "hello"
        assert made.connections == 1


async def test_requests_at_once_have_connections_of_their_own() -> None:
    gate = asyncio.Barrier(3)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        await gate.wait()
        writer.write(OK)
        await writer.drain()
        await reader.read()

    async with peer(answer) as made, client(made) as http:
        replies = await asyncio.gather(*(http.get("/x") for _ in range(3)))
        assert ([reply.text for reply in replies], made.connections) == (["hello"] * 3, 3)


async def test_without_kept_connections_each_request_has_its_own() -> None:
    async with peer(saying(EMPTY)) as made, client(made, kept=0) as http:
        await http.get("/x")
        await http.get("/x")
        assert made.connections == 2


def test_it_connects_on_uvloop_too() -> None:
    loops = pytest.importorskip("uvloop", exc_type=ImportError)

    async def asked() -> str:
        async with peer(saying(OK)) as made, client(made) as http:
            return (await http.get("/x")).text

    with asyncio.Runner(loop_factory=loops.new_event_loop) as runner:
        assert runner.run(asked()) == "hello"


@pytest.mark.parametrize(
    "pieces",
    [
        [OK[at : at + 1] for at in range(len(OK))],
        [b"HTTP/1.1 100 Continue\r\n\r\n", OK],
        [b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + OK],
        [
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n",
            b"3;x=y\r\nllo\r\n0\r\nTrailer: x\r\n\r\n",
        ],
    ],
    ids=["byte by byte", "after 100", "after 103", "chunked"],
)
async def test_a_reply_is_read_whatever_form_it_has(pieces: list[bytes]) -> None:
    async with peer(saying(*pieces)) as made, client(made) as http:
        for _ in range(2):
            found = await http.get("/x")
            assert (found.status_code, found.content) == (200, b"hello")
            assert "link" not in found.headers
            assert "trailer" not in found.headers
        assert made.connections == 1


async def test_a_body_without_a_length_ends_with_its_connection() -> None:
    async with peer(saying(b"HTTP/1.1 200 OK\r\n\r\nhel", b"lo", then="close")) as made, client(made) as http:
        assert (await http.get("/x")).content == b"hello"
        assert (await http.get("/x")).content == b"hello"
        assert made.connections == 2


async def test_a_reply_to_head_has_no_body() -> None:
    async with peer(saying(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n")) as made, client(made) as http:
        found = await http.head("/x")
        assert (found.headers["content-length"], found.content) == ("500", b"")


@pytest.mark.parametrize(
    "pieces",
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n",),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nhello",),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * (HEAD_BYTES_MAX + 1) + b"\r\n\r\n",),
        (b"HTTP/1.1 200 OK\r\nX: ", *[b"y" * 65536] * 8),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",),
        (CHUNKED + b"1;x=", *[b"y" * 65536] * 16),
        (CHUNKED + b"0\r\nX: ", *[b"y" * 65536] * 16),
        (b"HTTP/1.1 100 Continue\r\nX: " + b"y" * 1000 + b"\r\n\r\n",) * 500,
    ],
    ids=[
        "another protocol",
        "length and chunks",
        "two lengths",
        "no number",
        "long head",
        "endless line",
        "upgrade",
        "endless extension of a chunk",
        "endless trailer",
        "endless 1xx",
    ],
)
async def test_what_is_no_reply_is_refused_and_its_connection_closed(pieces: tuple[bytes, ...]) -> None:
    async with peer(saying(*pieces)) as made, client(made) as http:
        for _ in range(2):
            with pytest.raises(httpx.RemoteProtocolError):
                await http.get("/x")
        assert made.connections == 2


@pytest.mark.parametrize("cut", [b"", b"HTTP/1.1 20", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel"])
async def test_a_reply_that_ends_too_early_is_no_reply(cut: bytes) -> None:
    async with peer(saying(cut, then="close")) as made, client(made) as http:
        with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
            await http.get("/x")


async def test_bytes_after_a_reply_are_not_the_next_reply() -> None:
    """Otherwise a server could answer requests that have not been made."""
    async with (
        peer(saying(OK + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")) as made,
        client(made) as http,
    ):
        for _ in range(3):
            assert (await http.get("/x")).text == "hello"
        assert made.connections == 3


async def test_bytes_between_requests_close_the_connection() -> None:
    said = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(OK)
        await writer.drain()
        await said.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
        await reader.read()

    async with peer(answer) as made, client(made) as http:
        assert (await http.get("/x")).text == "hello"
        said.set()
        for _ in range(100):
            await asyncio.sleep(0.1)
            assert (await http.get("/x")).text == "hello"
            if made.connections == 2:
                break
        assert made.connections == 2


async def test_a_connection_that_the_server_closed_while_it_rested_is_not_used() -> None:
    async with peer(saying(OK, then="close")) as made, client(made) as http:
        for _ in range(3):
            assert (await http.get("/x")).text == "hello"
            await asyncio.sleep(0.05)
        assert made.connections == 3


async def test_a_server_that_says_close_is_not_asked_again() -> None:
    reply = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello"
    async with peer(saying(reply)) as made, client(made) as http:
        for _ in range(2):
            assert (await http.get("/x")).text == "hello"
        assert made.connections == 2


async def test_an_answer_before_the_end_of_the_body_ends_the_sending() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
        await writer.drain()
        await asyncio.sleep(30)  # and reads nothing

    pieces = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal pieces
        for _ in range(10_000):
            pieces += 1
            yield b"x" * 65536

    async with peer(answer) as made, client(made) as http:
        found = await http.put("/x", content=body(), headers={"Content-Length": str(65536 * 10_000)})
        assert (found.status_code, found.text) == (413, "no")
        assert pieces < 10_000


async def test_a_body_without_a_length_is_sent_in_chunks() -> None:
    seen = b""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal seen
        seen = await reader.readuntil(b"0\r\n\r\n")
        writer.write(EMPTY)
        await writer.drain()

    async def body() -> AsyncIterator[bytes]:
        yield b"hello"
        yield b""
        yield b"x" * 16

    async with peer(answer) as made, client(made) as http:
        assert (await http.put("/x", content=body())).status_code == 204
    assert seen.partition(b"\r\n\r\n")[2] == b"5\r\nhello\r\n10\r\n" + b"x" * 16 + b"\r\n0\r\n\r\n"


@pytest.mark.parametrize(("size", "words"), [(3, "longer"), (9, "shorter")])
async def test_a_body_of_another_length_than_said_is_not_sent_as_whole(size: int, words: str) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b"hello"

    async with peer(saying(EMPTY)) as made, client(made) as http:
        with pytest.raises(httpx.LocalProtocolError, match=words):
            await http.put("/x", content=body(), headers={"Content-Length": str(size)})
        assert (await http.get("/x")).status_code == 204
        assert made.connections == 2


async def test_a_header_cannot_carry_a_second_one() -> None:
    async with peer(saying(EMPTY)) as made, client(made) as http:
        with pytest.raises(httpx.LocalProtocolError):
            await http.get("/x", headers={"Authorization": "Bearer x\r\nX-Evil: yes"})
        assert made.connections == 0


@pytest.mark.parametrize(
    ("pieces", "failure"),
    [((), httpx.ReadTimeout), ((b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel",), httpx.ReadTimeout)],
    ids=["before the head", "in the body"],
)
async def test_silence_is_bounded(pieces: tuple[bytes, ...], failure: type[Exception]) -> None:
    async with peer(saying(*pieces)) as made, client(made, seconds=0.2) as http:
        with pytest.raises(failure):
            await http.get("/x")


async def test_a_server_that_reads_nothing_is_given_up() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(30)

    async with peer(answer) as made, client(made, seconds=0.3) as http:
        with pytest.raises(httpx.WriteTimeout):
            await http.put("/x", content=b"x" * 64 * 1024 * 1024)


async def test_a_connection_that_cannot_be_made_says_so() -> None:
    async with peer(saying(EMPTY)) as made:
        pass
    async with client(made) as http:
        with pytest.raises(httpx.ConnectError):
            await http.get("/x")


async def test_a_body_that_nobody_reads_is_not_buffered() -> None:
    sent = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await request_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        for _ in range(1000):
            writer.write(b"x" * 1_000_000)
            await writer.drain()
            sent += 1_000_000

    async with peer(answer) as made, client(made) as http, http.stream("GET", "/x") as found:
        pieces = found.aiter_raw()
        await anext(pieces)
        last = -1
        while last != sent:
            last = sent
            await asyncio.sleep(0.3)
        assert sent < 32_000_000  # what sockets hold, and the buffer
        taken = 0
        async for piece in pieces:
            taken += len(piece)
            assert len(piece) <= BUFFER_BYTES_MAX
            if taken > 64_000_000:
                break


async def test_a_request_that_is_cancelled_leaves_no_connection_to_the_next() -> None:
    came = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head, _ = await request_of(reader)
        if b"/slow" in head:
            came.set()
            await reader.read()
        writer.write(OK)
        await writer.drain()

    async with peer(answer) as made, client(made) as http:
        asking = asyncio.create_task(http.get("/slow"))
        await came.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert (await http.get("/x")).text == "hello"


async def test_closing_ends_what_waits() -> None:
    came = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        came.set()
        await reader.read()

    async with peer(answer) as made:
        transport = Http1Transport()
        asking = asyncio.create_task(transport.handle_async_request(httpx.Request("GET", made.url)))
        await came.wait()
        await transport.aclose()
        await transport.aclose()
        with pytest.raises(httpx.ReadError):
            await asking
        await asyncio.sleep(0.05)  # the peer sees the end
        with pytest.raises(RuntimeError, match="closed"):
            await transport.handle_async_request(httpx.Request("GET", made.url))


async def test_a_socket_of_this_machine_is_asked_whatever_the_address_says(tmp_path: Path) -> None:
    made = Peer(saying(OK))
    path = tmp_path / "s"
    async with (
        await asyncio.start_unix_server(made.serve, path),
        httpx.AsyncClient(transport=Http1Transport(unix_socket=path)) as http,
    ):
        assert (await http.get("http://nobody.invalid/x")).text == "hello"


async def test_a_name_is_looked_up_as_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoded and encoded by older rules, this one would be fass.de, which belongs to somebody else."""
    asked: list[object] = []

    async def looked_up(self: object, host: object, *_: object, **__: object) -> list[object]:
        asked.append(host)
        raise OSError("nothing is looked up here")

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", looked_up)
    async with httpx.AsyncClient(transport=Http1Transport(), trust_env=False) as http:
        with pytest.raises(httpx.ConnectError):
            await http.get("http://xn--fa-hia.de/")
    assert asked == ["xn--fa-hia.de"]


async def test_https_without_certificates_to_verify_by_is_refused() -> None:
    async with httpx.AsyncClient(transport=Http1Transport()) as http:
        with pytest.raises(httpx.ConnectError, match="verify"):
            await http.get("https://127.0.0.1:1/")


# --- the client over it ---


def plain_client(made: Peer, path: str = "") -> Http1Client:
    return Http1Client(
        base_url=made.url + path,
        transport=Http1Transport(),
        timeout=httpx.Timeout(20.0),
        headers={"Accept-Encoding": "identity", "User-Agent": "crystal"},
    )


@pytest.mark.parametrize("base", ["", "/", "/below", "/below/it/"])
@pytest.mark.parametrize(
    ("method", "path", "given"),
    [
        ("GET", "/v2/vaults/aa/objects/a.0/1", {}),
        (
            "PUT",
            "/v2/vaults/aa/objects/a",
            {"content": b"body", "headers": {"Content-Length": "4", "X-Y": "z"}},
        ),
        ("PUT", "/v2/vaults/aa/objects/a", {"content": b"", "headers": {"Content-Type": "a/b"}}),
        ("POST", "/x", {"content": b"body", "timeout": 5.0}),
        ("DELETE", "/x", {"params": {"reason": "a b&c/d\r\n\u00e4+%"}}),
        ("GET", "/x", {"params": {}}),
        ("GET", "/x", {"headers": {"user-agent": "another"}}),
        ("GET", "/a/../b", {}),
        ("GET", "/a b%2e\u00e4", {}),
        ("GET", "a", {}),
        ("GET", "/a?b=c#d", {}),
        ("GET", "", {}),
    ],
)
async def test_the_client_sends_what_that_of_httpx_sends(
    base: str, method: str, path: str, given: dict[str, Any]
) -> None:
    came: list[tuple[bytes, bytes]] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            came.append(await request_of(reader))
            writer.write(OK)

    async with (
        peer(answer) as made,
        plain_client(made, base) as plain,
        httpx.AsyncClient(
            base_url=made.url + base,
            transport=Http1Transport(),
            headers={"Accept-Encoding": "identity", "User-Agent": "crystal"},
        ) as known,
    ):
        for name in (
            "connection",
            "accept",
        ):  # HTTP/1.1 keeps connections, and takes every type, without them
            del known.headers[name]
        for client in (known, plain):
            response = await client.send(client.build_request(method, path, **given))
            assert response.content == b"hello"
            assert b"connection:" not in came[-1][0].lower()
    (head, body), (our_head, our_body) = came
    lines, our_lines = head.split(b"\r\n"), our_head.split(b"\r\n")
    assert our_lines[0] == lines[0]
    assert sorted(line.lower() for line in our_lines) == sorted(line.lower() for line in lines)
    assert our_body == body


async def test_a_header_that_ends_a_line_is_refused_by_the_client() -> None:
    async with peer(saying(OK)) as made, plain_client(made) as http:
        for value in ("a\r\nb: c", "a\nb", "a\rb", "a\0b"):
            with pytest.raises(httpx.LocalProtocolError):
                await http.get("/x", headers={"X-Y": value})
        assert made.connections == 0


async def test_the_client_follows_no_redirect_and_keeps_no_cookie() -> None:
    heads: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            heads.append((await request_of(reader))[0])
            writer.write(
                b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n"
            )

    async with peer(answer) as made, plain_client(made) as http:
        for _ in range(2):
            assert (await http.get("/x")).status_code == 302
    assert len(heads) == 2
    assert all(b"cookie" not in head.lower() and b"elsewhere" not in head for head in heads)


async def test_a_closed_client_sends_nothing_and_a_failure_names_its_request() -> None:
    async with peer(saying(b"")) as made:
        http = plain_client(made)
        with pytest.raises(httpx.RequestError) as caught:
            await http.get("/x")
        assert caught.value.request.method == "GET"
        await http.aclose()
        with pytest.raises(RuntimeError, match="closed"):
            await http.get("/x")
