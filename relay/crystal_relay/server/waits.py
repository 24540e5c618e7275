"""Waits: they end when the relay stops or their client goes, and are limited for each device and vault.

A sleeping wait costs a connection and its memory. Both are shared, so devices beyond their limit are refused.

A held wait is one response for many minutes. It begins as any other; if nothing is written for a while, the head of the
answer goes out, then a blank now and then, and at the end the JSON, which may begin with blanks.
"""

import asyncio
import random
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple, Protocol

import msgspec
from starlette.types import Receive, Scope, Send

from crystal_relay.errors import TooManyRequests
from crystal_relay.limits import HELD_WAIT_BEAT_SECONDS_MAX, HELD_WAIT_SECONDS_MAX
from crystal_relay.server.admission import SCOPE_KEY
from crystal_relay.server.replies import OF_JSON, send_json
from crystal_relay.server.requests import ClientGone, Head, gone, preferred_wait
from crystal_relay.server.scopes import Identity
from crystal_relay.store import Store
from crystal_relay.wire import WaitReply

WAITS_OF_DEVICE_MAX = 64
"""Concurrent waits. A device needs one; those of its lost connections end within a minute or, where nothing shows that they
are lost, within a quarter of an hour (§R9-5)."""
WAITS_OF_VAULT_MAX = 512
RETRY_SECONDS = 10.0
BEAT_SECONDS = HELD_WAIT_BEAT_SECONDS_MAX
_random = random.Random()  # noqa: S311  (spreads waits, guards nothing)
_BEAT_SECONDS_SHARE_MIN = 0.9
"""Waits that began together, as after a restart, do not stay together."""
UNACKNOWLEDGED_MS_MAX = 60_000
"""A held wait whose client does not acknowledge a blank for so long ends: a machine that sleeps closes no connection."""
_HELD_HEAD: dict[str, Any] = {
    "type": "http.response.start",
    "status": 200,
    # The last one lets nginx pass each blank on; other proxies do so where no length is known.
    "headers": [*OF_JSON, (b"x-accel-buffering", b"no")],
}
_BEAT: dict[str, Any] = {"type": "http.response.body", "body": b" ", "more_body": True}


class AskedWait(NamedTuple):
    """A wait that was asked for, once it is parsed and permitted."""

    identity: Identity
    prefix: str
    token: str | None
    timeout: float
    held: float
    """Seconds of a held wait; 0 for any other."""


class _Connection(Protocol):
    """A connection of our own server."""

    transport: asyncio.Transport

    def when_gone(self, call: Callable[[], None] | None) -> None:
        """Call it if the client leaves while a request is being served. None: call nothing any more."""
        ...


