"""Strict reading of requests: nothing repeated, unknown, beyond its limit or too slow."""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Collection, Iterable
from typing import Protocol, TypeAlias, TypeVar
from urllib.parse import unquote_plus

import msgspec
from starlette.requests import Request
from starlette.types import Message, Receive, Scope

from crystal_relay.errors import UNDECODABLE, BadRequest, BodyTooLarge, LengthRequired, SizeMismatch, TooSlow
from crystal_relay.server.settings import QUERY_BYTES_MAX, RelaySettings
from crystal_relay.store import Body
from crystal_relay.wire import REQUEST_JSON_BYTES_MAX

_RANGE = re.compile(r"bytes=([0-9]{1,15})-([0-9]{1,15})?\Z")
_NUMBER = re.compile(r"(?:0|[1-9][0-9]{0,14})\Z")
_PREFERRED_WAIT = re.compile(rb"wait=([1-9][0-9]{0,3})\Z")
_SECONDS = re.compile(r"[0-9]{1,3}(\.[0-9]{1,6})?\Z")

Head: TypeAlias = dict[bytes, bytes]
"""The headers that the relay reads, each present at most once."""
_COUNTED = frozenset(
    {
        b"authorization",
        b"content-length",
        b"content-type",
        b"host",
        b"if-none-match",
        b"prefer",
        b"range",
        b"transfer-encoding",
    }
)

FIELDS_KEY = "crystal.fields"
"""Key of the scope for what is known of its headers, if an earlier request of the connection had the same ones."""

Parsed = TypeVar("Parsed", bound=msgspec.Struct)


class KnownFields(Protocol):
    """What is known of headers that a connection sends with each request."""

    head: Head
    """Those that the relay reads."""
    bytes: int
    """Of all names and values."""
    shown: tuple[str, str] | None
    """The device and the hash of the token in them, once they were looked at."""


class ClientGone(Exception):
    """The client closed its connection."""


def head_of(scope: Scope) -> Head:
    """The headers that the relay reads. Raises BadRequest if one of them is repeated."""
    fields: KnownFields | None = scope.get(FIELDS_KEY)
    return read_headers(scope["headers"]) if fields is None else fields.head


def read_headers(headers: Iterable[tuple[bytes, bytes]]) -> Head:
    """Of all headers those that the relay reads. Raises BadRequest if one other than `Prefer` is repeated."""
    head: Head = {}
    for name, value in headers:
        if name in _COUNTED:
            if name not in head:
                head[name] = value
            elif name == b"prefer":
                head[name] += b"," + value  # RFC 7240, section 2
            else:
                raise BadRequest(f"the header {name.decode()} came more than once")  # §R1-3
    return head


def text_of(value: bytes | None) -> str | None:
    """A header's value as text. Raises BadRequest if it is not plain ASCII."""
    try:
        return None if value is None else value.decode("ascii")
    except UnicodeDecodeError:
        raise BadRequest("a header is not ASCII") from None


def no_query(scope: Scope) -> None:
    """Raise BadRequest for a URL with parameters."""
    if scope["query_string"]:
        raise BadRequest("the query holds a parameter that is not known here")  # §R1-3


def no_body(head: Head) -> None:
    """Raise BadRequest for a request with a body."""
    if b"transfer-encoding" in head or head.get(b"content-length", b"0") != b"0":
        raise BadRequest("no body is taken here")


def query(request: Request, allowed: Collection[str]) -> dict[str, str]:
    """The URL's parameters. Raises BadRequest for unknown, repeated or invalid ones."""
    return query_of(request.scope, allowed)


def query_of(scope: Scope, allowed: Collection[str]) -> dict[str, str]:
    """As `query`."""
    sent: bytes = scope["query_string"]
    if len(sent) > QUERY_BYTES_MAX:  # §R9-2
        raise BadRequest(f"the query has more than {QUERY_BYTES_MAX} bytes")
    try:
        text = sent.decode("ascii")
    except UnicodeDecodeError:
        raise BadRequest("the query is not understood") from None
    # Nearly all have no escapes but those of slashes, and `unquote_plus` takes long even for what has none.
    plain = text.replace("%2F", "/")
    unquoted: Callable[[str], str] = str
    if "%" in plain or "+" in plain:
        plain, unquoted = text, unquote_plus
    fields = plain.split("&") if plain else []
    if len(fields) > len(allowed):
        raise BadRequest("the query is not understood")
    found: dict[str, str] = {}
    for each in fields:
        # As urllib's `parse_qsl` (strict), which takes ten times as long.
        name, equals, value = each.partition("=")
        if not equals:
            raise BadRequest("the query is not understood")
        name = unquoted(name)
        if name in found or name not in allowed:  # §R1-3
            raise BadRequest("the query holds a parameter twice, or one that is not known here")
        found[name] = unquoted(value)
    return found


