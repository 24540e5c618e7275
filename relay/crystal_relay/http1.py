"""HTTP/1.1 for `httpx.AsyncClient`, over asyncio and httptools (RFC 9112).

httpx's own transport searches all connections of its pool at each request and parses in Python: it takes several times the
processor time of all else that a relay's client does. This one serves relays and buckets: no HTTP/2, no proxy.

Nothing is sent twice. A request fails if the other side closes its connection; the caller knows whether it may be repeated.
Replies are untrusted: head and buffered body are limited, and a connection on which anything was unexpected is not used again.
"""

import asyncio
import logging
import re
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlencode

import httptools
import httpx

HEAD_BYTES_MAX = 64 * 1024
"""A reply's head, as it comes over the wire, with what arrives of the body in the same read."""
BUFFER_BYTES_MAX = 256 * 1024
"""Unread part of a reply's body above which nothing more is read from the connection."""
KEPT_SECONDS_MAX = 5.0
"""Idle time after which a connection is not used again, well below what servers allow."""
_JOINED_BYTES_MAX = 64 * 1024
"""A body up to this size leaves in one piece with the head."""

_PLAIN_PATH = re.compile(r"(?:/[A-Za-z0-9_-][A-Za-z0-9._-]*)+")
"""A path without escapes, `.` or `..`, which is sent as it is written."""
_PLAIN_REQUEST = frozenset({"content", "headers", "params", "timeout"})

_log = logging.getLogger("httpx")
"""httpx's own, for those who look at what is sent."""

_Origin = tuple[bytes, str, int]
_Failure = type[httpx.TransportError]


class Http1Transport(httpx.AsyncBaseTransport):
    """Connections to any number of servers, opened as needed. Belongs to one event loop; close it with `aclose`.

    The caller limits how many requests are made at once. Raises as httpx: ConnectError, ConnectTimeout, WriteError,
    WriteTimeout, ReadError, ReadTimeout, RemoteProtocolError, and LocalProtocolError for a request that cannot be sent.
    """

    def __init__(
        self, *, verify: ssl.SSLContext | None = None, kept: int = 16, unix_socket: Path | None = None
    ) -> None:
        """`verify`: for https, which fails without it. `kept`: idle connections kept for each server. `unix_socket`: where all
        requests go, whatever server they name."""
        self._verify = verify
        self._kept_max = kept
        self._unix_socket = unix_socket
        self._idle: dict[_Origin, list[_Connection]] = {}
        self._open: set[_Connection] = set()
        self._closed = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and wait for the reply's head; the body follows as it is read."""
        if self._closed:
            raise RuntimeError("the transport is closed")
        head, size = _head(request)
        times = cast(dict[str, float | None], request.extensions.get("timeout", {}))
        # `host` would be the decoded name, which asyncio encodes by older rules: that can be another domain.
        host = request.url.raw_host.decode("ascii")
        origin = (request.url.raw_scheme, host, request.url.port or _default_port(request.url))
        connection = self._kept(origin) or await self._connected(origin, times.get("connect"))
        reply = _Reply(request.method)
        try:
            connection.begin(reply)
            await connection.send(head, size, request, times.get("write"))
            await connection.arrival(lambda: reply.has_head, times.get("read"))
        except BaseException:
            self._drop(connection)
            raise
        return httpx.Response(
            reply.status,
            headers=reply.headers,
            stream=_ReplyBody(self, connection, origin, reply, times.get("read")),
            extensions={"http_version": b"HTTP/1.1"},
        )

    async def aclose(self) -> None:
        """Close all connections, also those in use. Idempotent."""
        self._closed = True
        self._idle.clear()
        while self._open:
            self._drop(self._open.pop())
            await asyncio.sleep(0)  # an event loop that ends at once would find an open socket

    def give_back(self, connection: "_Connection", origin: _Origin) -> None:
        """Keep a connection whose reply has been read, if it can carry another request."""
        idle = self._idle.setdefault(origin, [])
        if self._closed or len(idle) >= self._kept_max or not connection.rest():
            self._drop(connection)
        else:
            idle.append(connection)

    def give_up(self, connection: "_Connection") -> None:
        """Close a connection whose reply nobody reads to its end."""
        self._drop(connection)

    def _kept(self, origin: _Origin) -> "_Connection | None":
        """The connection that was used last, if it is likely to be open still."""
        idle = self._idle.get(origin, [])
        while idle:
            connection = idle.pop()
            if connection.is_usable():
                return connection
            self._drop(connection)
        return None

    async def _connected(self, origin: _Origin, seconds: float | None) -> "_Connection":
        scheme, host, port = origin
        loop = asyncio.get_running_loop()
        tls = None
        if scheme == b"https":
            if self._verify is None:
                raise httpx.ConnectError("there is nothing to verify a certificate by")
            tls = self._verify
        made = _Connection(loop)
        try:
            async with asyncio.timeout(seconds):
                if self._unix_socket is not None:
                    await loop.create_unix_connection(lambda: made, str(self._unix_socket))
                else:
                    name = host if tls else None
                    if isinstance(loop, asyncio.BaseEventLoop):
                        await loop.create_connection(
                            lambda: made, host, port, ssl=tls, server_hostname=name, happy_eyeballs_delay=0.25
                        )
                    else:  # uvloop knows no Happy Eyeballs: one address after the other
                        await loop.create_connection(lambda: made, host, port, ssl=tls, server_hostname=name)
        except TimeoutError as error:
            raise httpx.ConnectTimeout(f"no connection within {seconds} s") from error
        except (OSError, ValueError) as error:  # ValueError: a certificate that no context can read
            raise httpx.ConnectError(str(error) or type(error).__name__) from error
        if self._closed:
            made.close()
            raise RuntimeError("the transport is closed")
        self._open.add(made)
        return made

    def _drop(self, connection: "_Connection") -> None:
        self._open.discard(connection)
        connection.close()


