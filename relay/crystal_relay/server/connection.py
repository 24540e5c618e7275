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

import msgspec
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from crystal_relay.errors import BadRequest
from crystal_relay.server.logs import new_request_id
from crystal_relay.server.rates import address_of
from crystal_relay.server.settings import (
    CONNECTIONS_OF_ADDRESS_MAX,
    HEAD_BYTES_MAX,
    HEAD_SECONDS_MAX,
    SEND_STALL_SECONDS_MAX,
)
from crystal_relay.wire import ErrorReply

_HEAD_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
)


_HEAD_START = b"HTTP/"
"""What every head begins with. A piece of a body that does so too waits for a turn of the loop, no more."""


class OneWrite:
    """What an answer is written to: its head waits for its body, and both leave by one system call.

    A head whose body does not follow in the same turn of the loop leaves by itself.
    """

    __slots__ = ("_head", "_leaving", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head: bytes | None = None
        self._leaving: asyncio.Handle | None = None

    def write(self, data: bytes) -> None:
        """Of a head, a piece of a body, or the empty end of one."""
        if self._head is None:
            if data.startswith(_HEAD_START):
                self._head = data
                self._leaving = self._loop.call_soon(self.flush)
            else:
                self._transport.write(data)
            return
        head = self._taken()
        if data:
            self._transport.writelines((head, data))
        else:
            self._transport.write(head)

    def flush(self) -> None:
        """Let go of what waits. Before anything else is written to the connection."""
        if self._head is not None:
            self._transport.write(self._taken())

    def forget(self) -> None:
        """The connection is gone."""
        if self._head is not None:
            self._taken()

    def close(self) -> None:
        """As the transport's."""
        self.flush()
        self._transport.close()

    def is_closing(self) -> bool:
        """As the transport's."""
        return self._transport.is_closing()

    def _taken(self) -> bytes:
        head, self._head = self._head, None
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None
        assert head is not None, "looked at before"
        return head


class LimitedHttp(HttpToolsProtocol):
    """One connection.

    reading a head --complete--> serving --answered, body read--> reading a head
    reading a head --too large, too slow--> closed;  serving --answer left unread--> closed
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._reading_head = True
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_head_timer()
        self._answer = OneWrite(transport, self.loop)

    def connection_lost(self, exc: Exception | None) -> None:
        self._answer.forget()
        self._stop_head_timer()
        self._stop_stall_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._reading_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._reading_head and self._head_bytes and not self.transport.is_closing():
            self._start_head_timer()
            # A head that is complete is measured by the application, which can answer properly.
            if self._head_bytes > HEAD_BYTES_MAX:  # §R9-1
                self._answer.flush()
                self.transport.write(_HEAD_TOO_LARGE)
                self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP gets an error of the same form as all others, and the end of the connection."""
        body = msgspec.json.encode(ErrorReply(BadRequest.code, "this is no valid HTTP request"))
        head = (
            "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncache-control: no-store\r\n"
            f"x-request-id: {new_request_id()}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self._answer.flush()
        self.transport.write(head.encode() + body)
        self.transport.close()

    def on_headers_complete(self) -> None:
        self._reading_head = False
        self._stop_head_timer()
        super().on_headers_complete()
        # Whoever reads the body sees by it whether that can wait.
        self.scope["crystal.cycle"] = self.cycle  # type: ignore[typeddict-unknown-key]
        self.cycle.transport = self._answer  # type: ignore[assignment]

    def on_message_complete(self) -> None:
        self._reading_head = True
        self._head_bytes = 0
        self._stop_head_timer()
        super().on_message_complete()
        if self.cycle.response_complete and self.timeout_keep_alive_task is None and not self.pipeline:
            # The skipped rest of a body has stopped uvicorn's own timer.
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._reading_head:
            # Answered before the body was read: what is left of it is skipped, but not for ever.
            self._start_head_timer()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stop_stall_timer()
        self._stall_timer = self.loop.call_later(SEND_STALL_SECONDS_MAX, self.transport.abort)  # §R9-5

    def resume_writing(self) -> None:
        self._stop_stall_timer()
        super().resume_writing()

    def _start_head_timer(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS_MAX, self.transport.abort)  # §R9-1

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None


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
        if self._connections[address] >= CONNECTIONS_OF_ADDRESS_MAX:  # §R9-7
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
