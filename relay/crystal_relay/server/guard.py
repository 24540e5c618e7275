"""The outermost middleware: counts and checks every request, and turns every error into a response.

Every request counts towards the limit of its address, also one that is refused. Requests need a path without escapes and a head
within its limits. Responses get a request id, and errors are JSON. Log and metrics get the method, the kind of route, the
status, error's code, bytes and time: never a path, a query, a header or a body.
"""

import re
import time
from collections.abc import Awaitable, Callable
from itertools import chain

from starlette.types import ASGIApp, Receive, Scope, Send

from crystal_relay.errors import BadRequest, QuotaExceeded, RelayError, TooSlow
from crystal_relay.server.admission import SCOPE_KEY
from crystal_relay.server.batches import Batches
from crystal_relay.server.exchange import Exchange, Rest
from crystal_relay.server.health import Health
from crystal_relay.server.logs import failure_log, new_request_id, request_log
from crystal_relay.server.metrics import Metrics
from crystal_relay.server.objects import Objects
from crystal_relay.server.rates import Rates
from crystal_relay.server.replies import error_reply
from crystal_relay.server.requests import FIELDS_KEY, ClientGone, KnownFields
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
        rest = self.begin(scope, receive, send)
        if rest is not None:
            await rest

    def begin(self, scope: Scope, receive: Receive, send: Send) -> Rest:
        """Serve a request as far as it need not wait, and return the rest of it. Raises nothing itself."""
        exchange = Exchange(receive, send, new_request_id(), scope.get(SCOPE_KEY), self._health)
        began = time.monotonic()
        try:
            self._rates.admit(scope)
            path: bytes = scope["raw_path"]
            _check_size(scope, path)
            rest = self._routed(scope, exchange, path)
        except Exception as error:  # noqa: BLE001  answered where those of the rest are
            rest = _raising(error)
        if rest is not None:
            return self._follow(scope, receive, exchange, began, rest)
        self._finish(scope, exchange, time.monotonic() - began)
        return None

    def _routed(self, scope: Scope, exchange: Exchange, path: bytes) -> Awaitable[None] | None:
        at_object: tuple[bytes, bytes] | None = scope.get("crystal.object")
        if at_object is not None:
            return self._objects(scope, exchange, *at_object)
        match path.split(b"/", 5):
            case [b"", b"v2", b"vaults", vault, b"objects", key]:
                return self._objects(scope, exchange, vault, key)
            case [b"", b"v2", b"vaults", vault, b"list"]:
                return self._objects.list(scope, exchange, vault)
            case [b"", b"v2", b"vaults", vault, b"wait"]:
                return self._wait(scope, exchange.receive, exchange, vault)
            case [b"", b"v2", b"vaults", vault, b"reads"]:
                return self._batches.read(scope, exchange.receive, exchange, vault)
            case [b"", b"v2", b"vaults", vault, b"writes"]:
                return self._batches.write(scope, exchange.receive, exchange, vault)
            case _:
                _check_path(path)
                return self._app(scope, exchange.receive, exchange)

    async def _follow(
        self, scope: Scope, receive: Receive, exchange: Exchange, began: float, rest: Awaitable[None]
    ) -> None:
        try:
            await rest
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
            await error_reply(error, close=close)(scope, receive, exchange)
            if error.status >= 500 and error.status != 503 and not isinstance(error, QuotaExceeded):
                failure_log(exchange.request_id, error)
        except Exception:
            # A bug. uvicorn logs the traceback; nothing of it goes to the client.
            self._metrics.error(RelayError.code)
            exchange.code = RelayError.code
            if not exchange.status:
                mistake = RelayError("internal error of the relay; its log has details")
                await error_reply(mistake, close=True)(scope, receive, exchange)
            raise
        finally:
            self._finish(scope, exchange, time.monotonic() - began)

    def _finish(self, scope: Scope, exchange: Exchange, seconds: float) -> None:
        route = str(scope.get("crystal.route") or getattr(scope.get("endpoint"), "__name__", "none"))
        method: str = scope["method"]
        status, received, sent = exchange.status, exchange.received, exchange.sent
        self._metrics.request(route, method, status, seconds, received, sent)  # §R7-2
        request_log(exchange.request_id, method, route, status, seconds, received, sent, exchange.code)


async def _raising(error: Exception) -> None:
    raise error


def _check_size(scope: Scope, path: bytes) -> None:
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    fields: KnownFields | None = scope.get(FIELDS_KEY)
    size = len(path) + len(scope["query_string"])
    size += sum(map(len, chain.from_iterable(headers))) if fields is None else fields.bytes
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
