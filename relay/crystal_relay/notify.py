"""Who waits for writes, and what was written since when: the in-process half of `Store.wait`.

Every write takes the next number. A token is this notifier's random name and the number of the last write when it was
given out. For a token the question is "was anything under the prefix written since?". It is answered for the first three
segments of the key at most (`v/<vault>/<channel>/`), which may wake for nothing and never misses. Only the most recent
groups of keys are remembered; for a forgotten one the answer is yes.

A write costs one look-up for each distinct length of a prefix that is waited on, not one for each waiter.
"""

import asyncio
import re
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable

GROUPS_MAX = 65_536
_GROUP_SEGMENTS = 3
_TOKEN = re.compile(r"([0-9a-f]{16})-(0|[1-9][0-9]{0,17})\Z")


class Notifier:
    """Belongs to one event loop: call it from there only."""

    def __init__(self, *, name: str | None = None, groups_max: int = GROUPS_MAX) -> None:
        self._name = name if name is not None else secrets.token_hex(8)
        self._groups_max = groups_max
        self._number = 0
        self._forgotten = 0
        """The highest number of a write whose group is not remembered any more."""
        self._last: OrderedDict[str, int] = OrderedDict()
        self._waiters: dict[str, set[asyncio.Future[None]]] = {}
        self._lengths: Counter[int] = Counter()

    @property
    def waiting(self) -> int:
        """How many waits sleep."""
        return sum(len(waiters) for waiters in self._waiters.values())

    def written(self, key: str) -> None:
        """Call after the write to `key` can be seen, before it is reported as done."""
        self._number += 1
        for group in _groups_of_key(key):
            self._last[group] = self._number
            self._last.move_to_end(group)
        while len(self._last) > self._groups_max:
            _, number = self._last.popitem(last=False)
            self._forgotten = max(self._forgotten, number)
        for length in tuple(self._lengths):
            for waiter in self._waiters.get(key[:length], ()):
                if not waiter.done():
                    waiter.set_result(None)

    async def wait(self, prefix: str, token: str | None, timeout: float) -> str:
        """As `Store.wait`, of checked arguments."""
        since = self._since(token)
        if token is None or since is None or self._written_since(prefix, since):
            return self._token()
        if timeout <= 0:
            return token
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        forget = self._enter(prefix, waiter)
        try:
            async with asyncio.timeout(timeout):
                await waiter
        except TimeoutError:
            return token
        finally:
            forget()
        return self._token()

    def wake_all(self) -> None:
        """End all waits now, for nothing. For shutting down."""
        for waiters in self._waiters.values():
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def _token(self) -> str:
        return f"{self._name}-{self._number}"

    def _since(self, token: str | None) -> int | None:
        match = _TOKEN.match(token) if token is not None else None
        if match is None or match[1] != self._name:
            return None
        number = int(match[2])
        return number if number <= self._number else None

    def _written_since(self, prefix: str, since: int) -> bool:
        if self._number == since:
            return False
        group = _group_of_prefix(prefix)
        if group is None:
            return True
        return self._last.get(group, self._forgotten) > since

    def _enter(self, prefix: str, waiter: asyncio.Future[None]) -> Callable[[], None]:
        self._waiters.setdefault(prefix, set()).add(waiter)
        self._lengths[len(prefix)] += 1

        def forget() -> None:
            waiters = self._waiters[prefix]
            waiters.discard(waiter)
            if not waiters:
                del self._waiters[prefix]
            self._lengths[len(prefix)] -= 1
            if not self._lengths[len(prefix)]:
                del self._lengths[len(prefix)]

        return forget


def _groups_of_key(key: str) -> list[str]:
    """`v/`, `v/<vault>/` and `v/<vault>/<channel>/` of a key, as far as it has them."""
    groups: list[str] = []
    at = -1
    for _ in range(_GROUP_SEGMENTS):
        at = key.find("/", at + 1)
        if at < 0:
            break
        groups.append(key[: at + 1])
    return groups


def _group_of_prefix(prefix: str) -> str | None:
    """The smallest group that holds every key with this prefix. None: only all keys do."""
    groups = _groups_of_key(prefix)
    return groups[-1] if groups else None
