"""The outermost middleware: counts and checks every request, and turns every error into a response.

Every request counts towards the limit of its address, also one that is refused. Requests need a path without escapes and a head
within its limits. Responses get a request id, and errors are JSON. Log and metrics get the method, the kind of route, the
status, error's code, bytes and time: never a path, a query, a header or a body.
"""

import re
import time
from collections.abc import Awaitable, Callable
from itertools import chain

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crystal_relay.errors import BadRequest, QuotaExceeded, RelayError, TooSlow
from crystal_relay.server.admission import SCOPE_KEY, Limited
from crystal_relay.server.batches import Batches
from crystal_relay.server.health import Health, ProcessState
from crystal_relay.server.logs import failure_log, new_request_id, request_log
from crystal_relay.server.metrics import Metrics
from crystal_relay.server.objects import Objects
from crystal_relay.server.rates import Rates
from crystal_relay.server.replies import error_reply
from crystal_relay.server.requests import ClientGone
from crystal_relay.server.settings import HEAD_BYTES_MAX, HEADERS_MAX, UNREAD_BYTES_MAX

_PATH = re.compile(rb"(?:/[A-Za-z0-9._-]+)*/?\Z")
"""No key needs an escape, so none is accepted: a path has only one spelling, the one that is checked."""


class HeadTooLarge(BadRequest):
    """More address and headers than allowed."""

    status = 431
    code = "head-too-large"


class Guard:
    """ASGI middleware: the outermost, also around Starlette's own."""

    def __init__(
        self,
        app: ASGIApp,
        objects: Objects,
        batches: Batches,
        wait: Callable[[Scope, Receive, Send, bytes], Awaitable[None]],
        metrics: Metrics,
        rates: Rates,
        health: Health,
    ) -> None:
        self._app = app
        self._batches = batches
        self._health = health
        self._objects = objects
        self._metrics = metrics
        self._rates = rates
        self._wait = wait

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(receive, send, new_request_id(), scope.get(SCOPE_KEY), self._health)
        began = time.monotonic()
        try:
            self._rates.admit(scope)
            path: bytes = scope["raw_path"]
            _check_size(scope, path)
            match path.split(b"/", 5):
                case [b"", b"v2", b"vaults", vault, b"objects", key]:
                    await self._objects(scope, exchange.receive, exchange.send, vault, key)
                case [b"", b"v2", b"vaults", vault, b"list"]:
                    await self._objects.list(scope, exchange.receive, exchange.send, vault)
                case [b"", b"v2", b"vaults", vault, b"wait"]:
                    await self._wait(scope, exchange.receive, exchange.send, vault)
                case [b"", b"v2", b"vaults", vault, b"reads"]:
                    await self._batches.read(scope, exchange.receive, exchange.send, vault)
                case [b"", b"v2", b"vaults", vault, b"writes"]:
                    await self._batches.write(scope, exchange.receive, exchange.send, vault)
                case _:
                    _check_path(path)
                    await self._app(scope, exchange.receive, exchange.send)
        except ClientGone:
            exchange.status = 499  # for the log only: the client has gone
        except RelayError as error:
            self._metrics.error(error.code)
            exchange.code = error.code
            if exchange.status:
                raise
            # What is left of the body is skipped, or cut off where that would take long.
            close = isinstance(error, TooSlow) or (
                not exchange.read_all and _unread(scope) > UNREAD_BYTES_MAX  # §R9-11
            )
            await error_reply(error, close=close)(scope, receive, exchange.send)
            if error.status >= 500 and error.status != 503 and not isinstance(error, QuotaExceeded):
                failure_log(exchange.request_id, error)
        except Exception:
            # A bug. uvicorn logs the traceback; nothing of it goes to the client.
            self._metrics.error(RelayError.code)
            exchange.code = RelayError.code
            if not exchange.status:
                mistake = RelayError("internal error of the relay; its log has details")
                await error_reply(mistake, close=True)(scope, receive, exchange.send)
            raise
        finally:
            self._finish(scope, exchange, time.monotonic() - began)

    def _finish(self, scope: Scope, exchange: "_Exchange", seconds: float) -> None:
        route = str(scope.get("crystal.route") or getattr(scope.get("endpoint"), "__name__", "none"))
        method: str = scope["method"]
        status, received, sent = exchange.status, exchange.received, exchange.sent
        self._metrics.request(route, method, status, seconds, received, sent)  # §R7-2
        request_log(exchange.request_id, method, route, status, seconds, received, sent, exchange.code)


class _Exchange:
    """Tracks one request: whether its body was read, whether its response has begun, bytes in both directions."""

    __slots__ = (
        "_connection",
        "_health",
        "_receive",
        "_send",
        "code",
        "read_all",
        "received",
        "request_id",
        "sent",
        "status",
    )

    def __init__(
        self, receive: Receive, send: Send, request_id: str, connection: Limited | None, health: Health
    ) -> None:
        self._receive = receive
        self._send = send
        self._connection = connection
        self._health = health
        self.request_id = request_id
        self.read_all = False
        self.received = 0
        self.sent = 0
        self.status = 0
        self.code = ""
        """Of the error that was answered."""

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self.received += len(message.get("body", b""))
            if not message.get("more_body", False):
                self.read_all = True
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            named = (b"x-request-id", self.request_id.encode())  # §R1-4
            headers = [*message["headers"], named]
            refused = (
                self.status >= 400 and self._connection is not None and self._connection.refused()
            )  # §R9-15
            if refused or self._health.state is ProcessState.STOPPING:  # §R9-12
                headers.append((b"connection", b"close"))
            message = {**message, "headers": headers}
        else:
            self.sent += len(message.get("body", b""))
        await self._send(message)


def _check_size(scope: Scope, path: bytes) -> None:
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    size = len(path) + len(scope["query_string"]) + sum(map(len, chain.from_iterable(headers)))
    if size > HEAD_BYTES_MAX or len(headers) > HEADERS_MAX:  # §R9-1
        raise HeadTooLarge(
            f"the address and the headers have at most {HEAD_BYTES_MAX} bytes, {HEADERS_MAX} headers"
        )


def _check_path(path: bytes) -> None:
    if _PATH.match(path) is None:  # §R1-2
        raise BadRequest("the path is not valid here", hint="Nothing here needs a %-escape.")


def _unread(scope: Scope) -> float:
    """The size of the body, as far as the head tells."""
    for name, value in scope["headers"]:
        if name == b"transfer-encoding":
            return float("inf")
        if name == b"content-length":
            return int(value) if value.isdigit() and len(value) < 16 else float("inf")
    return 0
