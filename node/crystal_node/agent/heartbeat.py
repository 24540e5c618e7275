"""The agent's pulse: once a second it looks whether the world went on without it.

::

    the last beat was long ago by the clock that counts sleep  --> slept   (asleep, frozen, stopped by a debugger)
    the clock on the wall moved otherwise than that one        --> clock   (somebody set it)
    this machine sends from another address, or by another gateway --> network
    config.json is another one                                 --> settings
    jobs.db was written by another process                     --> asked

Each beat costs some microseconds, and nothing is started for it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from crystal_node.agent.daemon.network import network

BEAT_SECONDS = 1.0
SLEPT_SECONDS = 30.0
"""Between two beats: then connections are dead, and pauses have lost their meaning."""
NETWORK_BEATS = 5

Mark = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Pulse:
    """What is called, with one word about why where that is for people."""

    config_file: Path
    again: Callable[[str], None]
    settings: Callable[[], None]
    asked: Callable[[], None]
    every_minute: Callable[[], None] = lambda: None
    """After some beats, a minute's worth."""
    elapsed: Callable[[], float] | None = None
    wall: Callable[[], float] = time.time
    where: Callable[[], tuple[str, ...]] = network
    read: Mark | None = None
    """The file as it was when the settings were read."""
    beat: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def run(self) -> None:
        """Goes on until it is cancelled."""
        elapsed = self.elapsed or sleeping_clock
        beaten, shown = elapsed(), self.wall()
        here, config = self.where(), self.read or mark_of(self.config_file)
        beats = 0
        while True:
            await self.beat(BEAT_SECONDS)
            beats += 1
            now, seen = elapsed(), self.wall()
            gone, moved = now - beaten, seen - shown
            beaten, shown = now, seen
            if gone > SLEPT_SECONDS or moved > SLEPT_SECONDS + gone:
                self.again("after sleep")
            elif abs(moved - gone) > SLEPT_SECONDS:
                self.again("the clock was set")
            self.asked()
            if (mark := mark_of(self.config_file)) != config:
                config = mark
                self.settings()
            if beats % NETWORK_BEATS:
                continue
            if (there := self.where()) != here:
                here = there
                if there:
                    self.again("another network")
            if not beats % (NETWORK_BEATS * 12):
                self.every_minute()


def sleeping_clock() -> float:
    """Seconds that go on while the machine sleeps, and that nobody sets; where there is no such clock, monotonic ones."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def mark_of(path: Path) -> Mark:
    """What changes when a file is written anew."""
    try:
        info = path.stat()
    except OSError:
        return (0, 0, 0)
    return (info.st_ino, info.st_size, info.st_mtime_ns)
