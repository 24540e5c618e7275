"""This machine's clock, for times that people see. Nothing is ordered or decided by it: it may be years off."""

import time


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def uptime_ms() -> int:
    """Milliseconds since this machine was started, asleep or not, where the system tells; nobody sets this clock."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(clock) // 1_000_000
