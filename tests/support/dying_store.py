"""A store whose process dies at a chosen operation: just before it takes effect, or just after."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from crystal_relay.limits import LIST_LIMIT_MAX
from crystal_relay.store import Body, Object, Page, Store

Result = TypeVar("Result")


class Died(BaseException):
    """Nothing catches it: what would have come next never happens."""


class DyingStore:
    """A `Store` around another. `operations` counts; the one with number `dies_at` is the last."""

    def __init__(self, inner: Store, *, dies_at: int = -1, after_effect: bool = False) -> None:
        self._inner = inner
        self._dies_at = dies_at
        self._after_effect = after_effect
        self.operations = 0

    async def put_new(self, key: str, body: bytes | Body) -> None:
        await self._do(lambda: self._inner.put_new(key, body))

    async def put(self, key: str, body: bytes | Body) -> None:
        await self._do(lambda: self._inner.put(key, body))

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> Object:
        return await self._do(lambda: self._inner.get(key, start=start, length=length))

    async def list(self, prefix: str, *, after: str = "", limit: int = LIST_LIMIT_MAX) -> Page:
        return await self._do(lambda: self._inner.list(prefix, after=after, limit=limit))

    async def delete(self, key: str) -> None:
        await self._do(lambda: self._inner.delete(key))

    async def wait(self, prefix: str, *, token: str | None, timeout: float) -> str:
        return await self._do(lambda: self._inner.wait(prefix, token=token, timeout=timeout))

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _do(self, call: Callable[[], Awaitable[Result]]) -> Result:
        number = self.operations
        self.operations += 1
        if number == self._dies_at and not self._after_effect:
            raise Died
        try:
            return await call()
        finally:
            if number == self._dies_at:
                raise Died
