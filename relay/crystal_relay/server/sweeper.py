"""The sweeper, which deletes what is due by the expiry index, and the timetable that runs it.

    invite      the slots and the sealed bytes of an invite whose ten minutes are over
    mailbox     a day later: what arrived late, then the relay's records of the invite
    short       then too: the record of where a short invite lay
    condemned   the keys, or the range of keys, that a Core named; then the condemnation
    dropped     all objects of the vault, then its registry; the record of the drop last
    deletion    the vault is closed, and dropped, because its owner asked for it
    deleted     a year later: what remained of it

An object that no expiry record names is never deleted. The expiry record itself goes last, so that the next sweep, here or in
another process, resumes one that was killed. Deletion is idempotent: any number of processes may sweep at once. A sweep that
finds nothing due costs one listing. Long deletions are done in slices, so that they do not delay the others.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
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
from crystal_relay.server.invites import Invites, record_keys, short_key
from crystal_relay.server.overview import INDEX_KEY
from crystal_relay.server.short_invites import place_key
from crystal_relay.server.vault_deletions import VaultDeletions, deletions_prefix
from crystal_relay.store import Store
from crystal_relay.wire import Condemnation

DELETES_AT_ONCE = 8
SLICE_PAGES = 4
"""Pages of 1,000 objects that one deletion may take before the next one runs."""
FAILURES_MAX = 3
"""Failures of the store after which a sweep ends; the next one tries again."""
CONDEMNED_SETTLE_SECONDS = 300
"""How long a condemnation may follow its expiry record, which is written first."""
FIRST_SECONDS_MAX = 5.0
"""A process sweeps soon after its start: its predecessor may have been killed in the middle of a sweep."""
JITTER_SHARE = 10
"""The interval is varied by a tenth, so that processes do not sweep in step."""

_log = logging.getLogger("crystal_relay.server")


@dataclass(slots=True)
class Swept:
    """Result of one sweep. `deleted` counts objects by the kind of their expiry record."""

    deleted: Counter[str] = field(default_factory=Counter[str])
    failures: int = 0
    unfinished: bool = False
    """More is due."""
    stopped: bool = False
    """The sweep ended because the store fails."""
    failed: set[str] = field(default_factory=set[str])
    """Keys of expiry records left to the next sweep."""


class Sweeper:
    """Carries out what is due. One for each relay process."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Callable[[], float] = time.time,
        deleted: Callable[[str], None] = lambda vault: None,
    ) -> None:
        """`deleted` is called with each vault in which something was deleted."""
        self._store = store
        self._clock = clock
        self._deleted = deleted
        self._condemned = Condemned(store, retry_seconds=0, clock=clock)
        self._dropped = DroppedVaults(store, clock=clock)
        self._deletions = VaultDeletions(store, clock=clock)
        self._invites = Invites(store, clock=clock)
        self.sweeps = 0
        self.failures = 0
        self.deleted: Counter[str] = Counter()
        """Objects deleted by this process, by kind."""

    async def run(self) -> Swept:
        """Sweep until nothing is due or the store fails. Errors of the store are logged, not raised."""
        swept = Swept(unfinished=True)
        while swept.unfinished and not swept.stopped:
            swept.unfinished = False
            await self._pass(swept)
        self.sweeps += 1
        self.failures += swept.failures
        self.deleted += swept.deleted
        return swept

    async def _pass(self, swept: Swept) -> None:
        """Carry out each record that is due once."""
        unavailable = 0
        try:
            async for page in self._due():
                # Short deletions first, so that an invite does not wait for a vault.
                for expiry in sorted(page, key=lambda each: (each.kind is not ExpiryKind.INVITE, each.when)):
                    if expiry.key in swept.failed:
                        continue
                    try:
                        await self._carry_out(expiry, swept)
                    except Closed:
                        raise
                    except RelayError as error:
                        _log.warning("sweeping (%s) failed and will be retried: %s", expiry.kind.value, error)
                        swept.failures += 1
                        swept.failed.add(expiry.key)
                        unavailable += isinstance(error, StoreUnavailable | Busy)
                        if unavailable >= FAILURES_MAX:
                            swept.stopped = True
                            return
        except RelayError as error:
            _log.warning("sweeping failed and will be retried: %s", error)
            swept.failures += 1
            swept.stopped = True

    async def _due(self) -> AsyncIterator[list[Expiry]]:
        now, after, more = self._clock(), "", True
        while more:
            page = await self._store.list(EXPIRY_PREFIX, after=after)
            keys = [entry.key for entry in page.entries]
            due = [key for key in keys if (when := due_at(key)) is not None and when <= now]
            found = [parse_expiry(key) for key in due]
            # Kinds that only a newer version knows are left to it.
            yield [expiry for expiry in found if expiry is not None]
            more = page.more and bool(due) and due[-1] == keys[-1]
            after = keys[-1] if keys else after

    async def _carry_out(self, expiry: Expiry, swept: Swept) -> None:
        remove = {
            ExpiryKind.INVITE: self._remove_slots,
            ExpiryKind.MAILBOX: self._remove_invite,
            ExpiryKind.SHORT: self._remove_place,
            ExpiryKind.CONDEMNED: self._remove_condemned,
            ExpiryKind.DROPPED: self._remove_vault,
            ExpiryKind.DELETION: self._close_vault,
            ExpiryKind.DELETED: self._remove_remains,
        }[expiry.kind]
        if await remove(expiry, swept):
            await self._store.delete(expiry.key)

    async def _remove_slots(self, expiry: Expiry, swept: Swept) -> bool:
        mailbox = expiry.rest.partition(".")[0]
        invite = await self._invites.find(expiry.vault, mailbox)
        if invite is not None and invite.state(self._clock()) is InviteState.OPEN:
            return True  # the invite was extended: another record has the new time
        await self._store.delete(short_key(expiry.vault, mailbox))
        return await self._remove_all(mailbox_prefix(expiry.vault, mailbox), expiry, swept)

    async def _remove_invite(self, expiry: Expiry, swept: Swept) -> bool:
        invite = await self._invites.find(expiry.vault, expiry.rest)
        if invite is not None and self._clock() < invite.expires_at + INVITE_KEPT_SECONDS:
            return True  # as above
        if not await self._remove_all(mailbox_prefix(expiry.vault, expiry.rest), expiry, swept):
            return False
        if invite is not None:
            await self._store.delete(short_key(expiry.vault, expiry.rest))  # written while it was closed
            for key in record_keys(expiry.vault, expiry.rest):
                await self._delete([key], expiry, swept)
        return True

    async def _remove_place(self, expiry: Expiry, swept: Swept) -> bool:
        await self._delete([place_key(expiry.rest)], expiry, swept)
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
            return True  # restored; if dropped again, another record has the new time
        registry, record, asked = f"r/vault/{vault}/", dropped_key(vault), deletions_prefix(vault)

        async def is_dropped() -> bool:
            return await self._dropped.until(vault) == until

        # The two that tell devices and the operator whose wish it was go last.
        for prefix, kept in (
            (vault_prefix(vault), ()),
            (condemned_prefix(vault), ()),
            (registry, (record, asked)),
            (asked, ()),
        ):
            if not await self._remove_all(prefix, expiry, swept, keep=kept, named=is_dropped):
                swept.unfinished = True
                return False
        if await is_dropped():
            await self._store.delete(INDEX_KEY)  # it has the vault's origin
            await self._store.delete(record)
        return True

    async def _close_vault(self, expiry: Expiry, swept: Swept) -> bool:
        if not await self._deletions.is_due(expiry.vault):
            return True  # called off; if asked for again, another record has the new time
        due = (await self._deletions.newest(expiry.vault)).due
        await self._deletions.keep_remains(expiry.vault, due)  # §R4.7-6
        await self._dropped.drop(expiry.vault, due, sooner=True)
        return True

    async def _remove_remains(self, expiry: Expiry, swept: Swept) -> bool:
        await self._deletions.forget(expiry.vault)
        return True

    async def _remove_all(
        self,
        prefix: str,
        expiry: Expiry,
        swept: Swept,
        *,
        last: str | None = None,
        keep: tuple[str, ...] = (),
        named: Callable[[], Awaitable[bool]] | None = None,
    ) -> bool:
        """Delete a slice of the keys under a prefix up to `last`, except what begins with one of `keep`.

        Returns whether that was all.

        `named` is asked before each page whether the record still applies: another process may have deleted the vault, and
        its owner may have created it again.
        """
        after = ""
        for _ in range(SLICE_PAGES):
            page = await self._store.list(prefix, after=after)
            keys = [entry.key for entry in page.entries]
            within = [key for key in keys if last is None or key <= last]
            if within and named is not None and not await named():
                return True
            await self._delete([key for key in within if not key.startswith(keep)], expiry, swept)
            if not page.more or len(within) < len(keys):
                return True
            after = keys[-1]
        return False

    async def _delete(self, keys: Sequence[str], expiry: Expiry, swept: Swept) -> None:
        """Delete objects, a few at once. Raises the first error."""
        for at in range(0, len(keys), DELETES_AT_ONCE):
            some = keys[at : at + DELETES_AT_ONCE]
            ended = await asyncio.gather(*map(self._store.delete, some), return_exceptions=True)
            failed = [each for each in ended if each is not None]
            swept.deleted[expiry.kind.value] += len(some) - len(failed)
            self._deleted(expiry.vault)
            if failed:
                raise failed[0]


class Timetable:
    """Runs a sweep at intervals."""

    def __init__(self, sweep: Callable[[], Coroutine[Any, Any, object]], *, seconds: float) -> None:
        """`seconds` between two sweeps; 0 for none."""
        self._run = sweep
        self._seconds = seconds
        self._scheduler: Any = None
        self._sweep: asyncio.Task[object] | None = None

    def start(self) -> None:
        """Start on the running loop. Idempotent."""
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
        """Cancel a running sweep, which the next process resumes. Idempotent."""
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
            self._sweep = asyncio.create_task(self._run())
            self._sweep.add_done_callback(_log_mistake)


def _log_mistake(sweep: asyncio.Task[object]) -> None:
    if not sweep.cancelled() and (error := sweep.exception()) is not None:
        _log.error("unexpected error in the sweeper", exc_info=error)
