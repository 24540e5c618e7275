"""The gateway's server: a socket on 127.0.0.1, uvicorn within limits, an orderly stop.

There is no option for another address: to reach it from elsewhere, forward the port over ssh.
"""

import asyncio
import contextlib
import errno
import logging
import signal
import socket
from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager
from types import FrameType
from typing import Any, Protocol, cast

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from crystal_node.base.errors import LocalStorage
from crystal_node.surfaces.gateway.errors import PortInUse
from crystal_node.surfaces.gateway.limits import (
    CONNECTIONS_MAX,
    HEAD_BYTES_MAX,
    HEAD_SECONDS_MAX,
    KEEP_ALIVE_SECONDS,
    SEND_STALL_SECONDS_MAX,
    SHUTDOWN_SECONDS_MAX,
)

HOST = "127.0.0.1"
_BACKLOG = 64


class Served(Protocol):
    """An ASGI application, and a context in which it serves."""

    def running(self) -> AbstractAsyncContextManager[None]: ...

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...


def listen(port: int) -> socket.socket:
    """A listening socket on this machine alone; port 0 takes a free one. Raises PortInUse, LocalStorage."""
    # With its protocol named: only then asyncio lets an answer's body follow its head at once, 40 ms earlier.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(f"port {port} of {HOST} is taken by another program") from None
        raise LocalStorage(f"cannot listen on port {port} of {HOST} ({error.strerror})") from None
    return listener


def port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


def serve(served: Served, listener: socket.socket, ready: Callable[[], None]) -> None:
    """Serves until SIGTERM or SIGINT. ``ready`` is called once connections are accepted."""
    server = _Uvicorn(http_config(served, PatientHttp, CONNECTIONS_MAX), ready)

    async def run() -> None:
        async with served.running():
            await server.serve(sockets=[listener])

    asyncio.run(run())


def http_config(app: ASGIApp, http: "type[PatientHttp]", connections_max: int) -> Config:
    """uvicorn within our limits, and without words of its own."""
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # not a line for each request that is none
    return Config(
        app,
        http=http,
        loop="asyncio",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=connections_max,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS_MAX,
    )


class _Uvicorn(uvicorn.Server):
    def __init__(self, config: Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        # uvicorn raises a caught signal again after the orderly stop; having stopped as it was told is success.
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        for number in numbers:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # A second Ctrl-C stops at once.
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True


class PatientHttp(H11Protocol):
    """A connection that ends when a request's head does not come, or an answer is not read, in time.

    waiting for a head --complete--> serving --answered--> waiting for a head (uvicorn's own timer)
    waiting for a head --too slow--> closed;  serving --answer left unread--> closed

    What is pipelined behind a request waits unparsed, and nothing more is read meanwhile. When there are too many connections,
    the one that has been idle longest makes room; a new one is refused if none is idle.
    """

    head_seconds = HEAD_SECONDS_MAX
    flow: "_InputFlow"

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        # uvicorn would refuse every request, also on connections that were there before, instead of a connection.
        self._connections_max, self.limit_concurrency = self.limit_concurrency, None
        self._waiting = b""
        self._idle_since = self.loop.time()
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    @property
    def idle_since(self) -> float:
        """When the last answer was complete, by the loop's clock; 0 while a request is served."""
        return 0.0 if self._serves() else self._idle_since

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _InputFlow(transport)  # pyright: ignore[reportIncompatibleVariableOverride]  uvicorn sets it above, and only there
        self._head_timer = self.loop.call_later(self.head_seconds, transport.abort)
        if self._connections_max is not None and len(self.connections) > self._connections_max:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._waiting or (self._serves() and not self.cycle.more_body):
            self._waiting += data
            self.flow.hold()
            return
        waits = not self._serves()
        super().data_received(data)
        if self._serves():
            self._stop_head_timer()
        elif waits and self._head_timer is None and not self.transport.is_closing():
            self._head_timer = self.loop.call_later(self.head_seconds, self.transport.abort)

    def on_response_complete(self) -> None:
        self._idle_since = self.loop.time()
        super().on_response_complete()
        if self._waiting and not self._serves() and not self.transport.is_closing():
            data, self._waiting = self._waiting, b""
            self.flow.release()
            self.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._waiting = b""
        self._stop_head_timer()
        self.resume_writing()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stall_timer is None:
            self._stall_timer = self.loop.call_later(SEND_STALL_SECONDS_MAX, self.transport.abort)

    def resume_writing(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
        super().resume_writing()

    def _serves(self) -> bool:
        cycle = cast("RequestResponseCycle | None", self.cycle)  # uvicorn has none before the first request
        return cycle is not None and not cycle.response_complete

    def _make_room(self) -> None:
        """End the connection that has been idle longest, or this new one."""
        others = (each for each in self.connections if isinstance(each, PatientHttp) and each is not self)
        oldest = min(
            (each for each in others if each.idle_since), key=lambda each: each.idle_since, default=self
        )
        self.connections.discard(oldest)  # counted no more, though its end comes in the next turn of the loop
        oldest.transport.abort()

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class _InputFlow(FlowControl):
    """Reading stays paused while it is held, also when uvicorn would resume it after an answer."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._held = False

    def hold(self) -> None:
        """Pause reading until `release`."""
        self._held = True
        self.pause_reading()

    def release(self) -> None:
        """Resume reading."""
        self._held = False
        self.resume_reading()

    def resume_reading(self) -> None:
        if not self._held:
            super().resume_reading()
