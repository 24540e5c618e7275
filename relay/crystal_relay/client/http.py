"""A relay as a store: the port over HTTP. Calls that manage vaults, tokens and invites are in `client.vaults`.

One `HttpStore` is one vault's view: keys are the port's full ones (`v/<vault>/…`), those of other vaults are refused
before anything is sent. The token goes to this relay only, never to a proxy of the environment on loopback, never over
plain HTTP to another machine, and never along a redirect. Nothing is retried here: that is `decorators.RetryingStore`.

A write whose reply was lost raises StoreUnavailable although it may have happened.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import httpx
import msgspec

from crystal_relay.address import check_relay_url, http_client, is_wrong_certificate
from crystal_relay.batches import (
    READ_REPLY_BYTES_MAX,
    Found,
    Lacking,
    Written,
    encode_writes,
    parse_reads,
)
from crystal_relay.certificates import certificate_problem
from crystal_relay.client.direct import DirectTransfers
from crystal_relay.client.replies import (
    beyond_the_end,
    error_of,
    header_number,
    limited_body,
    pieces_of,
    size_of,
)
from crystal_relay.client.vaults import VaultCalls, header_safe
from crystal_relay.deletion import check_condemned
from crystal_relay.errors import (
    UNDECODABLE,
    BadReply,
    BadRequest,
    Closed,
    NoSuchRoute,
    RelayError,
    StoreUnavailable,
)
from crystal_relay.keys import check_key, check_prefix, check_vault, vault_prefix
from crystal_relay.limits import BLOB_BYTES_MAX, LIST_LIMIT_MAX, PIECE_BYTES
from crystal_relay.store import (
    Body,
    Listed,
    Object,
    Page,
    body_of,
    body_size,
    check_limit,
    check_part,
    check_timeout,
    checked_pieces,
    part_length,
    whole_body,
)
from crystal_relay.wire import (
    ERROR_JSON_BYTES_MAX,
    Condemnation,
    CondemnedReply,
    Direction,
    KeysRequest,
    ListReply,
    Reply,
    WaitReply,
    WrittenReply,
    reply_of,
)

CALLS_MAX = 16
"""Concurrent calls; further ones queue. Waits, and objects being read, have further connections."""
OLDER_WAIT_SECONDS = 50.0
"""How long an older relay, which holds no waits, is asked to wait."""
REPLY_JSON_BYTES_MAX = 1024 * 1024
"""Well above a page of 1,000 keys of 256 characters."""
HELD_REPLY_BYTES_MAX = 8 * 1024
"""Of the answer to a held wait: its blanks, about 20 as a rule, and a token."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds. `idle` bounds the silence while reading or writing, not the whole transfer."""

    connect: float = 10.0
    idle: float = 30.0
    silence: float = 60.0
    """How long a relay that holds a wait may say nothing."""
    wait_grace: float = 15.0
    """How much longer than requested a `wait` may take before the relay counts as unreachable."""


