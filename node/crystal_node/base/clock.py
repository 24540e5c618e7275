"""This machine's clocks, for times that people see. They decide and order nothing: a clock may be years off."""

import time
from datetime import UTC, datetime, tzinfo


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def uptime_ms() -> int:
    """Milliseconds since this machine was started, sleep included where the system counts it. Nobody can set this clock."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(clock) // 1_000_000


def local_zone(at_ms: int) -> tzinfo:
    """This machine's offset from UTC at that moment."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).astimezone().tzinfo or UTC
