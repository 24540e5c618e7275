"""The prototype's routes over HTTP: its paths, its JSON, its statuses, and this relay's limits.

POST   /drop/<channel>             GET  /pickup/<channel>
DELETE /confirm/<channel>/<id>     GET  /pickup/<channel>/<id>

What else begins with these names, or with none of the relay's own, is answered in the prototype's form, too.
"""

import asyncio
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from crystal_prototype.relay.documents import V1Blob, V1ConfirmReply, V1DropReply, V1ErrorReply, V1ListReply
from crystal_prototype.relay.drops import Drops
from crystal_prototype.relay.names import BLOB_BYTES_MAX, DropId, Role, V1Channel, parse_channel, space_prefix
from crystal_prototype.relay.spool import MEMORY_BYTES_MAX, V1Spool
from crystal_prototype.relay.tokens import Tokens, V1Holder, WrongToken
from crystal_relay.errors import (
    BadRequest,
    Forbidden,
    NotFound,
    QuotaExceeded,
    RelayError,
    TooSlow,
    Unauthorized,
)
from crystal_relay.server.admission import authenticated
from crystal_relay.server.concurrency import VaultConcurrency
from crystal_relay.server.load import STREAM_BYTES, TAKEN_AT_ONCE_BYTES_MAX, Load, taken
from crystal_relay.server.rates import Rates
from crystal_relay.server.replies import JsonReply, NoSuchMethod, ObjectReply, error_reply
from crystal_relay.server.requests import arriving_body, content_length, head_of, no_query, text_of
from crystal_relay.server.scopes import Identity
from crystal_relay.server.settings import UNREAD_BYTES_MAX, RelaySettings
from crystal_relay.server.usage import RelayUsage, Usage
from crystal_relay.store import Store

LISTS_MAX = 4
"""Long lists that are built concurrently; others wait."""
ROOM_SHARE = 16
"""A full space gets a sixteenth of its quota free at once, if absent readers hold that much."""
NO_ROOM_SECONDS = 60.0
"""How long a full space in which nothing can be freed is not searched again."""
_METHODS = {"drop": "POST", "pickup": "GET", "confirm": "DELETE"}
_BEARER = "Bearer "
_log = logging.getLogger("crystal_relay.server")

_Handler: TypeAlias = "Callable[[V1Routes, Request], Awaitable[Response]]"


def _in_old_words(handler: _Handler) -> _Handler:
    """Convert errors to the prototype's format."""

    @functools.wraps(handler)
    async def answer(self: "V1Routes", request: Request) -> Response:
        try:
            return await handler(self, request)
        except RelayError as error:
            return _refusal(request, error)

    return answer


