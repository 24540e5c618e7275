"""Requests for objects (PUT, GET, HEAD, DELETE) and lists of them, as plain ASGI.

Nearly all requests are these. Starlette's routing, request and response objects cost more than all of the relay's own work
for a small object (docs/decisions/0018-plain-asgi-for-objects.md), so this module reads the scope and answers through the
exchange, at once where nothing has to wait. All other routes are Starlette's, in `app.py`.
"""

from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from typing import Any

import msgspec
from starlette.types import Receive, Scope, Send

from crystal_relay.errors import AlreadyExists, BadRange, BadRequest
from crystal_relay.keys import check_prefix, check_vault, vault_prefix
from crystal_relay.limits import KEY_CHARS_MAX, KIB, LIST_LIMIT_MAX
from crystal_relay.server.authorization import known_device, party_of_header
from crystal_relay.server.concurrency import LISTS_OF_VAULT_AT_ONCE, READS_OF_VAULT_AT_ONCE, VaultConcurrency
from crystal_relay.server.exchange import Exchange, Rest
from crystal_relay.server.fair_store import FairStore
from crystal_relay.server.invites import Invites
from crystal_relay.server.load import STREAM_BYTES, TAKEN_AT_ONCE_BYTES_MAX, Load, taken
from crystal_relay.server.rates import Rates
from crystal_relay.server.registry import Registry
from crystal_relay.server.replies import (
    NoSuchMethod,
    error_reply,
    send_held,
    send_json_text,
    send_object,
    send_whole,
)
from crystal_relay.server.requests import (
    Head,
    arriving_body,
    content_length,
    has_arrived,
    head_of,
    no_query,
    number,
    part,
    query_of,
    small_body,
)
from crystal_relay.server.scopes import Identity, KeyPlace, parse_place
from crystal_relay.server.scopes import TokenScope as Right
from crystal_relay.server.settings import RelaySettings
from crystal_relay.server.usage import Usage
from crystal_relay.store import Body, Page
from crystal_relay.wire import ListedObject, ListReply

SMALL_BYTES_MAX = 128 * KIB
"""Bodies up to this size are read whole before they are stored; larger ones are streamed to the store."""

_LISTED_BYTES_MAX = KEY_CHARS_MAX + 32
"""Size of one entry in a list, as JSON."""
SHORT_LIST_MAX = TAKEN_AT_ONCE_BYTES_MAX // _LISTED_BYTES_MAX
"""Entries. Longer lists have their own limits of concurrency and memory."""

_Handler = Callable[[Scope, Exchange, Identity, KeyPlace, Head], Rest]


