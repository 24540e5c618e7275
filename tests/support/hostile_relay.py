"""A relay's operator: sees all that passes between devices and a real relay, and answers what it likes.

with hostile_relay(relay.url) as hostile:
    hostile.answers = lambda seen: replace(seen, answer=b"junk") if seen.path.endswith("/offer") else seen
"""

import contextlib
import http.client
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "expect"})
_NOT_FOUND = b'{"error": "not-found", "message": "there is no such object", "hint": ""}'


@dataclass(frozen=True)
class Seen:
    """A request and its answer."""

    method: str
    path: str
    headers: str
    body: bytes
    status: int
    answer: bytes
    type: str = "application/octet-stream"

    def is_get_of(self, slot: str) -> bool:
        """Whether a slot of a mailbox was read, and was there."""
        return self.method == "GET" and self.path.endswith(f"/{slot}") and self.status in (200, 206)

    def absent(self) -> "Seen":
        """As if there were nothing yet."""
        return Seen(self.method, self.path, self.headers, self.body, 404, _NOT_FOUND, "application/json")

    def saying(self, answer: bytes) -> "Seen":
        """With other bytes in the answer."""
        return Seen(self.method, self.path, self.headers, self.body, self.status, answer, self.type)


@dataclass
class HostileRelay:
    """What it saw, and what it does."""

    url: str = ""
    seen: list[Seen] = field(default_factory=list[Seen])
    answers: Callable[[Seen], Seen] = lambda seen: seen
    """Given what the relay answered, what the device is told."""
    requests: Callable[[str, str, bytes], bytes] = lambda method, path, body: body
    """Given a request's body, what the relay is told."""
    delay: float = 0.0
    """Seconds before each answer."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def everything(self) -> bytes:
        """All that it ever saw, on one heap."""
        with self.lock:
            return b"\n".join(
                b"\n".join((seen.path.encode(), seen.headers.encode(), seen.body, seen.answer))
                for seen in self.seen
            )

    def read(self, slot: str) -> bytes:
        """What was last read in a slot."""
        with self.lock:
            return next(seen.answer for seen in reversed(self.seen) if seen.is_get_of(slot))


@contextlib.contextmanager
def hostile_relay(endpoint: str) -> Generator[HostileRelay]:
    """In front of a relay on loopback."""
    hostile = HostileRelay()
    upstream = urlsplit(endpoint)

    class Handler(_Handler):
        operator = hostile
        host, port = upstream.hostname or "", upstream.port or 80

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hostile.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hostile
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    operator: HostileRelay
    host: str
    port: int

    def handle_one_request(self) -> None:
        with contextlib.suppress(ConnectionError):
            super().handle_one_request()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (its name in the base class)
        """Nothing is logged."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = self.operator.requests(self.command, self.path, body)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
        connection = http.client.HTTPConnection(self.host, self.port, timeout=90)
        try:
            connection.request(self.command, self.path, body=body, headers=headers)
            response = connection.getresponse()
            answer, kept = response.read(), response.getheaders()
            kind = response.getheader("Content-Type") or "application/octet-stream"
            seen = Seen(self.command, self.path, str(self.headers), body, response.status, answer, kind)
        except (OSError, http.client.HTTPException):
            self.close_connection = True
            return
        finally:
            connection.close()
        with self.operator.lock:
            self.operator.seen.append(seen)
        told = self.operator.answers(seen)
        time.sleep(self.operator.delay)
        self._tell(seen, told, kept)

    def _tell(self, seen: Seen, told: Seen, kept: list[tuple[str, str]]) -> None:
        size = len(told.answer)
        self.send_response_only(told.status)
        for name, value in kept:
            if name.lower() == "content-range" and told.answer != seen.answer:
                self.send_header(name, f"bytes 0-{size - 1}/{size}")
            elif name.lower() not in _HOP | {"content-type"}:
                self.send_header(name, value)
        self.send_header("Content-Type", told.type)
        if told.status != 204:
            self.send_header("Content-Length", str(size))
        self.end_headers()
        self.wfile.write(told.answer)
        self.wfile.flush()

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _serve  # noqa: N815
