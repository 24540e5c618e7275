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

from tests.support.serving import HOP, PassingOn, serving

_OURS = HOP | {"content-length"}
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
    hostile, upstream = HostileRelay(), endpoint

    class Handler(_Handler):
        operator = hostile
        endpoint = upstream

    with serving(Handler) as hostile.url:
        yield hostile


class _Handler(PassingOn):
    operator: HostileRelay

    def _serve(self) -> None:
        body = self.operator.requests(self.command, self.path, self.body())
        try:
            status, kept, answer = self.pass_on(body, without=_OURS, seconds=90)
        except (OSError, http.client.HTTPException):
            self.close_connection = True
            return
        kind = next(
            (value for name, value in kept if name.lower() == "content-type"), "application/octet-stream"
        )
        seen = Seen(self.command, self.path, str(self.headers), body, status, answer, kind)
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
            elif name.lower() not in _OURS | {"content-type"}:
                self.send_header(name, value)
        self.send_header("Content-Type", told.type)
        if told.status != 204:
            self.send_header("Content-Length", str(size))
        self.end_headers()
        self.wfile.write(told.answer)
        self.wfile.flush()

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _serve  # noqa: N815
