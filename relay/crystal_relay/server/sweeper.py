"""The sweeper: deletes what a record names, when its time has come, and nothing else.

    invite      the slots of an invite whose ten minutes are over
    mailbox     a day later: what came late, then what the relay knows of the invite
    condemned   the keys, or the range of keys, that a Core named; then the condemnation
    dropped     all objects of the vault, then its registry, the record that says so last

The record in the expiry index goes last of all, so that a sweep that was killed is taken up by the next, here or in another
process. Deleting is idempotent, so any number of processes may sweep at once. Nothing is ever judged: what no record names
stays. One look that finds nothing due costs one listing.

A long deletion is done in slices, between which whatever else is due has its turn.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from crystal_relay.errors import Busy, Closed, RelayError, StoreUnavailable
from crystal_relay.invites import InviteState, mailbox_prefix
from crystal_relay.keys import vault_prefix
from crystal_relay.limits import INVITE_KEPT_SECONDS
from crystal_relay.server.condemned import Condemned, condemned_prefix
from crystal_relay.server.dropped_vaults import DroppedVaults, dropped_key
from crystal_relay.server.expiry import EXPIRY_PREFIX, Expiry, ExpiryKind, due_at, parse_expiry
from crystal_relay.server.invites import Invites, record_keys
from crystal_relay.store import Store
from crystal_relay.wire import Condemnation

DELETES_AT_ONCE = 8
SLICE_PAGES = 4
"""Pages of objects (1,000 each) of one deletion, before the next has its turn."""
FAILURES_MAX = 3
"""After this many failures of the store a sweep ends: the next one tries again."""
CONDEMNED_SETTLE_SECONDS = 300
"""The record in the index is written first: for this long the condemnation itself may still be under way."""

_log = logging.getLogger("crystal_relay.server")


@dataclass(slots=True)
class Swept:
    """What one sweep did. `deleted`: objects, by the kind of the record that named them."""

    deleted: Counter[str] = field(default_factory=Counter[str])
    failures: int = 0
    unfinished: bool = False
    """More is due already."""
    stopped: bool = False
    """The store fails."""
    failed: set[str] = field(default_factory=set[str])
    """Records that are left to the next sweep."""


class Sweeper:
    """One for each relay process."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Callable[[], float] = time.time,
        deleted: Callable[[str], None] = lambda vault: None,
    ) -> None:
        """`deleted` is told of each vault in which something was deleted."""
        self._store = store
        self._clock = clock
        self._deleted = deleted
        self._condemned = Condemned(store, retry_seconds=0, clock=clock)
        self._dropped = DroppedVaults(store, clock=clock)
        self._invites = Invites(store, clock=clock)
        self.sweeps = 0
        self.failures = 0
        self.deleted: Counter[str] = Counter()
        """Since this process began."""

    async def run(self) -> Swept:
        """Sweep until nothing is due, or the store fails. Raises nothing that the store raises: that is logged."""
        swept = Swept(unfinished=True)
        while swept.unfinished and not swept.stopped:
            swept.unfinished = False
            await self._look(swept)
        self.sweeps += 1
        self.failures += swept.failures
        self.deleted += swept.deleted
        return swept

    # --- inside ---

    async def _look(self, swept: Swept) -> None:
        """Take each record that is due once."""
        unavailable = 0
        try:
            async for page in self._due():
                # What is short first: an invite does not wait for a vault.
                for expiry in sorted(page, key=lambda each: (each.kind is not ExpiryKind.INVITE, each.when)):
                    if expiry.key in swept.failed:
                        continue
                    try:
                        await self._carry_out(expiry, swept)
                    except Closed:
                        raise
                    except RelayError as error:
                        _log.warning(
                            "sweeping (%s) failed, which is tried again: %s", expiry.kind.value, error
                        )
                        swept.failures += 1
                        swept.failed.add(expiry.key)
                        unavailable += isinstance(error, StoreUnavailable | Busy)
                        if unavailable >= FAILURES_MAX:
                            swept.stopped = True
                            return
        except RelayError as error:
            _log.warning("sweeping failed, which is tried again: %s", error)
            swept.failures += 1
            swept.stopped = True

    async def _due(self) -> AsyncIterator[list[Expiry]]:
        now, after, more = self._clock(), "", True
        while more:
            page = await self._store.list(EXPIRY_PREFIX, after=after)
            keys = [entry.key for entry in page.entries]
            due = [key for key in keys if (when := due_at(key)) is not None and when <= now]
            found = [parse_expiry(key) for key in due]
            # What a newer version wrote is left to it.
            yield [expiry for expiry in found if expiry is not None]
            more = page.more and bool(due) and due[-1] == keys[-1]
            after = keys[-1] if keys else after

    async def _carry_out(self, expiry: Expiry, swept: Swept) -> None:
        remove = {
            ExpiryKind.INVITE: self._remove_slots,
            ExpiryKind.MAILBOX: self._remove_invite,
            ExpiryKind.CONDEMNED: self._remove_condemned,
            ExpiryKind.DROPPED: self._remove_vault,
        }[expiry.kind]
        if await remove(expiry, swept):
            await self._store.delete(expiry.key)

    async def _remove_slots(self, expiry: Expiry, swept: Swept) -> bool:
        mailbox = expiry.rest.partition(".")[0]
        invite = await self._invites.find(expiry.vault, mailbox)
        if invite is not None and invite.state(self._clock()) is InviteState.OPEN:
            return True  # another record says until when
        return await self._remove_all(mailbox_prefix(expiry.vault, mailbox), expiry, swept)

    async def _remove_invite(self, expiry: Expiry, swept: Swept) -> bool:
        invite = await self._invites.find(expiry.vault, expiry.rest)
        if invite is not None and self._clock() < invite.expires_at + INVITE_KEPT_SECONDS:
            return True  # likewise
        if not await self._remove_all(mailbox_prefix(expiry.vault, expiry.rest), expiry, swept):
            return False
        if invite is not None:
            for key in record_keys(expiry.vault, expiry.rest):
                await self._delete([key], expiry, swept)
        return True

    async def _remove_condemned(self, expiry: Expiry, swept: Swept) -> bool:
        condemnation = await self._condemned.read(expiry.vault, expiry.rest)
        if condemnation is None:
            return self._clock() - expiry.when > CONDEMNED_SETTLE_SECONDS
        mine = vault_prefix(expiry.vault)
        if condemnation.keys is not None:
            await self._delete([mine + key for key in condemnation.keys], expiry, swept)  # §R3.4-3
        elif not await self._remove_range(condemnation, expiry, swept):
            swept.unfinished = True
            return False
        await self._store.delete(condemned_prefix(expiry.vault) + expiry.rest)
        return True

    async def _remove_range(self, condemnation: Condemnation, expiry: Expiry, swept: Swept) -> bool:
        mine = vault_prefix(expiry.vault)
        if condemnation.prefix is None or condemnation.through is None:
            return True
        last = mine + condemnation.through
        return await self._remove_all(mine + condemnation.prefix, expiry, swept, last=last)

    async def _remove_vault(self, expiry: Expiry, swept: Swept) -> bool:
        vault = expiry.vault
        until = await self._dropped.until(vault)
        if until is None or until > self._clock():
            return True  # restored; if it was dropped again, another record says until when
        registry, record = f"r/vault/{vault}/", dropped_key(vault)

        async def is_dropped() -> bool:
            return await self._dropped.until(vault) == until

        for prefix in (vault_prefix(vault), condemned_prefix(vault), registry):
            if not await self._remove_all(prefix, expiry, swept, keep=record, named=is_dropped):
                swept.unfinished = True
                return False
        if await is_dropped():
            await self._store.delete(record)
        return True

    async def _remove_all(
        self,
        prefix: str,
        expiry: Expiry,
        swept: Swept,
        *,
        last: str | None = None,
        keep: str | None = None,
        named: Callable[[], Awaitable[bool]] | None = None,
    ) -> bool:
        """Delete a slice of what is under a prefix, up to `last`, but `keep`. Returns whether that was all.

        `named` is asked before each page whether the record still names it: another process may be done with a vault, and
        its owner may have made it again.
        """
        after = ""
        for _ in range(SLICE_PAGES):
            page = await self._store.list(prefix, after=after)
            keys = [entry.key for entry in page.entries]
            within = [key for key in keys if last is None or key <= last]
            if within and named is not None and not await named():
                return True
            await self._delete([key for key in within if key != keep], expiry, swept)
            if not page.more or len(within) < len(keys):
                return True
            after = keys[-1]
        return False

    async def _delete(self, keys: Sequence[str], expiry: Expiry, swept: Swept) -> None:
        """Delete objects, a few at once. Raises what the first that failed raised."""
        for at in range(0, len(keys), DELETES_AT_ONCE):
            some = keys[at : at + DELETES_AT_ONCE]
            ended = await asyncio.gather(*map(self._store.delete, some), return_exceptions=True)
            failed = [each for each in ended if each is not None]
            swept.deleted[expiry.kind.value] += len(some) - len(failed)
            self._deleted(expiry.vault)
            if failed:
                raise failed[0]


