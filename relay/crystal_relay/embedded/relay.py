"""The serving side of an embedded relay, and the token by which vaults are made there."""

import asyncio
import logging
import os
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_urlsafe
from socket import socket
from weakref import WeakSet

from uvicorn.config import Config
from uvicorn.server import ServerState

from crystal_relay.embedded import SOCKET_NAME
from crystal_relay.errors import BadRequest
from crystal_relay.local.store import LocalStore
from crystal_relay.server import RelaySettings, create_app
from crystal_relay.server.connection import Connection, connection_class
from crystal_relay.server.serving import listen
from crystal_relay.server.settings import HEAD_SECONDS_MAX, KEEP_ALIVE_SECONDS, SHUTDOWN_SECONDS_MAX
from crystal_relay.unix_socket import listen_at, short_path

TOKEN_FILE = "enroll-token"  # noqa: S105  a file's name
BACKLOG = 128
_ACCEPT_SECONDS = 0.005
_TOKEN_BYTES = 32
_TOKEN_CHARS_MAX = 256


@dataclass(frozen=True, slots=True)
class NetworkDoor:
    """Where other machines reach an embedded relay: by TLS 1.3, with the key and the certificate of a PEM file."""

    host: str
    port: int
    certificate: Path

    def context(self) -> ssl.SSLContext:
        """Raises OSError, ssl.SSLError."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(self.certificate)
        return context


class EmbeddedRelay:
    """The serving side: holds the directory's lock until `aclose`. On the running event loop."""

    def __init__(
        self, directory: Path, store: LocalStore, listener: socket, network: NetworkDoor | None
    ) -> None:
        self._directory = directory
        self._store = store
        self._network = network
        settings = RelaySettings(enroll_token=enroll_token(directory), quota_bytes=0, quota_entries=0)
        app = create_app(store, settings)
        self._relay = app.state.relay
        self._state = ServerState()
        self._listener = listener
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
        self._servers: list[asyncio.Server] = []
        self._closed = False
        self._of_network: WeakSet[Connection] = WeakSet()

    @classmethod
    async def open(cls, directory: Path, network: NetworkDoor | None = None) -> "EmbeddedRelay":
        """Serve a directory, which is made if it is missing; with `network`, to other machines, too.

        Raises InUse (another process serves it, or begins to), StoreDamaged, StoreFull, Unusable; PortTaken, CannotListen.
        """
        store = await asyncio.to_thread(LocalStore, directory)
        try:
            with short_path(directory, SOCKET_NAME) as path:
                relay = cls(directory, store, listen_at(path, BACKLOG), network)
        except BaseException:
            await store.aclose()
            raise
        try:
            await relay._start()
        except BaseException:
            await relay.aclose()
            raise
        return relay

    async def _start(self) -> None:
        self._config.load()
        # Not by uvicorn's own server: that one wakes ten times a second, and this one may have nothing to do for hours.
        loop = asyncio.get_running_loop()
        self._servers.append(await loop.create_server(self._connection, sock=self._listener))
        if self._network is not None:
            door = self._network
            outside = listen(door.host, door.port)
            try:
                self._servers.append(
                    await loop.create_server(
                        self._network_connection,
                        sock=outside,
                        ssl=door.context(),
                        ssl_handshake_timeout=HEAD_SECONDS_MAX,
                    )
                )
            except BaseException:
                outside.close()
                raise
        self._relay.start()
        self._relay.health.serving()

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
        # First, so that nobody connects any more: whoever finds no socket waits for the lock.
        (self._directory / SOCKET_NAME).unlink(missing_ok=True)
        self._relay.health.stopping()
        self._relay.waits.close()
        deadline = time.monotonic() + SHUTDOWN_SECONDS_MAX
        await asyncio.sleep(_ACCEPT_SECONDS)  # those who have connected are accepted
        for server in self._servers:
            server.close()
        for connection in [*self._state.connections]:
            if connection in self._of_network:  # its client keeps it open between requests
                connection.shutdown()
        while self._waited_for() and time.monotonic() < deadline:  # noqa: ASYNC110  they have no event, and it takes milliseconds
            await asyncio.sleep(_ACCEPT_SECONDS)
        for connection in [*self._state.connections]:
            connection.transport.abort()
        await self._relay.aclose()
        await self._store.aclose()

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
