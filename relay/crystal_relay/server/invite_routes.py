"""The routes of invites; their slots are objects (see `objects`)."""

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from crystal_relay.errors import BadRequest, InviteOver, NotFound, VaultClosed
from crystal_relay.invites import CloseReason, check_mailbox, check_place
from crystal_relay.keys import check_vault
from crystal_relay.server.authorization import device_of, newcomer_of, shows_invite
from crystal_relay.server.invites import Invites
from crystal_relay.server.rates import Rates
from crystal_relay.server.registry import Registry
from crystal_relay.server.replies import JsonReply
from crystal_relay.server.requests import json_of, query
from crystal_relay.server.scopes import TokenScope
from crystal_relay.server.settings import RelaySettings
from crystal_relay.server.short_invites import ShortInvites
from crystal_relay.wire import InviteCreation, ShortInviteCreation


class InviteRoutes:
    """`/v2/vaults/{vault}/invites`, `/v2/vaults/{vault}/invites/{mailbox}`, its `/short`; `/v2/invites/{place}`."""

    def __init__(
        self,
        invites: Invites,
        short_invites: ShortInvites,
        registry: Registry,
        settings: RelaySettings,
        rates: Rates,
        *,
        deleted: Callable[[str], None],
    ) -> None:
        """`deleted` is called with each vault in which something was deleted."""
        self._invites = invites
        self._short_invites = short_invites
        self._registry = registry
        self._settings = settings
        self._rates = rates
        self._deleted = deleted

    def routes(self) -> list[Route]:
        """All of them."""
        one = "/v2/vaults/{vault}/invites/{mailbox}"
        return [
            Route("/v2/vaults/{vault}/invites", self.create_invite, methods=["POST"]),
            Route(one, self.close_invite, methods=["DELETE"]),
            Route(one, self.show_invite, methods=["GET"]),
            Route(f"{one}/short", self.keep_short_invite, methods=["PUT"]),
            Route("/v2/invites/{place}", self.read_short_invite, methods=["GET"]),
        ]

    async def create_invite(self, request: Request) -> Response:
        """Open a mailbox to a newcomer. Idempotent."""
        vault = await self._inviter(request, makes=True)
        query(request, ())
        creation = await json_of(request, InviteCreation, self._settings)
        return JsonReply(await self._invites.open(vault, creation), 201)

    async def close_invite(self, request: Request) -> Response:
        """Close an invite. Idempotent."""
        vault = await self._inviter(request)
        mailbox = check_mailbox(request.path_params["mailbox"])
        text = query(request, ("reason",)).get("reason", "")
        if text not in CloseReason.__members__.values():  # §R5.3-1
            raise BadRequest(f"the reason is one of {', '.join(CloseReason)}")
        reply = await self._invites.close(vault, mailbox, CloseReason(text))
        self._deleted(vault)
        return JsonReply(reply)

    async def show_invite(self, request: Request) -> Response:
        """The state of an invite, also after its end."""
        mailbox = check_mailbox(request.path_params["mailbox"])
        if shows_invite(request.scope):
            vault = check_vault(request.path_params["vault"])
            invite = await newcomer_of(request, self._invites, vault, mailbox, self._rates)
            query(request, ())
            return JsonReply(invite.reply(self._invites.now))
        vault = await self._inviter(request)
        query(request, ())
        return JsonReply(await self._invites.look_up(vault, mailbox))  # §R5.2-1

    async def keep_short_invite(self, request: Request) -> Response:
        """Keep the sealed bytes of an invite while it is open. Idempotent."""
        vault = await self._inviter(request, makes=True)
        mailbox = check_mailbox(request.path_params["mailbox"])
        query(request, ())
        creation = await json_of(request, ShortInviteCreation, self._settings)  # §R5.4-1
        return JsonReply(await self._short_invites.keep(vault, mailbox, creation), 201)

    async def read_short_invite(self, request: Request) -> Response:
        """The sealed bytes of an open invite, for anybody who knows where they lie."""
        place = check_place(request.path_params["place"])
        query(request, ())
        try:
            with self._rates.lookup(request.scope):  # §R5.5-3
                return JsonReply(await self._short_invites.read(place))  # §R5.5-1
        except (NotFound, InviteOver, VaultClosed):
            self._rates.failed(request.scope)  # §R5.5-3
            raise

    async def _inviter(self, request: Request, *, makes: bool = False) -> str:
        vault = check_vault(request.path_params["vault"])
        identity = await device_of(request, self._registry, vault, self._rates)
        identity.require(TokenScope.TOKENS)
        if makes:
            identity.require_change()
        return vault
