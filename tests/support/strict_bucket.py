"""A proxy in front of an S3 server that does what AWS documents and others leave out: it refuses `x-amz-` headers that
are not among those that were signed."""

import contextlib
import http.client
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import cast
from urllib.parse import parse_qs, urlsplit


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    behind: tuple[str, int]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Nothing: the tests' output is theirs."""

    def relay(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        signed = parse_qs(urlsplit(self.path).query).get("X-Amz-SignedHeaders", [""])[0].split(";")
        if signed != [""] and any(
            name.lower().startswith("x-amz-") and name.lower() not in signed for name in self.headers
        ):
            self._answer(
                403, {}, b"<Error><Code>AccessDenied</Code><Message>headers not signed</Message></Error>"
            )
            return
        connection = http.client.HTTPConnection(*cast(_Server, self.server).behind, timeout=20)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            self._answer(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = relay  # noqa: N815 - likewise

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        kept = {name.lower(): value for name, value in headers.items()}
        for name in ("connection", "keep-alive", "transfer-encoding"):
            kept.pop(name, None)
        if self.command != "HEAD":
            kept["content-length"] = str(len(body))
        self.send_response_only(status)
        for name, value in kept.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@contextlib.contextmanager
def strict_bucket(endpoint: str) -> Generator[str]:
    """The address of the proxy."""
    parts = urlsplit(endpoint)
    server = _Server(("127.0.0.1", 0), _Handler)
    server.behind = (parts.hostname or "", parts.port or 80)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="strict-bucket")
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
