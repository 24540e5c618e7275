"""A newcomer's client: one invite's mailbox at one relay, by the credential that the invite's text gives.

It reaches the six slots of its mailbox and nothing else of the vault, and may write two of them. Reads and writes of slots
that fail for a while are repeated; a `put_new` whose reply was lost and that finds its own bytes there has succeeded. `wait`
and `state` are not repeated: their caller is a loop already.

All calls raise InviteExpired, InviteUsed, InviteClosed once it is over, Unauthorized if the relay does not know it,
StoreUnavailable if the relay cannot be reached.
"""

from collections.abc import Callable

import httpx

from crystal_relay.client.http import HttpStore, Timeouts
from crystal_relay.client.vaults import invite_info
from crystal_relay.decorators import RetryingStore, RetryPolicy
from crystal_relay.invites import InviteInfo, InviteSlot, check_mailbox, invite_credential, mailbox_prefix
from crystal_relay.limits import INVITE_BYTES_MAX
from crystal_relay.wire import InviteReply


class InviteStore:
    """`aclose` it."""

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
        """`mailbox` is 16 bytes, `access` the 32-byte secret. Raises BadRequest for an address that is none."""
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

    async def put_new(self, slot: InviteSlot | str, body: bytes) -> None:
        """Write `join` or `done`. Raises AlreadyExists: another newcomer was first; Forbidden for the other slots."""
        await self._store.put_new(self._key(slot), body)

    async def get(self, slot: InviteSlot | str) -> bytes:
        """Raises NotFound while it is not written."""
        async with await self._store.get(self._key(slot), start=0, length=INVITE_BYTES_MAX) as found:
            return await found.read()

    async def slots(self) -> frozenset[InviteSlot]:
        """Which are written."""
        known = set(InviteSlot)
        names = {
            entry.key.removeprefix(self._prefix) for entry in (await self._store.list(self._prefix)).entries
        }
        return frozenset(InviteSlot(name) for name in names & known)

    async def wait(self, *, token: str | None, timeout: float) -> str:
        """Sleep until something was written since `token`, or the invite has ended; as `Store.wait`."""
        return await self._store.wait(self._prefix, token=token, timeout=timeout)

    async def state(self) -> InviteInfo:
        """What has become of it. Answered also when it is over."""
        return await self._http.own_state(self._mailbox)

    async def aclose(self) -> None:
        """Idempotent."""
        await self._store.aclose()

    def _key(self, slot: InviteSlot | str) -> str:
        return self._prefix + InviteSlot(slot).value


class _InviteHttp(HttpStore):
    """The store as such a credential opens it."""

    def _token_header(self) -> dict[str, str]:
        credential: Callable[[], str] | str = self._token
        return {"Authorization": credential if isinstance(credential, str) else credential()}

    async def own_state(self, mailbox: str) -> InviteInfo:
        return invite_info(await self._json("GET", self._path(f"invites/{mailbox}"), InviteReply))
