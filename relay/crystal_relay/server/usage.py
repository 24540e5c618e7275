"""Quotas: how much each vault stores, and that it does not exceed its quota; likewise all vaults together and the cap.

Counted per process, so that a request needs no access to the store: one listing of the vault after its first write, in the
background, and from then on this process's own writes. A vault is counted again when its count is a day old, when own writes
have added an eighth of the quota, and when it is full: soon after a deletion, else as often as its size allows.

Tolerance: a process accepts writes until it has counted the vault. It does not know what other processes wrote since its last
count: with n processes a vault can exceed its quota by up to (n - 1) eighths, and by objects that arrive during a listing or
are in flight when the last one is admitted; the next count finds them. One that is committed before a listing and reported
after it counts twice until the next. Large bodies count from their beginning. Overwritten cursors count each time, until the
vault is counted again.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from crystal_relay.errors import QuotaExceeded, RelayAtCap, RelayError, StoreFull
from crystal_relay.keys import VAULTS_PREFIX, vault_prefix
from crystal_relay.limits import LIST_LIMIT_MAX
from crystal_relay.server.settings import RelaySettings
from crystal_relay.store import Store

VAULTS_MAX = 65_536
"""Vaults whose counts are remembered."""
COUNTS_AT_ONCE = 2
"""Vaults that are listed concurrently."""
COUNT_AGE_SECONDS_MAX = 24 * 3600.0
TRIES_MAX = 3
"""A listing of one page is repeated if something was stored meanwhile."""
RECOUNT_SECONDS = 60.0
"""Shortest time between counts of a full vault in which something was deleted."""
RECOUNT_PAGE_SECONDS = 30.0
"""The same if nothing was deleted as far as this process knows, for each page of its listing."""
GROWTH_SHARE = 8
"""Own writes of an eighth of the quota make a count outdated."""
CAP_RECOUNT_PAGE_SECONDS = 1.0
"""Shortest time between counts of a relay at its cap, for each page of the listing."""
ALL_VAULTS = ""
"""Stands for all vaults together."""
_NONE = -1
"""A mark that every write is beyond."""
VITAL_SHARE = 64
"""A 64th of the quota is added for cursors and the device log, without which nothing could be deleted or revoked."""

_log = logging.getLogger("crystal_relay.server")


@dataclass(frozen=True, slots=True)
class VaultUsage:
    """Objects and bytes of a vault."""

    bytes: int
    entries: int


@dataclass(frozen=True, slots=True)
class UsageTotals:
    """Of all vaults that one process has counted: each is counted after its first write there."""

    vaults: int
    full_vaults: int
    entries: int
    bytes: int


async def count_usage(
    store: Store, vault: str, *, prefix_of: Callable[[str], str] = vault_prefix
) -> VaultUsage:
    """List the vault. One store operation for each 1,000 entries."""
    size = entries = 0
    after, more = "", True
    while more:
        page = await store.list(prefix_of(vault), after=after)
        size += sum(entry.size for entry in page.entries)
        entries += len(page.entries)
        more = page.more
        after = page.entries[-1].key if page.entries else after
    return VaultUsage(size, entries)


@dataclass(slots=True)
class _Count:
    """Count of one vault. `known` is False until it was listed for the first time."""

    bytes: int = 0
    entries: int = 0
    quota_bytes: int = 0
    """The vault's own, or the relay's; 0 for no limit."""
    known: bool = False
    stale: bool = False
    """The vault may have less than counted."""
    counting: bool = False
    began_at: float = float("-inf")
    """Start of the latest listing."""
    not_before: float = float("-inf")
    """Earliest time of the next listing, after a failure."""
    bytes_mark: int = 0
    entries_mark: int = 0
    """Writes up to this number are admitted without a check."""
    fresh_until: float = float("-inf")
    arriving_bytes: int = 0
    """Bytes of objects that were admitted and are not stored yet."""
    arriving_entries: int = 0
    disturbed: bool = False
    """Something was stored during the latest listing, and may be missing from it."""
    quota_stale: bool = False
    """The vault's quota may have changed: it is read again at the next write."""
    bytes_mark_kept: int = 0
    """The mark before that."""


class _Arriving:
    """An arriving object, as a context manager: its bytes count for its vault and for all vaults, where these are counted."""

    __slots__ = ("_of_all", "_of_vault", "_size")

    def __init__(self, of_vault: _Count | None, of_all: _Count | None, size: int) -> None:
        self._of_vault = of_vault
        self._of_all = of_all
        self._size = size

    def __enter__(self) -> None:
        for count in (self._of_vault, self._of_all):
            if count is not None:
                count.arriving_bytes += self._size  # §R9.1-3
                count.arriving_entries += 1

    def __exit__(self, *_: object) -> None:
        for count in (self._of_vault, self._of_all):
            if count is not None:
                count.arriving_bytes -= self._size
                count.arriving_entries -= 1