class HttpStore(VaultCalls):
    """A `Store` at a relay. Close it with `aclose`."""

    def __init__(
        self,
        url: str,
        *,
        vault: bytes | str,
        token: Callable[[], str] | str,
        transport: httpx.AsyncBaseTransport | None = None,
        timeouts: Timeouts | None = None,
        allow_insecure: bool = False,
        direct: bool = True,
    ) -> None:
        """`token` may be a function, so that a renewed one is used at once. `allow_insecure` permits plain HTTP to other
        machines. `direct` transfers large blobs straight to and from the relay's bucket, if the relay offers that. Raises
        BadRequest for an invalid address, or one that would send the token in clear."""
        self._vault = check_vault(vault if isinstance(vault, str) else vault.hex())
        self._prefix = vault_prefix(self._vault)
        self._token = token
        # The pool's own queue takes time that grows with the square of its length.
        self._places = asyncio.Semaphore(CALLS_MAX)
        self._timeouts = timeouts or Timeouts()
        self._url = check_relay_url(url, allow_insecure=allow_insecure)
        self._renewable = transport is None
        self._knows_batches = True
        """Until the relay says that it has no such route: an older one."""
        self._http = self._client(transport)
        self._direct = DirectTransfers(
            self._ask, url, connect=self._timeouts.connect, idle=self._timeouts.idle, enabled=direct
        )

    @property
    def host(self) -> str:
        return httpx.URL(self._url).raw_host.decode("ascii").lower()

    # --- the port ---

    async def put_new(self, key: str, body: bytes | Body) -> None:
        if self._direct.takes(Direction.PUT, self._within(check_key(key)), body_size(body)):
            body = await whole_body(body)
            if await self._direct.put_new(self._within(key), body):
                return
        await self._put(key, body, {"If-None-Match": "*"})

    async def put(self, key: str, body: bytes | Body) -> None:
        await self._put(key, body, {})

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> Object:
        check_part(start, length)
        wanted = None if length is None else min(length, BLOB_BYTES_MAX)
        if self._direct.takes(Direction.GET, self._within(check_key(key)), wanted):
            found = await self._direct.get(self._within(key), start=start, length=length)
            if found is not None:
                return found
        headers = self._token_header()
        whole = start == 0 and length is None
        if not whole:
            headers["Range"] = f"bytes={start}-" + ("" if length is None else str(start + length - 1))
        request = self._http.build_request("GET", self._object_path(key), headers=headers)
        response = await self._send(request)
        try:
            if response.status_code == 416:
                return await beyond_the_end(response, start)
            if response.status_code != (200 if whole else 206):
                raise await error_of(response)
            size = size_of(response, start)
            count = part_length(size, start, length)
            if header_number(response, "Content-Length") != count:
                raise BadReply("the relay sent a part of another length than asked for")
        except BaseException:
            await response.aclose()
            raise
        return Object(pieces_of(response, count), size=size, start=start, length=count, close=response.aclose)

    async def list(self, prefix: str, *, after: str = "", limit: int = LIST_LIMIT_MAX) -> Page:
        check_limit(limit)
        query = {"prefix": self._within(check_prefix(prefix)), "limit": str(limit)}
        begin = self._after_within(check_prefix(after))
        if begin is None:
            return Page((), more=False)
        if begin:
            query["after"] = begin
        reply = await self._json("GET", f"/v2/vaults/{self._vault}/list", ListReply, query=query)
        found = tuple(Listed(self._prefix + entry.key, entry.size) for entry in reply.entries)
        _check_page(found, prefix, after, limit)
        return Page(found, reply.more and bool(found))

    async def delete(self, key: str) -> None:
        request = self._http.build_request("DELETE", self._object_path(key), headers=self._token_header())
        await self._expect_empty(request)

    async def wait(self, prefix: str, *, token: str | None, timeout: float) -> str:
        query = {"prefix": self._within(check_prefix(prefix)), "timeout": f"{check_timeout(timeout):.3f}"}
        if token is not None:
            query["token"] = token
        path = f"/v2/vaults/{self._vault}/wait"
        patience = timeout + self._timeouts.wait_grace
        return (await self._json("GET", path, WaitReply, query=query, patience=patience)).token

    async def hold(self, prefix: str, *, token: str, timeout: float, heard: Callable[[], None]) -> str:
        """As `HoldingStore`."""
        query = {
            "prefix": self._within(check_prefix(prefix)),
            "timeout": f"{OLDER_WAIT_SECONDS:.0f}",
            "token": token,
        }
        headers = self._token_header() | {"Prefer": f"wait={timeout:.0f}"}
        path = f"/v2/vaults/{self._vault}/wait"
        patience = self._timeouts.silence
        try:
            async with asyncio.timeout(timeout + patience):
                reply = await self._json(
                    "GET", path, WaitReply, query=query, headers=headers, patience=patience, heard=heard
                )
        except TimeoutError:
            raise StoreUnavailable("the relay does not end a wait") from None
        return reply.token

    async def renew(self) -> None:
        """As `Renewable`. Queued calls use the new connections."""
        if self._renewable and not self._http.is_closed:
            old, self._http = self._http, self._client(None)
            await old.aclose()
            await self._direct.renew()

    async def aclose(self) -> None:
        await self._http.aclose()
        await self._direct.aclose()

    # --- beside the port ---

    async def read_many(self, keys: Sequence[str], bytes_max: int) -> Sequence[Found]:
        """As `batches.BatchStore`. Of a relay without such requests all are to be asked for alone."""
        asked = KeysRequest([self._within(check_key(key)) for key in keys], bytes_max)
        content = msgspec.json.encode(asked)
        reply = await self._asked_for_many("reads", content, "application/json", READ_REPLY_BYTES_MAX)
        return [Lacking.ALONE] * len(keys) if reply is None else parse_reads(reply, len(keys), bytes_max)

    async def write_many(self, objects: Sequence[tuple[str, bytes]]) -> Sequence[Written]:
        """As `batches.BatchStore`."""
        content = encode_writes([(self._within(check_key(key)), body) for key, body in objects])
        reply = await self._asked_for_many(
            "writes", content, "application/octet-stream", REPLY_JSON_BYTES_MAX
        )
        if reply is None:
            return [Lacking.ALONE] * len(objects)
        try:
            created = reply_of(reply, WrittenReply).created
        except UNDECODABLE:
            raise BadReply("what answers there does not speak the relay's protocol") from None
        if len(created) != len(objects):
            raise BadReply("the relay's reply has another number of objects than were sent")
        return list(created)

    async def condemn(self, *, keys: Sequence[str] = (), prefix: str = "", through: str = "") -> None:
        """As `deletion.Condemner`: the relay has recorded the request when this returns, and its sweeper deletes."""
        check_condemned(keys, prefix, through)
        if keys:
            asked = Condemnation(keys=[self._within(key) for key in keys])
        else:
            asked = Condemnation(prefix=self._within(prefix), through=self._within(through))
        await self._ask("condemned", asked, CondemnedReply)

    # --- inside ---

    async def _put(self, key: str, body: bytes | Body, condition: dict[str, str]) -> None:
        path = self._object_path(key)
        size = body_size(body)
        # An empty body is complete once the head is sent, so its source is read before.
        if isinstance(body, Body):
            content = checked_pieces(body) if size else await whole_body(body)
        else:
            # In pieces, so that the idle limit is one on each piece.
            content = body if size <= PIECE_BYTES else body_of(body).open()
        headers = self._token_header() | condition
        headers |= {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
        await self._expect_empty(self._http.build_request("PUT", path, headers=headers, content=content))

    async def _ask(self, path: str, body: msgspec.Struct, reply: type[Reply]) -> Reply:
        return await self._json("POST", f"/v2/vaults/{self._vault}/{path}", reply, body=body)

    async def _asked_for_many(self, path: str, content: bytes, media: str, bytes_max: int) -> bytes | None:
        """The reply's body; None from a relay that has no such route."""
        if not self._knows_batches:
            return None
        headers = self._token_header() | {"Content-Type": media}
        # In pieces, so that the idle limit is one on each piece.
        sent = content if len(content) <= PIECE_BYTES else body_of(content).open()
        headers["Content-Length"] = str(len(content))
        request = self._http.build_request(
            "POST", f"/v2/vaults/{self._vault}/{path}", headers=headers, content=sent
        )
        response = await self._send(request)
        try:
            if response.status_code in (404, 405):
                error = await error_of(response)
                if not isinstance(error, NoSuchRoute | BadReply) and response.status_code == 404:
                    raise error
                self._knows_batches = False
                return None
            if response.status_code != 200:
                raise await error_of(response)
            return await limited_body(response, bytes_max)
        finally:
            await response.aclose()

    async def _expect_empty(self, request: httpx.Request) -> None:
        response = await self._send(request)
        try:
            if response.status_code not in (201, 204):
                raise await error_of(response)
            await limited_body(response, ERROR_JSON_BYTES_MAX)
        finally:
            await response.aclose()

    async def _json(
        self,
        method: str,
        path: str,
        reply: type[Reply],
        *,
        query: dict[str, str] | None = None,
        body: msgspec.Struct | None = None,
        headers: dict[str, str] | None = None,
        patience: float | None = None,
        heard: Callable[[], None] | None = None,
    ) -> Reply:
        """Ask and parse the answer. `patience`: seconds without a byte, the idle time if None. `heard` is called for each blank
        before the answer."""
        headers = self._token_header() if headers is None else headers
        content = None if body is None else msgspec.json.encode(body)
        if content is not None:
            headers = headers | {"Content-Type": "application/json"}
        request = self._http.build_request(
            method, path, params=query, content=content, headers=headers, timeout=self._limits(patience)
        )
        response = await self._send(request, sleeps=patience is not None)
        try:
            if response.status_code not in (200, 201, 202):
                raise await error_of(response)
            limit = REPLY_JSON_BYTES_MAX if heard is None else HELD_REPLY_BYTES_MAX
            text = await limited_body(response, limit, heard=heard)
        finally:
            await response.aclose()
        try:
            return reply_of(text, reply)
        except UNDECODABLE:
            raise BadReply("what answers there does not speak the relay's protocol") from None

    def _client(self, transport: httpx.AsyncBaseTransport | None) -> httpx.AsyncClient:
        return http_client(
            self._url,
            connect=self._timeouts.connect,
            idle=self._timeouts.idle,
            connections_kept=CALLS_MAX,
            transport=transport,
        )

    async def _send(self, request: httpx.Request, *, sleeps: bool = False) -> httpx.Response:
        http = self._http
        try:
            if sleeps:
                return await http.send(request, stream=True)
            async with self._places:
                http = self._http
                return await http.send(request, stream=True)
        except RelayError:
            raise  # the body's own, from inside the transfer
        except RuntimeError:
            if self._http.is_closed:
                raise Closed("the store is closed") from None
            if http.is_closed:
                raise StoreUnavailable("the connection was renewed") from None
            raise
        except httpx.TimeoutException:
            raise StoreUnavailable("the relay does not answer in time") from None
        except httpx.RequestError as error:
            if is_wrong_certificate(error):
                raise BadReply(
                    "another relay answers there: its certificate is not the one that the address names",
                    hint="Check that you are on the right network. If the relay was set up anew, take its new address.",
                ) from None
            problem = await certificate_problem(error, self._url)
            raise problem or StoreUnavailable(
                f"the relay cannot be reached ({type(error).__name__})"
            ) from None

    def _limits(self, patience: float | None) -> httpx.Timeout:
        idle = self._timeouts.idle
        return httpx.Timeout(idle, connect=self._timeouts.connect, pool=idle, read=patience or idle)

    def _token_header(self) -> dict[str, str]:
        token = self._token if isinstance(self._token, str) else self._token()
        return {"Authorization": f"Bearer {header_safe(token)}"}

    def _within(self, name: str) -> str:
        """A key or prefix without the vault's prefix."""
        if not name.startswith(self._prefix):
            raise BadRequest("that is not a name in this store's vault")
        return name[len(self._prefix) :]

    def _after_within(self, after: str) -> str | None:
        """`after` without the vault's prefix: "" if all its keys come after, None if none does."""
        if after.startswith(self._prefix):
            return after[len(self._prefix) :]
        return "" if after < self._prefix else None

    def _object_path(self, key: str) -> str:
        return f"/v2/vaults/{self._vault}/objects/{self._within(check_key(key))}"


def _check_page(found: tuple[Listed, ...], prefix: str, after: str, limit: int) -> None:
    """Refuse a page out of order or with foreign keys, on which a reader could loop for ever."""
    last = after
    for entry in found:
        if not entry.key.startswith(prefix) or entry.key <= last or entry.size < 0:
            raise BadReply("the relay's list is out of order or holds what was not asked for")
        last = entry.key
    if len(found) > limit:
        raise BadReply("the relay's list is longer than asked for")
