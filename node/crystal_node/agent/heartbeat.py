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
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROUTES = Path("/proc/net/route")
ASK_SECONDS_MAX = 2.0
_ANYWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
"""Addresses for documentation. Connecting a datagram socket sends nothing: the system only chooses the way."""
_METERED = (1, 3)
"""NetworkManager's NM_METERED_YES and NM_METERED_GUESS_YES."""


def network_identity(routes: Path = ROUTES) -> tuple[str, ...]:
    """What changes when the network does; () without any."""
    return (*_sources(), *_gateways(routes))


def is_metered() -> bool:
    """Asks NetworkManager, where there is one. Blocks for moments: call it in a thread."""
    if not sys.platform.startswith("linux"):
        return False
    from jeepney import DBusAddress, Properties
    from jeepney.io.blocking import open_dbus_connection

    manager = DBusAddress(
        "/org/freedesktop/NetworkManager", "org.freedesktop.NetworkManager", "org.freedesktop.NetworkManager"
    )
    # No bus, no NetworkManager on it, or one that answers something else: all of them mean "not known".
    with suppress(Exception), open_dbus_connection(bus="SYSTEM", auth_timeout=ASK_SECONDS_MAX) as connection:
        reply = connection.send_and_get_reply(Properties(manager).get("Metered"), timeout=ASK_SECONDS_MAX)
        answer: tuple[str, object] = reply.body[0]  # pyright: ignore[reportUnknownVariableType]  jeepney has no types
        return answer[1] in _METERED
    return False


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


BEAT_SECONDS = 1.0
SLEPT_SECONDS = 30.0
"""Between two beats: then connections are dead, and pauses have lost their meaning."""
NETWORK_BEATS = 5

ConfigStamp = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What is called, with one word about why where that is for people."""

    config_file: Path
    again: Callable[[str], None]
    settings: Callable[[], None]
    asked: Callable[[], None]
    every_minute: Callable[[], None] = lambda: None
    """After some beats, a minute's worth."""
    elapsed: Callable[[], float] | None = None
    wall: Callable[[], float] = time.time
    where: Callable[[], tuple[str, ...]] = network_identity
    read: ConfigStamp | None = None
    """The file as it was when the settings were read."""
    beat: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def run(self) -> None:
        """Goes on until it is cancelled."""
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


def config_stamp(path: Path) -> ConfigStamp:
    """What changes when a file is written anew."""
    try:
        info = path.stat()
    except OSError:
        return (0, 0, 0)
    return (info.st_ino, info.st_size, info.st_mtime_ns)
