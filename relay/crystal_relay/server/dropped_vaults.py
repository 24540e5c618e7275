"""Vaults that whoever runs the relay has dropped: closed at once, restorable for a time, then deleted by the sweeper.

    r/vault/<vault>/dropped     {"until": unix seconds}

in use --drop--> dropped --restore--> in use;  dropped --until--> being deleted --> gone

The record is what closes the vault, and the last of the vault's records to go.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from crystal_relay.errors import AlreadyExists, BadRequest, NotFound, StoreDamaged, VaultDropped
from crystal_relay.server.expiry import ExpiryKind, expiry_at, record_expiry
from crystal_relay.store import Store

SETTLE_SECONDS = 1_800
"""The shortest time of grace. A write that was let in before may take this long to arrive: 17.5 minutes for the largest
body, 5 minutes for another process to forget the vault's tokens."""
RESTORE_SECONDS_MIN = 60
"""A vault cannot be restored so shortly before its end: processes' clocks differ, and one of them may be deleting already."""


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    until: int


class DroppedVaults:
    """All of a store."""

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock

    async def until(self, vault: str) -> int | None:
        """When the vault will be deleted (unix seconds); None: it is in use. Raises StoreDamaged."""
        try:
            text = await (await self._store.get(dropped_key(vault))).read()
        except NotFound:
            return None
        try:
            return msgspec.json.decode(text, type=_Record).until
        except msgspec.DecodeError:
            raise StoreDamaged("the record of a dropped vault is damaged") from None

    async def check(self, vault: str) -> None:
        """Raises VaultDropped."""
        until = await self.until(vault)
        if until is not None:
            date = datetime.fromtimestamp(until, UTC).strftime("%Y-%m-%d %H:%M UTC")
            raise VaultDropped(  # §R9.3-1
                "this vault was dropped by whoever runs the relay",
                hint=f"They can restore it until {date}. What your devices hold is not affected.",
            )

    async def drop(self, vault: str, until: float) -> int:
        """Close the vault, and have it deleted at `until` or after SETTLE_SECONDS. Returns when; if it is dropped already
        that stays as it was."""
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
        """Open the vault again. No error if it is in use. Raises BadRequest when it is too late."""
        until = await self.until(vault)
        if until is None:
            return
        if self._clock() > until - RESTORE_SECONDS_MIN:  # §R9.3-2
            raise BadRequest("the vault's time of grace is over: it is being deleted")
        await self._store.delete(dropped_key(vault))


def dropped_key(vault: str) -> str:
    """Where the record of a vault is."""
    return f"r/vault/{vault}/dropped"
