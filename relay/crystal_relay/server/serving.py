"""Running the server: a listening socket, uvicorn with our limits, and an orderly stop.

    serving --stop--> draining --drain_seconds--> closing --in-flight requests answered, 10 s at most--> stopped

Draining: `/health/ready` answers 503, everything else is served, each answer closes its connection.
Closing: the waits are answered, nothing more is accepted.
"""

import asyncio
import contextlib
import errno
import logging
import signal
import socket
import ssl
from collections.abc import Callable, Generator
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from crystal_relay.errors import InUse, RelayError
from crystal_relay.server.admission import Closing
from crystal_relay.server.app import Relay
from crystal_relay.server.connection import connection_class
from crystal_relay.server.settings import CONNECTIONS_MAX, KEEP_ALIVE_SECONDS, SHUTDOWN_SECONDS_MAX
from crystal_relay.server.tls import Handshakes, TlsAcceptor

BACKLOG = 1024
ACCEPTED_AT_ONCE = 16
"""Connections accepted in one turn of the loop. uvloop accepts one for each socket that it listens on; while strangers keep the
loop busy, a queue of a hundred would take seconds. So it listens on as many copies of the socket."""
HANDSHAKES = Handshakes(most=512, of_address=32)
"""For a relay that serves many machines, some of them behind one address."""
CANCELLED_SECONDS_MAX = 1.0
"""How long cancelled requests may take to tidy up."""
FILES_OF_CONNECTION = 2
"""The connection's own, and that of the object sent over it."""


_log = logging.getLogger("crystal_relay.server")


class CannotListen(RelayError):
    """The address cannot be listened on."""

    exit_code = 3
    code = "cannot-listen"
    hint = "Choose another --host."


class PortTaken(InUse):
    """Another process listens there."""

    code = "port-taken"
    hint = "Stop the program that listens there, or choose another --port (0 finds a free one)."


class Server:
    """One relay's HTTP side. `serve` until `stop`, or until SIGTERM or SIGINT when `signals` is set."""

    def __init__(
        self,
        app: Starlette,
        listener: socket.socket,
        *,
        context: ssl.SSLContext | None = None,
        drain_seconds: float = 0.0,
    ) -> None:
        """`context`: serve by TLS with it, else by plain HTTP. `drain_seconds`: how long a stop lets proxies notice it."""
        self._listener = listener
        self._context = context
        self._uvicorn = _Uvicorn(
            uvicorn.Config(
                app,
                http=connection_class(app.state.relay.admission),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                # Only a declared proxy is trusted to name the client.
                proxy_headers=bool(app.state.relay.trusted_proxies),
                forwarded_allow_ips=list(app.state.relay.trusted_proxies),  # §R9.2-4
                timeout_keep_alive=KEEP_ALIVE_SECONDS,  # §R9-6
                timeout_graceful_shutdown=SHUTDOWN_SECONDS_MAX,  # §R9-12
            ),
            app.state.relay,
            None if context is None else (listener, context),
            drain_seconds=drain_seconds,
        )

    @property
    def url(self) -> str:
        """The actual address, also if port 0 was requested."""
        return url_of(self._listener)

    async def serve(self, *, ready: Callable[[], None] | None = None, signals: bool = False) -> None:
        """Serve, and return when all accepted requests are answered. `ready` is called once connections are accepted."""
        self._uvicorn.ready = ready
        self._uvicorn.catch_signals = signals
        if self._context is not None:  # connections are accepted outside uvicorn, to limit handshakes
            await self._uvicorn.serve(sockets=[])
            return
        # asyncio's loops accept as many as wait. On Windows two accepts on copies of one socket fail.
        several = type(asyncio.get_running_loop()).__module__.partition(".")[0] == "uvloop"
        count = ACCEPTED_AT_ONCE if several else 1
        copies = [self._listener.dup() for _ in range(count - 1)]  # uvicorn closes them
        await self._uvicorn.serve(sockets=[self._listener, *copies])

    def stop(self) -> None:
        """Drain, end the long polls, stop accepting, finish the rest within ten seconds, then let `serve` return.

        Called again, it ends the draining."""
        self._uvicorn.leave()


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises PortTaken, CannotListen."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError, OverflowError):
        raise CannotListen(f"{host}: no such address") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(f"port {port} of {host} is taken") from None
        hint = "Choose a --port above 1023, or run it as root." if error.errno == errno.EACCES else None
        raise CannotListen(f"cannot listen on port {port} of {host} ({error.strerror})", hint=hint) from None
    return listener


