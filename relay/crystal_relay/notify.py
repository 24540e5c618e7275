"""Waiting for writes: the part of `Store.wait` within a process.

Every write that a process makes takes its next number. Several processes may serve one store: each is told of the writes
of the others (`heard`), and a token is valid at all of them. It holds, for this process and each other known one, the
process's random name and the number of its last write when the token was issued:

    914495c5f56f7fca-7.0b6c64d1a2f0e9d3-1204

For a token the question is "was anything under the prefix written since, by anyone?".

- It is answered for the first three segments of the key at most (`v/<vault>/<channel>/`), which may wake for nothing
  and never misses. Only the most recent groups of keys are remembered; for a forgotten one the answer is yes.
- A process that the token does not name counts as 0. A token that does not name this process is answered at once.
- A process that is named but unknown here is ignored, and passed on in the next token, so that a client that moves between
  processes is not woken by what one of them does not know yet.
- An answer at once (a time limit of 0) says that nothing was written only while this process hears from all others that it
  knows; else it is another token each time.
- Numbers that another process skipped (a message was lost) count as writes everywhere.

A write costs a look-up for each group of its key, and one for each finer prefix that is waited on within these groups: waits
on one vault do not slow writes to another.
"""

import asyncio
import re
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable

from crystal_relay.limits import WAIT_TOKEN_ORIGINS_MAX

GROUPS_MAX = 65_536
"""Remembered groups of this process's own writes."""
HEARD_GROUPS_MAX = 32_768
"""Remembered groups of each other process's writes."""
EVERYTHING = ""
"""The group that holds every key."""
_ORIGIN = r"[0-9a-f]{16}-(?:0|[1-9][0-9]{0,17})"
_TOKEN = re.compile(rf"{_ORIGIN}(?:\.{_ORIGIN}){{0,{WAIT_TOKEN_ORIGINS_MAX - 1}}}\Z")


