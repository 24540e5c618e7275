"""The routes. Each parses, asks who it is, asks the store, answers; errors become JSON in the guard.

Keys that a client names are always put under its vault's prefix, and a vault's token is looked up under that vault, so
that no request reaches another vault's objects or the registry.
"""

import time
from collections.abc import Callable, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from crystal_relay.errors import BadRequest, Forbidden, NoSuchRoute, RelayError
from crystal_relay.keys import VAULTS_PREFIX, check_prefix, check_vault, vault_prefix
from crystal_relay.limits import (
    CONDEMNED_JSON_BYTES_MAX,
    FOUNDING_JSON_BYTES_MAX,
    WAIT_SECONDS_MAX,
    WAIT_TOKEN_CHARS_MAX,
)
from crystal_relay.server.admission import Admission
from crystal_relay.server.authorization import (
    device_of,
    device_of_header,
    party_of_header,
    require_enrollment,
    require_metrics_token,
)
from crystal_relay.server.batches import Batches
from crystal_relay.server.condemned import Condemned
from crystal_relay.server.deletion_routes import DeletionRoutes
from crystal_relay.server.dropped_vaults import DroppedVaults
from crystal_relay.server.exchange import Rest
from crystal_relay.server.extension import Extension, Mounted
from crystal_relay.server.fair_store import FairStore
from crystal_relay.server.founding import check_founding
from crystal_relay.server.grants import Grants
from crystal_relay.server.guard import Guard
from crystal_relay.server.health import Health
from crystal_relay.server.invite_routes import InviteRoutes
from crystal_relay.server.invites import Invites
from crystal_relay.server.last_used import LastUsed
from crystal_relay.server.metrics import CONTENT_TYPE, Exposition, Metrics, sources_of
from crystal_relay.server.objects import Objects, refuse_method
from crystal_relay.server.openapi import openapi_document
from crystal_relay.server.peers import PeerLink
from crystal_relay.server.rates import Rates
from crystal_relay.server.registry import Registry
from crystal_relay.server.replies import JsonReply, NoSuchMethod, error_reply, send_json
from crystal_relay.server.requests import (
    content_length,
    head_of,
    json_of,
    no_body,
    no_query,
    query,
    query_of,
    seconds,
    text_of,
)
from crystal_relay.server.scopes import Identity, TokenScope, mailbox_of
from crystal_relay.server.settings import RelaySettings
from crystal_relay.server.short_invites import ShortInvites
from crystal_relay.server.sweeper import Sweeper, Timetable
from crystal_relay.server.token_routes import TokenRoutes
from crystal_relay.server.transfers import Transfers
from crystal_relay.server.unused_vaults import LOOK_SECONDS, UnusedVaults
from crystal_relay.server.usage import RelayUsage, Usage
from crystal_relay.server.vault_deletions import VaultDeletions
from crystal_relay.server.waits import AskedWait, Waits, seconds_held
from crystal_relay.store import Store
from crystal_relay.wire import (
    Condemnation,
    CondemnedReply,
    VaultCreation,
    VaultReply,
    WaitReply,
)