class Http1Client(httpx.AsyncClient):
    """httpx's client over `Http1Transport`, with less work for each request: no redirects, authentication flows, cookies and
    hooks, and the base URL is parsed only once."""

    def __init__(
        self,
        *,
        base_url: str,
        transport: Http1Transport,
        timeout: httpx.Timeout,
        headers: Mapping[str, str],
    ) -> None:
        super().__init__(
            base_url=base_url, transport=transport, timeout=timeout, headers=headers, trust_env=False
        )
        for name in (
            "connection",
            "accept",
        ):  # HTTP/1.1 keeps connections, and every type is accepted, without them
            del self.headers[name]
        self._plain = transport
        self._base = self.base_url
        self._base_path = self._base.raw_path.decode("ascii").rstrip("/")
        self._every = dict(self.headers)  # names in lower case
        self._times = self.timeout.as_dict()

    def build_request(self, method: str, url: httpx.URL | str, **given: Any) -> httpx.Request:
        """As `httpx.AsyncClient.build_request`. The URL of a request to a plain path is the base URL, and the rest is in the
        extension `target`: parsing URLs would be half of the work."""
        given = {
            name: value
            for name, value in given.items()
            if value is not None and value is not httpx.USE_CLIENT_DEFAULT
        }
        own = cast(dict[str, str], given.get("headers", {}))
        if (
            not isinstance(url, str)
            or _PLAIN_PATH.fullmatch(url) is None
            or not given.keys() <= _PLAIN_REQUEST
            or any(name.lower() in self._every for name in own)
        ):
            return super().build_request(method, url, **given)
        query = given.get("params")
        target = f"{self._base_path}{url}?{urlencode(query)}" if query else self._base_path + url
        times = httpx.Timeout(given["timeout"]).as_dict() if "timeout" in given else self._times
        return httpx.Request(
            method,
            self._base,
            headers={**self._every, **own},
            content=given.get("content"),
            extensions={"target": target.encode("ascii"), "timeout": times},
        )

    async def send(self, request: httpx.Request, *, stream: bool = False, **_given: Any) -> httpx.Response:
        """As `httpx.AsyncClient.send`, without redirects and authentication."""
        if self.is_closed:
            raise RuntimeError("the client is closed")
        try:
            response = await self._plain.handle_async_request(request)
        except httpx.RequestError as error:
            error.request = request
            raise
        response.request = request
        if _log.isEnabledFor(logging.INFO):
            _log.info("HTTP Request: %s %s %d", request.method, request.url, response.status_code)
        if not stream:
            try:
                await response.aread()
            finally:
                await response.aclose()
        return response


class _ReplyBody(httpx.AsyncByteStream):
    """What follows a reply's head, as pieces of whatever size they come in."""

    def __init__(
        self,
        transport: Http1Transport,
        connection: "_Connection",
        origin: _Origin,
        reply: "_Reply",
        idle: float | None,
    ) -> None:
        self._transport = transport
        self._connection = connection
        self._origin = origin
        self._reply = reply
        self._idle = idle
        self._ended = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        reply = self._reply
        while True:
            while reply.pieces:
                yield self._connection.taken()
            if reply.is_whole:
                return
            await self._connection.arrival(lambda: bool(reply.pieces) or reply.is_whole, self._idle)

    async def aclose(self) -> None:
        if self._ended:
            return
        self._ended = True
        if self._reply.is_whole and not self._reply.pieces:
            self._transport.give_back(self._connection, self._origin)
        else:
            self._transport.give_up(self._connection)