class Usage:
    """Quotas of all vaults. One for each relay process."""

    def __init__(
        self,
        store: Store,
        settings: RelaySettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        prefix_of: Callable[[str], str] = vault_prefix,
        quota_of: Callable[[str], Awaitable[int]] | None = None,
        cap: "RelayUsage | None" = None,
    ) -> None:
        """`quota_of` returns the bytes that a vault may have if it has a quota of its own, else 0. `cap`: of all vaults.

        `prefix_of` returns the prefix of a vault's keys; spaces of the prototype's devices count as vaults."""
        self._store = store
        self._prefix_of = prefix_of
        self._quota_bytes = settings.quota_bytes
        self._quota_entries = settings.quota_entries
        self._quota_of = quota_of
        self._cap = cap
        self._limited = bool(settings.quota_bytes or settings.quota_entries or quota_of)
        self._clock = clock
        self._counts: OrderedDict[str, _Count] = OrderedDict()
        self._places = asyncio.Semaphore(COUNTS_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self.refused = 0
        self.listings = 0

    @property
    def refused_by_cap(self) -> int:
        """Writes that the cap of all vaults refused."""
        return self._cap.refused if self._cap is not None else 0

    def admit(self, vault: str, size: int, *, vital: bool = False) -> None:
        """Raise QuotaExceeded if the vault has no space for another object of `size` bytes, RelayAtCap if all have none."""
        if self._cap is not None:
            self._cap.admit(ALL_VAULTS, size, vital=vital)
        if not self._limited:
            return
        count = self._counts.get(vault)
        if (
            count is None
            or count.bytes + count.arriving_bytes + size > count.bytes_mark
            or count.entries + count.arriving_entries >= count.entries_mark
            or count.fresh_until < self._clock()
        ):
            self._consider(vault, size, count, vital=vital)

    def arriving(self, vault: str, size: int) -> "_Arriving":
        """Count an admitted object within the `with`, while it arrives, so that concurrent writes cannot exceed the quota."""
        of_all = None if self._cap is None else self._cap._counts.get(ALL_VAULTS)  # noqa: SLF001  its own kind
        return _Arriving(self._counts.get(vault), of_all, size)

    def stored(self, vault: str, size: int) -> None:
        """Count a stored object."""
        if self._cap is not None:
            self._cap.stored(ALL_VAULTS, size)
        count = self._counts.get(vault)
        if count is not None:
            count.bytes += size
            count.entries += 1
            count.disturbed = True

    def deleted(self, vault: str) -> None:
        """Note that something may have been deleted: a full vault is counted again soon."""
        if self._cap is not None:
            self._cap.deleted(ALL_VAULTS)
        count = self._counts.get(vault)
        if count is not None:
            count.stale = True

    def forget(self, vault: str) -> None:
        """Count the vault again at the next write."""
        self._counts.pop(vault, None)

    def totals(self) -> UsageTotals:
        """Of the vaults that are counted here. Takes milliseconds for ten thousands of them."""
        known = [count for count in self._counts.values() if count.known]
        return UsageTotals(
            vaults=len(known),
            full_vaults=sum(1 for count in known if self._is_full(count, 1, vital=False)),
            entries=sum(count.entries for count in known),
            bytes=sum(count.bytes for count in known),
        )

    def quota_changed(self, vault: str | None) -> None:
        """Read the quota of a vault, or of all, again at the next write. What it stores is not listed again for this."""
        for each in list(self._counts) if vault is None else [vault]:
            count = self._counts.get(each)
            if count is None:
                continue
            if not count.quota_stale:
                count.quota_stale, count.bytes_mark_kept = True, count.bytes_mark
            count.bytes_mark = _NONE

    async def counted(self) -> None:
        """Wait until no listing is running."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def aclose(self) -> None:
        """Cancel the listings. Idempotent."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- inside ---

    def _consider(self, vault: str, size: int, count: _Count | None, *, vital: bool) -> None:
        """The check of `admit` for a write beyond the mark."""
        now = self._clock()
        if count is None:
            count = self._counts[vault] = _Count(quota_bytes=self._quota_bytes)
            if len(self._counts) > VAULTS_MAX:
                self._counts.popitem(last=False)
        self._counts.move_to_end(vault)
        full = count.known and self._is_full(count, size, vital=vital)
        pause = self._pause(count) if full and not count.quota_stale else 0.0
        if not count.counting and now >= max(count.began_at + pause, count.not_before):
            self._begin(vault, count)
        if full:
            self.refused += 1
            raise self._refusal(count, size)

    def _is_full(self, count: _Count, size: int, *, vital: bool) -> bool:
        share = VITAL_SHARE if vital else 0
        most_bytes = count.quota_bytes + (count.quota_bytes // share if share else 0)  # §R9.1-2
        most_entries = self._quota_entries + (self._quota_entries // share + 1 if share else 0)
        return bool(
            (count.quota_bytes and count.bytes + count.arriving_bytes + size > most_bytes)  # §R9.1-1
            or (self._quota_entries and count.entries + count.arriving_entries >= most_entries)
        )

    def _refusal(self, count: _Count, size: int) -> StoreFull:
        return QuotaExceeded(
            f"the vault has no room for {size} bytes more: it has {count.entries} objects of "
            f"{self._quota_entries or 'any number'} and {count.bytes} bytes of {count.quota_bytes or 'any number'}"
        )

    def _pause(self, count: _Count) -> float:
        """Seconds between the starts of two listings of a full vault."""
        if count.stale:
            return RECOUNT_SECONDS
        return max(RECOUNT_SECONDS, (1 + count.entries // 1000) * RECOUNT_PAGE_SECONDS)

    def _is_fresh(self, count: _Count) -> bool:
        """Whether what was counted still holds."""
        return count.known and not count.stale and count.fresh_until > self._clock()

    def _begin(self, vault: str, count: _Count) -> None:
        count.counting = True
        count.began_at = self._clock()
        task = asyncio.get_running_loop().create_task(self._list(vault, count))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _list(self, vault: str, count: _Count) -> None:
        try:
            async with self._places:
                only_quota, count.quota_stale = count.quota_stale and self._is_fresh(count), False
                before = count.quota_bytes
                if self._quota_of is not None:
                    count.quota_bytes = await self._quota_of(vault) or self._quota_bytes  # §R9.1-1
                if only_quota:
                    if not count.quota_stale:  # else it has changed again meanwhile
                        same = count.quota_bytes == before
                        count.bytes_mark = (
                            count.bytes_mark_kept if same else _mark(count.bytes, count.quota_bytes)
                        )
                    return
                if not count.quota_bytes and not self._quota_entries:  # nothing to compare a count with
                    count.entries_mark = _mark(0, 0)
                    count.bytes_mark = _NONE if count.quota_stale else _mark(0, 0)
                    count.fresh_until = self._clock() + COUNT_AGE_SECONDS_MAX
                    return
                found = await self._listed(vault, count)
                for _ in range(TRIES_MAX - 1):
                    if not count.disturbed or found.entries > LIST_LIMIT_MAX:
                        break
                    found = await self._listed(vault, count)
        except RelayError as error:
            _log.warning("counting a vault failed and will be retried: %s", error)
            count.not_before = self._clock() + RECOUNT_SECONDS
            return
        finally:
            count.counting = False
        count.bytes, count.entries = found.bytes, found.entries
        count.known = True
        count.bytes_mark = _NONE if count.quota_stale else _mark(count.bytes, count.quota_bytes)
        count.entries_mark = _mark(count.entries, self._quota_entries)
        count.fresh_until = self._clock() + COUNT_AGE_SECONDS_MAX

    async def _listed(self, vault: str, count: _Count) -> VaultUsage:
        count.stale = count.disturbed = False
        self.listings += 1
        return await self._count_usage(vault)

    async def _count_usage(self, vault: str) -> VaultUsage:
        return await count_usage(self._store, vault, prefix_of=self._prefix_of)


class RelayUsage(Usage):
    """What all vaults of a relay store together, against its cap. Counted like one vault that has the objects of all."""

    def __init__(
        self,
        store: Store,
        settings: RelaySettings,
        *,
        prefixes: Sequence[str] = (VAULTS_PREFIX,),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`prefixes`: under which the objects are."""
        super().__init__(
            store, replace(settings, quota_bytes=settings.cap_bytes, quota_entries=0), clock=clock
        )
        self._prefixes = prefixes

    def count(self) -> None:
        """Begin to count, before the first write. Idempotent."""
        if ALL_VAULTS not in self._counts:
            self._consider(ALL_VAULTS, 0, None, vital=False)

    @property
    def is_full(self) -> bool:
        """Whether the latest write was refused, or the count has reached the cap."""
        count = self._counts.get(ALL_VAULTS)
        return count is not None and count.known and self._is_full(count, 1, vital=False)

    async def _count_usage(self, vault: str) -> VaultUsage:
        found = [
            await count_usage(self._store, prefix, prefix_of=lambda same: same) for prefix in self._prefixes
        ]
        return VaultUsage(sum(each.bytes for each in found), sum(each.entries for each in found))

    def _refusal(self, count: _Count, size: int) -> StoreFull:
        return RelayAtCap(  # §R9.1-5
            f"this relay has no room for {size} bytes more: all of its vaults together have {count.bytes} bytes of the "
            f"{count.quota_bytes} that its operator allows"
        )

    def _pause(self, count: _Count) -> float:
        # Most of what makes room is deleted by other processes, of which this one does not hear.
        return max(RECOUNT_SECONDS, count.entries // 1000 * CAP_RECOUNT_PAGE_SECONDS)


def _mark(counted: int, quota: int) -> int:
    return min(quota, counted + max(1, quota // GROWTH_SHARE)) if quota else 1 << 62  # §R9.1-3
