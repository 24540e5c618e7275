"""A relay's server on one end of a socket pair, for fuzzing what comes over a connection: its own protocol and routes."""

import asyncio
import socket
from collections.abc import Sequence
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from crystal_relay.memory import MemoryStore
from crystal_relay.server import RelaySettings, create_app
from crystal_relay.server.connection import connection_class
from crystal_relay.server.extension import Extension
from crystal_relay.tokens import new_token, recovery_hash, token_hash
from crystal_relay.wire import VaultCreation

VAULT, DEVICE = "ab" * 16, "cd" * 16
RECOVERY = bytes(range(32))
ENROL = "enrolment-token-of-the-tests"
TURNS_MAX = 400
"""Turns of the loop that a request may take; one that waits for news is ended then."""
QUOTA_BYTES = 16 * 1024 * 1024


class FuzzedServer:
    """A relay over memory with one vault, whose device's token is `token`."""

    def __init__(self, extensions: Sequence[Extension] = ()) -> None:
        self.loop = asyncio.new_event_loop()
        self.failures: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda _, context: self.failures.append(context))
        self.token = new_token(DEVICE, bytes)
        settings = RelaySettings(
            enroll_token=ENROL,
            quota_bytes=QUOTA_BYTES,
            rate_per_token=0,
            rate_per_address=0,
            rate_unauthorized=1e9,
            sweep_seconds=0,
        )
        self.store = MemoryStore()
        app = create_app(self.store, settings, extensions=extensions)
        self._http: Any = connection_class(app.state.relay.admission)
        self._config = uvicorn.Config(
            app,
            http=self._http,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
        )
        self._config.load()
        self._state = ServerState()
        creation = VaultCreation(VAULT, recovery_hash(RECOVERY), DEVICE, token_hash(self.token))
        self.loop.run_until_complete(app.state.relay.registry.create_vault(creation))

    def send(self, data: bytes) -> bytes:
        """What the server answers to these bytes, on a connection of its own."""
        answered = self.loop.run_until_complete(self._sent(data))
        assert self.failures == [], self.failures
        assert b"HTTP/1.1 500" not in answered, answered
        assert answered == b"" or answered.startswith(b"HTTP/1.1 "), answered
        return answered

    async def _sent(self, data: bytes) -> bytes:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        transport, _ = await self.loop.connect_accepted_socket(
            lambda: self._http(config=self._config, server_state=self._state, app_state={}),
            theirs,
        )
        try:
            ours.send(data)
            for turn in range(TURNS_MAX):
                await asyncio.sleep(0)
                if turn > 2 and not self._state.tasks:
                    break
            try:
                return ours.recv(1 << 20)
            except BlockingIOError:
                return b""
        finally:
            transport.abort()
            ours.close()
            while self._state.tasks:
                for task in list(self._state.tasks):
                    task.cancel()
                await asyncio.sleep(0)
            await asyncio.sleep(0)
