"""The routes. Each parses, asks who it is, asks the store, answers; errors become JSON in the guard.

Keys that a client names are always put under its vault's prefix, and a vault's token is looked up under that vault, so
that no request reaches another vault's objects or the registry.
"""

from importlib.metadata import version

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from crystal_relay.errors import BadRange, BadRequest, RelayError
from crystal_relay.keys import check_prefix, check_vault, vault_prefix
from crystal_relay.limits import LIST_LIMIT_MAX, WAIT_SECONDS_MAX, WAIT_TOKEN_CHARS_MAX
from crystal_relay.server.authorization import device_of, require_enrollment, require_token_authority
from crystal_relay.server.closing import Waits
from crystal_relay.server.guard import Guard
from crystal_relay.server.openapi import openapi_document
from crystal_relay.server.registry import Registry
from crystal_relay.server.replies import EmptyReply, JsonReply, ObjectReply, error_reply
from crystal_relay.server.requests import (
    body_of,
    content_length,
    json_of,
    number,
    one_header,
    part,
    query,
    seconds,
)
from crystal_relay.server.scopes import Identity, Place, Scope, parse_place
from crystal_relay.server.settings import Settings
from crystal_relay.store import Store
from crystal_relay.tokens import DEVICE, HASH
from crystal_relay.wire import (
    PROTOCOL,
    SERVICE,
    HealthReply,
    ListedObject,
    ListReply,
    TokenRegistration,
    TokenReply,
    VaultCreation,
    VaultReply,
    WaitReply,
)


class NoSuchRoute(RelayError):
    """Not "no such object": a client must be able to tell the two apart."""

    status = 404
    code = "no-such-route"
    hint = "See /v2/openapi.json."


class NoSuchMethod(RelayError):
    """The route is there, the method is not."""

    status = 405
    code = "no-such-method"


