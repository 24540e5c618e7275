"""Relays that are not well: servers on a free loopback port that answer every request wrongly, or not at all."""

import contextlib
import socket
import threading
from collections.abc import Generator
from dataclasses import dataclass, field

ANSWERS = {
    "500": b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\nConnection: close\r\n\r\noops",
    "503": b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    "html": b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 13\r\nConnection: close\r\n\r\n<h1>Hotel</h1",
    "redirect": b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    "garbage": b"\x00\xffnot http at all\r\n\r\n",
    "broken off": b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nhalf",
    "close": b"",
}
"""What a relay says to everything, by name."""


@dataclass
class BadRelay:
    """A server that gives one answer to all, or with None holds the line and says nothing."""

    answer: bytes | None
    listener: socket.socket = field(init=False)
    requests: int = 0
    _held: list[socket.socket] = field(default_factory=list[socket.socket])

    def __post_init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def serve(self) -> None:
        """Until the listener is shut down."""
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self._held.append(connection)
            self.requests += 1
            if self.answer is not None:
                with contextlib.suppress(OSError):
                    connection.settimeout(5)
                    connection.recv(65536)
                    connection.sendall(self.answer)
                    connection.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        for held in (self.listener, *self._held):
            held.close()


@contextlib.contextmanager
def bad_relay(answer: bytes | None) -> Generator[BadRelay]:
    relay = BadRelay(answer)
    thread = threading.Thread(target=relay.serve, daemon=True)
    thread.start()
    try:
        yield relay
    finally:
        relay.close()
        thread.join(10)
