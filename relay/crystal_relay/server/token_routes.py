"""Routes of a vault's credentials: tokens, members, leads, the recovery secret."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from crystal_relay.errors import BadRequest, Forbidden, Unauthorized
from crystal_relay.keys import check_vault
from crystal_relay.limits import DEVICES_JSON_BYTES_MAX, RECOVERIES_MAX
from crystal_relay.server.authorization import (
    TokenAuthority,
    device_of,
    recovery_of,
    require_token_authority,
)
from crystal_relay.server.load import Load
from crystal_relay.server.peers import PeerLink
from crystal_relay.server.rates import Rates
from crystal_relay.server.registry import Registry
from crystal_relay.server.replies import JsonReply
from crystal_relay.server.requests import json_of, number, query
from crystal_relay.server.scopes import TokenScope
from crystal_relay.server.settings import RelaySettings
from crystal_relay.tokens import DEVICE, HASH, Preset
from crystal_relay.wire import (
    Devices,
    DevicesReply,
    RecoveryReplacement,
    RecoveryReply,
    TokenRegistration,
    TokenReply,
)


class TokenRoutes:
    """All under `/v2/vaults/{vault}/`."""

    def __init__(
        self, registry: Registry, settings: RelaySettings, rates: Rates, load: Load, peers: PeerLink | None
    ) -> None:
        self._registry = registry
        self._settings = settings
        self._rates = rates
        self._load = load
        self._peers = peers

    def routes(self) -> list[Route]:
        """All of them."""
        vault = "/v2/vaults/{vault}"
        return [
            Route(f"{vault}/tokens", self.register_token, methods=["POST"]),
            Route(f"{vault}/tokens/{{device}}", self.revoke_token, methods=["DELETE"]),
            Route(f"{vault}/members", self.retain_members, methods=["PUT"]),
            Route(f"{vault}/leads/{{device}}", self.raise_device, methods=["PUT"]),
            Route(f"{vault}/recovery", self.show_recovery, methods=["GET"]),
            Route(f"{vault}/recovery/{{number}}", self.replace_recovery, methods=["PUT"]),
        ]

    async def register_token(self, request: Request) -> Response:
        """Register a device's token."""
        vault = check_vault(request.path_params["vault"])
        authority = await require_token_authority(request, self._registry, vault, self._rates)
        query(request, ())
        registration = await json_of(request, TokenRegistration, self._settings)
        # §R4.2-1
        number = await self._leads_number(vault, authority) if registration.preset is Preset.LEAD else 0
        by_recovery = authority.by_recovery
        if await self._registry.register(vault, registration, number=number, by_recovery=by_recovery):
            try:
                await authority.confirm(self._registry)
            except (Unauthorized, Forbidden):
                # Shut out meanwhile: what it let in goes with it, whichever of the two was first.
                await self._registry.revoke(vault, registration.device, registration.token_hash)  # §R4.4-2
                raise
        return JsonReply(TokenReply(registration.device), 201)

    async def revoke_token(self, request: Request) -> Response:
        """Revoke a device's tokens, or one of them."""
        vault = check_vault(request.path_params["vault"])
        device: str = request.path_params["device"]
        await require_token_authority(request, self._registry, vault, self._rates)
        name = query(request, ("token_hash",)).get("token_hash")
        if DEVICE.match(device) is None or (name is not None and HASH.match(name) is None):
            raise BadRequest("a device's id is 32 lower-case hex digits, a token's hash 64")
        await self._registry.revoke(vault, device, name)  # §R4.3-1
        await self._tell(vault)
        return JsonReply(TokenReply(device))

    async def retain_members(self, request: Request) -> Response:
        """Revoke the tokens of all devices except those named, and all but the token named with a device. If leads are named,
        no other device leads."""
        vault = check_vault(request.path_params["vault"])
        authority = await require_token_authority(request, self._registry, vault, self._rates)
        query(request, ())
        with self._load.gathering(vault, DEVICES_JSON_BYTES_MAX):
            named = await json_of(request, Devices, self._settings, bytes_max=DEVICES_JSON_BYTES_MAX)
        kept = {device: named.tokens.get(device) for device in named.devices}
        if named.leads is not None:  # §R4.4-3
            leads = frozenset(named.leads)
            while not await self._registry.name_leads(
                vault, leads, after=await self._leads_number(vault, authority)
            ):
                continue  # another naming was first: who asks may not lead by it
        shut_out = await self._registry.retain(vault, kept, by_recovery=authority.by_recovery)
        await self._tell(vault)
        return JsonReply(DevicesReply(shut_out))

    async def raise_device(self, request: Request) -> Response:
        """Give a device's tokens the preset `lead`."""
        vault = check_vault(request.path_params["vault"])
        device: str = request.path_params["device"]
        authority = await require_token_authority(request, self._registry, vault, self._rates)
        query(request, ())
        if DEVICE.match(device) is None:
            raise BadRequest("a device's id is 32 lower-case hex digits")
        number, by_recovery = await self._leads_number(vault, authority), authority.by_recovery
        await self._registry.raise_device(vault, device, number=number, by_recovery=by_recovery)
        await self._tell(vault)
        return JsonReply(TokenReply(device))

    async def show_recovery(self, request: Request) -> Response:
        """How often the recovery secret was replaced."""
        vault = check_vault(request.path_params["vault"])
        (await device_of(request, self._registry, vault, self._rates)).require(TokenScope.READ)
        query(request, ())
        return JsonReply(RecoveryReply(await self._registry.recovery_number(vault)))  # §R4.6-1

    async def replace_recovery(self, request: Request) -> Response:
        """Replace the recovery secret. Only the current one allows it, so that a stolen token cannot take over the vault."""
        vault = check_vault(request.path_params["vault"])
        presented = recovery_of(request, self._rates)
        if presented is None:
            await device_of(request, self._registry, vault, self._rates)
            raise Forbidden("only the current recovery secret can replace it")  # §R4.6-2
        query(request, ())
        wanted = number(request.path_params["number"])
        if not 1 <= wanted <= RECOVERIES_MAX:  # §R4.6-3
            raise BadRequest(f"replacements are numbered from 1 to {RECOVERIES_MAX}")
        replacement = await json_of(request, RecoveryReplacement, self._settings)
        try:
            with self._rates.lookup(request.scope):
                await self._registry.replace_recovery(
                    vault, wanted, replacement.recovery_hash, presented=presented
                )
        except Unauthorized:
            self._rates.failed(request.scope)
            raise
        return JsonReply(RecoveryReply(wanted))

    async def _leads_number(self, vault: str, authority: TokenAuthority) -> int:
        """Number of the naming of leads under which this authority, confirmed again, can let others lead."""
        number = await self._registry.leads_number(vault)
        await authority.confirm(self._registry)
        return number

    async def _tell(self, vault: str) -> None:
        """Make other processes on the same store drop the vault's tokens from their caches."""
        if self._peers is not None:
            await self._peers.forget(vault)