class Waits:
    """The sleeping long polls. A stopping relay ends them all, instead of waiting for many minutes."""

    def __init__(self) -> None:
        self._sleeping: set[asyncio.Timeout] = set()
        self._closing = False
        self.refused = 0
        self._held: Counter[tuple[str, str]] = Counter()
        """By vault and device; by vault alone under ""."""

    @property
    def sleeping(self) -> int:
        """Number of sleeping waits."""
        return len(self._sleeping)

    @property
    def is_closing(self) -> bool:
        """Whether all waits are ended."""
        return self._closing

    def close(self) -> None:
        """End all waits, and every later one at once."""
        self._closing = True
        for sleeping in self._sleeping:
            self._end(sleeping)

    @contextmanager
    def place(self, identity: Identity) -> Generator[None]:
        """Count a wait of a device. Raises TooManyRequests."""
        mine, all_of_vault = (identity.vault, identity.device), (identity.vault, "")
        if (
            self._held.get(mine, 0) >= WAITS_OF_DEVICE_MAX  # §R9-8
            or self._held.get(all_of_vault, 0) >= WAITS_OF_VAULT_MAX
        ):
            self.refused += 1
            raise TooManyRequests("too many waits at once", retry_after=RETRY_SECONDS)
        self._held.update((mine, all_of_vault))
        try:
            yield
        finally:
            for held in (mine, all_of_vault):
                self._held[held] -= 1
                if not self._held[held]:
                    del self._held[held]

    async def hold(
        self,
        asked: AskedWait,
        store: Store,
        goes_on: Callable[[Scope, AskedWait], Awaitable[bool]],
        exchange: tuple[Scope, Receive, Send],
    ) -> None:
        """Answer a held wait. `goes_on`: whether the device may still wait so, and is sure to be woken by any write. Raises as
        `race` and, before the head is sent, what the store raises."""
        scope, receive, send = exchange
        loop, prefix, token = asyncio.get_running_loop(), asked.prefix, asked.token
        ends = loop.time() + asked.held
        begun = False
        while True:
            part = min(BEAT_SECONDS * _random.uniform(_BEAT_SECONDS_SHARE_MIN, 1.0), ends - loop.time())
            woken = await self.race(store.wait(prefix, token=token, timeout=max(0.0, part)), receive, scope)
            if woken != token or loop.time() >= ends or not await goes_on(scope, asked):
                break
            if not begun:
                begun = True
                end_if_unacknowledged(scope[SCOPE_KEY])
                await send(_HELD_HEAD)
            await send(_BEAT)
        reply = WaitReply(token or "" if woken is None else woken)
        if begun:
            await send({"type": "http.response.body", "body": msgspec.json.encode(reply)})
        else:
            await send_json(scope, send, reply)

    async def race(self, wait: Coroutine[object, object, str], receive: Receive, scope: Scope) -> str | None:
        """The wait's result; None if the relay is stopping. Raises ClientGone, and what the wait raises."""
        if self._closing:
            wait.close()
            return None
        connection: _Connection | None = scope.get(SCOPE_KEY)
        sleeping = asyncio.timeout(None)
        try:
            # A task for the wait and one for the client's leaving would hold twice the memory.
            async with sleeping:
                self._sleeping.add(sleeping)
                end = partial(self._end, sleeping)
                leaving = None if connection is not None else asyncio.create_task(gone(receive))
                if connection is not None:
                    connection.when_gone(end)
                elif leaving is not None:
                    leaving.add_done_callback(lambda _: end())
                try:
                    return await wait
                finally:
                    self._sleeping.discard(sleeping)
                    if connection is not None:
                        connection.when_gone(None)
                    elif leaving is not None:
                        leaving.cancel()
        except TimeoutError:
            if not sleeping.expired():  # the store's own: a network disk raises it, too
                raise
            if self.is_closing:
                return None
            raise ClientGone from None

    def _end(self, sleeping: asyncio.Timeout) -> None:
        if sleeping in self._sleeping and sleeping.when() is None:
            sleeping.reschedule(asyncio.get_running_loop().time())


def seconds_held(scope: Scope, head: Head) -> float:
    """How long this wait is to be held; 0 if its client did not ask for that, or cannot be answered in pieces."""
    if scope["method"] != "GET" or scope["http_version"] != "1.1" or SCOPE_KEY not in scope:
        return 0.0  # §R3.8-6
    return min(preferred_wait(head), HELD_WAIT_SECONDS_MAX)  # §R3.8-4


def end_if_unacknowledged(connection: _Connection) -> None:
    """Have the system end the connection of a client that acknowledges nothing for `UNACKNOWLEDGED_MS_MAX`.

    Only Linux has the option; elsewhere the system gives up after minutes.
    """
    option: int | None = getattr(socket, "TCP_USER_TIMEOUT", None)
    plug = connection.transport.get_extra_info("socket")
    if option is not None and plug is not None and plug.family != getattr(socket, "AF_UNIX", None):
        with suppress(OSError):
            plug.setsockopt(socket.IPPROTO_TCP, option, UNACKNOWLEDGED_MS_MAX)  # §R9-5
