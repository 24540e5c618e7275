"""What the server answers with: JSON, errors, and stored bytes as they are read."""

import math
from collections.abc import Sequence

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from crystal_relay.errors import (
    InviteOver,
    QuotaExceeded,
    RelayError,
    StoreDamaged,
    StoreFull,
    StoreUnavailable,
    TooManyRequests,
)
from crystal_relay.server.exchange import Exchange, Rest
from crystal_relay.server.object_requests import FixedHeaders
from crystal_relay.store import Object
from crystal_relay.wire import ErrorReply

RETRY_AFTER_SECONDS = 1
_FULL_HINT = "Tell the relay's operator that it is full. Nothing on this device is lost: it is sent later."
_STORE_HINT = "The relay's log tells its operator more. Nothing on this device is lost: it is sent later."
_OF_OBJECTS = (
    (b"content-type", b"application/octet-stream"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
)
OF_JSON = ((b"content-type", b"application/json"), *_OF_OBJECTS[1:])
_COMMON = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


class NoSuchMethod(RelayError):
    """The route is there, the method is not."""

    status = 405
    code = "no-such-method"


class JsonReply(Response):
    """A struct as JSON."""

    media_type = "application/json"

    def __init__(
        self, content: msgspec.Struct, status: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(msgspec.json.encode(content), status, _COMMON | (headers or {}))


def error_reply(
    error: RelayError, *, close: bool = False, headers: dict[str, str] | None = None
) -> JsonReply:
    """An error's answer. `close`: end the connection after it."""
    extra = dict(headers or {})
    if close:
        extra["connection"] = "close"
    if error.status == 401:
        extra["www-authenticate"] = "Bearer"
    if error.status == 503:
        extra["retry-after"] = str(RETRY_AFTER_SECONDS)
    if isinstance(error, TooManyRequests):
        extra["retry-after"] = str(max(1, math.ceil(error.retry_after)))  # §R9.2-1
    since = error.seconds_ago if isinstance(error, InviteOver) else msgspec.UNSET
    reply = ErrorReply(error.code, str(error), _hint_for_device(error), since)
    return JsonReply(reply, error.status, extra)  # §R8-1


def _hint_for_device(error: RelayError) -> str:
    """What a device's owner can do. A store's own hint is for the relay's operator, who has it in the log."""
    if isinstance(error, StoreFull) and not isinstance(error, QuotaExceeded):
        return _FULL_HINT
    if error.status >= 500 and isinstance(error, StoreUnavailable | StoreDamaged):
        return _STORE_HINT if error.hint else ""
    return error.hint


async def send_json(scope: Scope, send: Send, content: msgspec.Struct) -> None:
    """Answer 200 with a struct as JSON."""
    await send_json_text(scope, send, msgspec.json.encode(content))


async def send_json_text(scope: Scope, send: Send, body: bytes) -> None:
    """Answer 200 with JSON."""
    rest = send_whole(send, 200, OF_JSON, len(body), b"" if scope["method"] == "HEAD" else body)
    if rest is not None:
        await rest


async def send_bytes(scope: Scope, send: Send, body: bytes) -> None:
    """Answer 200 with bytes."""
    rest = send_whole(send, 200, _OF_OBJECTS, len(body), b"" if scope["method"] == "HEAD" else body)
    if rest is not None:
        await rest


def send_whole(
    send: Send,
    status: int,
    fixed: FixedHeaders,
    size: int | None,
    body: bytes = b"",
    *,
    more: Sequence[tuple[bytes, bytes]] = (),
) -> Rest:
    """Answer with what is in memory. `fixed`: headers of this kind of answer. `size`: its Content-Length, if it has one."""
    if isinstance(send, Exchange):
        return send.answer(status, fixed, size, body, more=more)
    return _send_messages(send, status, [*fixed, *more], size, body)


async def _send_messages(
    send: Send, status: int, headers: list[tuple[bytes, bytes]], size: int | None, body: bytes
) -> None:
    if size is not None:
        headers.append((b"content-length", b"%d" % size))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class ObjectReply(Response):
    """A stored object, with headers of its own. It is closed however the answer ends."""

    def __init__(self, found: Object, headers: dict[str, str]) -> None:
        super().__init__(None, 200)
        self._found = found
        self._extra = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send_object(scope, send, self._found, partial=False, extra=self._extra)

    async def aclose(self) -> None:
        """Also of one that was never sent."""
        await self._found.aclose()


def send_held(
    scope: Scope,
    send: Send,
    found: Object,
    held: bytes,
    *,
    partial: bool,
    extra: Sequence[tuple[bytes, bytes]] = (),
) -> Rest:
    """As `send_object` for an object whose bytes, if they are sent, are in memory. The caller closes it."""
    body = b"" if scope["method"] == "HEAD" else held
    more = (*extra, *_range_of(found, partial=partial)) if partial else extra
    return send_whole(send, 206 if partial else 200, _OF_OBJECTS, found.length, body, more=more)


def _range_of(found: Object, *, partial: bool) -> tuple[tuple[bytes, bytes], ...]:
    last = found.start + found.length - 1
    return ((b"content-range", b"bytes %d-%d/%d" % (found.start, last, found.size)),) if partial else ()


async def send_object(
    scope: Scope, send: Send, found: Object, *, partial: bool, extra: Sequence[tuple[bytes, bytes]] = ()
) -> None:
    """Answer with a stored object, or a part of it. The object is closed however it ends. Raises StoreDamaged.

    What is in memory goes out at once, all else piece by piece.
    """
    if found.held is not None:
        rest = send_held(scope, send, found, found.held, partial=partial, extra=extra)
        if rest is not None:
            await rest
        return
    async with found:
        left = 0 if scope["method"] == "HEAD" else found.length
        if not left:
            rest = send_held(scope, send, found, b"", partial=partial, extra=extra)
            if rest is not None:
                await rest
            return
        headers = [*_OF_OBJECTS, *extra, *_range_of(found, partial=partial)]
        headers.append((b"content-length", b"%d" % found.length))
        await send({"type": "http.response.start", "status": 206 if partial else 200, "headers": headers})
        async for piece in found:
            left -= len(piece)
            await send({"type": "http.response.body", "body": piece, "more_body": left > 0})
    if left:
        # The head is out: all that is left is to break off, which the client sees as an error.
        raise StoreDamaged("an object gave fewer bytes than its size")
