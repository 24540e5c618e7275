"""File changes as a stream: events where the file system sends them, and a poll where it does not.

The first item comes as soon as the watcher stands, so that nothing falls between "looked at everything" and
"told of changes". Folders that appear later are found at the next poll, by ending: the caller begins again.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path

from watchfiles import Change
from watchfiles import awatch as _awatch  # pyright: ignore[reportUnknownVariableType]  names anyio's types, which are optional

_FOLLOW_UP_SECONDS = 1.0
"""After something new appeared we look again: a file made in a folder that is a moment old may have raised no event."""


@dataclass(frozen=True, slots=True)
class ChangeTimes:
    """Seconds."""

    poll: float = 60.0
    """Everything is looked at this often even if no event arrives (network mounts send none)."""
    settle: float = 0.05
    """A burst of events is taken as one when it pauses this long."""
    burst: float = 0.4
    """A burst that does not pause is taken after this long."""


async def changes(
    folders: Callable[[], list[Path]], concerns: Callable[[str], bool], times: ChangeTimes
) -> AsyncGenerator[frozenset[str] | None, None]:
    """Yields changed paths that concern the caller, or None for "look at everything". Never ends by itself."""
    while True:
        present = _present(folders)
        if not present:
            yield None
            await asyncio.sleep(times.poll)
            continue
        async with aclosing(_watched(present, concerns, times)) as watched:
            async for paths in watched:
                yield paths
                if paths is None and _present(folders) != present:
                    break


async def _watched(
    folders: list[Path], concerns: Callable[[str], bool], times: ChangeTimes
) -> AsyncGenerator[frozenset[str] | None, None]:
    def wanted(_change: Change, path: str) -> bool:
        return concerns(path)

    stop = asyncio.Event()
    events = _awatch(
        *folders,
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
        while True:
            await asyncio.wait({pending}, timeout=pause)
            if not pending.done():
                pause = times.poll
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


def _present(folders: Callable[[], list[Path]]) -> list[Path]:
    return [folder for folder in folders() if folder.is_dir()]
