"""File changes as a stream: events where the file system sends them, and a poll where it does not.

The first item comes as soon as the watcher stands, so that nothing falls between "looked at everything" and
"told of changes". Folders that do not exist yet are looked for every few seconds.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from watchfiles import Change
from watchfiles import awatch as _awatch  # pyright: ignore[reportUnknownVariableType]  names anyio's types, which are optional

_FOLLOW_UP_SECONDS = 1.0
"""After something new appeared we look again: a file made in a folder that is a moment old may have raised no event."""

Folders = Callable[[], list[Path]]
Changed = set[tuple[Change, str]]


@dataclass(frozen=True, slots=True)
class ChangeTimes:
    """Seconds."""

    poll: float = 60.0
    """Everything is looked at this often even if no event arrives (network mounts send none)."""
    settle: float = 0.05
    """A burst of events is taken as one when it pauses this long."""
    burst: float = 0.4
    """A burst that does not pause is taken after this long."""
    appear: float = 1.0
    """A folder that is not there is looked for this often."""


async def changes(
    folders: Folders, concerns: Callable[[str], bool], times: ChangeTimes
) -> AsyncGenerator[frozenset[str] | None, None]:
    """Yields changed paths that concern the caller, or None for "look at everything". Never ends by itself."""
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
    """Changes in the folders that are there; ends when other ones are."""

    def wanted(_change: Change, path: str) -> bool:
        return concerns(path)

    stop = asyncio.Event()
    events = _awatch(
        *present,
        watch_filter=wanted,
        debounce=int(times.burst * 1000),
        step=int(times.settle * 1000),
        stop_event=stop,
        ignore_permission_denied=True,
    )
    pending = asyncio.ensure_future(anext(events))
    try:
        await asyncio.sleep(0)  # lets the watcher stand before everything is looked at
        yield None
        pause = times.poll
        while _present(folders) == present:
            await _first(pending, _others_or(pause, folders, present, times))
            if not pending.done():
                pause = times.poll
                if _present(folders) == present:
                    yield None
                continue
            found = pending.result()
            pending = asyncio.ensure_future(anext(events))
            pause = _FOLLOW_UP_SECONDS if any(change is Change.added for change, _ in found) else times.poll
            yield frozenset(path for _, path in found)
    finally:
        stop.set()
        pending.cancel()
        with suppress(asyncio.CancelledError, StopAsyncIteration):
            await pending
        await events.aclose()


async def _first(pending: "asyncio.Future[Changed]", other: Coroutine[None, None, None]) -> None:
    """Returns when either is done; ``other`` then works no more."""
    task = asyncio.ensure_future(other)
    try:
        either: set[asyncio.Future[Any]] = {pending, task}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _others_or(seconds: float, folders: Folders, present: list[Path], times: ChangeTimes) -> None:
    """Returns after that time, or as soon as other folders are there than those that were present."""
    if folders() == present:
        await asyncio.sleep(seconds)
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while _present(folders) == present:  # noqa: ASYNC110  the file system signals nothing here
                await asyncio.sleep(times.appear)


def _present(folders: Folders) -> list[Path]:
    return [folder for folder in folders() if folder.is_dir()]
