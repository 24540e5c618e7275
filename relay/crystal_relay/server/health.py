"""Health checks for people, supervisors and load balancers. No credentials.

    /health        it answers, and the store did at the latest look
    /health/live   it answers; restart it when this fails
    /health/ready  send it requests: it has started, is not stopping, and the store answered at the latest look

On a full disk it stays ready, and says so: reading goes on, and deleting, which makes room.

Anybody may ask at any rate, so the store is checked at most once in ten seconds.

    starting --serving()--> serving --stopping()--> stopping
"""

import asyncio
import contextlib
import enum
import logging
import time
from collections.abc import Callable, Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from crystal_relay.distribution import installed_version
from crystal_relay.errors import NotFound, RelayAtCap, RelayError, StoreFull, StoreUnavailable
from crystal_relay.server.extension import Extension
from crystal_relay.server.replies import JsonReply
from crystal_relay.server.requests import no_query
from crystal_relay.store import DiskStatus, OnDisk, Store
from crystal_relay.wire import PROTOCOL, SERVICE, HealthReply, StateReply

_NEVER_THERE = "r/health"
"""The key that a check reads. A read in a bucket costs a twelfth of a list."""
LOOK_SECONDS = 10.0
"""Interval of checks of the store."""
LOOK_SECONDS_MAX = 5.0
"""Time limit of a check."""

_log = logging.getLogger("crystal_relay.server")


class ProcessState(enum.Enum):
    """Of the process."""

    STARTING = "starting"
    SERVING = "serving"
    STOPPING = "stopping"


class Health:
    """Of one relay process. Belongs to one event loop."""

    def __init__(
        self,
        store: Store,
        *,
        extensions: Sequence[Extension] = (),
        clock: Callable[[], float] = time.monotonic,
        look_seconds_max: float = LOOK_SECONDS_MAX,
        is_full: Callable[[], bool] = lambda: False,
        latest: Callable[[], tuple[float, bool] | None] = lambda: None,
    ) -> None:
        """`is_full`: whether the relay has reached its cap. `latest`: when a request's operation at the store ended, by the
        same clock, and whether the store answered it."""
        self.state = ProcessState.STARTING
        self._store = store
        self._clock = clock
        self._is_full = is_full
        self._latest = latest
        self._look_seconds_max = look_seconds_max
        self._look: asyncio.Task[bool] | None = None
        self._look_again_at = 0.0
        self._looked_at = float("-inf")
        self.disk: DiskStatus | None = None
        """At the latest look; None for a store that is on no disk of this machine."""
        self._reply = HealthReply(
            ok=True,
            service=extensions[0].service if extensions else SERVICE,
            protocol=PROTOCOL,
            version=installed_version(),
            mode=extensions[0].mode if extensions else msgspec.UNSET,
        )

    def routes(self) -> list[Route]:
        """The routes of the module's docstring."""
        return [
            Route("/health", self.health, methods=["GET"]),
            Route("/health/live", self.live, methods=["GET"]),
            Route("/health/ready", self.ready, methods=["GET"]),
        ]

    @property
    def is_stopping(self) -> bool:
        """Whether the process was told to stop."""
        return self.state is ProcessState.STOPPING

    def serving(self) -> None:
        """Connections are accepted from now on."""
        self.state = ProcessState.SERVING

    def stopping(self) -> None:
        """The relay was told to stop."""
        self.state = ProcessState.STOPPING

    async def health(self, request: Request) -> Response:
        """Whether the relay serves, and which protocol."""
        no_query(request.scope)
        await self.check_store()
        return JsonReply(self._reply)

    async def live(self, request: Request) -> Response:
        """It answers."""
        no_query(request.scope)
        return JsonReply(StateReply(ok=True))

    async def ready(self, request: Request) -> Response:
        """Whether requests should be sent here."""
        no_query(request.scope)
        if self.state is not ProcessState.SERVING:
            raise StoreUnavailable(f"the relay is {self.state.value}", hint="")
        await self.check_store()
        # Reading still works, so requests are welcome.
        full = (
            "disk"
            if self.disk is not None and self.disk.full
            else RelayAtCap.code
            if self._is_full()
            else msgspec.UNSET
        )
        return JsonReply(StateReply(ok=True, full=full))  # §R6-2

    @property
    def answers(self) -> bool | None:
        """Whether the store answered at the latest look or request, whichever was later. None while none has ended."""
        look, latest = self._look, self._latest()
        if latest is not None and latest[0] >= self._looked_at:
            return latest[1]
        return None if look is None or not look.done() else not look.cancelled() and look.result()

    async def check_store(self) -> None:
        """Raises StoreUnavailable if the latest look found that the store does not answer."""
        now = self._clock()
        if self._look is None or (self._look.done() and now >= self._look_again_at):  # §R6-1
            self._look_again_at = now + LOOK_SECONDS
            self._look = asyncio.get_running_loop().create_task(self._look_at_store())
        # Waited for, not awaited: a client that goes must not end the look that others wait for.
        await asyncio.wait((self._look,))
        if self._look.cancelled() or not self._look.result():
            raise StoreUnavailable("the relay's store does not answer", hint="The relay's log says more.")

    async def look_at_disk(self) -> None:
        """Look at a store on a disk, unless that was done lately. A look at a bucket would cost money."""
        if isinstance(self._store, OnDisk):
            with contextlib.suppress(StoreUnavailable):  # `answers` tells
                await self.check_store()

    async def _look_at_store(self) -> bool:
        answers = await self._ask_store()
        self._looked_at = self._clock()
        return answers

    async def _ask_store(self) -> bool:
        try:
            async with asyncio.timeout(self._look_seconds_max):  # §R6-1
                with contextlib.suppress(NotFound):
                    await (await self._store.get(_NEVER_THERE)).aclose()
                if isinstance(self._store, OnDisk):
                    self._saw(await self._store.disk())
        except TimeoutError:
            _log.error("the store has not answered for %g seconds", self._look_seconds_max)
            return False
        except RelayError as error:
            _log.error("the store does not answer: %s: %s. %s", error.code, error, error.hint)
            return False
        return True

    def _saw(self, disk: DiskStatus) -> None:
        was_full, self.disk = self.disk is not None and self.disk.full, disk
        if disk.full and not was_full:
            _log.error("full: the disk has %d bytes left. %s", disk.free_bytes, StoreFull.hint)
        elif was_full and not disk.full:
            _log.warning("the disk has space again: %d bytes", disk.free_bytes)
