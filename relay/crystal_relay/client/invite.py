"""A newcomer's clients: the sealed bytes of a short invite, for anybody; and the mailbox of one invite at one relay, opened by
the credential in the invite.

The latter can read the six slots of its mailbox and nothing else of the vault, and write two of them. Reads and writes of
slots are retried; a `put_new` whose reply was lost and that finds its own bytes has succeeded. `wait` and `state` are not
retried, since their caller loops anyway.

All calls raise InviteExpired, InviteUsed, InviteClosed once it is over, Unauthorized if the relay does not know it,
StoreUnavailable if the relay cannot be reached.
"""

from collections.abc import Callable

import httpx

from crystal_relay.address import http_client, pin_of
from crystal_relay.client.http import HttpStore, Timeouts
from crystal_relay.client.vaults import invite_info
from crystal_relay.decorators import RetryingStore, RetryPolicy
from crystal_relay.invites import (
    InviteInfo,
    MailboxSlot,
    check_mailbox,
    check_place,
    invite_credential,
    mailbox_prefix,
)
from crystal_relay.limits import INVITE_BYTES_MAX
from crystal_relay.wire import InviteReply, SealedInviteReply


class InviteStore:
    """The mailbox of an invite. Close it with `aclose`."""

    def __init__(
        self,
        url: str,
        *,
        vault: bytes | str,
        mailbox: bytes | str,
        access: bytes,
        transport: httpx.AsyncBaseTransport | None = None,
        timeouts: Timeouts | None = None,
        policy: RetryPolicy | None = None,
        allow_insecure: bool = False,
    ) -> None:
        """`mailbox` is 16 bytes, `access` the 32-byte secret. Raises BadRequest for an invalid address."""
        credential = invite_credential(mailbox, access)
        self._http = _InviteHttp(
            url,
            vault=vault,
            token=lambda: credential,
            transport=transport,
            timeouts=timeouts,
            allow_insecure=allow_insecure,
            direct=False,
        )
        self._mailbox = check_mailbox(mailbox)
        self._prefix = mailbox_prefix(vault, mailbox)
        self._store = RetryingStore(self._http, policy=policy)

    async def put_new(self, slot: MailboxSlot | str, body: bytes) -> None:
        """Write `join` or `done`. Raises AlreadyExists: another newcomer was first; Forbidden for the other slots."""
        await self._store.put_new(self._key(slot), body)

    async def get(self, slot: MailboxSlot | str) -> bytes:
        """Read a slot. Raises NotFound until it is written."""
        async with await self._store.get(self._key(slot), start=0, length=INVITE_BYTES_MAX) as found:
            return await found.read()

    async def slots(self) -> frozenset[MailboxSlot]:
        """The slots that are written."""
        known = set(MailboxSlot)
        names = {
            entry.key.removeprefix(self._prefix) for entry in (await self._store.list(self._prefix)).entries
        }
        return frozenset(MailboxSlot(name) for name in names & known)

    async def wait(self, *, token: str | None, timeout: float) -> str:
        """Wait until something is written after `token`, or the invite ends; as `Store.wait`."""
        return await self._store.wait(self._prefix, token=token, timeout=timeout)

    async def state(self) -> InviteInfo:
        """The state of the invite, also after its end."""
        return await self._http.own_state(self._mailbox)

    async def aclose(self) -> None:
        """Close the connections. Idempotent."""
        await self._store.aclose()

    def _key(self, slot: MailboxSlot | str) -> str:
        return self._prefix + MailboxSlot(slot).value


async def fetch_sealed_invite(
    url: str,
    place: bytes,
    *,
    transport: httpx.AsyncBaseTransport | None = None,
    timeouts: Timeouts | None = None,
    allow_insecure: bool = False,
) -> bytes:
    """The sealed bytes of a short invite, from any server that answers at this address.

    Without a pin in the address the server's certificate does not matter: only what opens with the invite's key is believed,
    and nothing but the place is sent. Raises BadRequest for an invalid address, NotFound, InviteOver, StoreUnavailable.
    """
    http = _Anybody(
        url, vault=_NO_VAULT, token="", transport=transport, timeouts=timeouts, allow_insecure=allow_insecure
    )
    try:
        return await http.sealed_invite(place)
    finally:
        await http.aclose()


_NO_VAULT = "0" * 32
"""Whose vault it is, is in the invite."""


class _Anybody(HttpStore):
    """A client without credentials, which trusts no answer."""

    async def sealed_invite(self, place: bytes) -> bytes:
        path = f"/v2/invites/{check_place(place)}"
        return (await self._json("GET", path, SealedInviteReply, headers={})).sealed  # §21.5-7

    def _client(self, transport: httpx.AsyncBaseTransport | None) -> httpx.AsyncClient:
        return http_client(
            self._url,
            connect=self._timeouts.connect,
            idle=self._timeouts.idle,
            connections_kept=1,
            transport=transport,
            anybody=pin_of(self._url) is None,
        )


class _InviteHttp(HttpStore):
    """An `HttpStore` with an invite's credential."""

    def _token_header(self) -> dict[str, str]:
        credential: Callable[[], str] | str = self._token
        return {"Authorization": credential if isinstance(credential, str) else credential()}

    async def own_state(self, mailbox: str) -> InviteInfo:
        return invite_info(await self._json("GET", self._path(f"invites/{mailbox}"), InviteReply))