class Relay:
    """The handlers and what they share. Stateless but for a short-lived cache and the waits that sleep."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self.waits = Waits()
        self.registry = Registry(store, cache_seconds=settings.auth_cache_seconds)
        self._health = HealthReply(
            ok=True, service=SERVICE, protocol=PROTOCOL, version=version("memory-crystal")
        )
        self._openapi = openapi_document()

    def routes(self) -> list[Route]:
        """All of them."""
        objects = "/v2/vaults/{vault}/objects/{key:path}"
        return [
            Route(objects, self.put_object, methods=["PUT"]),
            Route(objects, self.get_object, methods=["GET"]),
            Route(objects, self.delete_object, methods=["DELETE"]),
            Route("/v2/vaults/{vault}/list", self.list_objects, methods=["GET"]),
            Route("/v2/vaults/{vault}/wait", self.wait_for_writes, methods=["GET"]),
            Route("/v2/vaults/{vault}/tokens", self.register_token, methods=["POST"]),
            Route("/v2/vaults/{vault}/tokens/{device}", self.revoke_token, methods=["DELETE"]),
            Route("/v2/vaults", self.create_vault, methods=["POST"]),
            Route("/v2/openapi.json", self.openapi, methods=["GET"]),
            Route("/health", self.health, methods=["GET"]),
        ]

    # --- objects ---

    async def put_object(self, request: Request) -> Response:
        """Store an object: create-only with `If-None-Match: *`; without it only cursors, in place of the old one."""
        identity, place = await self._object(request)
        identity.require_write(place)
        query(request, ())
        condition = one_header(request, b"if-none-match")
        if condition not in (None, "*"):
            raise BadRequest("If-None-Match can only be *")
        if condition is None and not place.channel.overwritten:
            raise BadRequest("objects of this channel are written once", hint="Send If-None-Match: *.")
        size = content_length(request, place.channel.bytes_max)
        body = body_of(request, size, self._settings)
        key = vault_prefix(identity.vault) + place.key
        if condition is None:
            await self._store.put(key, body)
            return EmptyReply()
        await self._store.put_new(key, body)
        return EmptyReply(created=True)

    async def get_object(self, request: Request) -> Response:
        """An object, or one range of it."""
        identity, place = await self._object(request)
        identity.require(Scope.READ)
        query(request, ())
        wanted = part(request)
        start, length = wanted if wanted is not None else (0, None)
        found = await self._store.get(vault_prefix(identity.vault) + place.key, start=start, length=length)
        if wanted is not None and not found.length:
            await found.aclose()
            beyond = BadRange("the range begins at the end of the object, or beyond it")
            return error_reply(beyond, headers={"content-range": f"bytes */{found.size}"})
        return ObjectReply(found, partial=wanted is not None)

    async def delete_object(self, request: Request) -> Response:
        """Remove an object; no error if there is none."""
        identity, place = await self._object(request)
        identity.require(Scope.MIRROR)
        query(request, ())
        await self._store.delete(vault_prefix(identity.vault) + place.key)
        return EmptyReply()

    # --- the vault ---

    async def list_objects(self, request: Request) -> Response:
        """Keys in order, after a key."""
        identity = await self._device(request)
        identity.require(Scope.READ)
        asked = query(request, ("prefix", "after", "limit"))
        mine = vault_prefix(identity.vault)
        after = asked.get("after", "")
        limit = number(asked.get("limit", str(LIST_LIMIT_MAX)))
        page = await self._store.list(
            mine + check_prefix(asked.get("prefix", "")),
            after=mine + check_prefix(after) if after else "",
            limit=limit,
        )
        entries = [ListedObject(entry.key.removeprefix(mine), entry.size) for entry in page.entries]
        return JsonReply(ListReply(entries, page.more))

    async def wait_for_writes(self, request: Request) -> Response:
        """Sleep until something under a prefix was written."""
        identity = await self._device(request)
        identity.require(Scope.READ)
        asked = query(request, ("prefix", "token", "timeout"))
        prefix = vault_prefix(identity.vault) + check_prefix(asked.get("prefix", ""))
        timeout = seconds(asked.get("timeout", str(int(WAIT_SECONDS_MAX))))
        token = asked.get("token")
        if token is not None and len(token) > WAIT_TOKEN_CHARS_MAX:
            raise BadRequest(f"a token to wait with has at most {WAIT_TOKEN_CHARS_MAX} characters")
        wait = self._store.wait(prefix, token=token, timeout=timeout)
        woken = await self.waits.race(wait, request.receive)
        return JsonReply(WaitReply(token or "" if woken is None else woken))

    # --- who may ---

    async def create_vault(self, request: Request) -> Response:
        """Create a vault with its first device. Repeating it is no error."""
        await require_enrollment(request, self.registry, self._settings.enroll_token)
        query(request, ())
        creation = await json_of(request, VaultCreation, self._settings)
        await self.registry.create_vault(creation)
        return JsonReply(VaultReply(creation.vault), 201)

    async def register_token(self, request: Request) -> Response:
        """Let a device's token in."""
        vault = check_vault(request.path_params["vault"])
        await require_token_authority(request, self.registry, vault)
        query(request, ())
        registration = await json_of(request, TokenRegistration, self._settings)
        await self.registry.register(vault, registration)
        return JsonReply(TokenReply(registration.device), 201)

    async def revoke_token(self, request: Request) -> Response:
        """Shut out a device's tokens, or one of them."""
        vault = check_vault(request.path_params["vault"])
        device: str = request.path_params["device"]
        await require_token_authority(request, self.registry, vault)
        name = query(request, ("token_hash",)).get("token_hash")
        if DEVICE.match(device) is None or (name is not None and HASH.match(name) is None):
            raise BadRequest("a device's id is 32 lower-case hex digits, a token's hash 64")
        await self.registry.revoke(vault, device, name)
        return JsonReply(TokenReply(device))

    # --- anybody ---

    async def health(self, request: Request) -> Response:
        """Whether the relay serves. Reads the store."""
        query(request, ())
        await self._store.list("r/enrollment/", limit=1)
        return JsonReply(self._health)

    async def openapi(self, request: Request) -> Response:
        """The description of these routes."""
        query(request, ())
        return Response(self._openapi, media_type="application/json")

    # --- inside ---

    async def _device(self, request: Request) -> Identity:
        return await device_of(request, self.registry, check_vault(request.path_params["vault"]))

    async def _object(self, request: Request) -> tuple[Identity, Place]:
        place = parse_place(request.path_params["key"])
        return await self._device(request), place


def create_app(store: Store, settings: Settings) -> Starlette:
    """The relay as an ASGI application over a store, which stays the caller's to close.

    `app.state.relay` is its `Relay`: `waits.close()` before stopping, `registry` to make an enrolment token.
    """
    relay = Relay(store, settings)
    app = Starlette(
        routes=relay.routes(),
        middleware=[Middleware(Guard)],
        exception_handlers={HTTPException: _no_route, Exception: _unexpected},
    )
    app.router.redirect_slashes = False
    app.state.relay = relay
    return app


async def _no_route(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException) and error.status_code == NoSuchMethod.status:
        return error_reply(NoSuchMethod("that method is not served here"), headers=dict(error.headers or {}))
    return error_reply(NoSuchRoute("there is nothing at that address"))


async def _unexpected(request: Request, error: Exception) -> Response:
    """A mistake in this program. The traceback goes to the log, nothing of it to the client."""
    return error_reply(RelayError("the relay made a mistake; its log says more"), close=True)