FIRST_SECONDS_MAX = 5.0
"""A process that has just started looks soon: its predecessor may have been killed in the middle."""
JITTER_SHARE = 10


class Timetable:
    """Of one relay process."""

    def __init__(self, sweeper: Sweeper, *, seconds: float) -> None:
        """`seconds` between two sweeps; 0: none."""
        self._sweeper = sweeper
        self._seconds = seconds
        self._scheduler: Any = None
        self._sweep: asyncio.Task[Swept] | None = None

    def start(self) -> None:
        """Begin, on the running loop. Idempotent."""
        if self._scheduler is not None or not self._seconds:
            return
        from apscheduler.schedulers.asyncio import AsyncIOScheduler
        from apscheduler.triggers.interval import IntervalTrigger

        trigger = IntervalTrigger(
            seconds=max(1, round(self._seconds)), jitter=self._seconds / JITTER_SHARE, timezone=UTC
        )
        first = datetime.now(UTC) + timedelta(seconds=min(FIRST_SECONDS_MAX, self._seconds))
        self._scheduler = AsyncIOScheduler(timezone=UTC)
        self._scheduler.add_job(
            self._begin, trigger, next_run_time=first, misfire_grace_time=None, coalesce=True, max_instances=1
        )
        self._scheduler.start()

    async def aclose(self) -> None:
        """End a sweep that is under way: the next process takes it up. Idempotent."""
        scheduler, self._scheduler = self._scheduler, None
        if scheduler is None:
            return
        scheduler.shutdown(wait=False)
        await asyncio.sleep(0)  # it shuts down in the loop's next turn
        if self._sweep is not None:
            self._sweep.cancel()
            await asyncio.wait({self._sweep})

    async def _begin(self) -> None:
        # A task of our own: the scheduler would log a sweep that is cancelled at the end as a failure.
        if self._sweep is None or self._sweep.done():
            self._sweep = asyncio.create_task(self._sweeper.run())
            self._sweep.add_done_callback(_log_mistake)


def _log_mistake(sweep: asyncio.Task[Swept]) -> None:
    if not sweep.cancelled() and (error := sweep.exception()) is not None:
        _log.error("the sweeper made a mistake", exc_info=error)
