"""Requests for single objects, lists and waits, as devices send them: read by one regular expression and answered by one write.

uvicorn's parser, its callbacks and its cycle cost as much as the relay's own work for a small object. What is not exactly in
the form that is known here (any other header, a body that has not arrived, a query where none is served) is left to them, whose
reading decides: this one accepts less, and reads nothing differently. The application, and so every check and
limit, is the same.
"""

import asyncio
import re
from collections.abc import Coroutine
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from crystal_relay.server.requests import Head, read_headers
from crystal_relay.server.settings import HEAD_BYTES_MAX

_TOGETHER_BYTES_MAX = 64 * 1024
"""A body up to this size is written together with its head."""
_LINE = re.compile(
    rb"(GET|HEAD|PUT|DELETE) (/v2/vaults/([0-9a-f]{32})/(?:objects/([a-z0-9._/-]{1,256})|(list|wait)))"
    rb"(?:\?([A-Za-z0-9._~%&=+/-]{0,2048}))? HTTP/1\.1\r\n"
)
_FIELD = re.compile(rb"([A-Za-z-]{2,32}): ([\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?)")
_SIZE = re.compile(rb"0|[1-9][0-9]{0,8}")
_KNOWN = frozenset(
    {
        b"accept",
        b"accept-encoding",
        b"authorization",
        b"connection",
        b"content-length",
        b"content-type",
        b"host",
        b"if-none-match",
        b"prefer",
        b"range",
        b"user-agent",
        b"via",
        b"x-forwarded-for",
        b"x-forwarded-host",
        b"x-forwarded-proto",
        b"x-real-ip",
    }
)
"""None of them changes how the rest is read, except the two that `_fields` looks at."""

Header = tuple[bytes, bytes]
Headers = list[Header]
FixedHeaders = tuple[Header, ...]
"""Of one kind of answer: the same for each."""


@dataclass(slots=True)
class Fields:
    """A request's headers."""

    block: bytes
    """As they were sent."""
    headers: Headers
    """Names in lower case."""
    head: Head
    """Those that the relay reads."""
    bytes: int
    """Of all names and values."""
    size: int | None
    """Content-Length."""
    shown: tuple[str, str] | None = None
    """The device and the hash of the token in them, once they were looked at."""


class ObjectRequest(NamedTuple):
    """A request that has arrived whole."""

    method: bytes
    path: bytes
    query: bytes
    fields: Fields
    body: bytes
    end: int
    """Where the next request begins in the input."""
    is_wait: bool
    object: tuple[bytes, bytes] | None
    """Vault and key, if it is for an object."""


def object_request(data: bytes, begin: int, known: Fields | None) -> ObjectRequest | None:
    """The request that begins there, or None if it is the general parser's. `known`: headers of the one before."""
    match = _LINE.match(data, begin)
    if match is None:
        return None
    method, path, vault, key, asks, query = match.groups()
    at = match.end()
    last = data.find(b"\r\n\r\n", at, begin + HEAD_BYTES_MAX)
    if last < 0 or (asks is None) is (query is not None):
        return None
    block = data[at:last]
    at = last + 4
    fields = known if known is not None and known.block == block else _fields(block)
    if fields is None or (fields.size is None) is (method == b"PUT"):
        return None
    end = at + (fields.size or 0)
    if end > len(data):
        return None
    at_object = None if key is None else (vault, key)
    return ObjectRequest(method, path, query or b"", fields, data[at:end], end, asks == b"wait", at_object)


def _fields(block: bytes) -> Fields | None:
    headers: Headers = []
    seen: set[bytes] = set()
    size: int | None = None
    for line in block.split(b"\r\n"):
        match = _FIELD.fullmatch(line)
        if match is None:
            return None
        name, value = match[1].lower(), match[2]
        if name not in _KNOWN or name in seen:
            return None
        seen.add(name)
        if name == b"content-length":
            if _SIZE.fullmatch(value) is None:
                return None
            size = int(value)
        elif name == b"connection" and value.lower() != b"keep-alive":
            return None
        headers.append((name, value))
    total = sum(len(name) + len(value) for name, value in headers)
    return Fields(block, headers, read_headers(headers), total, size)


@lru_cache(maxsize=64)
def _block(headers: FixedHeaders) -> bytes:
    """Headers as they are sent."""
    return b"".join(b"%b: %b\r\n" % each for each in headers)


class _Dates:
    """The block of the headers that every answer has. uvicorn makes a new list each second."""

    def __init__(self) -> None:
        self._headers: Headers = []
        self._block = b""

    def block(self, headers: Headers) -> bytes:
        if headers is not self._headers:
            self._headers, self._block = headers, _block(tuple(headers))
        return self._block


_dates = _Dates()


class Happening:
    """An `asyncio.Event` that takes its 0.7 KB only while somebody waits for it."""

    __slots__ = ("_event", "_is_set")

    def __init__(self, *, is_set: bool = False) -> None:
        self._event: asyncio.Event | None = None
        self._is_set = is_set

    def set(self) -> None:
        self._is_set = True
        if self._event is not None:
            self._event.set()
            self._event = None

    def clear(self) -> None:
        self._is_set = False

    async def wait(self) -> None:
        if not self._is_set:
            if self._event is None:
                self._event = asyncio.Event()
            await self._event.wait()