class _Reply:
    """A reply as httptools parses it. Informational ones before it (RFC 9110, section 15.2) are skipped."""

    def __init__(self, method: str) -> None:
        self._method = method
        self.parser = httptools.HttpResponseParser(self)
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.pieces: deque[bytes] = deque()
        self.waiting_bytes = 0
        self.head_bytes = 0
        self.idle_bytes = 0
        self.has_head = False
        self.is_whole = False
        self.ends_with_connection = False
        self.has_surplus = False
        self._keeps_alive = False

    def feed(self, data: bytes) -> None:
        """Raises RemoteProtocolError for what is no reply to this request."""
        if self.is_whole:
            self.has_surplus = True
            return
        if not self.has_head:
            self.head_bytes += len(data)
            if self.head_bytes > HEAD_BYTES_MAX + BUFFER_BYTES_MAX:
                raise httpx.RemoteProtocolError("the head of the reply is too long")
        pieces = len(self.pieces)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as error:
            raise httpx.RemoteProtocolError("the reply changes the protocol") from error
        except httptools.HttpParserError as error:
            raise httpx.RemoteProtocolError("what came is no HTTP reply") from error
        # Extensions of chunks, and fields behind the last one, have no limit of their own.
        self.idle_bytes = 0 if len(self.pieces) > pieces else self.idle_bytes + len(data)
        if self.has_head and self.idle_bytes > HEAD_BYTES_MAX + BUFFER_BYTES_MAX:
            raise httpx.RemoteProtocolError("the reply goes on without a body")

    def on_message_begin(self) -> None:
        """Called by httptools."""
        if self.is_whole:
            self.has_surplus = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by httptools."""
        if not self.is_whole and not self.has_head:  # neither of a second reply nor after a body
            self.headers.append((name, value))
            self.head_bytes += len(name) + len(value)

    def on_headers_complete(self) -> None:
        """Called by httptools."""
        if self.is_whole:
            return
        status = self.parser.get_status_code()
        if 100 <= status < 200:
            self.headers.clear()
            return
        if sum(len(name) + len(value) for name, value in self.headers) > HEAD_BYTES_MAX:
            raise ValueError("the head of the reply is too long")
        self.status = status
        self.has_head = True
        self._keeps_alive = self.parser.should_keep_alive()  # the parser forgets it at the reply's end
        names = {name.lower() for name, _ in self.headers}
        if self._method == "HEAD":
            self.is_whole = self.has_surplus = True  # the parser waits for a body that does not come
        elif status not in (204, 304) and not names & {b"content-length", b"transfer-encoding"}:
            self.ends_with_connection = True

    def on_body(self, body: bytes) -> None:
        """Called by httptools."""
        if not self.is_whole:
            self.pieces.append(body)
            self.waiting_bytes += len(body)

    def on_message_complete(self) -> None:
        """Called by httptools."""
        if self.has_head:
            self.is_whole = True

    def can_follow(self) -> bool:
        """Whether the connection may carry another request after this reply."""
        return self.is_whole and not self.has_surplus and not self.ends_with_connection and self._keeps_alive


class _Connection(asyncio.Protocol):
    """One connection, with one request at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._reply: _Reply | None = None
        self._event: asyncio.Future[None] | None = None
        self._failure: httpx.TransportError | None = None
        self._is_lost = False
        self._is_full = False
        self._is_paused = False
        self._sent_whole = True
        self._rests_since = 0.0

    # --- what asyncio calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._reply is None:
            self.close()  # nothing was asked
            return
        try:
            self._reply.feed(data)
        except httpx.TransportError as error:
            self._failure = error
            self.close()
        if self._reply.waiting_bytes > BUFFER_BYTES_MAX and not self._is_paused and not self._is_lost:
            self._is_paused = True
            self._writer().pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        if self._failure is not None:
            pass  # known already
        elif self._reply is not None and self._reply.ends_with_connection and exc is None:
            self._reply.is_whole = True
        else:
            if exc is not None:
                self._failure = httpx.ReadError(str(exc) or type(exc).__name__)
                self._failure.__cause__ = exc
            else:
                self._failure = httpx.RemoteProtocolError("the connection ended before the reply did")
        self._wake()

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._wake()

    # --- what the transport calls ---

    def begin(self, reply: _Reply) -> None:
        self._reply = reply
        self._sent_whole = False

    async def send(
        self, head: bytes, size: int | None, request: httpx.Request, seconds: float | None
    ) -> None:
        """Send head and body; `size` is None for a chunked body. Ends early once the reply's head is there: the server
        then reads no more."""
        reply = self._reply
        assert reply is not None
        first, sent = head, 0
        async for piece in cast(httpx.AsyncByteStream, request.stream):
            if not piece:
                continue
            sent += len(piece)
            if size is not None and sent > size:
                raise httpx.LocalProtocolError("the body is longer than its Content-Length")
            data = bytes(piece) if size is not None else b"%x\r\n%b\r\n" % (len(piece), piece)
            if first and len(data) <= _JOINED_BYTES_MAX:
                first, data = b"", first + data
            elif first:
                self._write(first)
                first = b""
            self._write(data)
            if self._is_full:
                await self._writable(reply, seconds)
            if reply.has_head or self._is_lost:
                return
        if size is not None and sent < size:
            raise httpx.LocalProtocolError("the body is shorter than its Content-Length")
        self._write(first + (b"" if size is not None else b"0\r\n\r\n"))
        self._sent_whole = True

    async def _writable(self, reply: _Reply, seconds: float | None) -> None:
        while self._is_full and not self._is_lost and not reply.has_head:
            await self._happening(seconds, httpx.WriteTimeout)

    async def arrival(self, condition: Callable[[], bool], seconds: float | None) -> None:
        """Wait until the condition holds; `seconds` bound each silence. Raises ReadTimeout, ReadError, RemoteProtocolError."""
        while not condition():
            if self._failure is not None:
                raise self._failure
            await self._happening(seconds, httpx.ReadTimeout)

    def taken(self) -> bytes:
        """The next piece of the reply's body. Reading goes on when most of what was buffered is taken."""
        reply = self._reply
        assert reply is not None
        piece = reply.pieces.popleft()
        reply.waiting_bytes -= len(piece)
        if self._is_paused and reply.waiting_bytes < BUFFER_BYTES_MAX // 2 and not self._is_lost:
            self._is_paused = False
            self._writer().resume_reading()
        return piece

    def rest(self) -> bool:
        """Ends the request whose reply was read. Returns whether another one may follow."""
        reply, self._reply = self._reply, None
        self._rests_since = time.monotonic()
        return reply is not None and reply.can_follow() and self._sent_whole and not self._is_lost

    def is_usable(self) -> bool:
        return not self._is_lost and time.monotonic() - self._rests_since < KEPT_SECONDS_MAX

    def close(self) -> None:
        """Close at once, without TLS's closing alert: replies mark their own end."""
        self._is_lost = True
        self._failure = self._failure or httpx.ReadError("the connection was closed")
        if self._transport is not None:
            self._transport.abort()
        self._wake()

    # --- inside ---

    def _writer(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport

    def _write(self, data: bytes) -> None:
        if data and not self._is_lost:
            self._writer().write(data)

    async def _happening(self, seconds: float | None, failure: _Failure) -> None:
        """Wait for the next event of the connection. Raises `failure` after so long a silence."""
        event = self._event = self._loop.create_future()
        timer = None if seconds is None else self._loop.call_later(seconds, _expire, event, failure, seconds)
        try:
            await event
        finally:
            self._event = None
            if timer is not None:
                timer.cancel()

    def _wake(self) -> None:
        if self._event is not None and not self._event.done():
            self._event.set_result(None)


def _expire(event: "asyncio.Future[None]", failure: _Failure, seconds: float) -> None:
    if not event.done():
        event.set_exception(failure(f"nothing within {seconds} s"))


def _default_port(url: httpx.URL) -> int:
    return 443 if url.scheme == "https" else 80


def _head(request: httpx.Request) -> tuple[bytes, int | None]:
    """The head as it is sent, and the length of the body, None if it is chunked. Raises LocalProtocolError for what would end a
    line (RFC 9110, section 5.5)."""
    size: int | None = 0
    target = cast(bytes, request.extensions.get("target") or request.url.raw_path)
    lines = [b"%b %b HTTP/1.1" % (request.method.encode("ascii"), target)]
    for name, value in request.headers.raw:
        lines.append(name + b": " + value)
        known = name.lower()
        if known == b"content-length":
            size = int(value)
        elif known == b"transfer-encoding":
            size = None
    ends = len(lines) + 1
    head = b"\r\n".join([*lines, b"", b""])
    if head.count(b"\r") != ends or head.count(b"\n") != ends or b"\0" in head:
        raise httpx.LocalProtocolError("a header of the request holds the end of a line")
    return head, size
