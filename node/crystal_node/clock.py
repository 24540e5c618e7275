"""This machine's clock, for times that people see. Nothing is ordered or decided by it: it may be years off."""

import time


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000
