"""``crystal sync --watch``: a device, its relay and its transcripts, driven by ``watch.py``, with signals and
words."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from math import inf
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING

from crystal_crypto.errors import CrystalError
from crystal_mirror.keys import VaultKeys
from crystal_mirror.moving.handover import look_for_calls
from crystal_mirror.moving.terms import due_in_ms
from crystal_mirror.news import news, shown_slot
from crystal_node.clock import now_ms
from crystal_node.device import Device
from crystal_node.errors import describe
from crystal_node.files.watching import FilesWatch
from crystal_node.locking import FileLock
from crystal_node.members.newsdesk import line_of
from crystal_node.recording import Recorder
from crystal_node.sync import Syncer
from crystal_node.watch import Report, Watch, WatchEvent, WatchTimes
from crystal_node.wording import iso

if TYPE_CHECKING:
    from crystal_relay.store import Store

_WATCH_LOCK_SECONDS = 1.0
_MODEL_CHECK_SECONDS = 10.0
SNAPSHOT_CHECK_SECONDS = 30.0
SNAPSHOT_AGAIN_SECONDS = 600.0
"""After a snapshot could not be made."""
TURN_SECONDS = 0.2
"""Between two rounds of which the first left something to do: longer than whoever waits for the home looks away."""
POSITION_SECONDS = 900.0
"""A watcher tells the others how far it is at most this often: with ten devices each message would else cost ten writes."""


class DeviceWork:
    """What the watcher drives, on a real device."""

    def __init__(
        self,
        device: Device,
        store: "Store",
        syncer: Syncer,
        report: Report,
        rounded: Callable[[], None] = lambda: None,
    ) -> None:
        """``report`` is told what is beside the work: news of the vault, and what could not be done for it. ``rounded`` is
        called after each round."""
        self._rounded = rounded
        self._device = device
        self._report = report
        self._told_slot = shown_slot(device.member)
        self._told_problem = ""
        self._syncer = syncer
        self._recorder = Recorder(device)
        self._keys = VaultKeys(device.member.vault)
        self._nudge = device.settings.home.nudge_file
        self._cursor_written = False
        self._looked: dict[str, str] = {}
        self._more = False

    async def capture(self, paths: frozenset[str] | None) -> str:
        chosen = None if paths is None else [Path(path) for path in paths if Path(path) != self._nudge]
        if chosen == []:
            return ""
        return (await self._recorder.record(chosen)).words()

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
        self._more = result.report.more
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
        # Most cursors are reports that ask nothing of this device: they are looked at, and wake no round.
        looked = self._looked.get(prefix)
        fresh = await self._syncer.wait(prefix, looked, seconds)
        if fresh != looked:
            called = await self._syncer.run(look_for_calls(self._device.member))
            self._looked[prefix] = fresh
            self._cursor_written |= called
            if called:
                return fresh
        return token if token is not None else fresh

    def due(self) -> float:
        if self._more:
            return 0.0
        left = due_in_ms(self._device.member, now_ms())
        return inf if left is None else left / 1000

    def folders(self) -> list[Path]:
        return [*self._recorder.folders(), self._nudge.parent]

    def concerns(self, path: str) -> bool:
        return self.wakes(path) or self._recorder.concerns(Path(path))

    def wakes(self, path: str) -> bool:
        return Path(path) == self._nudge

    def _tell_news(self) -> None:
        """Says it as it happens. It stays news for the person: nobody may be reading along."""
        member = self._device.member
        for piece in news(member, self._told_slot):
            self._report(WatchEvent.NEWS, line_of(piece, member.device_id))
        self._told_slot = max(self._told_slot, member.log.next_slot - 1)


async def watch_device(device: Device, *, as_json: bool, times: WatchTimes | None = None) -> None:
    """Watches until SIGTERM, SIGINT or SIGHUP.

    Raises:
        HomeBusy: another process watches this home.
        Revoked: this device is out; nothing that it does from here on would count.
    """
    device.member.check_active()
    home = device.settings.home
    home.nudge_folder.mkdir(mode=0o700, exist_ok=True)
    with FileLock(home.watch_lock, purpose="crystal sync --watch", wait_seconds=_WATCH_LOCK_SECONDS):
        home.nudge_file.touch(0o600)
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, stop.set)
        report = _reporter(as_json)
        async with device.online() as store:
            syncer = Syncer(
                device,
                store,
                purpose="crystal sync --watch",
                progress=lambda text: report(WatchEvent.PROGRESS, text),
                position_seconds=POSITION_SECONDS,
                gives_way=True,
            )
            uniform = SystemRandom().uniform
            files = FilesWatch(device, syncer, report, uniform)
            files_task = asyncio.create_task(files.run())
            files_task.add_done_callback(
                lambda _: stop.set()
            )  # it ends by an error only, and that ends the program
            beside = [
                files_task,
                asyncio.create_task(_release_idle_model(syncer)),
                asyncio.create_task(_keep_snapshots(syncer, lambda: os.utime(home.nudge_file), report)),
            ]
            watch = Watch(
                DeviceWork(device, store, syncer, report, files.moved),
                report=report,
                stop=stop,
                uniform=uniform,
                times=times,
            )
            try:
                await watch.run()
            finally:
                for task in beside:
                    task.cancel()
                outcomes = await asyncio.gather(*beside, return_exceptions=True)
                syncer.close()
            for outcome in outcomes:
                if isinstance(outcome, Exception):
                    raise outcome


async def _release_idle_model(syncer: Syncer) -> None:
    while True:
        await asyncio.sleep(_MODEL_CHECK_SECONDS)
        syncer.release_idle_model()


async def _keep_snapshots(syncer: Syncer, wake: Callable[[], None], report: Report) -> None:
    """Makes a snapshot whenever one is due; ``wake`` asks for the round that announces it."""
    while True:
        await asyncio.sleep(SNAPSHOT_CHECK_SECONDS)
        try:
            if await syncer.snapshot():
                wake()
        except CrystalError as error:
            report(
                WatchEvent.FAILED,
                f"a snapshot could not be made: {describe(error).message}; it is tried again",
            )
            await asyncio.sleep(SNAPSHOT_AGAIN_SECONDS)


def _reporter(as_json: bool) -> Report:
    """Says what happens, a line each; with JSON, a document a line. Failures go to standard error."""

    def report(event: WatchEvent, text: str) -> None:
        stream = sys.stderr if event is WatchEvent.FAILED else sys.stdout
        moment = iso(now_ms()) or ""
        if as_json:
            line = json.dumps({"at": moment, "event": event.value, "text": text}, ensure_ascii=False)
        else:
            line = f"{moment[:19].replace('T', ' ')}  {event.value}: {text}"
        with suppress(BrokenPipeError):  # whoever read our output has gone; the work goes on
            stream.write(line + "\n")
            stream.flush()

    return report
