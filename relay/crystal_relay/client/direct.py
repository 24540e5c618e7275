"""Direct transfers at the client: large blobs straight to and from the bucket, by requests that the relay has signed.

The relay is not trusted. It chooses the address, so only the sealed bytes of the blob or a GET go there: never a token, a
cookie, or a header that is not on a short list. Addresses are https with certificates verified; loopback is allowed only if
the relay is on loopback too. Redirects are not followed.

The bucket's answer decides nothing. A put has succeeded when the relay finds the object in the bucket with the receipt of this
request. So a lost answer is recognised as one's own success, and a false one is not believed.

What cannot be transferred directly goes through the relay, as does everything for a while after a failure. A signed address is
a secret: no log, message or repr shows it.
"""

import asyncio
import base64
import hashlib
import math
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from enum import Enum
from http.cookiejar import DefaultCookiePolicy
from random import SystemRandom
from typing import Protocol
from urllib.parse import urlsplit

import httpx
import msgspec

from crystal_relay.address import SecretUrl, http_client, is_loopback
from crystal_relay.client.replies import header_number, limited_body, pieces_of, size_of
from crystal_relay.errors import AlreadyExists, BadReply, Closed, NotFound, RelayError, StoreUnavailable
from crystal_relay.limits import BLOB_BYTES_MAX, DIRECT_BYTES_MIN
from crystal_relay.store import Object, body_of, part_length
from crystal_relay.wire import (
    Direction,
    Reply,
    TransferDone,
    TransferDoneReply,
    TransferReply,
    TransferRequest,
)

CHANNEL = "blob/"
PAUSE_SECONDS = 600.0
"""How long blobs go through the relay after a failure at the bucket."""
TRANSFERS_MAX = 8
"""Concurrent puts. Each holds one blob in memory."""
TRIES_MAX = 4
BYTES_PER_SECOND_MIN = 8 * 1024
"""The time limit of a put is a minute more than it takes at this rate."""
ANSWER_BYTES_MAX = 16 * 1024
"""How much of the bucket's answer to a put is read."""
URL_CHARS_MAX = 8 * 1024
HEADERS_MAX = 16
HEADER_CHARS_MAX = 1024

_HEADER = re.compile(r"content-type|x-amz-[a-z0-9-]{1,64}")
_OURS = {"if-none-match", "content-md5", "content-length"}
"""Headers that describe the body. The device sends its own; a grant may only repeat them."""
_ANSWER_SECONDS = 5.0
_HINT = "Crystal tries again through the relay."
_SENDER = "the bucket"

_random = SystemRandom()


class Ask(Protocol):
    """POSTs a struct to a path of the vault at the relay."""

    def __call__(self, path: str, body: msgspec.Struct, reply: type[Reply]) -> Awaitable[Reply]: ...


