"""An HTTP connection of the relay's server, within limits.

- A head has at most `HEAD_BYTES_MAX` bytes and takes at most `HEAD_SECONDS_MAX`.
- The request being served learns that its client has gone, also when the client has pipelined further requests.
- A response that its client leaves unread keeps the connection for at most `SEND_STALL_SECONDS_MAX`, also if it is too short to
  pause the server's writing, and after the server has closed its side.
- The body of a refused request is not kept in memory.
- An address has at most `CONNECTIONS_OF_ADDRESS_MAX` connections; this machine and declared proxies have no limit.
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
"""Prefix of every response head. A piece of a body that begins with it is delayed by one turn of the loop, no more."""


def connection_class(proxies: tuple[str, ...]) -> type["Connection"]:
    """The protocol class of one server, with its own count of connections for each address."""
    return type("Connection", (Connection,), {"addresses": Addresses(proxies)})


class Connection(HttpToolsProtocol):
    """One connection.

    reading a head --complete--> serving --answered, body read--> reading a head
    reading a head --too large, too slow--> closed;  serving --response left unread--> closed
    """

    addresses: "Addresses"
    """Of the server that the connection belongs to. Set by `connection_class`."""

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
        self._reading_head = True
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_head_timer()
        self._answer = ResponseWriter(transport, self.loop)
        try:
            self._address = self.addresses.enter(self.client)
        except TooManyConnections:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._address is not None:
            self.addresses.leave(self._address)
            self._address = None
        # uvicorn tells only the last request, which is not the one being served if others were pipelined.
        if self._serving is not None and not self._serving.response_complete:
            self._serving.disconnected = True
            self._serving.message_event.set()
        self.pipeline.clear()
        self._answer.discard()
        self._stop_head_timer()
        self._stop_stall_timer()
        self._stop_unread_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._reading_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._reading_head and self._head_bytes and not self.transport.is_closing():
            self._start_head_timer()
            # The application measures complete heads, since it can answer them with an error of the usual form.
            if self._head_bytes > HEAD_BYTES_MAX:  # §R9-1
                self._answer.flush()
                self.transport.write(_HEAD_TOO_LARGE)
                self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP with an error of the usual form, and close the connection."""
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
        # For readers of the body, which look here whether reading can wait.
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
        self._answers += 1
        if self._serving is not None:
            # Else what arrived of a refused body would stay in memory until the next request.
            self._serving.body = bytearray()
        super().on_response_complete()
        if not self._reading_head:
            # Answered before the body was read: the rest of it is skipped, within the time limit of a head.
            self._start_head_timer()
        if self._unread_timer is None and self.transport.get_write_buffer_size():
            self._watch_unread()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stop_stall_timer()
        self._stall_timer = self.loop.call_later(SEND_STALL_SECONDS_MAX, self.transport.abort)  # §R9-5

    def resume_writing(self) -> None:
        self._stop_stall_timer()
        super().resume_writing()

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

    def _stop_unread_timer(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None


class TooManyConnections(Exception):
    """The address has reached its limit."""


class Addresses:
    """Number of connections of each address. One for each server."""

    def __init__(self, proxies: tuple[str, ...] = ()) -> None:
        """`proxies`: addresses and networks without a limit, since many clients connect through them."""
        self._proxies: list[IPv4Network | IPv6Network] = [ip_network(each) for each in proxies]
        self._connections: Counter[str] = Counter()

    def enter(self, client: tuple[str, int] | None) -> str | None:
        """Count a connection. Returns the address to `leave`, None if it is not counted. Raises TooManyConnections."""
        address = address_of({"client": client})
        if client is None or address is None or self._is_proxy(client[0]):
            return None
        if self._connections[address] >= CONNECTIONS_OF_ADDRESS_MAX:  # §R9-7
            raise TooManyConnections
        self._connections[address] += 1
        return address

    def leave(self, address: str) -> None:
        """Count the end of a connection."""
        self._connections[address] -= 1
        if not self._connections[address]:
            del self._connections[address]

    def _is_proxy(self, host: str) -> bool:
        try:
            address = ip_address(host)
        except ValueError:
            return False
        return any(address in network for network in self._proxies)


class ResponseWriter:
    """Writes the head of a response together with its body, by one system call.

    A head whose body does not follow in the same turn of the loop is written alone.
    """

    __slots__ = ("_flush_handle", "_head", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head: bytes | None = None
        self._flush_handle: asyncio.Handle | None = None

    def write(self, data: bytes) -> None:
        """Write a head, a piece of a body, or the empty end of one."""
        if self._head is None:
            if data.startswith(_HEAD_START):
                self._head = data
                self._flush_handle = self._loop.call_soon(self.flush)
            else:
                self._transport.write(data)
            return
        head = self._take_head()
        if data:
            self._transport.writelines((head, data))
        else:
            self._transport.write(head)

    def flush(self) -> None:
        """Write a head that waits. Called before anything else is written to the connection."""
        if self._head is not None:
            self._transport.write(self._take_head())

    def discard(self) -> None:
        """Drop a head that waits: the connection is gone."""
        if self._head is not None:
            self._take_head()

    def close(self) -> None:
        """Flush, and close the transport."""
        self.flush()
        self._transport.close()

    def is_closing(self) -> bool:
        """Whether the transport is closing."""
        return self._transport.is_closing()

    def _take_head(self) -> bytes:
        head, self._head = self._head, None
        if self._flush_handle is not None:
            self._flush_handle.cancel()
            self._flush_handle = None
        assert head is not None, "callers check"
        return head