def number(text: str) -> int:
    """A whole number in its one decimal form. Raises BadRequest."""
    if _NUMBER.match(text) is None:
        raise BadRequest("not a whole number")
    return int(text)


def seconds(text: str) -> float:
    """A duration. Raises BadRequest."""
    if _SECONDS.match(text) is None:
        raise BadRequest("not a number of seconds")
    return float(text)


def preferred_wait(head: Head) -> float:
    """Seconds of `Prefer: wait=` (RFC 7240). 0 without it: a preference that is not understood is no error."""
    match = _PREFERRED_WAIT.match(head.get(b"prefer", b""))
    return 0.0 if match is None else float(match[1])


def part(head: Head) -> tuple[int, int | None] | None:
    """Start and length of the Range header; None without one. Raises BadRequest unless it is one range with a start."""
    text = text_of(head.get(b"range"))
    if text is None:
        return None
    match = _RANGE.match(text)
    if match is None:
        raise BadRequest("not a range that is served here", hint="Use bytes=START- or bytes=START-END.")
    start = int(match[1])
    if match[2] is None:
        return start, None
    if int(match[2]) < start:  # §R3.2-1
        raise BadRequest("the range ends before it starts")
    return start, int(match[2]) - start + 1


def content_length(head: Head, limit: int) -> int:
    """The body's declared size. Raises LengthRequired, TooLarge, BadRequest."""
    text = text_of(head.get(b"content-length"))
    if text is None or b"transfer-encoding" in head:  # §R3.1-3
        raise LengthRequired("the size of the body has to be declared (Content-Length)")
    if _NUMBER.match(text) is None:
        raise BadRequest("Content-Length is not a number")
    size = int(text)
    if size > limit:
        raise BodyTooLarge(f"at most {limit} bytes are taken here")
    return size


def arriving_body(scope: Scope, receive: Receive, size: int, settings: RelaySettings) -> Body:
    """The body of the request as it arrives."""
    return Body(size, lambda: _arriving(scope, receive, size, settings), repeatable=False)


async def small_body(scope: Scope, receive: Receive, size: int, settings: RelaySettings) -> bytes:
    """The request's whole body. Raises SizeMismatch, TooSlow, ClientGone."""
    if has_arrived(scope):
        message = await receive()
        body: bytes = message.get("body", b"")
        if message["type"] == "http.request" and len(body) == size and not message.get("more_body", False):
            return body
        return await _gathered(message, scope, receive, size, settings)
    return await _gathered(None, scope, receive, size, settings)


def has_arrived(scope: Scope) -> bool:
    """Whether the whole body was received, so that reading it does not wait. Known only for our own server."""
    cycle = scope.get("crystal.cycle")
    return cycle is not None and not cycle.more_body


async def json_of(
    request: Request, kind: type[Parsed], settings: RelaySettings, *, bytes_max: int = REQUEST_JSON_BYTES_MAX
) -> Parsed:
    """The parsed body of the request. Raises BadRequest and its subclasses."""
    head = head_of(request.scope)
    media = (text_of(head.get(b"content-type")) or "").partition(";")[0].strip().lower()
    if media != "application/json":
        raise BadRequest("the body has to be JSON (Content-Type: application/json)")
    size = content_length(head, bytes_max)  # §R9-3
    text = await small_body(request.scope, request.receive, size, settings)
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        raise BadRequest(f"the JSON does not fit: {error}") from None
    except UNDECODABLE:
        raise BadRequest("the body is not JSON") from None


async def gone(receive: Receive) -> None:
    """Wait until the client closes its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _gathered(
    first: Message | None, scope: Scope, receive: Receive, size: int, settings: RelaySettings
) -> bytes:
    return b"".join([piece async for piece in _arriving(scope, receive, size, settings, first)])


async def _arriving(
    scope: Scope, receive: Receive, size: int, settings: RelaySettings, first: Message | None = None
) -> AsyncGenerator[bytes]:
    loop = asyncio.get_running_loop()
    end = loop.time() + settings.body_seconds_max(size)  # §R9-4
    left = size
    while True:
        # §R9-4
        message = first or await _next(scope, receive, min(loop.time() + settings.body_idle_seconds, end))
        first = None
        if message["type"] == "http.disconnect":
            raise ClientGone
        piece: bytes = message.get("body", b"")
        left -= len(piece)
        if left < 0:
            raise SizeMismatch("the body is longer than its declared size")
        if piece:
            yield piece
        if not message.get("more_body", False):
            break
    if left:
        raise SizeMismatch("the body is shorter than its declared size")


async def _next(scope: Scope, receive: Receive, until: float) -> Message:
    if has_arrived(scope):
        return await receive()
    try:
        async with asyncio.timeout_at(until):
            return await receive()
    except TimeoutError:
        raise TooSlow("the body arrives too slowly") from None