class V1Routes:
    """The handlers. One for each relay process."""

    def __init__(
        self,
        store: Store,
        settings: RelaySettings,
        rates: Rates,
        *,
        load: Load | None = None,
        expire_ms: int = 0,
        cap: RelayUsage | None = None,
    ) -> None:
        """`load`: the relay's; spaces have shares in it as vaults do. `expire_ms`: the age at which drops are deleted, 0 for
        never. `cap`: the relay's; drops count."""
        self._settings = settings
        self._quota_bytes = settings.quota_bytes
        self._load = load or Load()
        self._rates = rates
        self._tokens = Tokens(store)
        self._drops = Drops(store, self._tokens, expire_ms=expire_ms)
        self.usage = Usage(store, settings, prefix_of=space_prefix, cap=cap)
        self._spool = V1Spool()
        self._lists = asyncio.Semaphore(LISTS_MAX)
        self._turns = VaultConcurrency(1)
        """One list per space at a time, so that no space takes all places."""
        self._rooms = VaultConcurrency(1)
        self._no_room: dict[str, float] = {}
        """By space: until when no room is looked for in it again."""

    def routes(self) -> list[Route]:
        """All of them."""
        return [
            Route("/drop/{channel}", self.drop, methods=["POST"]),
            Route("/pickup/{channel}", self.list_blobs, methods=["GET"]),
            Route("/pickup/{channel}/{id}", self.pick_up, methods=["GET"]),
            Route("/confirm/{channel}/{id}", self.confirm, methods=["DELETE"]),
            *(
                Route(path, _Unknown(self))
                for name in _METHODS
                for path in (f"/{name}", f"/{name}/{{rest:path}}")
            ),
        ]

    def refusal(self, request: Request, error: RelayError, headers: Mapping[str, str]) -> Response:
        """A path or method that nothing here serves, outside of the current protocol's."""
        reply = _refusal(request, error)
        reply.headers.update(headers)
        return reply

    async def aclose(self) -> None:
        """End the background tasks. Idempotent."""
        await self.usage.aclose()

    @_in_old_words
    async def drop(self, request: Request) -> Response:
        """Store a sealed blob for all readers of a channel."""
        sender, channel = await self._asked(request)
        size = content_length(head_of(request.scope), BLOB_BYTES_MAX)
        if not size:
            raise BadRequest("a drop has a body")
        await self._admit(sender.space, size)
        body = arriving_body(request.scope, request.receive, size, self._settings)
        held = size if size <= MEMORY_BYTES_MAX else STREAM_BYTES
        with self._load.gathering(_share(sender), held), self.usage.arriving(sender.space, size):
            async with self._spool.receive(body) as received:
                drop = await self._drops.drop(sender, channel, received)
        self.usage.stored(sender.space, size)
        return JsonReply(V1DropReply(True, str(drop), channel, size, drop.dropped_at))

    @_in_old_words
    async def list_blobs(self, request: Request) -> Response:
        """List the blobs that wait for this reader on a channel."""
        reader, channel = await self._reader(request)
        await self._turns.enter(reader.space)
        try:
            return await self._listed(reader, channel)
        finally:
            self._turns.leave(reader.space)

    @_in_old_words
    async def pick_up(self, request: Request) -> Response:
        """A blob's bytes."""
        reader, channel = await self._reader(request)
        drop = DropId.parse(request.path_params["id"])
        agent = await self._tokens.agent_of(reader.space, drop.dropper)
        found = await self._drops.pick_up(reader, channel, drop)
        held = found.length if found.held is not None else min(found.length, STREAM_BYTES)
        reply = ObjectReply(found, {"x-agent-id": agent, "x-dropped-at": drop.dropped_at})
        return _Held(reply, self._load, _share(reader), held)

    @_in_old_words
    async def confirm(self, request: Request) -> Response:
        """Confirm a blob for this reader."""
        reader, channel = await self._reader(request)
        await self._drops.confirm(reader, channel, DropId.parse(request.path_params["id"]))
        self.usage.deleted(reader.space)
        return JsonReply(V1ConfirmReply(ok=True, deleted=True))

    async def _listed(self, reader: V1Holder, channel: V1Channel) -> Response:
        async with self._lists:
            blobs = [
                V1Blob(
                    str(waiting.id),
                    waiting.size,
                    waiting.id.dropped_at,
                    await self._tokens.agent_of(reader.space, waiting.id.dropper),
                )
                for waiting in await self._drops.waiting(reader, channel)
            ]
            reply = JsonReply(V1ListReply(channel, len(blobs), blobs))
        return _Held(reply, self._load, _share(reader), len(reply.body))

    @_in_old_words
    async def unknown(self, request: Request) -> Response:
        """A path or method that the prototype does not have, below one of its names."""
        await self._holder(request)
        name = request.url.path.split("/")[1]
        rest = request.path_params.get("rest", "").split("/")
        parts = [part for part in rest if part]
        if rest[-1:] == [""] and parts:
            raise BadRequest("the address ends with a slash")
        if not parts:
            raise BadRequest(f"the address names no channel: there are {', '.join(V1Channel)}")
        parse_channel(parts[0])
        if name == "confirm" and len(parts) == 1:
            raise BadRequest("the address names no id")
        if len(parts) > (1 if name == "drop" else 2):
            raise NotFound("there is nothing at that address")
        raise _WrongMethod(f"/{name} takes {_METHODS[name]} only")

    async def _admit(self, space: str, size: int) -> None:
        """Raise QuotaExceeded if the space has no room, even after drops that only absent readers hold are deleted."""
        try:
            self.usage.admit(space, size)
        except QuotaExceeded:
            await self._rooms.enter(space)
            try:
                now = time.monotonic()
                if now < self._no_room.get(space, now):
                    raise
                if not await self._drops.make_room(space, max(size, self._quota_bytes // ROOM_SHARE)):
                    self._no_room[space] = now + NO_ROOM_SECONDS
                    raise
            finally:
                self._rooms.leave(space)
            _log.warning("a space of v1 devices was full: drops that only absent devices held were deleted")
            self.usage.forget(space)
            self.usage.admit(space, size)

    async def _reader(self, request: Request) -> tuple[V1Holder, V1Channel]:
        """Raises Forbidden for a device that does not read the channel."""
        holder, channel = await self._asked(request)
        if not holder.reads(channel):
            what = "only drops" if holder.role is Role.SENDER else f"is of a {holder.role}"
            raise Forbidden(f"{channel} is read by a {channel.reader}, and this token {what}")
        return holder, channel

    async def _asked(self, request: Request) -> tuple[V1Holder, V1Channel]:
        return await self._holder(request), parse_channel(request.path_params["channel"])

    async def _holder(self, request: Request) -> V1Holder:
        header = text_of(head_of(request.scope).get(b"authorization"))
        if header is None or not header.startswith(_BEARER):
            self._rates.failed(request.scope)
            raise Unauthorized("a bearer token is needed here")
        try:
            with self._rates.lookup(request.scope):
                holder = await self._tokens.identify(header.removeprefix(_BEARER))
        except WrongToken:
            self._rates.failed(request.scope)
            raise
        authenticated(request.scope)
        self._rates.check(Identity(space_prefix(holder.space), holder.id, frozenset()))
        no_query(request.scope)
        return holder


class _WrongMethod(RelayError):
    """That route has another method."""

    code, status = NoSuchMethod.code, NoSuchMethod.status


class _Unknown:
    """Any other request below one of the names, whatever its method."""

    def __init__(self, routes: V1Routes) -> None:
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply = await self._routes.unknown(Request(scope, receive))
        await reply(scope, receive, send)


class _Held(Response):
    """An answer that counts as load until its client has taken it. Raises Busy if there is no room for it."""

    def __init__(self, reply: Response, load: Load, share: str, size: int) -> None:
        super().__init__()
        self._reply = reply
        self._load = load
        self._share = share
        self._size = size

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._size <= TAKEN_AT_ONCE_BYTES_MAX:
            await self._reply(scope, receive, send)
            return
        try:
            with self._load.answering(self._share, self._size):
                await self._reply(scope, receive, taken(send))
        finally:
            if isinstance(self._reply, ObjectReply):
                await self._reply.aclose()


def _share(holder: V1Holder) -> str:
    """The share's name for a space; no vault has such a name."""
    return space_prefix(holder.space)


def _refusal(request: Request, error: RelayError) -> Response:
    if error.status >= 500 and error.status not in (503, 507):
        _log.error("%s: %s", error.code, error)
    plain = error_reply(error, close=isinstance(error, TooSlow) or _size(request) > UNREAD_BYTES_MAX)
    kept = {name: value for name, value in plain.headers.items() if not name.startswith("content-")}
    return JsonReply(V1ErrorReply(str(error)), error.status, kept)


def _size(request: Request) -> float:
    """The size of the body as the head states it; infinite if it does not."""
    text = request.headers.get("content-length", "0")
    if "transfer-encoding" in request.headers:
        return float("inf")
    return int(text) if text.isdigit() and len(text) < 16 else float("inf")
