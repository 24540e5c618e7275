"""Heartbeat of the background service: every two seconds it checks what changed around the process.

::

    the last beat is long ago by the clock that counts sleep   --> slept   (asleep, frozen, stopped by a debugger)
    the wall clock moved differently from that one             --> clock   (it was set)
    the addresses or gateways of this machine changed          --> network
    config.json was replaced                                   --> settings
    jobs.db was written by another process                     --> asked

A beat takes some microseconds and starts nothing. The network is known by the addresses that this machine would send from, and
on Linux by its gateways; nothing is sent.
"""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROUTES = Path("/proc/net/route")
_ANYWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
"""Addresses for documentation. Connecting a datagram socket sends nothing: the system only chooses the way."""


BEAT_SECONDS = 2.0
"""Half the wake-ups of a service at rest are beats. Requests need none: the socket wakes the service at once."""
SLEPT_SECONDS = 30.0
"""Between two beats: connections are dead then, and pauses are over."""
NETWORK_BEATS = 3
"""Beats between two looks at the network."""
MINUTE_BEATS = 30
"""Beats in a minute."""

ConfigStamp = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Calls back what changed. ``again`` is told why, for people."""

    config_file: Path
    again: Callable[[str], None]
    settings: Callable[[], None]
    asked: Callable[[], None]
    every_minute: Callable[[], None] = lambda: None
    """Called about once a minute."""
    elapsed: Callable[[], float] | None = None
    wall: Callable[[], float] = time.time
    where: Callable[[], tuple[str, ...]] = lambda: network_identity()  # noqa: PLW0108  defined below
    read: ConfigStamp | None = None
    """The file's stamp when the settings were read."""
    beat: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def run(self) -> None:
        """Beats until cancelled."""
        elapsed = self.elapsed or sleeping_clock
        beaten, shown = elapsed(), self.wall()
        here, config = self.where(), self.read or config_stamp(self.config_file)
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
            if (mark := config_stamp(self.config_file)) != config:
                config = mark
                self.settings()
            if not beats % NETWORK_BEATS and (there := self.where()) != here:
                here = there
                if there:
                    self.again("another network")
            if not beats % MINUTE_BEATS:
                self.every_minute()


def sleeping_clock() -> float:
    """Seconds that count sleep and cannot be set; of the monotonic clock where the system has no such one."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def config_stamp(path: Path) -> ConfigStamp:
    """Changes when the file is written again."""
    try:
        info = path.stat()
    except OSError:
        return (0, 0, 0)
    return (info.st_ino, info.st_size, info.st_mtime_ns)


def network_identity(routes: Path = ROUTES) -> tuple[str, ...]:
    """Changes when the network does; () without any."""
    return (*_sources(), *_gateways(routes))


def _sources() -> list[str]:
    found: list[str] = []
    for family, address in _ANYWHERE:
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
            found.append(str(probe.getsockname()[0]))
    return found


def _gateways(routes: Path) -> list[str]:
    """Interface and gateway of each default route."""
    try:
        lines = routes.read_text(errors="replace").splitlines()[1:]
    except OSError:
        return []
    fields = [line.split() for line in lines]
    return sorted(
        f"{each[0]} {each[2]}" for each in fields if len(each) > 7 and each[1] == each[7] == "00000000"
    )
