"""Vaults dropped by the operator: closed at once, restorable for a grace period, then deleted by the sweeper.

    r/vault/<vault>/dropped     {"until": unix seconds}

in use --drop--> dropped --restore--> in use;  dropped --until--> being deleted --> gone

The record closes the vault. It is the last of the vault's records to be deleted.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from crystal_relay.errors import UNDECODABLE, AlreadyExists, BadRequest, NotFound, StoreDamaged, VaultDropped
from crystal_relay.server.expiry import ExpiryKind, expiry_at, record_expiry
from crystal_relay.store import Store

SETTLE_SECONDS = 1_800
"""The shortest grace period. A write admitted before may take this long to arrive: 17.5 minutes for the largest body, 5
minutes until another process forgets the vault's tokens."""
RESTORE_SECONDS_MIN = 60
"""A vault cannot be restored this shortly before its end: clocks differ, and another process may be deleting it already."""


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    until: int


class DroppedVaults:
    """The dropped vaults in a store."""

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock

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
        """Raise VaultDropped unless the vault is in use."""
        until = await self.until(vault)
        if until is not None:
            date = datetime.fromtimestamp(until, UTC).strftime("%Y-%m-%d %H:%M UTC")
            raise VaultDropped(  # §R9.3-1
                "this vault was dropped by the relay's operator",
                hint=f"The operator can restore it until {date}. What your devices hold is not affected.",
            )

    async def drop(self, vault: str, until: float) -> int:
        """Close the vault, and have it deleted at `until`, but not before SETTLE_SECONDS. Returns when. No change if it is
        dropped already."""
        when = expiry_at(max(until, self._clock() + SETTLE_SECONDS), ExpiryKind.DROPPED, vault)  # §R9.3-2
        await record_expiry(self._store, when)
        try:
            await self._store.put_new(dropped_key(vault), msgspec.json.encode(_Record(when.when)))
        except AlreadyExists:
            earlier = await self.until(vault)
            if earlier is None:
                raise
            await record_expiry(self._store, expiry_at(earlier, ExpiryKind.DROPPED, vault))
            return earlier
        return when.when

    async def restore(self, vault: str) -> None:
        """Reopen the vault. No error if it is in use. Raises BadRequest if it is too late."""
        until = await self.until(vault)
        if until is None:
            return
        if self._clock() > until - RESTORE_SECONDS_MIN:  # §R9.3-2
            raise BadRequest("the vault's grace period is over: it is being deleted")
        await self._store.delete(dropped_key(vault))


def dropped_key(vault: str) -> str:
    """Key of a vault's record."""
    return f"r/vault/{vault}/dropped"