class Notifier:
    """Numbers writes, and wakes the waits for them. Used on one event loop."""

    def __init__(
        self,
        *,
        name: str | None = None,
        groups_max: int = GROUPS_MAX,
        heard_groups_max: int = HEARD_GROUPS_MAX,
    ) -> None:
        self.name = name if name is not None else secrets.token_hex(8)
        self.on_written: Callable[[str, int], None] | None = None
        """Called with the smallest group and the number of each own write, to notify other processes."""
        self.in_touch: Callable[[], bool] = lambda: True
        """Whether this process hears of the writes of all others that it knows."""
        self._heard_groups_max = heard_groups_max
        self._own = _Writes(groups_max)
        self._others: OrderedDict[str, _Writes] = OrderedDict()
        """By name; the one heard from most recently is last."""
        self._waiters: dict[str, set[asyncio.Future[None]]] = {}
        self._endings = 0
        """How often all waits were ended, by `wake_all`."""
        self._finer: dict[str, Counter[str]] = {}
        """Prefixes waited on that are longer than their smallest group, by that group."""

    @property
    def number(self) -> int:
        """Number of this process's last write; 0 before the first."""
        return self._own.number

    @property
    def waiting(self) -> int:
        """Number of waits that sleep."""
        return sum(len(waiters) for waiters in self._waiters.values())

    @property
    def others(self) -> dict[str, int]:
        """The known other processes, each with the number of its last known write."""
        return {name: writes.number for name, writes in self._others.items()}

    # --- writes ---

    def written(self, key: str) -> None:
        """Note a write to `key`. Called when it is visible, before it is reported as done."""
        groups = _groups_of_key(key)
        number = self._own.number + 1
        self._own.note(groups, number)
        waiters, finer = self._waiters, self._finer
        for group in (EVERYTHING, *groups):
            if group in waiters:
                _wake(waiters[group])
            if group in finer:
                for prefix in finer[group]:
                    if key.startswith(prefix):
                        _wake(waiters.get(prefix, ()))
        if self.on_written is not None:
            self.on_written(groups[-1] if groups else EVERYTHING, number)

    def everything_written(self) -> None:
        """Note that anything may have been written: every wait returns a fresh token once."""
        self._own.skip_to(self._own.number + 1)
        self._recheck_all()

    def heard(self, name: str, first: int, last: int, groups: Iterable[tuple[str, int]]) -> bool:
        """Note the writes `first` to `last` of another process, as the last write of each group of keys.

        Repeated writes count once. Returns whether numbers before `first` are missing; then everything counts as written.
        `first` is `last` + 1 if there is nothing new.
        """
        writes = self._others.get(name)
        if writes is None:
            writes = self._meet(name)
        self._others.move_to_end(name)
        missed = first > writes.number + 1
        if missed:
            writes.skip_to(first - 1)
            self._recheck_all()
        known = writes.number
        for group, number in sorted(groups, key=_number_of):
            if known < number <= last:
                writes.note(_groups_of_key(group), number)
                self._recheck(group)
        writes.number = max(writes.number, last)
        return missed

    def forget(self, name: str) -> None:
        """Forget a process that stopped so long ago that no token is older than its last writes."""
        self._others.pop(name, None)

    # --- waits ---

    async def wait(self, prefix: str, token: str | None, timeout: float) -> str:
        """As `Store.wait`, with checked arguments."""
        since = _parsed(token)
        if token is None or since.get(self.name, self._own.number + 1) > self._own.number:
            return self._token(since)
        return await self._wait(prefix, token, since, timeout)

    async def _wait(self, prefix: str, token: str, since: dict[str, int], timeout: float) -> str:
        if self._written_since(prefix, since):
            return self._token(since)
        if timeout <= 0:
            # Sent back as it is, the token says that nothing was written. The name of no process makes it another one.
            return token if self.in_touch() else self._unsure(since)
        endings = self._endings
        try:
            async with asyncio.timeout(timeout):
                while True:
                    await self._sleep(prefix)
                    # News of another process may be known to the token already.
                    if self._endings != endings or self._written_since(prefix, since):
                        return self._token(since)
        except TimeoutError:
            return token

    def wake_all(self) -> None:
        """End all waits now, for a shutdown."""
        self._endings += 1
        self._recheck_all()

    # --- inside ---

    def _meet(self, name: str) -> "_Writes":
        while len(self._others) >= WAIT_TOKEN_ORIGINS_MAX - 1:
            self._others.popitem(last=False)
        writes = self._others[name] = _Writes(self._heard_groups_max)
        return writes

    def _unsure(self, _since: dict[str, int]) -> str:
        """A token that no answer has had before."""
        return self._token({secrets.token_hex(8): 0})

    def _token(self, since: dict[str, int]) -> str:
        """The current token, with what the client's token knew of other processes."""
        numbers = {self.name: self._own.number}
        for name, writes in self._others.items():
            numbers[name] = max(writes.number, since.get(name, 0))
        for name, number in since.items():
            if len(numbers) == WAIT_TOKEN_ORIGINS_MAX:
                break
            numbers.setdefault(name, number)
        return ".".join([f"{name}-{number}" for name, number in numbers.items()])

    def _written_since(self, prefix: str, since: dict[str, int]) -> bool:
        group = _group_of_prefix(prefix)
        return self._own.after(since[self.name], group) or any(
            writes.after(since.get(name, 0), group) for name, writes in self._others.items()
        )

    async def _sleep(self, prefix: str) -> None:
        """Wait until something may have been written under the prefix."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        forget = self._enter(prefix, waiter)
        try:
            await waiter
        finally:
            forget()

    def _recheck(self, group: str) -> None:
        for each in (EVERYTHING, *_groups_of_key(group)):
            _wake(self._waiters.get(each, ()))
            for prefix in self._finer.get(each, ()):
                if each == group or group.startswith(prefix):
                    _wake(self._waiters.get(prefix, ()))

    def _recheck_all(self) -> None:
        for waiters in self._waiters.values():
            _wake(waiters)

    def _enter(self, prefix: str, waiter: asyncio.Future[None]) -> Callable[[], None]:
        group = _group_of_prefix(prefix)
        self._waiters.setdefault(prefix, set()).add(waiter)
        if prefix != group:
            self._finer.setdefault(group, Counter())[prefix] += 1

        def forget() -> None:
            waiters = self._waiters[prefix]
            waiters.discard(waiter)
            if not waiters:
                del self._waiters[prefix]
            if prefix != group:
                _take_one(self._finer[group], prefix)
                if not self._finer[group]:
                    del self._finer[group]

        return forget


class OrderedNotifier(Notifier):
    """For processes that one log tells of all writes, their own included, in one order: any number of processes, one number.

    All bear the log's name, so that a token is a position in it. `written` numbers nothing: it hands the group to `on_written`,
    which puts it into the log, and `read` notes what comes back.
    """

    def written(self, key: str) -> None:
        groups = _groups_of_key(key)
        if self.on_written is not None:
            self.on_written(groups[-1] if groups else EVERYTHING, 0)

    def everything_written(self) -> None:
        if self.on_written is not None:
            self.on_written(EVERYTHING, 0)

    def read(self, number: int, groups: Iterable[str]) -> None:
        """Note what the log has at `number`: a write in each of the groups; one in `EVERYTHING` may have been anywhere."""
        for group in groups:
            if group == EVERYTHING:
                self._own.skip_to(number)
                self._recheck_all()
            else:
                self._own.note(_groups_of_key(group), number)
                self._recheck(group)
        self._own.number = max(self._own.number, number)

    def follow(self, name: str, number: int) -> None:
        """Follow this log from `number` on. What was written before may have been anywhere; tokens of another log are stale."""
        self.name = name
        self._own.skip_to(number)
        self.wake_all()

    async def wait(self, prefix: str, token: str | None, timeout: float) -> str:
        since = _parsed(token)
        if token is None or self.name not in since:
            return self._token(since)
        return await self._wait(prefix, token, since, timeout)

    def _unsure(self, since: dict[str, int]) -> str:
        return f"{self._token(since)}.{secrets.token_hex(8)}-0"

    def _token(self, since: dict[str, int]) -> str:
        # The client may have asked a process that has read further.
        return f"{self.name}-{max(self._own.number, since.get(self.name, 0))}"


class _Writes:
    """The writes of one process: their number, and the last write of each recent group of keys."""

    __slots__ = ("_forgotten", "_groups_max", "_last", "number")

    def __init__(self, groups_max: int) -> None:
        self.number = 0
        self._groups_max = groups_max
        self._forgotten = 0
        """The highest number of a write whose group is not remembered."""
        self._last: OrderedDict[str, int] = OrderedDict()

    def note(self, groups: list[str], number: int) -> None:
        """Note the latest write."""
        self.number = number
        last = self._last
        for group in groups:
            last[group] = number
            last.move_to_end(group)
        while len(last) > self._groups_max:
            _, dropped = last.popitem(last=False)
            self._forgotten = max(self._forgotten, dropped)

    def skip_to(self, number: int) -> None:
        """Note that all writes up to `number` may have been in any group."""
        self.number = self._forgotten = number
        self._last.clear()

    def after(self, number: int, group: str) -> bool:
        """Whether the group may have a write with a higher number."""
        if self.number <= number:
            return False
        return group == EVERYTHING or self._last.get(group, self._forgotten) > number


def _parsed(token: str | None) -> dict[str, int]:
    """Numbers by process. Empty for an invalid token."""
    if token is None or _TOKEN.match(token) is None:
        return {}
    parts = token.split(".")
    numbers = {part[:16]: int(part[17:]) for part in parts}
    return numbers if len(numbers) == len(parts) else {}


def _wake(waiters: Iterable[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)


def _take_one(counter: Counter[str], counted: str) -> None:
    counter[counted] -= 1
    if not counter[counted]:
        del counter[counted]


def _number_of(heard: tuple[str, int]) -> int:
    return heard[1]


def _groups_of_key(key: str) -> list[str]:
    """The groups of a key: `v/`, `v/<vault>/` and `v/<vault>/<channel>/`, as far as it has them."""
    root = key.find("/") + 1
    vault = key.find("/", root) + 1 if root else 0
    channel = key.find("/", vault) + 1 if vault else 0
    if channel:
        return [key[:root], key[:vault], key[:channel]]
    return [key[:end] for end in (root, vault) if end]


def _group_of_prefix(prefix: str) -> str:
    """The smallest group that contains every key with this prefix."""
    groups = _groups_of_key(prefix)
    return groups[-1] if groups else EVERYTHING
