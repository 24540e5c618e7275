"""Batches of look-ups: those of one turn of the event loop go to a reader thread together.

Waking a thread and returning to the loop cost more than the look-up of a small object, and so does each statement, which gives
the interpreter's lock away and has to win it back.
"""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import BinaryIO, TypeAlias

import apsw

from crystal_relay.errors import NotFound, RelayError, StoreUnavailable
from crystal_relay.local.database import error_of_sqlite, error_of_system
from crystal_relay.local.reader import RowReader, Rows
from crystal_relay.threads import Delivery, Lane

TOGETHER_MAX = 16
"""Look-ups in one batch: few, so that a slow one delays few others."""

Found: TypeAlias = tuple[int, bytes | BinaryIO]
"""An object's size, and its bytes or an open file of them."""
_Answer: TypeAlias = asyncio.Future[Found]


class Lookups:
    """Look-ups in one store. One event loop."""

    def __init__(self, rows: RowReader, readers: Lane) -> None:
        self._rows = rows
        self._readers = readers
        self._asked: list[tuple[str, _Answer]] = []
        self._running = 0
        """Batches under way."""
        self._finished = asyncio.Event()

    async def ask(self, delivery: Delivery, key: str) -> Found:
        """The object under `key`. Raises NotFound, StoreDamaged, StoreUnavailable, Busy."""
        answer: _Answer = delivery.loop.create_future()
        self._asked.append((key, answer))
        if len(self._asked) == 1:
            delivery.loop.call_soon(self._start, delivery)
        try:
            return await answer
        except asyncio.CancelledError:
            # It may be done in the same turn.
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                _close(answer.result())
            raise
        finally:
            # An error's traceback holds this frame, so both and the request would stay until the next garbage collection.
            del answer

    async def finish(self) -> None:
        """Wait for running look-ups, also those whose callers were cancelled."""
        while self._asked or self._running:
            self._finished.clear()
            await self._finished.wait()

    def _start(self, delivery: Delivery) -> None:
        asked, self._asked = self._asked, []
        for first in range(0, len(asked), TOGETHER_MAX):
            batch = asked[first : first + TOGETHER_MAX]
            keys = [key for key, _ in batch]
            self._running += 1
            try:
                self._readers.submit(delivery, partial(self._find, keys), partial(self._answer, batch))
            except RelayError as error:
                self._answer(batch, [error] * len(batch))

    def _answer(self, asked: list[tuple[str, _Answer]], found: list[Found | RelayError]) -> None:
        self._running -= 1
        self._finished.set()
        for (_, answer), each in zip(asked, found, strict=True):
            if answer.done():  # its caller was cancelled
                if not isinstance(each, RelayError):
                    _close(each)
            elif isinstance(each, RelayError):
                answer.set_exception(each)
            else:
                answer.set_result(each)

    def _find(self, keys: list[str]) -> list[Found | RelayError]:
        """Look up a batch in a reader thread. A failure affects only its own key."""
        rows: Rows | None = None
        with suppress(Exception):  # if any of them fails, each is looked up by itself
            rows = self._rows.select_rows(keys)
        return list(self._find_each(keys, rows))

    def _find_each(self, keys: list[str], rows: Rows | None) -> Iterator[Found | RelayError]:
        for key in keys:
            try:
                yield self._rows.look_up(key, rows) or NotFound("there is no such object")
            except RelayError as error:
                yield error
            except apsw.Error as error:
                yield error_of_sqlite(error)
            except OSError as error:
                yield error_of_system(error)
            except Exception as error:  # noqa: BLE001  (the caller would wait for ever)
                yield StoreUnavailable(f"looking an object up failed ({type(error).__name__})")


def _close(found: Found) -> None:
    if not isinstance(found[1], bytes):
        found[1].close()
