"""One request and its answer, as the guard follows them.

What need not wait is done at once, by plain functions, which return None or the rest of the request as a coroutine. So each
check stands once, whether a request has to wait or not, and one that does not wait costs neither a task nor a coroutine.
"""

from collections.abc import Coroutine, Sequence
from typing import Any, Protocol, TypeAlias

from starlette.types import Message, Receive, Send

from crystal_relay.server.admission import Limited
from crystal_relay.server.object_requests import FixedHeaders, Header, Headers

_REQUEST_ID = b"x-request-id"
_CONTENT_LENGTH = b"content-length"


Rest: TypeAlias = Coroutine[Any, Any, None] | None
"""What is left to be done for a request; None if it is answered."""


class AnsweringConnection(Limited, Protocol):
    """A connection of our own server."""

    def answer(self, status: int, fixed: FixedHeaders, size: int | None, more: Headers, body: bytes) -> bool:
        """Write the whole answer of the request that is being served. False: it has to be sent by messages."""
        ...

    def take_body(self) -> bytes | None:
        """The body of the request that is being served, if it has arrived and was not read. It counts as read then."""
        ...


class Process(Protocol):
    """The process, as far as an answer depends on it."""

    @property
    def is_stopping(self) -> bool:
        """Whether each answer closes its connection."""
        ...


class Exchange:
    """Tracks one request: whether its body was read, whether its response has begun, bytes in both directions.

    It is a `send`, which takes a whole answer as well.
    """

    __slots__ = (
        "_connection",
        "_process",
        "_receive",
        "_send",
        "code",
        "read_all",
        "received",
        "request_id",
        "sent",
        "status",
    )

    def __init__(
        self,
        receive: Receive,
        send: Send,
        request_id: str,
        connection: AnsweringConnection | None,
        process: Process,
    ) -> None:
        self._receive = receive
        self._send = send
        self._connection = connection
        self._process = process
        self.request_id = request_id
        self.read_all = False
        self.received = 0
        self.sent = 0
        self.status = 0
        self.code = ""
        """Of the error that was answered."""

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self.received += len(message.get("body", b""))
            if not message.get("more_body", False):
                self.read_all = True
        return message

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": [*message["headers"], *self._own_headers()]}
        else:
            self.sent += len(message.get("body", b""))
        await self._send(message)

    def body(self) -> bytes | None:
        """The whole body if it has arrived, else None: then `receive` gives it."""
        body = None if self._connection is None else self._connection.take_body()
        if body is not None:
            self.received += len(body)
            self.read_all = True
        return body

    def answer(
        self, status: int, fixed: FixedHeaders, size: int | None, body: bytes, *, more: Sequence[Header] = ()
    ) -> Rest:
        """Send a whole answer. `fixed`: headers of its kind; `size`: its Content-Length, if it has one."""
        self.status = status
        extra = [*more, *self._own_headers()]
        self.sent += len(body)
        if self._connection is not None and self._connection.answer(status, fixed, size, extra, body):
            return None
        return self._answer_by_messages([*fixed, *extra], size, body)

    async def _answer_by_messages(self, headers: Headers, size: int | None, body: bytes) -> None:
        if size is not None:
            headers.append((_CONTENT_LENGTH, b"%d" % size))
        await self._send({"type": "http.response.start", "status": self.status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})

    def _own_headers(self) -> Headers:
        headers = [(_REQUEST_ID, self.request_id.encode())]  # §R1-4
        refused = self.status >= 400 and self._connection is not None and self._connection.refused()  # §R9-15
        if refused or self._process.is_stopping:  # §R9-12
            headers.append((b"connection", b"close"))
        return headers
