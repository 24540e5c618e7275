"""This machine's clocks, for times that people see. They decide and order nothing: a clock may be years off."""

import time
from datetime import UTC, datetime, timedelta, tzinfo


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def uptime_ms() -> int:
    """Milliseconds since this machine was started, sleep included where the system counts it. Nobody can set this clock."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(clock) // 1_000_000


class LocalZone(tzinfo):
    """This machine's zone with its changes between summer and winter, nameless: quicker to have than one by its name."""

    def utcoffset(self, dt: datetime | None) -> timedelta | None:
        return None if dt is None else dt.replace(tzinfo=None).astimezone().utcoffset()

    def dst(self, dt: datetime | None) -> timedelta | None:
        """Unknown, as the system tells offsets alone."""
        return None

    def tzname(self, dt: datetime | None) -> str | None:
        return None if dt is None else dt.replace(tzinfo=None).astimezone().tzname()

    def fromutc(self, dt: datetime) -> datetime:
        local = dt.replace(tzinfo=UTC).astimezone()
        wall = local.replace(tzinfo=self)
        # Of an hour that there is twice, the second.
        return wall if wall.utcoffset() == local.utcoffset() else wall.replace(fold=1)
