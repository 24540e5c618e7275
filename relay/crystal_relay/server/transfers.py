"""Direct transfers at the relay: it signs the request, the device makes it at the bucket, and the relay checks the result.

    device -- ask: key, size, MD5 --> relay -- signed request, receipt --> device -- PUT --> bucket
    device -- done: key, size, receipt --> relay -- HEAD --> bucket: is it there, and whose is it?

Rights, rules of keys, sizes and quotas are those of other objects. Only the relay's answer to `done` is a success, whatever
the bucket answered to the device. The object carries the receipt of the write that created it, which tells a device's own
success from another's.

A grant counts towards the quota while it can be used. One that is not reported as done counts as stored when it expires, until
the vault is counted again, so that silence does not extend the quota.
"""

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from crystal_relay.errors import AlreadyExists, BadRequest, SizeMismatch
from crystal_relay.keys import vault_prefix
from crystal_relay.limits import DIRECT_BYTES_MIN
from crystal_relay.server.replies import JsonReply
from crystal_relay.server.requests import json_of, query
from crystal_relay.server.scopes import Identity, TokenScope, parse_place
from crystal_relay.server.settings import RelaySettings
from crystal_relay.store import DirectRequest, DirectStore, Store
from crystal_relay.wire import Direction, TransferDone, TransferDoneReply, TransferReply, TransferRequest

GRANTS_PER_VAULT_MAX = 256
"""Open puts of a vault. Further ones go through the relay."""
GRANTS_MAX = 65_536

_NEVER = TransferReply(direct=False, offered=False)
_NOT_THIS_ONE = TransferReply(direct=False, offered=True)


class Quota(Protocol):
    """Counts a vault's objects."""

    def admit(self, vault: str, size: int) -> None:
        """Raises QuotaExceeded if the vault has no room for an object of that size."""
        ...

    def stored(self, vault: str, size: int) -> None:
        """An object of that size was stored."""
        ...


