"""A real device as the target of a watch."""

import asyncio
from collections.abc import Callable
from math import inf
from pathlib import Path

from crystal_mirror.handover.core import look_for_calls
from crystal_mirror.handover.terms import due_in_ms
from crystal_mirror.membership.changes import shown_slot, vault_changes
from crystal_mirror.repair.audit import newcomer_is_stuck
from crystal_mirror.store_keys import StoreKeys
from crystal_node.base.clock import now_ms
from crystal_node.base.events import Report, WatchEvent
from crystal_node.capture.recorder import Recorder
from crystal_node.device.device import Device
from crystal_node.sync.members.news import line_of
from crystal_node.sync.syncer import Syncer

TURN_SECONDS = 0.2
"""Pause between two rounds when the first left something to do; longer than the lock's polling interval."""


class DeviceTarget:
    """Its relay, its transcripts, and news of its vault."""

    def __init__(
        self,
        device: Device,
        syncer: Syncer,
        report: Report,
        rounded: Callable[[], None] = lambda: None,
    ) -> None:
        """``report`` is told news of the vault and duties that failed. ``rounded`` is called after each round."""
        self._rounded = rounded
        self._device = device
        self._report = report
        self._told_slot = shown_slot(device.member)
        self._told_problem = ""
        self._told_strange: Path | None = None
        self._syncer = syncer
        self._recorder = Recorder(device, nudges=False)
        self._keys = StoreKeys(device.member.vault)
        self._nudge = device.settings.home.nudge_file
        self._look = device.settings.home.look_file
        self._cursor_written = False
        self._looked: dict[str, str] = {}
        self._more = False

    async def capture(self, paths: frozenset[str] | None) -> str:
        changed = None if paths is None else {Path(path) for path in paths} - {self._nudge}
        if changed == set():
            return ""
        # A process that asks for a look knows no path: a hook may come before the file system's event, or where there are none.
        chosen = None if changed is None or self._look in changed else sorted(changed)
        report = await self._recorder.record(chosen)
        spots = report.counts.spots
        # A tool may write such lines all day: each file is reported once, as long as no other one is met.
        if spots and spots[0].path != self._told_strange:
            self._told_strange = spots[0].path
            self._report(WatchEvent.PROGRESS, f"capture: {report.counts.strange_words()}")
        return report.words()

    async def round(self) -> str:
        heed, self._cursor_written = self._cursor_written, False
        try:
            result = await self._syncer.brief_round(heed_cursors=heed, enough=lambda: self._cursor_written)
        except Exception:
            self._cursor_written |= heed
            raise
        finally:
            self._tell_news()
        if result.problem and result.problem != self._told_problem:
            self._report(WatchEvent.FAILED, f"{result.problem}; it is tried again")
        self._told_problem = result.problem
        self._rounded()
        self._more = result.report.more or result.embedded > 0
        if self._more:
            await asyncio.sleep(TURN_SECONDS)
        return result.words()

    def listens(self) -> tuple[str, ...]:
        keys, member = self._keys, self._device.member
        if member.is_core:
            return keys.log_prefix, keys.conversations_prefix, keys.cursor_prefix
        lead = member.log.lead
        core = () if lead is None or lead.is_freeze else (keys.cursor(lead.device),)
        return keys.log_prefix, keys.mirror_prefix, *core

    async def wait(self, prefix: str, token: str | None, seconds: float) -> str:
        if not prefix.startswith(self._keys.cursor_prefix):
            return await self._syncer.wait(prefix, token, seconds)
        # Most cursors only report a position: they are read, and wake no round unless they ask something of this device.
        looked = self._looked.get(prefix)
        fresh = await self._syncer.wait(prefix, looked, seconds)
        if fresh != looked:
            called = await self._syncer.run(look_for_calls(self._device.member))
            called |= newcomer_is_stuck(self._device.member)
            self._looked[prefix] = fresh
            self._cursor_written |= called
            if called:
                return fresh
        return token if token is not None else fresh

    def due(self) -> float:
        if self._more:
            return 0.0
        left = due_in_ms(self._device.member, now_ms())
        vectors = max(self._syncer.vectors_due(), 1.0)  # the last round made none
        return min(inf if left is None else left / 1000, vectors)

    def folders(self) -> list[Path]:
        return [*self._recorder.folders(), self._nudge.parent]

    def concerns(self, path: str) -> bool:
        return self.wakes(path) or Path(path) == self._look or self._recorder.concerns(Path(path))

    def wakes(self, path: str) -> bool:
        return Path(path) == self._nudge

    def _tell_news(self) -> None:
        """Reports news of the vault as it happens. It stays unread news: perhaps nobody reads along."""
        member = self._device.member
        for change in vault_changes(member, self._told_slot):
            self._report(WatchEvent.NEWS, line_of(change, member.device_id))
        self._told_slot = max(self._told_slot, member.log.next_slot - 1)
