"""Shared calls: who asks for the same while a call runs gets the result of that call, instead of asking the store again."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from crystal_relay.errors import RelayError

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


class SharedCalls(Generic[Key, Result]):
    """Calls by what they ask for. One event loop."""

    def __init__(self) -> None:
        self._running: dict[Key, asyncio.Future[Result]] = {}

    async def ask(self, key: Key, call: Callable[[], Awaitable[Result]]) -> Result:
        """The result of `call`, or of the call for that key that already runs. Raises what that call raises.

        If the caller that began it is cancelled, another one that waits for it calls again.
        """
        while (running := self._running.get(key)) is not None:
            await asyncio.wait([running])
            if not running.cancelled():
                return running.result()
        answer = self._running[key] = asyncio.get_running_loop().create_future()
        try:
            result = await call()
            answer.set_result(result)
        except RelayError as error:
            answer.set_exception(error)
            answer.exception()  # retrieved, so that asyncio does not report it
            raise
        finally:
            answer.cancel()  # no effect if it is settled
            if self._running.get(key) is answer:
                del self._running[key]
        return result

    def leave(self, which: Callable[[Key], bool]) -> None:
        """Who asks from now on does not share calls for these keys that began before."""
        self._running = {key: each for key, each in self._running.items() if not which(key)}