class Relay:
    """The handlers and what they share. Stateless but for a short-lived cache and the waits that sleep."""

    def __init__(
        self,
        store: Store,
        settings: RelaySettings,
        peers: PeerLink | None = None,
        clock: Callable[[], float] = time.time,
        extensions: Sequence[Extension] = (),
    ) -> None:
        own = store  # for what the relay does by itself
        self.fair_store = store = FairStore(own, settings)
        self._store = store
        self._settings = settings
        self._peers = peers
        self.waits = Waits()
        self.last_used = LastUsed(own, clock=clock)
        self.registry = Registry(
            store, cache_seconds=settings.auth_cache_seconds, wall_clock=clock, used=self.last_used.note
        )
        self.invites = Invites(store, clock=clock)
        self.short_invites = ShortInvites(store, self.invites, DroppedVaults(store, clock=clock))
        self.rates = Rates(settings)
        self.admission = Admission(settings.trusted_proxies)
        self.grants = Grants(store, self.registry, only=settings.enroll_token, clock=clock)
        prefixes = (VAULTS_PREFIX, *(each.objects_prefix for each in extensions))
        self.cap = RelayUsage(own, settings, prefixes=prefixes) if settings.cap_bytes else None
        quotas = Grants(
            own, self.registry, only=None, clock=clock
        )  # a vault's own queue must not delay its count
        self.usage = Usage(own, settings, quota_of=quotas.quota_bytes, cap=self.cap)
        self.condemned = Condemned(store, retry_seconds=settings.sweep_seconds)
        self.sweeper = Sweeper(own, clock=clock, deleted=self.usage.deleted)
        self._timetables = [Timetable(self.sweeper.run, seconds=settings.sweep_seconds)]
        if settings.unused_days:
            unused = UnusedVaults(own, days=settings.unused_days, clock=clock)
            self._timetables.append(Timetable(unused.run, seconds=LOOK_SECONDS))
        self.objects = Objects(store, self.registry, self.invites, settings, self.rates, self.usage)
        self.batches = Batches(store, self.registry, settings, self.rates, self.usage, self.objects.load)
        self._tokens = TokenRoutes(self.registry, settings, self.rates, self.objects.load, peers)
        self._deletion_routes = DeletionRoutes(
            VaultDeletions(store, seconds_min=settings.deletion_seconds_min, clock=clock),
            self.registry,
            settings,
            self.rates,
            self.objects.load,
        )
        self._invite_routes = InviteRoutes(
            self.invites,
            self.short_invites,
            self.registry,
            settings,
            self.rates,
            deleted=self.usage.deleted,
        )
        self.transfers = Transfers(store, settings, self._device, quota=self.usage)
        self.health = Health(
            own,
            extensions=extensions,
            is_full=lambda: self.cap is not None and self.cap.is_full,
            latest=lambda: self.fair_store.latest,
        )
        self.metrics = Metrics()
        for source in sources_of(
            store=own,
            fair_store=store,
            health=self.health,
            waits=self.waits,
            rates=self.rates,
            admission=self.admission,
            usage=self.usage,
            sweeper=self.sweeper,
            peers=peers,
        ):
            self.metrics.add(source)
        self.metrics_token = settings.metrics_token
        """It may change, but not come or go."""
        self._exposition = Exposition(self.metrics) if settings.metrics_token is not None else None
        self.extensions: dict[str, Mounted] = {
            each.name: each.mount(store, settings, self.rates, self.objects.load, self.cap)
            for each in extensions
        }
        self._openapi = openapi_document(metrics=self._exposition is not None, extensions=extensions)

    @property
    def trusted_proxies(self) -> tuple[str, ...]:
        """Addresses and networks of proxies whose word on a client's address counts."""
        return self._settings.trusted_proxies

    def routes(self) -> list[Route]:
        """All but those that the guard serves itself."""
        return [
            *self._tokens.routes(),
            *self._invite_routes.routes(),
            *self._deletion_routes.routes(),
            Route("/v2/vaults", self.create_vault, methods=["POST"]),
            Route("/v2/openapi.json", self.openapi, methods=["GET"]),
            Route("/v2/vaults/{vault}/condemned", self.condemn, methods=["POST"]),
            *self.transfers.routes(),
            *self.health.routes(),
            *(self._peers.routes(self._settings, self.rates, self.forget) if self._peers else []),
            *([Route("/metrics", self.show_metrics, methods=["GET"])] if self._exposition else []),  # §R7-1
            *(route for each in self.extensions.values() for route in each.routes()),
        ]

    @property
    def served(self) -> dict[str, tuple[str, ...]]:
        """Paths of this class that the guard serves itself, and their methods."""
        return {"/v2/vaults/{vault}/wait": ("GET", "HEAD")}  # §R1-1

    # --- the vault ---

    async def wait_for_writes(self, scope: Scope, receive: Receive, send: Send, name: bytes) -> None:
        """Wait until something under a prefix is written. Plain ASGI: Starlette's layers took a quarter of a wait's memory."""
        if scope["method"] not in ("GET", "HEAD"):
            await refuse_method(scope, receive, send, ("GET", "HEAD"))
            return
        scope["crystal.route"] = "wait_for_writes"
        # Apart, so that what was only parsed is not in memory as long as the wait lasts.
        asked = await self._asked_wait(scope, check_vault(name.decode()))
        with self.waits.place(asked.identity):
            if asked.held:
                await self.waits.hold(asked, self._store, self._goes_on, (scope, receive, send))
                return
            wait = self._store.wait(asked.prefix, token=asked.token, timeout=asked.timeout)
            woken = await self.waits.race(wait, receive, scope)
        await send_json(scope, send, WaitReply(asked.token or "" if woken is None else woken))  # §R3.8-2

    async def _asked_wait(self, scope: Scope, vault: str) -> AskedWait:
        head = head_of(scope)
        header = head.get(b"authorization")
        identity = await party_of_header(header, self.registry, self.invites, vault, self.rates, scope)
        no_body(head)  # it would stay in memory, and while it is unread nothing shows that the client leaves
        asked = query_of(scope, ("prefix", "token", "timeout"))
        within = check_prefix(asked.get("prefix", ""))
        identity.require_prefix(within)
        timeout = seconds(asked.get("timeout", str(int(WAIT_SECONDS_MAX))))
        if (mailbox := mailbox_of(within)) is not None:
            timeout = min(timeout, await self._invite_left(identity, mailbox))  # §R5-3
        token = asked.get("token")
        if token is not None and len(token) > WAIT_TOKEN_CHARS_MAX:  # §R3.8-3
            raise BadRequest(f"a token to wait with has at most {WAIT_TOKEN_CHARS_MAX} characters")
        held = seconds_held(scope, head) if token and timeout and mailbox is None else 0.0
        return AskedWait(identity, vault_prefix(vault) + within, token, timeout, held)

    async def _goes_on(self, scope: Scope, asked: AskedWait) -> bool:
        """Whether a held wait goes on: its device still has access, and this process hears of all writes."""
        header, vault = head_of(scope).get(b"authorization"), asked.identity.vault
        try:
            identity = await device_of_header(header, self.registry, vault, self.rates, scope)
            identity.require_prefix(asked.prefix.removeprefix(vault_prefix(vault)))
            # With `timeout=0` it is the same token only then (§R3.8-3). It is another one also if something was just written.
            return await self._store.wait(asked.prefix, token=asked.token, timeout=0) == asked.token
        except RelayError:  # §R3.8-5: the next request gets the error
            return False

    async def condemn(self, request: Request) -> Response:
        """Condemn objects to deletion by the sweeper."""
        identity = await self._device(request)
        identity.require(TokenScope.MIRROR)
        identity.require_change()
        query(request, ())
        with self.objects.load.gathering(identity.vault, CONDEMNED_JSON_BYTES_MAX):
            asked = await json_of(request, Condemnation, self._settings, bytes_max=CONDEMNED_JSON_BYTES_MAX)
        return JsonReply(CondemnedReply(await self.condemned.add(identity.vault, asked)), 202)  # §R3.4-2

    # --- who may ---

    async def create_vault(self, request: Request) -> Response:
        """Create a vault with its first device. Idempotent."""
        grant = await require_enrollment(request, self.grants, self.rates)  # §R4.1-1
        query(request, ())
        head = head_of(request.scope)
        with self.objects.load.gathering("", content_length(head, FOUNDING_JSON_BYTES_MAX)):
            creation = await json_of(
                request, VaultCreation, self._settings, bytes_max=FOUNDING_JSON_BYTES_MAX
            )
        created = await self.registry.is_created(creation.vault)
        try:
            if not created:  # §R4.1-3
                await self.grants.check_open()
                check_founding(creation, text_of(head.get(b"host")) or "")
                self.rates.found(request.scope, grant.token_hash)
            await self.grants.found(creation, grant, created=created)
        except Forbidden:  # after work that grows with the proof, or with the token's uses
            self.rates.failed(request.scope)
            raise
        if not created:
            self.last_used.forget(creation.vault)
        return JsonReply(VaultReply(creation.vault), 201)

    # --- anybody ---

    async def show_metrics(self, request: Request) -> Response:
        """The metrics, for Prometheus."""
        assert self._exposition is not None, "there is no such route without a token for it"
        require_metrics_token(request, self.metrics_token or "", self.rates)
        no_query(request.scope)
        await self.health.look_at_disk()
        return Response(
            self._exposition.text(), headers={"content-type": CONTENT_TYPE, "cache-control": "no-store"}
        )

    async def openapi(self, request: Request) -> Response:
        """The description of these routes."""
        query(request, ())
        return Response(self._openapi, media_type="application/json")

    # --- what runs beside the requests ---

    def start(self) -> None:
        """Start the sweeper on the running loop, and count what is there if there is a cap."""
        for timetable in self._timetables:
            timetable.start()
        if self.cap is not None:
            self.cap.count()

    def forget(self, vault: str | None) -> None:
        """Drop what this process remembers of a vault's tokens and quota, or of all."""
        self.registry.forget(vault)
        if vault is not None:
            self.last_used.forget(vault)
        self.usage.quota_changed(vault)

    async def aclose(self) -> None:
        """Stop the background tasks. Idempotent."""
        for timetable in self._timetables:
            await timetable.aclose()
        await self.usage.aclose()
        await self.last_used.aclose()
        if self.cap is not None:
            await self.cap.aclose()
        for each in self.extensions.values():
            await each.aclose()

    # --- inside ---

    async def _invite_left(self, identity: Identity, mailbox: str) -> float:
        """Seconds left of an invite, after which its waits end."""
        if identity.mailbox is not None:
            return identity.seconds_left
        identity.require(TokenScope.TOKENS)
        return await self.invites.check_open(identity.vault, mailbox)

    async def _device(self, request: Request) -> Identity:
        vault = check_vault(request.path_params["vault"])
        return await device_of(request, self.registry, vault, self.rates)


