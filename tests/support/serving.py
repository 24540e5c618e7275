"""Small HTTP servers of the tests: one on a free port of this machine, and what stands in front of another.

    class Handler(Quiet): ...
    with serving(Handler) as url: ...

Handlers that fail on purpose share ``Fault``; proxies share ``PassingOn``.
"""

import contextlib
import http.client
import threading
from collections.abc import Collection, Generator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "expect"})
"""Headers of one connection: a proxy keeps them to itself."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens in place of an answer. ``breaks``: the connection ends; ``hangs``: nothing comes until the server ends."""

    status: int = 500
    body: str = '{"error": {"message": "a fault of the test"}}'
    headers: dict[str, str] = field(default_factory=dict[str, str])
    breaks: bool = False
    hangs: bool = False


@contextlib.contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Generator[str]:
    """Runs one on loopback, and gives its address."""
    with _Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class Quiet(BaseHTTPRequestHandler):
    """Says nothing: the tests' output is theirs. Clients of these tests leave in the middle, which is not worth a traceback."""

    protocol_version = "HTTP/1.1"

    def handle_one_request(self) -> None:
        with contextlib.suppress(ConnectionError):
            super().handle_one_request()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (its name in the base class)
        """Nothing is logged."""

    def body(self) -> bytes:
        """Of the request."""
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))


class Failing(Quiet):
    """A provider's server, which fails when it is told to. ``stop``: set when the server ends."""

    stop: threading.Event

    def fail(self, fault: Fault) -> None:
        """Answers with it, or not at all."""
        if fault.hangs:
            self.stop.wait()
        if fault.hangs or fault.breaks:
            self.close_connection = True
            return
        self.write(fault.body.encode(), fault.status, fault.headers)

    def write(self, data: bytes, status: int, headers: dict[str, str]) -> None:
        """An answer in JSON, if ``headers`` say nothing else."""
        self.send_response(status)
        known = {"Content-Type": "application/json", "Content-Length": str(len(data))}
        for name, value in {**known, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


class PassingOn(Quiet):
    """Stands in front of another server, whose address is ``endpoint``."""

    endpoint: str

    def pass_on(
        self, body: bytes, *, without: Collection[str] = HOP, seconds: float = 60.0
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        """Sends the request with its headers, so that signatures stay right: status, headers and body of the answer."""
        upstream = urlsplit(self.endpoint)
        connection = http.client.HTTPConnection(upstream.hostname or "", upstream.port or 80, timeout=seconds)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in without}
            connection.request(self.command, self.path, body=body, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left is no error."""
