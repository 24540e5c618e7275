"""Vaults dropped by the operator, or deleted as their owner asked: closed at once, then deleted by the sweeper.

    r/vault/<vault>/dropped     {"until": unix seconds}

in use --drop--> dropped --restore--> in use;  dropped --until--> being deleted --> gone

What the operator drops can be restored for a grace period; what its owner had deleted cannot (see `vault_deletions`).
The record closes the vault. It is the last of the vault's records to be deleted.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from crystal_relay.errors import (
    UNDECODABLE,
    AlreadyExists,
    BadRequest,
    NotFound,
    StoreDamaged,
    VaultDeleted,
    VaultDropped,
)
from crystal_relay.server.expiry import ExpiryKind, expiry_at, record_expiry
from crystal_relay.server.last_used import day_of_use, used_prefix
from crystal_relay.server.records import Records
from crystal_relay.server.vault_deletions import VaultDeletions
from crystal_relay.store import Store

SETTLE_SECONDS = 1_800
"""The shortest grace period. A write admitted before may take this long to arrive: 17.5 minutes for the largest body, 4 in the
queue at the store, 5 until another process forgets the vault's tokens."""
RESTORE_SECONDS_MIN = 60
"""A vault cannot be restored this shortly before its end: clocks differ, and another process may be deleting it already."""


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    until: int


class DroppedVaults:
    """The dropped vaults in a store."""

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._deletions = VaultDeletions(store, clock=clock)

    async def until(self, vault: str) -> int | None:
        """When the vault will be deleted (Unix seconds); None if it is in use. Raises StoreDamaged."""
        try:
            text = await (await self._store.get(dropped_key(vault))).read()
        except NotFound:
            return None
        try:
            return msgspec.json.decode(text, type=_Record).until
        except UNDECODABLE:
            raise StoreDamaged("the record of a dropped vault is damaged") from None

    async def check(self, vault: str) -> None:
        """Raise VaultDropped or VaultDeleted unless the vault is in use."""
        until = await self.until(vault)
        if until is not None:
            if await self._deletions.is_due(vault):  # §R4.7-6
                raise VaultDeleted("this vault is being deleted, as its owner had asked")
            date = datetime.fromtimestamp(until, UTC).strftime("%Y-%m-%d %H:%M UTC")
            raise VaultDropped(  # §R9.3-1
                "this vault was dropped by the relay's operator",
                hint=f"The operator can restore it until {date}. What your devices hold is not affected.",
            )

    async def drop(self, vault: str, until: float, *, sooner: bool = False) -> int:
        """Close the vault, and have it deleted at `until`, but not before SETTLE_SECONDS. Returns when. No change if it is
        dropped already, except with `sooner` if that is earlier."""
        when = expiry_at(max(until, self._clock() + SETTLE_SECONDS), ExpiryKind.DROPPED, vault)  # §R9.3-2
        await record_expiry(self._store, when)
        try:
            await self._store.put_new(dropped_key(vault), msgspec.json.encode(_Record(when.when)))
        except AlreadyExists:
            earlier = await self.until(vault)
            if earlier is None:
                raise
            if sooner and when.when < earlier:
                await self._store.put(dropped_key(vault), msgspec.json.encode(_Record(when.when)))
                return when.when
            await record_expiry(self._store, expiry_at(earlier, ExpiryKind.DROPPED, vault))
            return earlier
        return when.when

    async def restore(self, vault: str) -> None:
        """Reopen the vault. No error if it is in use. Raises BadRequest if it is too late, or its owner had it deleted."""
        until = await self.until(vault)
        if until is None:
            return
        if await self._deletions.is_due(vault):  # §R4.7-6
            raise BadRequest(
                "the vault's owner had it deleted: it is not restored",
                hint="Its devices keep the memory, and can create the vault again once it is gone.",
            )
        if self._clock() > until - RESTORE_SECONDS_MIN:  # §R9.3-2
            raise BadRequest("the vault's grace period is over: it is being deleted")
        await Records(self._store).mark(
            used_prefix(vault) + day_of_use(self._clock())
        )  # else it may be closed again
        await self._store.delete(dropped_key(vault))


def dropped_key(vault: str) -> str:
    """Key of a vault's record."""
    return f"r/vault/{vault}/dropped"