def keep_body(cycle: RequestResponseCycle, piece: bytes) -> None:
    """Add a piece of a body to what waits to be read. A large body arrives in pieces that are mostly read one by one."""
    waiting = cast(bytes | bytearray, cycle.body)
    if not waiting:
        cycle.body = piece  # type: ignore[assignment]
    elif isinstance(waiting, bytes):
        cycle.body = bytearray(waiting) + piece
    else:
        waiting += piece


class ObjectCycle(RequestResponseCycle):
    """uvicorn's cycle of a request whose body is there. The head of an answer waits for what follows it."""

    more_body = False
    disconnected = False
    keep_alive = True
    waiting_for_100_continue = False
    response_started = False
    response_complete = False
    expected_content_length = 0
    _head = b""
    _read = False

    def __init__(self, connection: Any, scope: dict[str, Any], body: bytes) -> None:
        """`connection`: uvicorn's protocol, as `Connection` extends it."""
        # Instead of uvicorn's, which would set all of the above for each request.
        self.scope = scope  # type: ignore[assignment]
        self.transport = connection.transport
        self.flow = connection.flow
        self.logger = connection.logger
        self.access_logger = connection.access_logger
        self.access_log = connection.access_log
        self.default_headers = connection.server_state.default_headers
        self.on_response = connection.on_response_complete
        self.message_event = Happening(is_set=True)  # type: ignore[assignment]
        self.body = body  # type: ignore[assignment]
        # Set here: an attribute that is added later makes the dictionary 0.8 KB larger, in all but a process's first object.
        self.chunked_encoding = None

    def run_rest(self, rest: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None]:
        """As `run_asgi`, for what is left of a request: a bug in it is logged and answered in the same way."""

        def application(*_: object) -> Coroutine[Any, Any, None]:
            return rest

        return self.run_asgi(application)

    async def receive(self) -> Any:
        """As uvicorn's, without waiting for the body."""
        body = self.take_body()
        if body is None:
            return await super().receive()
        return {"type": "http.request", "body": body, "more_body": False}

    def take_body(self) -> bytes | None:
        """The body if nobody has read it, as `receive` would give it."""
        if self._read or self.disconnected or self.response_complete:
            return None
        self._read = True
        self.message_event.clear()
        body, self.body = bytes(self.body), bytearray()
        return body

    async def send(self, message: Any) -> None:
        """As uvicorn's. Answers of unknown length are left to it."""
        if self.flow.write_paused or self.disconnected or self.response_complete or self.access_log:
            await self._send_on(message)
        elif not self.response_started:
            if message["type"] != "http.response.start" or not self._start(
                message["status"], message["headers"]
            ):
                await super().send(message)
        elif not self._head or message["type"] != "http.response.body" or message.get("more_body", False):
            await self._send_on(message)
        else:
            body: bytes = b"" if self.scope["method"] == "HEAD" else message.get("body", b"")
            if self.scope["method"] != "HEAD" and len(body) != self.expected_content_length:
                await self._send_on(message)  # which refuses it
                return
            head, self._head = self._head, b""
            self._flushing.cancel()
            self.expected_content_length = 0
            self._complete(head, body)

    def answer(self, status: int, fixed: FixedHeaders, size: int | None, more: Headers, body: bytes) -> bool:
        """Write a whole answer, as two messages to `send` would. `size`: its Content-Length, if it has one.

        False: nothing was written, and the messages are needed.
        """
        if (
            self.flow.write_paused
            or self.disconnected
            or self.response_started
            or self.access_log
            or not self.keep_alive
            or (len(body) != (size or 0) and self.scope["method"] != "HEAD")
        ):
            return False
        lines = [STATUS_LINE[status], _dates.block(self.default_headers), _block(fixed)]
        if size is not None:
            lines.append(b"content-length: %d\r\n" % size)
        for name, value in more:
            if name == b"connection" or b"\r" in value or b"\n" in value:
                return False
            lines.append(b"%b: %b\r\n" % (name, value))
        lines.append(b"\r\n")
        self.response_started = True
        self._complete(b"".join(lines), body)
        return True

    def _complete(self, head: bytes, body: bytes) -> None:
        if len(body) <= _TOGETHER_BYTES_MAX:
            self.transport.write(head + body)
        else:
            self.transport.writelines((head, body))
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()

    async def _send_on(self, message: Any) -> None:
        self._flush()
        await super().send(message)

    def _flush(self) -> None:
        """Write a head whose body does not follow in the same turn of the loop."""
        if self._head and not self.disconnected:
            head, self._head = self._head, b""
            self.transport.write(head)

    def _start(self, status: int, headers: Headers) -> bool:
        """Make the head. Returns False for one whose form is not known here."""
        size: int | None = 0 if status == 204 else None
        lines = [STATUS_LINE[status][:-2]]
        closes = not self.keep_alive
        for name, value in (*self.default_headers, *headers):
            if name == b"content-length":
                size = int(value)
            elif name == b"connection":
                if value != b"close":
                    return False
                closes, self.keep_alive = False, False
            elif name == b"transfer-encoding":
                return False
            lines.append(name + b": " + value)
        if closes:
            lines.append(b"connection: close")
        ends = len(lines) + 1
        head = b"\r\n".join((*lines, b"", b""))
        if size is None or head.count(b"\n") != ends or head.count(b"\r") != ends:
            return False
        self.response_started = True
        self.chunked_encoding = False
        self.expected_content_length = size
        self._head = head
        self._flushing = asyncio.get_running_loop().call_soon(self._flush)
        return True
