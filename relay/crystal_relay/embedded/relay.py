"""The serving side of an embedded relay, and the token by which vaults are made there."""

import asyncio
import logging
import os
import time
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_urlsafe
from socket import socket
from weakref import WeakSet

from uvicorn.config import Config
from uvicorn.server import ServerState

from crystal_relay.embedded import SOCKET_NAME
from crystal_relay.errors import BadRequest, Unusable
from crystal_relay.local.store import LocalStore
from crystal_relay.server import RelaySettings, create_app
from crystal_relay.server.admin import admin_socket
from crystal_relay.server.connection import Connection, connection_class
from crystal_relay.server.operator import Operator
from crystal_relay.server.serving import listen
from crystal_relay.server.settings import KEEP_ALIVE_SECONDS, SHUTDOWN_SECONDS_MAX
from crystal_relay.server.tls import TlsAcceptor, tls_context
from crystal_relay.unix_socket import listen_at, short_path

TOKEN_FILE = "enroll-token"  # noqa: S105  a file's name
BACKLOG = 128
SWEEP_SECONDS = 5.0
"""A process may serve for moments; what was condemned waits for no longer."""
LOCAL_CONNECTIONS_MAX = 64
NETWORK_CONNECTIONS_MAX = 128
"""For one person's machines: each has a handful."""
_ACCEPT_SECONDS = 0.005
_TOKEN_BYTES = 32
_TOKEN_CHARS_MAX = 256


@dataclass(frozen=True, slots=True)
class NetworkDoor:
    """Where other machines reach an embedded relay: by TLS 1.3, with the key and the certificate of a PEM file."""

    host: str
    port: int
    certificate: Path


class EmbeddedRelay:
    """The serving side: holds the directory's lock until `aclose`. On the running event loop."""

    def __init__(self, directory: Path, store: LocalStore) -> None:
        self._directory = directory
        self._store = store
        settings = RelaySettings(
            enroll_token=enroll_token(directory), quota_bytes=0, quota_entries=0, sweep_seconds=SWEEP_SECONDS
        )
        app = create_app(store, settings)
        self._relay = app.state.relay
        # Its process has other files to open.
        self._relay.admission.connections_max = NETWORK_CONNECTIONS_MAX + LOCAL_CONNECTIONS_MAX
        self._state = ServerState()
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # not a line for each request that is none
        self._protocol = connection_class(self._relay.admission)
        self._config = Config(
            app,
            http=self._protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
        )
        self._server: asyncio.Server | None = None
        self._beside = AsyncExitStack()
        self._closed = False
        self._door: TlsAcceptor | None = None
        self._of_network: WeakSet[Connection] = WeakSet()

    @classmethod
    async def open(cls, directory: Path) -> "EmbeddedRelay":
        """Serve a directory, which is made if it is missing, to the processes of this machine.

        Raises InUse (another process serves it, or begins to), StoreDamaged, StoreFull, Unusable.
        """
        store = await asyncio.to_thread(LocalStore, directory)
        relay = None
        try:
            relay = cls(directory, store)
            with short_path(directory, SOCKET_NAME) as path:
                await relay._start(listen_at(path, BACKLOG))
        except BaseException as error:
            await (store if relay is None else relay).aclose()
            if isinstance(error, OSError):
                raise Unusable(
                    f"no socket can be made in {directory} ({error.strerror})",
                    hint="Put the home on a local disk: CRYSTAL_HOME names it.",
                ) from None
            raise
        return relay

    async def _start(self, listener: socket) -> None:
        self._config.load()
        # Not by uvicorn's own server: that one wakes ten times a second, and this one may have nothing to do for hours.
        self._server = await asyncio.get_running_loop().create_server(self._connection, sock=listener)
        self._relay.start()
        self._relay.health.serving()
        operator = Operator(self._store, registry=self._relay.registry, sweeper=self._relay.sweeper)
        await self._beside.enter_async_context(admin_socket(self._directory, operator))

    async def open_to_network(self, door: NetworkDoor) -> None:
        """Serve other machines, too. Once. Raises PortTaken, CannotListen, OSError (the certificate cannot be read)."""
        context = tls_context(door.certificate)
        self._door = TlsAcceptor(
            listen(door.host, door.port),
            context,
            self._network_connection,
            is_full=lambda: len(self._of_network) >= NETWORK_CONNECTIONS_MAX,
        )

    def _connection(self) -> Connection:
        return self._protocol(self._config, self._state, {})

    def _network_connection(self) -> Connection:
        connection = self._connection()
        self._of_network.add(connection)
        return connection

    async def aclose(self) -> None:
        """End the long polls, finish what was begun, release the directory. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._server is not None:
            await self._end()
        await self._relay.aclose()
        await self._store.aclose()

    async def _end(self) -> None:
        assert self._server is not None, "it was started"
        # First, so that nobody connects any more: whoever finds no socket waits for the lock.
        (self._directory / SOCKET_NAME).unlink(missing_ok=True)
        if self._door is not None:
            await self._door.aclose()
        self._relay.health.stopping()
        self._relay.waits.close()
        deadline = time.monotonic() + SHUTDOWN_SECONDS_MAX
        await asyncio.sleep(_ACCEPT_SECONDS)  # those who have connected are accepted
        self._server.close()
        for connection in [*self._state.connections]:
            if connection in self._of_network:  # its client keeps it open between requests
                connection.shutdown()
        while self._waited_for() and time.monotonic() < deadline:  # noqa: ASYNC110  they have no event, and it takes milliseconds
            await asyncio.sleep(_ACCEPT_SECONDS)
        for connection in [*self._state.connections]:
            connection.transport.abort()
        await self._beside.aclose()
        await self._relay.sweeper.run()  # who served for moments only leaves nothing undone

    def _waited_for(self) -> bool:
        """Whether somebody is served, or has connected on the Unix socket to ask for something."""
        open_ones = {
            connection for connection in self._state.connections if isinstance(connection, Connection)
        }
        return any(connection not in self._of_network or not connection.idle for connection in open_ones)


def enroll_token(directory: Path) -> str:
    """The token that makes vaults at this directory's embedded relay, made if it is missing. Raises BadRequest."""
    file = directory / TOKEN_FILE
    with suppress(FileExistsError):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = directory / f"{TOKEN_FILE}.{os.getpid()}"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as written:
            written.write(token_urlsafe(_TOKEN_BYTES))
            written.flush()
            os.fsync(descriptor)
        try:
            os.link(temporary, file)  # never replaces one that others have read
        finally:
            temporary.unlink()
    with file.open(encoding="ascii", errors="replace") as opened:
        token = opened.read(_TOKEN_CHARS_MAX + 1)
    if not _TOKEN_BYTES <= len(token) <= _TOKEN_CHARS_MAX:
        raise BadRequest(f"{file} holds no token", hint="Delete that file: another is made.")
    return token
