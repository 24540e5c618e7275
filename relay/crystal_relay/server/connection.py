"""An HTTP connection of the relay's server, within limits.

- A head has at most `HEAD_BYTES_MAX` bytes and takes at most `HEAD_SECONDS_MAX`.
- One request is parsed at a time. What its client has pipelined behind it waits unparsed; beyond `HEAD_BYTES_MAX` of it,
  reading pauses. The request being served learns that its client has gone, unless reading is paused.
- A response that its client leaves unread keeps the connection for at most `SEND_STALL_SECONDS_MAX`, also if it is too short to
  pause the server's writing, and after the server has closed its side.
- The body of a refused request is not kept in memory.
- Connections, and the bytes that wait on them, are limited in total and by address (`admission`).
- A chunked body is not read: no route takes one, so the connection ends with the response.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from crystal_relay.errors import BadRequest
from crystal_relay.server.admission import SCOPE_KEY, Admission, Closing, Place, Refused, Trust
from crystal_relay.server.eager import run_eagerly
from crystal_relay.server.logs import new_request_id
from crystal_relay.server.object_requests import (
    Fields,
    FixedHeaders,
    Happening,
    Headers,
    ObjectCycle,
    keep_body,
    object_request,
)
from crystal_relay.server.requests import FIELDS_KEY
from crystal_relay.server.settings import (
    ANONYMOUS_KEEP_ALIVE_SECONDS,
    ANONYMOUS_REFUSED_MAX,
    ANONYMOUS_UNSENT_BYTES,
    HEAD_BYTES_MAX,
    HEAD_SECONDS_MAX,
    HEADERS_MAX,
    LAST_REQUEST_SECONDS_MAX,
    SEND_STALL_SECONDS_MAX,
)
from crystal_relay.wire import ErrorReply

_HEAD_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
)
_HEAD_END = b"\r\n\r\n"
_KEPT_BYTES_MAX = 1024
"""Headers up to this size are remembered for the next request. Those of a device have a quarter of it."""
_HEAD_START = b"HTTP/"
"""Prefix of every response head. A piece of a body that begins with it is delayed by one turn of the loop, no more."""


def connection_class(admission: Admission) -> type["Connection"]:
    """The protocol class of one server."""
    return type("Connection", (Connection,), {"admission": admission})


class Connection(HttpToolsProtocol):
    """One connection.

    reading a head --complete--> serving --answered, body read--> reading a head
    reading a head --too large, too slow--> closed;  serving --response left unread--> closed
    """

    admission: Admission
    """Of the server that the connection belongs to. Set by `connection_class`."""
    flow: "_InputFlow"
    __slots__ = (
        "_answer",
        "_answers",
        "_beginning",
        "_body_left",
        "_fields",
        "_head_bytes",
        "_head_tail",
        "_head_timer",
        "_idle_until",
        "_input",
        "_parsed",
        "_place",
        "_reading_head",
        "_refused",
        "_serving",
        "_skip_rest",
        "_stall_timer",
        "_unread_timer",
        "_when_gone",
    )
    """Beside uvicorn's attributes, these would make each connection's dictionary a kilobyte larger: it then has more names than
    objects of a class share."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        # One request at a time is parsed, so nothing ever waits in it; an empty deque takes 0.6 KB of each connection. If a
        # second one began, this would end the connection: a missing answer would make the next ones look like other requests'.
        self.pipeline = ()  # type: ignore[assignment]
        self._place: Place | None = None
        self._serving: RequestResponseCycle | None = None
        self._when_gone: Callable[[], None] | None = None
        self._answers = 0
        self._refused = 0
        self._input = b""
        """Received, and parsed up to `_parsed`."""
        self._parsed = 0
        self._reading_head = True
        self._head_bytes = 0
        self._head_tail = b""
        """The last bytes of a head that were parsed: its end may have begun in them."""
        self._body_left = 0
        self._skip_rest = False
        self._fields: Fields | None = None
        """Headers of the previous request for an object; the next one mostly repeats them."""
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None
        self._beginning = False
        """Whether this connection is just beginning a request, further up the stack."""
        self._idle_until = 0.0
        """When it has been idle for too long, by the loop's clock; 0 while it is not idle."""

    # --- for the limits ---

    @property
    def idle(self) -> bool:
        """Whether no request is being served."""
        return self._serving is None or self._serving.response_complete

    def end(self, closing: Closing) -> None:
        """Close the connection at once. Idempotent."""
        if not self.transport.is_closing():
            self.admission.closed[closing] += 1
        self.transport.abort()

    def authenticated(self) -> None:
        """A request showed valid credentials."""
        if self._place is not None and self._place.trust is Trust.ANONYMOUS:
            self.admission.authenticate(self, self._place)
            self.timeout_keep_alive = self.config.timeout_keep_alive
            self.transport.set_write_buffer_limits()

    def refused(self) -> bool:
        """Count a request that is answered with an error. Returns whether the connection should end with it."""
        if self._place is None or self._place.trust is not Trust.ANONYMOUS:
            return False
        self._refused += 1
        if self._refused == ANONYMOUS_REFUSED_MAX:  # §R9-15
            self.admission.closed[Closing.REFUSED] += 1
        return self._refused >= ANONYMOUS_REFUSED_MAX

    def when_gone(self, call: Callable[[], None] | None) -> None:
        """Call it if the client leaves while a request is being served; at once if it has left. None: call nothing any more."""
        if call is not None and self._place is None:
            call()
            return
        self._when_gone = call

    def answer(self, status: int, fixed: FixedHeaders, size: int | None, more: Headers, body: bytes) -> bool:
        """Write the whole answer of the request that is being served. False: it has to be sent by messages."""
        serving = self._serving
        return isinstance(serving, ObjectCycle) and serving.answer(status, fixed, size, more, body)

    def take_body(self) -> bytes | None:
        """The body of the request that is being served, if it has arrived and was not read. It counts as read then."""
        serving = self._serving
        return serving.take_body() if isinstance(serving, ObjectCycle) else None

    # --- for the server ---

    def shutdown(self) -> None:
        """Close the connection once its request is answered; if none has begun yet, after the time for a last one."""
        if self.idle and (self._answers == 0 or self._head_bytes):
            self.loop.call_later(LAST_REQUEST_SECONDS_MAX, super().shutdown)  # §R9-12
        else:
            super().shutdown()

    # --- for the transport ---

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _InputFlow(transport)  # pyright: ignore[reportIncompatibleVariableOverride]  uvicorn sets it above, and only there
        self._answer = ResponseWriter(transport, self.loop)
        try:
            self._place = self.admission.enter(self, self.client)
        except Refused as refused:
            self.end(refused.closing)
            return
        self._start_head_timer()
        if self._place.trust is Trust.ANONYMOUS:
            self.timeout_keep_alive = ANONYMOUS_KEEP_ALIVE_SECONDS
            transport.set_write_buffer_limits(high=ANONYMOUS_UNSENT_BYTES)

    def connection_lost(self, exc: Exception | None) -> None:
        self._input = b""
        if self._place is not None:
            self.admission.leave(self, self._place)
            self._place = None
        # uvicorn tells only the last request, which is not the one being served if another was begun.
        if self._serving is not None and not self._serving.response_complete:
            self._serving.disconnected = True
            self._serving.message_event.set()
            if self._when_gone is not None:
                self._when_gone()
                self._when_gone = None
        self._answer.discard()
        self._stop_head_timer()
        self._stop_stall_timer()
        self._stop_unread_timer()
        self._end_keep_alive()  # its timer would keep this object
        super().connection_lost(exc)
        # Else reference cycles stay in memory until the next garbage collection. A request being served holds its `cycle`.
        self.scope = self.headers = self.cycle = self._serving = None  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing() or self._skip_rest:
            return
        self._input = self._input[self._parsed :] + data if self._input else data
        self._parsed = 0
        self._parse()

    def _parse(self) -> None:
        """Parse what was received, up to the end of the request that is to be served next."""
        while self._parsed < len(self._input) and not self._must_wait() and not self.transport.is_closing():
            if self._skip_rest:
                self._input = b""
                break
            if self._reading_head and not self._head_bytes and self._serve_object():
                continue
            piece = self._next_piece()
            if self._reading_head:
                self._head_bytes += len(piece)
            super().data_received(piece)
            if self._reading_head and self._head_bytes and not self.transport.is_closing():
                self._start_head_timer()
                # The application measures complete heads, since it can answer them with an error of the usual form.
                if self._head_bytes > HEAD_BYTES_MAX or len(self.headers or ()) > HEADERS_MAX:  # §R9-1
                    self._refuse_head()
        if self._parsed >= len(self._input):
            self._input, self._parsed = b"", 0
        self._count_waiting()

    def _serve_object(self) -> bool:
        """Begin the request that is next in the input if it is one for an object, whole and in the known form."""
        asked = object_request(self._input, self._parsed, self._fields)
        if asked is None:
            return False
        self._parsed = asked.end
        if asked.end == len(self._input):
            self._input, self._parsed = b"", 0
        # A connection that waits mostly sends nothing for a minute, and each idle one would hold large headers.
        self._fields = None if asked.is_wait or len(asked.fields.block) > _KEPT_BYTES_MAX else asked.fields
        self._idle_until = 0.0
        if asked.is_wait:
            self._end_keep_alive()  # as long as a wait lasts, its timer would only take memory
        self._stop_head_timer()
        path = asked.path.decode("ascii")
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": "1.1",
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "root_path": "",
            "headers": asked.fields.headers,
            "state": self.app_state.copy(),
            "method": asked.method.decode("ascii"),
            "path": path,
            "raw_path": asked.path,
            "query_string": asked.query,
            SCOPE_KEY: self,
            "crystal.object": asked.object,
            "crystal.cycle": ObjectCycle,  # all of them have their body; the cycle itself would be a circle
        }
        if not asked.is_wait:  # it would hold them as long as it lasts
            scope[FIELDS_KEY] = asked.fields
        self.cycle = ObjectCycle(self, scope, asked.body)
        self._start_asgi_task(self.cycle, self.app)
        return True

    def _next_piece(self) -> bytes:
        """A piece of the input with at most one end of a head or one end of a body in it."""
        begin = self._parsed
        if self._reading_head:
            self._parsed = min(self._end_of_head(), begin + HEAD_BYTES_MAX + 1 - self._head_bytes)
            self._head_tail = (self._head_tail + self._input[max(begin, self._parsed - 3) : self._parsed])[
                -3:
            ]
        else:
            size = self._body_left or 1  # the parser says when a body ends
            self._parsed = min(begin + size, len(self._input))
            self._body_left -= min(self._parsed - begin, self._body_left)
        if begin == 0 and self._parsed == len(self._input):
            return self._input
        return self._input[begin : self._parsed]

    def _end_of_head(self) -> int:
        """Where the head in the input ends, or else the input. The empty line that ends it may have begun earlier."""
        begin, tail = self._parsed, self._head_tail
        across = (tail + self._input[begin : begin + 3]).find(_HEAD_END)
        if across >= 0:
            return begin + across + len(_HEAD_END) - len(tail)
        at = self._input.find(_HEAD_END, begin)
        return at + len(_HEAD_END) if at >= 0 else len(self._input)

    def _must_wait(self) -> bool:
        """Whether the next request cannot be parsed before one is answered."""
        return self._reading_head and not self.idle  # §R9-16

    def _count_waiting(self) -> None:
        """Account for what is in memory and not processed. Ends the connection if it is too much."""
        place = self._place
        if place is None or self.transport.is_closing():
            return
        if not self._input and not place.waiting and place.trust is not Trust.ANONYMOUS:
            if self.flow.held:
                self.flow.release()
            return
        waiting = len(self._input) - self._parsed
        if waiting > HEAD_BYTES_MAX:
            self.flow.hold()
        else:
            self.flow.release()
        if place.trust is Trust.ANONYMOUS and self._serving is not None:
            waiting += len(self._serving.body)
        if waiting != place.waiting:
            try:
                self.admission.wait(place, waiting)
            except Refused as refused:
                self.end(refused.closing)

    def _refuse_head(self) -> None:
        self._answer.flush()
        self.transport.write(_HEAD_TOO_LARGE)
        self.transport.close()
        self.admission.closed[Closing.HEAD] += 1

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
        self._head_tail = b""
        self._stop_head_timer()
        super().on_headers_complete()
        self._body_left, chunked = _body_of(self.headers)
        if chunked:
            self._skip_rest = True
            self.cycle.keep_alive = False
        self.scope[SCOPE_KEY] = self  # type: ignore[literal-required]
        # For readers of the body, which look here whether reading can wait.
        self.scope["crystal.cycle"] = self.cycle  # type: ignore[typeddict-unknown-key]
        self.cycle.transport = self._answer  # type: ignore[assignment]

    def on_body(self, body: bytes) -> None:
        """As uvicorn's, but what arrives while nothing waits to be read is not copied."""
        if not self.cycle.response_complete:
            keep_body(self.cycle, body)
            super().on_body(b"")

    def on_message_complete(self) -> None:
        self._reading_head = True
        self._head_bytes = 0
        self._stop_head_timer()
        super().on_message_complete()
        self.scope["crystal.cycle"] = ObjectCycle  # type: ignore[typeddict-unknown-key]  # as in `_serve_object`
        if self.cycle.response_complete and not self._idle_until:
            self._keep_alive()  # the skipped rest of a body was no idleness

    def on_response_complete(self) -> None:
        self._answers += 1
        if self._serving is not None:
            # Else what arrived of a refused body would stay in memory until the next request.
            self._serving.body = bytearray()
            self._serving.scope.pop("crystal.cycle", None)  # type: ignore[typeddict-item]  # a reference cycle
            if self._fields is None:  # they were too large to be kept
                self._serving.scope.pop(FIELDS_KEY, None)  # type: ignore[misc]
        self.server_state.total_requests += 1
        if not self.transport.is_closing():
            self.flow.resume_reading()
            self._keep_alive()
        if not self._reading_head:
            # Answered before the body was read: the rest of it is skipped, within the time limit of a head.
            self._start_head_timer()
        if self._unread_timer is None and self.transport.get_write_buffer_size():
            self._watch_unread()
        if self.transport.is_closing():
            self._input = b""
        elif self._parsed < len(self._input):
            self._parse()
        else:
            self._input, self._parsed = b"", 0
            self._count_waiting()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stop_stall_timer()
        self._stall_timer = self.loop.call_later(SEND_STALL_SECONDS_MAX, self.end, Closing.UNREAD)  # §R9-5

    def resume_writing(self) -> None:
        self._stop_stall_timer()
        super().resume_writing()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._serving = cycle
        if self._place is not None and self._place.trust is Trust.ANONYMOUS:
            self.admission.begin(lambda: self._begin(cycle, app), self.loop)
        else:
            self._run(cycle, app)

    def _begin(self, cycle: RequestResponseCycle, app: Any) -> None:
        if not cycle.disconnected:
            self._run(cycle, app)

    def _run(self, cycle: RequestResponseCycle, app: Any) -> None:
        """What has arrived whole runs at once. What is pipelined behind it takes a turn of the loop each, as all else does."""
        within = self._beginning or asyncio.current_task(self.loop) is not None
        if within or not isinstance(cycle, ObjectCycle):
            super()._start_asgi_task(cycle, app)
            return
        self._beginning = True
        try:
            begin = getattr(app, "begin", None)
            if begin is None:  # a proxy's word on the client has to be read first
                run_eagerly(cycle.run_asgi(app), self.loop, self.tasks)
                return
            rest = begin(cycle.scope, cycle.receive, cycle.send)
            if rest is not None:
                run_eagerly(cycle.run_rest(rest), self.loop, self.tasks)
        finally:
            self._beginning = False

    # One timer for many requests: to make and end one for each cost as much as parsing it.

    def _keep_alive(self) -> None:
        """It is idle from now on."""
        self._idle_until = self.loop.time() + self.timeout_keep_alive
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _unset_keepalive_if_required(self) -> None:
        self._idle_until = 0.0

    def _end_keep_alive(self) -> None:
        self._idle_until = 0.0
        super()._unset_keepalive_if_required()

    def timeout_keep_alive_handler(self) -> None:
        self.timeout_keep_alive_task = None
        left = self._idle_until - self.loop.time()
        if not self._idle_until:
            return
        if left > 0:
            self.timeout_keep_alive_task = self.loop.call_later(left, self.timeout_keep_alive_handler)
        else:
            super().timeout_keep_alive_handler()

    def _watch_unread(self) -> None:
        self._unread_timer = self.loop.call_later(
            SEND_STALL_SECONDS_MAX, self._end_if_unread, self._answers, self.transport.get_write_buffer_size()
        )

    def _end_if_unread(self, answers: int, unread: int) -> None:
        self._unread_timer = None
        left = self.transport.get_write_buffer_size()
        if left and answers == self._answers and left >= unread:
            self.end(Closing.UNREAD)
        elif left:
            self._watch_unread()

    def _start_head_timer(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS_MAX, self.end, Closing.HEAD)  # §R9-1

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


class _InputFlow(FlowControl):
    """Reading stays paused while it is held, also when uvicorn would resume it for the request being served."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._is_writable_event = Happening()  # type: ignore[assignment]  # of what uvicorn asks of it
        self._is_writable_event.set()
        self.held = False

    def hold(self) -> None:
        """Pause reading until `release`."""
        self.held = True
        self.pause_reading()

    def release(self) -> None:
        """Let reading be resumed, and resume it if it was held."""
        if self.held:
            self.held = False
            self.resume_reading()

    def resume_reading(self) -> None:
        if not self.held:
            super().resume_reading()


class ResponseWriter:
    """Writes the head of a response together with its body, by one system call. A head whose body does not follow in the same
    turn of the loop is written alone."""

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


def _body_of(headers: list[tuple[bytes, bytes]]) -> tuple[int, bool]:
    """The declared size of a body, and whether it is chunked. The parser has refused sizes that are no number."""
    size = 0
    for name, value in headers:
        if name == b"transfer-encoding":
            return 0, True
        if name == b"content-length":
            size = int(value) if value.isdigit() and len(value) < 16 else 0
    return size, False