class Objects:
    """`/v2/vaults/{vault}/objects/{key}`, `/v2/vaults/{vault}/list`."""

    def __init__(
        self,
        store: FairStore,
        registry: Registry,
        invites: Invites,
        settings: RelaySettings,
        rates: Rates,
        usage: Usage,
    ) -> None:
        self._store = store
        self._registry = registry
        self._invites = invites
        self._settings = settings
        self._rates = rates
        self._usage = usage
        self.load = Load()
        self._reads = VaultConcurrency(READS_OF_VAULT_AT_ONCE)
        self._lists = VaultConcurrency(LISTS_OF_VAULT_AT_ONCE)
        self._handlers: dict[str, tuple[str, _Handler]] = {
            "PUT": ("put_object", self.put),
            "GET": ("get_object", self.get),
            "HEAD": ("get_object", self.get),
            "DELETE": ("delete_object", self.delete),
        }

    @property
    def served(self) -> dict[str, tuple[str, ...]]:
        """Paths in Starlette's notation, and their methods."""
        return {
            "/v2/vaults/{vault}/objects/{key:path}": tuple(self._handlers),
            "/v2/vaults/{vault}/list": ("GET", "HEAD"),
        }

    def __call__(self, scope: Scope, exchange: Exchange, vault: bytes, key: bytes) -> Rest:
        """Answer a request for the object at `key` of `vault`, both as the address has them. Raises RelayError, ClientGone."""
        method = self._handlers.get(scope["method"])
        if method is None:
            return refuse_method(scope, exchange.receive, exchange, tuple(self._handlers))
        scope["crystal.route"], handler = method
        name = check_vault(vault.decode())  # uvicorn has refused an address that is not ASCII
        head = head_of(scope)
        no_query(scope)
        place = parse_place(key.decode())
        identity = self._known(scope, name, head)
        if identity is None:
            return self._look_up(scope, exchange, name, place, head, handler)
        return handler(scope, exchange, identity, place, head)

    def put(self, scope: Scope, exchange: Exchange, identity: Identity, place: KeyPlace, head: Head) -> Rest:
        """Store an object: create-only with `If-None-Match: *`; without it, replace a cursor or a damaged slot."""
        identity.require_write(place)
        condition = head.get(b"if-none-match")
        if condition not in (None, b"*"):  # §R3.1-1
            raise BadRequest("If-None-Match can only be *")
        if condition is None and not place.channel.overwritten:  # §R3.1-2
            if not place.channel.restored:
                raise BadRequest("objects of this channel are written once", hint="Send If-None-Match: *.")
            identity.require(Right.MIRROR)
        size = content_length(head, place.channel.bytes_max)  # §R3-2
        return self._put(scope, exchange, identity, place, size, create=condition is not None)

    def get(self, scope: Scope, exchange: Exchange, identity: Identity, place: KeyPlace, head: Head) -> Rest:
        """An object, or one range of it."""
        identity.require_read(place)
        wanted = part(head)
        if place.mailbox is None:
            start, length = wanted if wanted is not None else (0, None)
            found = self._store.recall(vault_prefix(identity.vault) + place.key, start=start, length=length)
            if found is not None and found.held is not None and (found.length or wanted is None):
                return send_held(scope, exchange, found, found.held, partial=wanted is not None)
        return self._get(scope, exchange, identity, place, wanted)

    def delete(
        self, _scope: Scope, exchange: Exchange, identity: Identity, place: KeyPlace, _head: Head
    ) -> Rest:
        """Remove an object; no error if there is none."""
        identity.require(Right.MIRROR)  # §R3.3-1
        identity.require_change()
        return self._delete(exchange, identity.vault, place.key)

    async def list(self, scope: Scope, exchange: Exchange, vault: bytes) -> None:
        """Answer a request for a page of keys in order, after a key."""
        if scope["method"] not in ("GET", "HEAD"):
            await refuse_method(scope, exchange.receive, exchange, ("GET", "HEAD"))
            return
        scope["crystal.route"] = "list_objects"
        name = check_vault(vault.decode())
        head = head_of(scope)
        identity = self._known(scope, name, head) or await self._authorized(scope, name, head)
        asked = query_of(scope, ("prefix", "after", "limit"))
        mine = vault_prefix(name)
        within = check_prefix(asked.get("prefix", ""))
        identity.require_prefix(within)
        prefix = mine + within
        after = mine + check_prefix(asked["after"]) if asked.get("after") else ""
        limit = number(asked.get("limit", str(LIST_LIMIT_MAX)))  # §R3.7-1
        if limit <= SHORT_LIST_MAX:
            await send_json_text(scope, exchange, await self._page(prefix, after, limit, mine))
            return
        await self._lists.enter(name)
        try:
            reply = await self._page(prefix, after, limit, mine)
        finally:
            self._lists.leave(name)
        with self.load.answering(name, len(reply)):
            await send_json_text(scope, taken(exchange), reply)

    async def _page(self, prefix: str, after: str, limit: int, mine: str) -> bytes:
        """A `ListReply` as JSON."""
        found = await self._store.list_json(prefix, after=after, limit=limit, cut=len(mine))
        if found is None:
            return msgspec.json.encode(
                _listed(await self._store.list(prefix, after=after, limit=limit), mine)
            )
        entries, more = found
        return b'{"entries":%b,"more":%b}' % (entries, b"true" if more else b"false")

    async def _look_up(
        self, scope: Scope, exchange: Exchange, vault: str, place: KeyPlace, head: Head, handler: _Handler
    ) -> None:
        identity = await self._authorized(scope, vault, head)
        rest = handler(scope, exchange, identity, place, head)
        if rest is not None:
            await rest

    async def _put(
        self,
        scope: Scope,
        exchange: Exchange,
        identity: Identity,
        place: KeyPlace,
        size: int,
        *,
        create: bool,
    ) -> None:
        vault = identity.vault
        if place.mailbox is not None:
            await self._check_invite(identity, place.mailbox)
        self._usage.admit(vault, size, vital=place.channel.vital)
        try:
            with self._usage.arriving(vault, size):  # until it is stored, also if it has arrived
                body = exchange.body() if size <= SMALL_BYTES_MAX else None
                if body is not None and len(body) == size:
                    await self._keep(vault, place, body, create=create)
                else:
                    await self._keep_arriving(scope, exchange.receive, vault, place, size, create=create)
        except AlreadyExists:
            if identity.mailbox is not None:
                # §R5-6
                self._rates.failed(scope)  # an address that repeatedly comes second is guessing
            raise
        self._usage.stored(vault, size)
        rest = send_whole(exchange, 201, (), 0) if create else send_whole(exchange, 204, (), None)
        if rest is not None:
            await rest

    async def _keep_arriving(
        self, scope: Scope, receive: Receive, vault: str, place: KeyPlace, size: int, *, create: bool
    ) -> None:
        if size > SMALL_BYTES_MAX:
            with self.load.gathering(vault, STREAM_BYTES):  # §R9-9
                body = arriving_body(scope, receive, size, self._settings)
                await self._keep(vault, place, body, create=create)
            return
        # What has arrived is in memory already: it needs no place, as on the fast way.
        with nullcontext() if has_arrived(scope) else self.load.gathering(vault, size):
            whole = await small_body(scope, receive, size, self._settings)
        await self._keep(vault, place, whole, create=create)

    def _keep(
        self, vault: str, place: KeyPlace, body: bytes | Body, *, create: bool
    ) -> Coroutine[Any, Any, None]:
        name = vault_prefix(vault) + place.key
        return self._store.put_new(name, body) if create else self._store.put(name, body)  # §R3.1-1

    async def _get(
        self,
        scope: Scope,
        exchange: Exchange,
        identity: Identity,
        place: KeyPlace,
        wanted: tuple[int, int | None] | None,
    ) -> None:
        vault = identity.vault
        if place.mailbox is not None:
            await self._check_invite(identity, place.mailbox)
        start, length = wanted if wanted is not None else (0, None)
        await self._reads.enter(vault)
        try:
            found = await self._store.get(vault_prefix(vault) + place.key, start=start, length=length)
        finally:
            self._reads.leave(vault)
        if wanted is not None and not found.length:  # §R3.2-1
            await found.aclose()
            beyond = BadRange("the range begins at the end of the object, or beyond it")
            unmet = {"content-range": f"bytes */{found.size}"}
            await error_reply(beyond, headers=unmet)(scope, exchange.receive, exchange)
            return
        if found.length <= TAKEN_AT_ONCE_BYTES_MAX or scope["method"] == "HEAD":
            await send_object(scope, exchange, found, partial=wanted is not None)
            return
        async with found:
            # §R9-10
            with self.load.answering(vault, found.length if found.held is not None else STREAM_BYTES):
                await send_object(scope, taken(exchange), found, partial=wanted is not None)

    async def _delete(self, exchange: Exchange, vault: str, key: str) -> None:
        await self._store.delete(vault_prefix(vault) + key)
        self._usage.deleted(vault)
        rest = send_whole(exchange, 204, (), None)
        if rest is not None:
            await rest

    def _known(self, scope: Scope, vault: str, head: Head) -> Identity | None:
        """Who asks, if it is a device that this process knows; None if that has to be looked up."""
        return known_device(head.get(b"authorization"), self._registry, vault, self._rates, scope)

    async def _authorized(self, scope: Scope, vault: str, head: Head) -> Identity:
        value = head.get(b"authorization")
        return await party_of_header(value, self._registry, self._invites, vault, self._rates, scope)

    async def _check_invite(self, identity: Identity, mailbox: str) -> None:
        """Check that an inviter's mailbox is open. A newcomer's was checked when it was authorized."""
        if identity.mailbox is None:
            await self._invites.check_open(identity.vault, mailbox)


def _listed(page: Page, mine: str) -> ListReply:
    skipped = len(mine)
    return ListReply([ListedObject(entry.key[skipped:], entry.size) for entry in page.entries], page.more)


async def refuse_method(scope: Scope, receive: Receive, send: Send, served: tuple[str, ...]) -> None:
    """Answer a method that a route does not have."""
    refused = NoSuchMethod("that method is not served here")
    await error_reply(refused, headers={"allow": ", ".join(served)})(scope, receive, send)
