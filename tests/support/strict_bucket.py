"""A proxy in front of an S3 server that does what AWS documents and others leave out: it refuses `x-amz-` headers that
are not among those that were signed."""

import contextlib
import http.client
from collections.abc import Generator
from urllib.parse import parse_qs, urlsplit

from tests.support.serving import Quiet, serving


class _Handler(Quiet):
    behind: tuple[str, int]

    def relay(self) -> None:
        body = self.body()
        signed = parse_qs(urlsplit(self.path).query).get("X-Amz-SignedHeaders", [""])[0].split(";")
        if signed != [""] and any(
            name.lower().startswith("x-amz-") and name.lower() not in signed for name in self.headers
        ):
            self._answer(
                403, {}, b"<Error><Code>AccessDenied</Code><Message>headers not signed</Message></Error>"
            )
            return
        connection = http.client.HTTPConnection(*self.behind, timeout=20)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            self._answer(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = relay  # noqa: N815  (their names in the base class)

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

    class Handler(_Handler):
        behind = parts.hostname or "", parts.port or 80

    with serving(Handler) as url:
        yield url
