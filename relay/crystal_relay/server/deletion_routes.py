"""Routes by which a vault's owner has it deleted, sees when that will be, and calls it off."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from crystal_relay.errors import BadRequest, Forbidden, Unauthorized
from crystal_relay.keys import check_vault
from crystal_relay.limits import DELETION_SECONDS_MAX, DELETIONS_MAX, FOUNDING_JSON_BYTES_MAX
from crystal_relay.server.admission import authenticated
from crystal_relay.server.authorization import device_of, recovery_of, require_token_authority
from crystal_relay.server.founding import check_deletion
from crystal_relay.server.load import Load
from crystal_relay.server.rates import Rates
from crystal_relay.server.registry import Registry
from crystal_relay.server.replies import JsonReply
from crystal_relay.server.requests import content_length, head_of, json_of, number, query, text_of
from crystal_relay.server.scopes import TokenScope
from crystal_relay.server.settings import RelaySettings
from crystal_relay.server.vault_deletions import Deletion, VaultDeletions
from crystal_relay.wire import DeletionReply, DeletionRequest


class DeletionRoutes:
    """All under `/v2/vaults/{vault}/deletion`."""

    def __init__(
        self,
        deletions: VaultDeletions,
        registry: Registry,
        settings: RelaySettings,
        rates: Rates,
        load: Load,
    ) -> None:
        self._deletions = deletions
        self._registry = registry
        self._settings = settings
        self._rates = rates
        self._load = load

    def routes(self) -> list[Route]:
        """All of them."""
        one = "/v2/vaults/{vault}/deletion/{number}"
        return [
            Route("/v2/vaults/{vault}/deletion", self.show, methods=["GET"]),
            Route(one, self.ask, methods=["PUT"]),
            Route(one, self.call_off, methods=["DELETE"]),
        ]

    async def show(self, request: Request) -> Response:
        """Whether the vault is to be deleted, and when."""
        vault = check_vault(request.path_params["vault"])
        (await device_of(request, self._registry, vault, self._rates)).require(TokenScope.READ)
        query(request, ())
        return self._reply(await self._deletions.newest(vault))

    async def ask(self, request: Request) -> Response:
        """Have the vault deleted after a waiting time. Only the root can: by its recovery secret and its signature."""
        vault = check_vault(request.path_params["vault"])
        presented = recovery_of(request, self._rates)
        if presented is None:  # §R4.7-1
            await device_of(request, self._registry, vault, self._rates)
            raise Forbidden(
                "only the vault's root can have it deleted", hint="Use the vault's newest recovery kit."
            )
        query(request, ())
        wanted = _number_in(request)
        head = head_of(request.scope)
        try:
            with self._rates.lookup(request.scope):
                await self._registry.check_recovery(vault, presented)
            authenticated(request.scope)
            with self._load.gathering(vault, content_length(head, FOUNDING_JSON_BYTES_MAX)):
                asked = await json_of(
                    request, DeletionRequest, self._settings, bytes_max=FOUNDING_JSON_BYTES_MAX
                )
            check_deletion(vault, wanted, asked, text_of(head.get(b"host")) or "")  # §R4.7-1
        except (Unauthorized, Forbidden):
            self._rates.failed(request.scope)
            raise
        return self._reply(await self._deletions.ask(vault, wanted, asked.due))

    async def call_off(self, request: Request) -> Response:
        """Call the deletion of this number off: the Core, or whoever has the root."""
        vault = check_vault(request.path_params["vault"])
        await require_token_authority(request, self._registry, vault, self._rates)  # §R4.7-5
        query(request, ())
        return self._reply(await self._deletions.call_off(vault, _number_in(request)))

    def _reply(self, found: Deletion) -> Response:
        return JsonReply(
            DeletionReply(
                found.number, found.asked, found.due, self._deletions.seconds_min, DELETION_SECONDS_MAX
            )
        )


def _number_in(request: Request) -> int:
    found = number(request.path_params["number"])
    if not 1 <= found <= DELETIONS_MAX:  # §R4.7-3
        raise BadRequest(f"the deletions of a vault are numbered from 1 to {DELETIONS_MAX}")
    return found