class RelayApplication(Starlette):
    """Starlette for all routes but those of single objects, behind the guard.

    The guard takes the place of Starlette's outermost middleware, which would answer our own errors before it sees them.
    """

    def __init__(self, relay: Relay) -> None:
        super().__init__(routes=relay.routes())
        self.router.redirect_slashes = False
        self.state.relay = relay

    def begin(self, scope: Scope, receive: Receive, send: Send) -> Rest:
        """As `Guard.begin`, for requests that the guard serves itself."""
        if self.middleware_stack is None:
            self.middleware_stack = self.build_middleware_stack()
        guard = self.middleware_stack
        assert isinstance(guard, Guard), "it is the outermost"
        return guard.begin(scope, receive, send)

    def build_middleware_stack(self) -> ASGIApp:
        """The guard, what Starlette needs to answer for a missing route, the routes."""
        routes = ExceptionMiddleware(self.router, handlers={HTTPException: _no_route})
        relay: Relay = self.state.relay
        return Guard(
            routes,
            relay.objects,
            relay.batches,
            relay.wait_for_writes,
            relay.metrics,
            relay.rates,
            relay.health,
        )


def create_app(
    store: Store,
    settings: RelaySettings,
    *,
    peers: PeerLink | None = None,
    clock: Callable[[], float] = time.time,
    extensions: Sequence[Extension] = (),
) -> RelayApplication:
    """The relay as an ASGI application over a store, which stays the caller's to close.

    `peers`: the other processes on the same store, if there can be any. The caller starts and stops them.
    `clock`: unix seconds; by it invites end, and dropped vaults.
    `extensions`: whose routes are served beside the relay's own.
    `app.state.relay` is its `Relay`: `waits.close()` before stopping, `registry` to make an enrolment token.
    """
    return RelayApplication(Relay(store, settings, peers, clock, extensions))


async def _no_route(request: Request, error: Exception) -> Response:
    refused: RelayError = NoSuchRoute("there is nothing at that address")  # §R3.2-2
    headers: dict[str, str] = {}
    if isinstance(error, HTTPException) and error.status_code == NoSuchMethod.status:
        refused, headers = NoSuchMethod("that method is not served here"), dict(error.headers or {})
    if not request.url.path.startswith("/v2/"):  # §R3.2-3
        relay: Relay = request.app.state.relay
        for each in relay.extensions.values():
            return each.refusal(request, refused, headers)
    return error_reply(refused, headers=headers)