class DirectTransfers:
    """Direct transfers of one vault at one relay. Close it with `aclose`."""

    def __init__(
        self,
        ask: Ask,
        relay_url: str,
        *,
        connect: float,
        idle: float,
        enabled: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`connect` and `idle`: time limits in seconds, as for the relay itself."""
        self._ask = ask
        self._may_be_loopback = is_loopback(urlsplit(relay_url).hostname or "")
        self._connect = connect
        self._idle = idle
        self._clock = clock
        self._off_until = -math.inf if enabled else math.inf
        self._not_offered: set[Direction] = set()
        self._places = asyncio.Semaphore(TRANSFERS_MAX)
        self._clients: dict[tuple[str, bool], httpx.AsyncClient] = {}
        self._closed = False

    def takes(self, direction: Direction, key: str, size: int | None) -> bool:
        """Whether to ask the relay for a grant. `key` is within the vault; `size` is None if unknown."""
        return (
            key.startswith(CHANNEL)
            and direction not in self._not_offered
            and (size is None or DIRECT_BYTES_MIN <= size <= BLOB_BYTES_MAX)
            and self._clock() >= self._off_until
        )

    async def put_new(self, key: str, whole: bytes) -> bool:
        """As `Store.put_new`. Returns False if nothing was sent and the blob has to go through the relay."""
        digest = await asyncio.to_thread(hashlib.md5, whole, usedforsecurity=False)
        asked = TransferRequest(key, Direction.PUT, len(whole), digest.hexdigest())
        receipts: list[str] = []
        renewed = False
        async with self._places:
            for tried in range(1, TRIES_MAX + 1):
                grant = await self._begin(asked)
                if grant is None and not receipts:
                    return False
                if grant is None:
                    break
                receipts.append(grant.receipt)
                outcome = await self._put(grant, whole, digest.digest())
                match outcome:
                    case _Outcome.NOT_SENT:
                        self._pause()
                        if len(receipts) == 1:
                            return False
                        break
                    case _Outcome.EXPIRED if not renewed:
                        renewed = True
                    case _Outcome.CONFLICT if tried < TRIES_MAX:
                        await asyncio.sleep(_random.uniform(0.05, 0.2) * tried)
                    case _:
                        break
            await self._settle(key, len(whole), receipts)
            return True

    async def get(self, key: str, *, start: int, length: int | None) -> Object | None:
        """As `Store.get`. Returns None if the blob has to come through the relay."""
        for renewed in (False, True):
            grant = await self._begin(TransferRequest(key, Direction.GET))
            if grant is None:
                return None
            count = part_length(grant.size, start, length)
            if not count:
                return Object.part(b"", size=grant.size, start=start)
            try:
                return await self._get(grant, start, count, whole=start == 0 and length is None)
            except _NotSent:
                self._pause()
                return None
            except _Expired:
                if renewed:
                    break
            except StoreUnavailable:
                self._pause()
                raise
        self._pause()
        raise StoreUnavailable("the bucket refuses what the relay signed", hint=_HINT)

    async def renew(self) -> None:
        """As `Renewable`: running transfers fail, later ones use new connections."""
        clients, self._clients = self._clients, {}
        self._off_until = min(self._off_until, self._clock()) if self._off_until < math.inf else math.inf
        for client in clients.values():
            await client.aclose()

    async def aclose(self) -> None:
        """Abort running transfers. Idempotent."""
        self._closed = True
        for client in self._clients.values():
            await client.aclose()

    # --- with the relay ---

    async def _begin(self, asked: TransferRequest) -> "Grant | None":
        if self._clock() < self._off_until:
            return None
        try:
            reply = await self._ask("transfers", asked, TransferReply)
        except BadReply:
            self._pause()  # an older relay does not have this route
            return None
        if not reply.direct:
            if not reply.offered:
                self._not_offered.add(asked.direction)
            return None
        try:
            return checked_grant(reply, asked, may_be_loopback=self._may_be_loopback)
        except GrantRefused:
            self._pause()
            return None

    async def _settle(self, key: str, size: int, receipts: list[str]) -> None:
        """Return if one of the puts with these receipts created the object, else raise."""
        taken: AlreadyExists | None = None
        for receipt in reversed(receipts):
            try:
                reply = await self._ask("transfers/done", TransferDone(key, size, receipt), TransferDoneReply)
            except AlreadyExists as error:
                taken = error
            except NotFound:
                # It may still arrive.
                self._pause()
                raise StoreUnavailable("the bucket does not hold what was sent there", hint=_HINT) from None
            else:
                if reply.size != size:
                    raise BadReply("the relay found an object of another size than was put")
                return
        if taken is not None:
            raise taken

    def _pause(self) -> None:
        self._off_until = max(self._off_until, self._clock() + PAUSE_SECONDS)

    # --- with the bucket ---

    async def _put(self, grant: "Grant", whole: bytes, md5: bytes) -> "_Outcome":
        headers = grant.headers | {
            "If-None-Match": "*",
            "Content-MD5": base64.b64encode(md5).decode(),
            "Content-Length": str(len(whole)),
        }
        # In pieces, so that the idle limit is one on each piece.
        request = self._request("PUT", grant, headers, content=body_of(whole).open())
        try:
            async with asyncio.timeout(60 + self._idle + len(whole) / BYTES_PER_SECOND_MIN):
                response = await self._client(grant).send(request, stream=True)
        except (httpx.ConnectError, httpx.ConnectTimeout):
            return _Outcome.NOT_SENT
        except (httpx.RequestError, TimeoutError):
            return _Outcome.UNKNOWN
        try:
            # Read so that the connection can be kept; the content does not matter.
            with suppress(RelayError, TimeoutError):
                async with asyncio.timeout(_ANSWER_SECONDS):
                    await limited_body(response, ANSWER_BYTES_MAX)
        finally:
            await response.aclose()
        return _OUTCOMES.get(response.status_code, _Outcome.UNKNOWN)

    async def _get(self, grant: "Grant", start: int, count: int, *, whole: bool) -> Object:
        headers = dict(grant.headers)
        if not whole:
            headers["Range"] = f"bytes={start}-{start + count - 1}"
        request = self._request("GET", grant, headers)
        try:
            async with asyncio.timeout(self._connect + self._idle):
                response = await self._client(grant).send(request, stream=True)
        except (httpx.ConnectError, httpx.ConnectTimeout):
            raise _NotSent from None
        except (httpx.RequestError, TimeoutError) as error:
            raise StoreUnavailable(
                f"the bucket does not answer ({type(error).__name__})", hint=_HINT
            ) from None
        try:
            if response.status_code == 403:
                raise _Expired
            if response.status_code != (200 if whole else 206):
                raise StoreUnavailable(
                    f"the bucket answered with HTTP status {response.status_code}", hint=_HINT
                )
            if (
                size_of(response, start, sender=_SENDER) != grant.size
                or header_number(response, "Content-Length", sender=_SENDER) != count
            ):
                raise StoreUnavailable("the bucket sent something else than was asked for", hint=_HINT)
        except BadReply as error:
            await response.aclose()
            raise StoreUnavailable(str(error), hint=_HINT) from None
        except BaseException:
            await response.aclose()
            raise
        return Object(
            self._arriving(response, count), size=grant.size, start=start, length=count, close=response.aclose
        )

    async def _arriving(self, response: httpx.Response, count: int) -> AsyncGenerator[bytes]:
        try:
            async with aclosing(pieces_of(response, count, sender=_SENDER)) as pieces:
                async for piece in pieces:
                    yield piece
        except StoreUnavailable as error:
            self._pause()
            raise StoreUnavailable(str(error), hint=_HINT) from None

    def _request(
        self,
        method: str,
        grant: "Grant",
        headers: dict[str, str],
        *,
        content: AsyncIterator[bytes] | None = None,
    ) -> httpx.Request:
        request = self._client(grant).build_request(
            method, httpx.URL(grant.url), headers=headers, content=content
        )
        request.url = SecretUrl(request.url)
        return request

    def _client(self, grant: "Grant") -> httpx.AsyncClient:
        """A client of its own, so that no credential or cookie of the relay's is sent."""
        if self._closed:
            raise Closed("the store is closed")
        parts = urlsplit(grant.url)
        kind = (parts.scheme, is_loopback(parts.hostname or ""))
        client = self._clients.get(kind)
        if client is None:
            client = self._clients[kind] = http_client(
                f"{parts.scheme}://{parts.netloc}",
                connect=self._connect,
                idle=self._idle,
                connections_kept=TRANSFERS_MAX,
            )
            client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))  # §R3.5-3
        return client


