"""The checks of every request, and the headers and errors of every answer.

In: the Host header names this machine and our port (a page that points its own name here is refused), the Origin is ours or
none, and everything but the page's files needs a token. Out: errors as JSON; headers that restrict a page to its own files. A
bug is logged by its places in the code, without values: they may be recorded texts.
"""

import logging
import traceback
from collections.abc import Collection

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crystal_node.surfaces.gateway.access import GatewayAccess
from crystal_node.surfaces.gateway.documents import ErrorDocument
from crystal_node.surfaces.gateway.errors import ForeignOrigin, InvalidRequest, NoToken, WrongHost
from crystal_node.surfaces.gateway.limits import HEAD_BYTES_MAX
from crystal_node.surfaces.gateway.replies import DocumentReply, error_document, error_words

_POLICY = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
)
_HEADERS = [
    (b"content-security-policy", "; ".join(_POLICY).encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
]
_NAMES = ("127.0.0.1", "localhost", "[::1]")
_OPEN_METHODS = ("GET", "HEAD", "POST")
_OURS = (b"same-origin", b"none")
_SINGLE = (b"authorization", b"content-type", b"host", b"origin", b"sec-fetch-site")
_log = logging.getLogger("crystal_node.surfaces.gateway")


class GatewayGuard:
    """The outermost ASGI middleware. ``open_paths`` need no token."""

    def __init__(self, app: ASGIApp, access: GatewayAccess, port: int, open_paths: Collection[str]) -> None:
        self._app = app
        self._access = access
        self._hosts = frozenset(f"{name}:{port}".encode() for name in _NAMES)
        self._origins = frozenset(b"http://" + host for host in self._hosts)
        self._open = frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def guarded(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = [*message["headers"], *_HEADERS]
                if not any(name == b"cache-control" for name, _ in headers):
                    headers.append((b"cache-control", b"no-store"))
                message = {**message, "headers": headers}
            await send(message)

        try:
            self._check(scope)
            await self._app(scope, receive, guarded)
        except Exception as error:  # noqa: BLE001  where every error becomes an answer
            status, document = error_document(error)
            if status == 500:
                _log.error("a mistake: %s at %s", type(error).__name__, _places(error))
            if begun:
                raise ConnectionResetError("the answer broke off") from None
            reply = DocumentReply(_shaped(scope["path"], error, document), status)
            if status == NoToken.status:
                reply.headers["www-authenticate"] = "Bearer"
            if status == 503:
                reply.headers["retry-after"] = "1"
            if status in (408, 413) or isinstance(error, NoToken | WrongHost | ForeignOrigin):
                # Who may not ask has one answer for each connection.
                reply.headers["connection"] = "close"
            await reply(scope, receive, guarded)

    def _check(self, scope: Scope) -> None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        if sum(len(name) + len(value) for name, value in headers) > HEAD_BYTES_MAX:
            raise InvalidRequest("the headers are too large")
        found: dict[bytes, bytes] = {}
        for name, value in headers:
            if name in _SINGLE:
                if name in found:
                    raise InvalidRequest(f"the header {name.decode()} comes twice")
                found[name] = value
        if found.get(b"host", b"").lower() not in self._hosts:
            raise WrongHost("this address is not the gateway's own")
        if b"origin" in found and found[b"origin"].lower() not in self._origins:
            raise ForeignOrigin("a page of another site may not ask here")
        page = scope["path"] in self._open and scope["method"] in ("GET", "HEAD")
        if not page and found.get(b"sec-fetch-site", b"none") not in _OURS:
            raise ForeignOrigin("a page of another site may not ask here")
        needs_none = scope["path"] in self._open and scope["method"] in _OPEN_METHODS
        if not needs_none and not self._access.admits(found.get(b"authorization")):
            raise NoToken("this needs the gateway's token")


def _shaped(path: str, error: BaseException, document: ErrorDocument) -> object:
    """The error in the form that clients of that route expect."""
    if not path.startswith("/v1/"):
        return document
    words = " ".join(filter(None, (document.error + ("." if document.hint else ""), document.hint)))
    return error_words(error, words, document.code)


def _places(error: BaseException) -> str:
    return ", ".join(
        f"{frame.name} ({frame.lineno})" for frame in traceback.extract_tb(error.__traceback__)[-4:]
    )