class Transfers:
    """The routes of direct transfers."""

    def __init__(
        self,
        store: Store,
        settings: RelaySettings,
        device_of: Callable[[Request], Awaitable[Identity]],
        *,
        quota: Quota | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`device_of` returns the device of a request's token, or raises."""
        direct = store if isinstance(store, DirectStore) else None
        self._puts = direct if direct is not None and direct.direct_puts else None
        self._gets = direct if direct is not None and direct.direct_gets else None
        self._settings = settings
        self._device_of = device_of
        self._quota = quota
        self._clock = clock
        self._grants = OpenGrants(quota, clock)

    def routes(self) -> list[Route]:
        """All of them."""
        base = "/v2/vaults/{vault}/transfers"
        return [
            Route(base, self.begin_transfer, methods=["POST"]),
            Route(f"{base}/done", self.end_transfer, methods=["POST"]),
        ]

    async def begin_transfer(self, request: Request) -> Response:
        """Reply with a signed request, or that this object goes through the relay."""
        identity = await self._device_of(request)
        query(request, ())
        asked = await json_of(request, TransferRequest, self._settings)
        place = parse_place(asked.key)
        if asked.direction is Direction.GET:
            identity.require(TokenScope.READ)
            return await self._begin_get(vault_prefix(identity.vault) + place.key)  # §R3.5-1
        identity.require_write(place)
        if not asked.md5:  # §R3.5-1
            raise BadRequest("a direct put needs the size and the MD5 of its body")
        return await self._begin_put(identity.vault, place.key, asked.size, bytes.fromhex(asked.md5))

    async def end_transfer(self, request: Request) -> Response:
        """Confirm that the object exists and is the one that was put. Wakes waits for it."""
        identity = await self._device_of(request)
        query(request, ())
        done = await json_of(request, TransferDone, self._settings)
        place = parse_place(done.key)
        identity.require_write(place)
        if self._puts is None:
            raise BadRequest("no transfer was begun here")
        key = vault_prefix(identity.vault) + place.key
        found = await self._puts.head(key)  # §R3.6-2
        # In any case: a device that died before it could report its put has woken nobody.
        self._puts.announce(key)  # §R3.6-1
        if found.receipt != done.receipt:  # §R3.6-1
            self._grants.drop(done.receipt, key)
            raise AlreadyExists("the key is taken")  # §R3.6-2
        if found.size != done.size:
            raise SizeMismatch("the object has another size")
        self._grants.stored(done.receipt, key)
        return JsonReply(TransferDoneReply(found.size), 201)

    # --- inside ---

    async def _begin_get(self, key: str) -> Response:
        if self._gets is None:
            return JsonReply(_NEVER)
        size = (await self._gets.head(key)).size  # §R3.5-5
        if size < DIRECT_BYTES_MIN:  # §R3.5-2
            return JsonReply(_NOT_THIS_ONE)
        return _granted(await self._gets.direct_get(key), size)

    async def _begin_put(self, vault: str, key: str, size: int, md5: bytes) -> Response:
        if self._puts is None:
            return JsonReply(_NEVER)  # §R3.5-2
        if size < DIRECT_BYTES_MIN:  # §R3.5-2
            return JsonReply(_NOT_THIS_ONE)
        granted = self._grants.open_bytes(vault)
        if granted is None:
            return JsonReply(_NOT_THIS_ONE)
        if self._quota is not None:
            self._quota.admit(vault, granted + size)  # §R3.5-5
        name = vault_prefix(vault) + key
        with self._grants.signing(vault, size):
            signed = await self._puts.direct_put(name, size=size, md5=md5)
        self._grants.add(OpenGrant(vault, name, size, self._clock() + signed.expires_seconds), signed.receipt)
        return _granted(signed, size)


def _granted(signed: DirectRequest, size: int) -> Response:
    reply = TransferReply(
        direct=True,
        offered=True,
        method=signed.method,
        url=signed.url,
        headers=signed.headers,
        expires_seconds=signed.expires_seconds,
        size=size,
        receipt=signed.receipt,
    )
    return JsonReply(reply, 201)


@dataclass(frozen=True, slots=True)
class OpenGrant:
    """A granted put."""

    vault: str
    key: str
    size: int
    until: float


class OpenGrants:
    """Granted puts that are not reported yet, in order of time."""

    def __init__(self, quota: Quota | None, clock: Callable[[], float]) -> None:
        self._quota = quota
        self._clock = clock
        self._open: OrderedDict[str, OpenGrant] = OrderedDict()
        self._of_vault: dict[str, tuple[int, int]] = {}
        """Number and bytes of open grants by vault."""

    def open_bytes(self, vault: str) -> int | None:
        """Bytes of the vault's open grants. None if there are too many."""
        self._expire()
        count, size = self._of_vault.get(vault, (0, 0))
        if count >= GRANTS_PER_VAULT_MAX or len(self._open) >= GRANTS_MAX:
            return None
        return size

    @contextmanager
    def signing(self, vault: str, size: int) -> Generator[None]:
        """Count a put while it is being signed, so that concurrent requests cannot exceed the quota."""
        self._count(vault, 1, size)
        try:
            yield
        finally:
            self._count(vault, -1, -size)

    def add(self, grant: OpenGrant, receipt: str) -> None:
        """Add a granted put."""
        self._open[receipt] = grant
        self._count(grant.vault, 1, grant.size)

    def stored(self, receipt: str, key: str) -> None:
        """Count the object of this grant as stored, once."""
        grant = self.drop(receipt, key)
        if grant is not None and self._quota is not None:
            self._quota.stored(grant.vault, grant.size)

    def drop(self, receipt: str, key: str) -> OpenGrant | None:
        """Remove a grant of this key that can no longer be used."""
        grant = self._open.get(receipt)
        if grant is None or grant.key != key:
            return None
        del self._open[receipt]
        self._count(grant.vault, -1, -grant.size)
        return grant

    def _expire(self) -> None:
        now = self._clock()
        while self._open:
            receipt, grant = next(iter(self._open.items()))
            if grant.until > now:
                return
            self.stored(receipt, grant.key)

    def _count(self, vault: str, count: int, size: int) -> None:
        have = self._of_vault.get(vault, (0, 0))
        if have[0] + count:
            self._of_vault[vault] = (have[0] + count, have[1] + size)
        else:
            del self._of_vault[vault]
