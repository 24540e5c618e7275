"""File changes as a stream: events where the file system sends them, and a poll where it does not. Linux's own events on Linux,
those that `watchfiles` brings elsewhere.

The first item comes as soon as the watcher is set up, so that no change is lost between reading everything and the first
event. Folders that do not exist yet are waited for, on Linux by what is made above them.
"""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing, suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crystal_node.base.errors import LocalStorage

if TYPE_CHECKING:
    from crystal_node.base.inotify import Appearing

HAS_INOTIFY = sys.platform == "linux"
_FOLLOW_UP_SECONDS = 1.0
"""Time until another look after something new appeared: a file in a folder that was just made may raise no event."""

Folders = Callable[[], list[Path]]
Changed = frozenset[tuple[str, bool]] | None
"""Paths, and whether something is new there; None if anything may have changed."""


@dataclass(frozen=True, slots=True)
class ChangeTimes:
    """Seconds."""

    poll: float = 60.0
    """How often everything is read even without an event (network mounts send none)."""
    settle: float = 0.05
    """A burst of events ends when it pauses this long."""
    burst: float = 0.4
    """A burst without a pause is cut after this long."""
    appear: float = 1.0
    """Seconds between looks for a missing folder where the system has no events for it."""
    appear_watched: float = 30.0
    """The same where the system has events, also for folders that are to be watched from now on."""


async def changes(
    folders: Folders, concerns: Callable[[str], bool], times: ChangeTimes
) -> AsyncGenerator[frozenset[str] | None, None]:
    """Yields changed paths that concern the caller, or None for "read everything". Never ends by itself."""
    while True:
        present = _present(folders)
        if not present:
            yield None
            await _others_or(times.poll, folders, present, times)
            continue
        async with aclosing(_watched(present, folders, concerns, times)) as watched:
            async for paths in watched:
                yield paths


async def _watched(
    present: list[Path], folders: Folders, concerns: Callable[[str], bool], times: ChangeTimes
) -> AsyncGenerator[frozenset[str] | None, None]:
    """Changes in the folders that exist; ends when others exist."""
    events = _events(present, concerns, times)
    pending = asyncio.ensure_future(anext(events))
    try:
        await asyncio.sleep(0)  # lets the watcher be set up before everything is read
        yield None
        now = asyncio.get_running_loop().time
        due, again = now() + times.poll, inf  # events put off the look that is due anyway no further
        while _present(folders) == present:
            await _first(pending, _others_or(max(min(due, again) - now(), 0.0), folders, present, times))
            if not pending.done():
                due, again = now() + times.poll, inf
                if _present(folders) == present:
                    yield None
                continue
            found = pending.result()
            pending = asyncio.ensure_future(anext(events))
            if found is None:
                due, again = now() + times.poll, inf
                await asyncio.sleep(0)  # as above: the watcher begins anew
                yield None
                continue
            again = now() + _FOLLOW_UP_SECONDS if any(new for _, new in found) else inf
            yield frozenset(path for path, _ in found)
    finally:
        with suppress(StopAsyncIteration):
            await _cancelled(pending)
        await events.aclose()


async def _events(
    present: list[Path], concerns: Callable[[str], bool], times: ChangeTimes
) -> AsyncGenerator[Changed, None]:
    """Events below these folders, a burst of them at a time."""
    if HAS_INOTIFY:
        from crystal_node.base.inotify import Inotify

        while True:
            watch = Inotify([str(folder) for folder in present])
            try:
                while (events := await watch.next(concerns, times.settle, times.burst)) is not None:
                    yield events
            finally:
                watch.close()
            yield None
    from watchfiles import (
        Change,  # lazy: not loaded on Linux
        awatch,  # pyright: ignore[reportUnknownVariableType]  names anyio's types, which are optional
    )

    stop = asyncio.Event()
    watched = awatch(
        *present,
        watch_filter=lambda _change, path: concerns(path),
        debounce=int(times.burst * 1000),
        step=int(times.settle * 1000),
        stop_event=stop,
        ignore_permission_denied=True,
    )
    try:
        async for found in watched:
            yield frozenset((path, change is Change.added) for change, path in found)
    finally:
        stop.set()
        await watched.aclose()


async def _first(pending: "asyncio.Future[Changed]", other: Coroutine[None, None, None]) -> None:
    """Returns when either is done, and cancels ``other``."""
    task = asyncio.ensure_future(other)
    try:
        either: set[asyncio.Future[Any]] = {pending, task}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _cancelled(task)


async def _cancelled(task: "asyncio.Future[Any]") -> None:
    """Cancels a task and waits for its end. Raises its error.

    A cancellation of the caller that comes meanwhile is not taken for the task's own: the caller would go on for ever.
    """
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.result()


async def _others_or(seconds: float, folders: Folders, present: list[Path], times: ChangeTimes) -> None:
    """Returns after that time, or as soon as other folders exist than those in ``present``."""
    if folders() == present:
        await asyncio.sleep(seconds)
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while _present(folders) == present:
                await _appeared([str(folder) for folder in folders() if folder not in present], times)


async def _appeared(missing: list[str], times: ChangeTimes) -> None:
    """Returns as soon as one of these folders may exist, or it is time to look."""
    try:
        watch = _appearing(missing)
    except (OSError, LocalStorage):  # as where the system tells nothing
        watch = None
    if watch is None:
        await asyncio.sleep(times.appear)
        return
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(times.appear_watched):
                await watch.wait()
                await asyncio.sleep(times.settle)  # what comes and goes wakes no more often than this
    finally:
        watch.close()


def _appearing(missing: list[str]) -> "Appearing | None":
    if not HAS_INOTIFY:
        return None
    from crystal_node.base.inotify import Appearing

    return Appearing(missing)


def _present(folders: Folders) -> list[Path]:
    return [folder for folder in folders() if os.path.isdir(folder)]  # noqa: PTH112  false for any name
