"""Several clients over streamable HTTP, on this machine alone, behind the gateway's own guard.

It listens on 127.0.0.1 and nowhere else. A request needs the gateway's token, a Host that names this machine and this port, and
an Origin of ours or none: a page in a browser has neither. Sessions end after half an hour without use.
"""

import logging
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import Receive, Scope, Send

from crystal_node.surfaces.gateway.access import GatewayAccess
from crystal_node.surfaces.gateway.guard import GatewayGuard
from crystal_node.surfaces.gateway.server import HOST, port_of, serve
from crystal_node.surfaces.mcp.server import CrystalServer

PATH = "/mcp"
BODY_BYTES_MAX = 1024 * 1024
SESSIONS_MAX = 32
SESSION_IDLE_SECONDS = 1800.0
_NAMES = (HOST, "localhost", "[::1]")


def serve_http(
    server: CrystalServer, access: GatewayAccess, listener: socket.socket, ready: Callable[[], None]
) -> None:
    """Serve until SIGTERM or SIGINT. ``ready`` is called once connections are accepted."""
    # The SDK names addresses that were asked for; they come from anywhere.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    serve(_Guarded(server, access, port_of(listener)), listener, ready)


class _Guarded:
    """The SDK's application behind the guard."""

    def __init__(self, server: CrystalServer, access: GatewayAccess, port: int) -> None:
        self._server = server
        hosts = [f"{name}:{port}" for name in _NAMES]
        application = server.protocol.streamable_http_app(
            streamable_http_path=PATH,
            max_request_body_size=BODY_BYTES_MAX,
            session_idle_timeout=SESSION_IDLE_SECONDS,
            max_sessions=SESSIONS_MAX,
            transport_security=TransportSecuritySettings(
                allowed_hosts=hosts, allowed_origins=[f"http://{host}" for host in hosts]
            ),
        )
        self._guard = GatewayGuard(application, access, port, open_paths=())

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Its sessions."""
        async with self._server.resting(), self._server.protocol.session_manager.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._guard(scope, receive, send)