def allow_open_files(connections: int = CONNECTIONS_MAX) -> int:
    """Raise this process's limit of open files to what so many connections and its store need, as far as the system allows.

    Many systems begin with 1,024: strangers' connections alone would leave the store none. Returns how many connections fit.
    """
    try:
        import resource
    except ImportError:  # not on every system
        return connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = FILES_OF_CONNECTION * connections
    wanted = files if hard == resource.RLIM_INFINITY else min(files, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    granted, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        connections if granted == resource.RLIM_INFINITY else min(connections, granted // FILES_OF_CONNECTION)
    )


def url_of(listener: socket.socket) -> str:
    """`http://host:port` of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Uvicorn(uvicorn.Server):
    ready: Callable[[], None] | None = None
    catch_signals = False

    def __init__(
        self,
        config: uvicorn.Config,
        relay: Relay,
        tls: tuple[socket.socket, ssl.SSLContext] | None = None,
        *,
        drain_seconds: float = 0.0,
    ) -> None:
        super().__init__(config)
        self._relay = relay
        self._drain_seconds = drain_seconds
        self._no_drain = asyncio.Event()
        self._tls = tls
        self._acceptor: TlsAcceptor | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._tls is not None:
            protocol = connection_class(self._relay.admission)
            self._acceptor = TlsAcceptor(
                *self._tls,
                lambda: protocol(self.config, self.server_state, {}),
                is_full=self._is_full,
                handshakes=HANDSHAKES,
            )
        self._relay.start()
        self._relay.health.serving()
        if self.ready is not None:
            self.ready()

    def _is_full(self) -> bool:
        """Whether no handshake is worth its cost, since the connection would be closed after it."""
        admission = self._relay.admission
        if admission.is_full:
            admission.closed[Closing.FULL] += 1
            return True
        return False

    async def main_loop(self) -> None:
        await super().main_loop()
        # From here on it is not ready, and each answer closes its connection (`guard`). It accepts and serves until its
        # proxies have noticed. The waits sleep on: a wait that ends now would come back to this process.
        self._relay.health.stopping()
        if self._drain_seconds > 0 and not self._no_drain.is_set():
            _log.info("draining for %g seconds: not ready, but serving", self._drain_seconds)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._drain_seconds):  # §R9-12
                    await self._no_drain.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._relay.health.stopping()
        self._relay.waits.close()
        if self._acceptor is not None:
            await self._acceptor.aclose()
        await super().shutdown(sockets)
        await self._end_tasks()
        await self._relay.aclose()

    async def _end_tasks(self) -> None:
        """Cancel what a forced exit left running, and let what is cancelled tidy up while the store is open.

        asyncio would not do it for the eager tasks of Python 3.11, which it does not know.
        """
        if self.force_exit:
            for task in tuple(self.server_state.tasks):
                task.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CANCELLED_SECONDS_MAX):
                while self.server_state.tasks:  # noqa: ASYNC110  uvicorn's set
                    await asyncio.sleep(0.01)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        # uvicorn re-raises a caught signal after the orderly stop; for a service, stopping on request is success.
        if not self.catch_signals:
            yield
            return
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGTERM, signal.SIGINT)
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
        self.leave()
        if sig == signal.SIGINT:  # a person at a terminal does not wait for proxies
            self._no_drain.set()

    def leave(self) -> None:
        """Stop; without draining if called again."""
        if self.should_exit:
            self._no_drain.set()
        self.should_exit = True
