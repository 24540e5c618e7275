"""A store in memory, for tests, the simulator's baseline and temporary relays. It ends with its process."""

from bisect import bisect_right, insort

from crystal_relay.errors import AlreadyExists, Closed, NotFound
from crystal_relay.keys import check_key, check_prefix
from crystal_relay.limits import LIST_LIMIT_MAX
from crystal_relay.notify import Notifier
from crystal_relay.store import (
    Body,
    Listed,
    Object,
    Page,
    body_size,
    check_limit,
    check_part,
    check_timeout,
    whole_body,
)


class MemoryStore:
    """A `Store` (see the port). One event loop."""

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}
        self._ordered: list[str] = []
        self._notifier = Notifier()
        self._closed = False

    async def put_new(self, key: str, body: bytes | Body) -> None:
        self._check_open()
        check_key(key)
        if key in self._objects:
            raise AlreadyExists("the key is taken")
        await self._store(key, body, only_new=True)

    async def put(self, key: str, body: bytes | Body) -> None:
        self._check_open()
        check_key(key)
        await self._store(key, body, only_new=False)

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> Object:
        self._check_open()
        check_key(key)
        check_part(start, length)
        whole = self._objects.get(key)
        if whole is None:
            raise NotFound("there is no such object")
        return Object.of(whole, start=start, length=length)

    async def list(self, prefix: str, *, after: str = "", limit: int = LIST_LIMIT_MAX) -> Page:
        self._check_open()
        check_prefix(prefix)
        check_prefix(after)
        check_limit(limit)
        first = bisect_right(self._ordered, after)
        if prefix > after:
            first = bisect_right(self._ordered, prefix)
            if first and self._ordered[first - 1] == prefix:
                first -= 1
        keys = self._ordered[first : first + limit + 1]
        found = tuple(Listed(key, len(self._objects[key])) for key in keys if key.startswith(prefix))
        return Page(found[:limit], len(found) > limit)

    async def delete(self, key: str) -> None:
        self._check_open()
        check_key(key)
        if self._objects.pop(key, None) is not None:
            del self._ordered[bisect_right(self._ordered, key) - 1]

    async def wait(self, prefix: str, *, token: str | None, timeout: float) -> str:
        self._check_open()
        return await self._notifier.wait(check_prefix(prefix), token, check_timeout(timeout))

    async def aclose(self) -> None:
        self._closed = True
        self._notifier.wake_all()

    async def _store(self, key: str, body: bytes | Body, *, only_new: bool) -> None:
        body_size(body)
        whole = await whole_body(body)
        # Another writer may have been first while the body arrived.
        if key in self._objects:
            if only_new:
                raise AlreadyExists("the key is taken")
        else:
            insort(self._ordered, key)
        self._objects[key] = whole
        self._notifier.written(key)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the store is closed")
