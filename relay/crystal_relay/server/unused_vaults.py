"""Vaults that nobody uses any more are closed, where the operator wants that.

    in use --nobody asks for so many days--> dropped, as by the operator --30 days--> deleted

The operator is warned for thirty days before, in the log; a device that comes back within the thirty days after learns from the
refusal until when the operator can restore the vault. A vault of which no day of use is known, since an older relay kept none,
counts as used today. Suspended vaults are the operator's own decision, and stay.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

from crystal_relay.errors import RelayError
from crystal_relay.server.dropped_vaults import DroppedVaults, dropped_key
from crystal_relay.server.last_used import last_day, used_prefix
from crystal_relay.server.overview import VAULTS, Overview
from crystal_relay.server.records import Records
from crystal_relay.server.vault_terms import VaultAccess, VaultTerms
from crystal_relay.store import Store

WARNED_DAYS = 30
"""So long before, the log says so each day."""
GRACE_DAYS = 30
"""So long the operator can restore a vault that was closed."""
LOOK_SECONDS = 86_400.0

_log = logging.getLogger("crystal_relay.server")


@dataclass(slots=True)
class Looked:
    """What one look found: vaults that were closed, and those that will be within ``WARNED_DAYS``."""

    closed: list[str] = field(default_factory=list[str])
    warned: list[str] = field(default_factory=list[str])


class UnusedVaults:
    """Closes the vaults in a store that nobody uses. Any number of processes may look at once."""

    def __init__(self, store: Store, *, days: int, clock: Callable[[], float] = time.time) -> None:
        """`days`: without any use, after which a vault is closed."""
        self._store = store
        self._days = days
        self._clock = clock
        self._records = Records(store)
        self._dropped = DroppedVaults(store, clock=clock)
        self._terms = VaultTerms(store, clock=clock)

    async def run(self) -> Looked:
        """Look at all vaults. Errors of the store are logged: the next look tries again."""
        looked = Looked()
        try:
            overview = await Overview.read(self._store, VAULTS)
            for vault in overview.vaults():
                await self._look(overview, vault, looked)
        except RelayError as error:
            _log.warning("looking for unused vaults failed and will be retried: %s", error)
        return looked

    async def _look(self, overview: Overview, vault: str, looked: Looked) -> None:
        prefix = used_prefix(vault)
        listed = Records(overview)
        today = datetime.fromtimestamp(self._clock(), UTC).date()
        names = await listed.names(prefix)
        if not last_day(names):
            await self._records.mark(prefix + today.isoformat())
            return
        closing = self._closing(names)
        if closing - today > timedelta(days=WARNED_DAYS) or await listed.has(dropped_key(vault)):
            return
        if (await self._terms.of(vault)).access is VaultAccess.SUSPENDED:
            return
        if closing > today:
            looked.warned.append(vault)
            _log.warning(
                "vault %s was last used on %s; it is closed on %s if nobody uses it until then",
                vault,
                last_day(names),
                closing,
            )
            return
        if self._closing(await self._records.names(prefix)) > today:
            return  # it was used since the listing
        until = await self._dropped.drop(vault, self._clock() + GRACE_DAYS * 86_400)  # §R9.3-3
        looked.closed.append(vault)
        _log.warning(
            "vault %s was last used on %s: it is closed, and deleted on %s unless you restore it: "
            "crystal-relay vaults restore %s",
            vault,
            last_day(names),
            datetime.fromtimestamp(until, UTC).date(),
            vault,
        )

    def _closing(self, names: list[str]) -> date:
        return date.fromisoformat(last_day(names)) + timedelta(days=self._days)
