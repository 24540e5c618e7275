"""A connection of the relay's server, with the limits that concern more than one request or more than one connection.

- A client that sends further requests ahead and goes: the one that is being served learns of it too.
- What a client leaves unread of an answer keeps the connection no longer than `SEND_STALL_SECONDS_MAX`, also when it is too
  little to stop the server from sending, and when the server has closed its side.
- Of a refused request's body nothing stays in memory.
- An address has at most `CONNECTIONS_OF_ADDRESS_MAX` connections; this machine and declared proxies any number.
"""

import asyncio
from collections import Counter
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvicorn.server import ServerState

from crystal_relay.server.protocol import LimitedHttp
from crystal_relay.server.rates import address_of
from crystal_relay.server.settings import CONNECTIONS_OF_ADDRESS_MAX, SEND_STALL_SECONDS_MAX


class Addresses:
    """How many connections each address has. One for each server."""

    def __init__(self, proxies: tuple[str, ...] = ()) -> None:
        """`proxies`: addresses and networks that have no limit, since many clients come by way of them."""
        self._proxies: list[IPv4Network | IPv6Network] = [ip_network(each) for each in proxies]
        self._connections: Counter[str] = Counter()

    def enter(self, client: tuple[str, int] | None) -> str | None:
        """Count one more. Returns what to `leave` by; None: it is not counted. Raises TooManyConnections."""
        address = address_of({"client": client})
        if client is None or address is None or self._is_proxy(client[0]):
            return None
        if self._connections[address] >= CONNECTIONS_OF_ADDRESS_MAX:
            raise TooManyConnections
        self._connections[address] += 1
        return address

    def leave(self, address: str) -> None:
        """One of them has ended."""
        self._connections[address] -= 1
        if not self._connections[address]:
            del self._connections[address]

    def _is_proxy(self, host: str) -> bool:
        try:
            address = ip_address(host)
        except ValueError:
            return False
        return any(address in network for network in self._proxies)


class TooManyConnections(Exception):
    """Of one address."""


class BoundedHttp(LimitedHttp):
    """One connection."""

    addresses: Addresses
    """Set by `bounded_http`: of the server that this kind of connection belongs to."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._address: str | None = None
        self._serving: RequestResponseCycle | None = None
        self._answers = 0
        self._unread_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        try:
            self._address = self.addresses.enter(self.client)
        except TooManyConnections:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._address is not None:
            self.addresses.leave(self._address)
            self._address = None
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None
        # uvicorn tells the request that came last. With others ahead of it, that is not the one being served.
        if self._serving is not None and not self._serving.response_complete:
            self._serving.disconnected = True
            self._serving.message_event.set()
        self.pipeline.clear()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._answers += 1
        if self._serving is not None:
            # What came of a body that was refused would stay until the next request.
            self._serving.body = bytearray()
        super().on_response_complete()
        if self._unread_timer is None and self.transport.get_write_buffer_size():
            self._watch_unread()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._serving = cycle
        super()._start_asgi_task(cycle, app)

    def _watch_unread(self) -> None:
        self._unread_timer = self.loop.call_later(
            SEND_STALL_SECONDS_MAX, self._end_if_unread, self._answers, self.transport.get_write_buffer_size()
        )

    def _end_if_unread(self, answers: int, unread: int) -> None:
        self._unread_timer = None
        left = self.transport.get_write_buffer_size()
        if not left:
            return
        if answers == self._answers and left >= unread:
            self.transport.abort()
        else:
            self._watch_unread()


def bounded_http(proxies: tuple[str, ...]) -> type[BoundedHttp]:
    """The kind of connection of one server."""
    return type("BoundedHttp", (BoundedHttp,), {"addresses": Addresses(proxies)})
