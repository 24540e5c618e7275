"""An event loop whose clock stands still while something runs, and jumps to the next timer when nothing does.

So seconds of sleep cost nothing, and times that a test measures by `loop.time()` are those of the program's own decisions,
whatever else the machine does. For programs without threads and sockets: those would run on the machine's clock.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Made = TypeVar("Made")


class _JumpingSelector(selectors.DefaultSelector):
    """Never sleeps for a timer: it says by how much the clock has to jump."""

    def __init__(self) -> None:
        super().__init__()
        self.jumped = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "everything waits for something that no timer brings"
        self.jumped += max(0.0, timeout)
        return list(super().select(0))


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """See the module."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.jumped


def in_virtual_time(work: Callable[[], Coroutine[Any, Any, Made]]) -> Made:
    """What a coroutine returns, run on a loop of its own."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(work())