class Grant:
    """A signed request, checked."""

    __slots__ = ("headers", "receipt", "size", "url")

    def __init__(self, url: str, headers: dict[str, str], size: int, receipt: str) -> None:
        self.url = url
        self.headers = headers
        self.size = size
        self.receipt = receipt


class GrantRefused(Exception):
    """The device does not follow this grant."""


def checked_grant(reply: TransferReply, asked: TransferRequest, *, may_be_loopback: bool) -> Grant:
    """The grant in a reply, checked against the request. Raises GrantRefused."""
    putting = asked.direction is Direction.PUT
    _check_url(reply.url, may_be_loopback=may_be_loopback)
    if reply.method != ("PUT" if putting else "GET"):
        raise GrantRefused
    if putting and (reply.size != asked.size or not 1 <= len(reply.receipt) <= 128):
        raise GrantRefused
    if not putting and not DIRECT_BYTES_MIN <= reply.size <= BLOB_BYTES_MAX:
        raise GrantRefused
    ours = {"if-none-match": "*", "content-length": str(asked.size)} if putting else {}
    if putting:
        ours["content-md5"] = base64.b64encode(bytes.fromhex(asked.md5)).decode()
    headers = {name.lower(): value for name, value in reply.headers.items()}
    if len(reply.headers) > HEADERS_MAX or len(headers) != len(reply.headers):
        raise GrantRefused
    for name, value in headers.items():
        if len(value) > HEADER_CHARS_MAX or not value.isascii() or not value.isprintable():
            raise GrantRefused
        if ours.get(name) != value if name in _OURS else _HEADER.fullmatch(name) is None:
            raise GrantRefused
    kept = {name: value for name, value in headers.items() if name not in _OURS}  # §R3.5-3
    return Grant(reply.url, kept, reply.size, reply.receipt)


def _check_url(url: str, *, may_be_loopback: bool) -> None:
    if len(url) > URL_CHARS_MAX or not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise GrantRefused
    try:
        parts = urlsplit(url)
        port = parts.port
        parsed = httpx.URL(url)
    except (ValueError, httpx.InvalidURL):
        raise GrantRefused from None
    host = parts.hostname or ""
    if not host or port == 0 or "@" in parts.netloc or parts.fragment or parsed.host != host:
        raise GrantRefused
    local = is_loopback(host)
    if parts.scheme not in ("https", "http") or (parts.scheme == "http" and not local):
        raise GrantRefused
    if local and not may_be_loopback:
        raise GrantRefused


class _Outcome(Enum):
    """How a put ended as seen from here. Only NOT_SENT is certain: it does not rest on the bucket's word."""

    NOT_SENT = "not sent"
    STORED = "stored"
    TAKEN = "taken"
    CONFLICT = "conflict"
    EXPIRED = "expired"
    UNKNOWN = "unknown"


_OUTCOMES = {
    200: _Outcome.STORED,
    403: _Outcome.EXPIRED,
    409: _Outcome.CONFLICT,
    412: _Outcome.TAKEN,
}


class _NotSent(Exception):
    """The bucket cannot be reached from here."""


class _Expired(Exception):
    """The bucket does not accept the signature, or no longer."""
