"""Eager tasks: a coroutine runs at once up to where it first has to wait. One that never waits costs no task.

Most requests for a small object wait for nothing, or only for the disk: to begin each in a later turn of the event loop cost as
much as what the relay does for it. Python has this from 3.12 on (`eager_start`). For 3.11, `EagerTask` is as much of it as a
request needs, by what asyncio documents for tasks of other libraries ("Extending"); so `asyncio.timeout` works in it.
"""

import asyncio
import sys
from asyncio.tasks import _enter_task, _leave_task  # pyright: ignore[reportPrivateUsage]
from collections.abc import Callable, Coroutine
from typing import Any


def run_eagerly(
    coroutine: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop, tasks: set[Any]
) -> None:
    """Run it. While it waits, its task is in `tasks`. Not to be called within another task of the loop."""
    if sys.version_info >= (3, 12):
        task = asyncio.Task(coroutine, loop=loop, eager_start=True)
        if not task.done():
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        return
    eager = EagerTask(coroutine, loop, tasks.discard)
    eager.step()
    if not eager.done:
        tasks.add(eager)


class EagerTask:
    """A task that runs when `step` is called, and has no result. `ended` is called with it at its end."""

    __slots__ = (
        "__weakref__",
        "_cancels",
        "_coroutine",
        "_ended",
        "_loop",
        "_must_cancel",
        "_waits_for",
        "done",
    )

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, None],
        loop: asyncio.AbstractEventLoop,
        ended: Callable[["EagerTask"], None],
    ) -> None:
        self._coroutine = coroutine
        self._loop = loop
        self._ended = ended
        self._waits_for: asyncio.Future[Any] | None = None
        self._must_cancel = False
        self._cancels = 0
        self.done = False

    def step(self, _: object = None) -> None:
        """Run up to where it has to wait next."""
        self._waits_for = None
        _enter_task(self._loop, self)  # type: ignore[arg-type]
        try:
            if self._must_cancel:
                self._must_cancel = False
                waits_for = self._coroutine.throw(asyncio.CancelledError())
            else:
                waits_for = self._coroutine.send(None)
        except (StopIteration, asyncio.CancelledError):
            self._end()
        except (KeyboardInterrupt, SystemExit):
            self._end()
            raise
        except BaseException as error:  # noqa: BLE001  as an asyncio task whose exception nobody retrieves
            self._end()
            self._loop.call_exception_handler({"message": "exception in a request", "exception": error})
        else:
            if waits_for is None:  # asyncio.sleep(0)
                self._loop.call_soon(self.step)
                return
            waits_for._asyncio_future_blocking = False  # noqa: SLF001  the protocol between futures and tasks
            waits_for.add_done_callback(self.step)
            self._waits_for = waits_for
            if self._must_cancel and waits_for.cancel():
                self._must_cancel = False
        finally:
            _leave_task(self._loop, self)  # type: ignore[arg-type]

    def _end(self) -> None:
        self.done = True
        self._ended(self)

    # --- as asyncio's tasks ---

    def cancel(self, msg: str | None = None) -> bool:
        """Raise CancelledError where it waits. False: it has ended."""
        if self.done:
            return False
        self._cancels += 1
        if self._waits_for is None or not self._waits_for.cancel(msg):
            self._must_cancel = True
        return True

    def cancelling(self) -> int:
        """Number of cancellations that nobody took back."""
        return self._cancels

    def uncancel(self) -> int:
        """Take a cancellation back. Returns the number of the others."""
        self._cancels = max(0, self._cancels - 1)
        return self._cancels
