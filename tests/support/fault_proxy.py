"""A proxy on loopback in front of an S3 server that does to chosen requests what networks and servers do.

    with fault_proxy(server.endpoint) as proxy:
        proxy.next("PUT", Fault.LOSE_ANSWER)      # the next PUT takes effect, and its answer never comes

Requests are passed on with their headers, so that signatures stay right.
"""

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from enum import Enum

from tests.support.serving import HOP, PassingOn, serving

STALL_SECONDS = 30.0


class Fault(Enum):
    """What happens to a request."""

    LOSE_ANSWER = "it takes effect; the connection is closed in place of the answer"
    STALL_ANSWER = "it takes effect; the answer never comes"
    STALL = "it never reaches the server, and nothing is answered"
    CONFLICT = "409, and it never reaches the server"
    BROKEN = "500, and it never reaches the server"
    BROKEN_AFTER = "500, although it took effect"
    SLOW_DOWN = "503 SlowDown, and it never reaches the server"
    TOO_MANY = "429, and it never reaches the server"
    FULL = "507, and it never reaches the server"
    DENIED = "403, and it never reaches the server"
    CUT_BODY = "the answer's body ends in the middle"
    STALL_BODY = "the answer's body stops in the middle"
    LONGER = "the answer announces more bytes than it has"
    PORTAL = "200 and a web page, and it never reaches the server"


_ANSWERS = {
    Fault.CONFLICT: (409, "ConditionalRequestConflict"),
    Fault.BROKEN: (500, "InternalError"),
    Fault.BROKEN_AFTER: (500, "InternalError"),
    Fault.SLOW_DOWN: (503, "SlowDown"),
    Fault.TOO_MANY: (429, "TooManyRequests"),
    Fault.FULL: (507, "InsufficientStorage"),
    Fault.DENIED: (403, "AccessDenied"),
}
_AFTER = frozenset({Fault.BROKEN_AFTER, Fault.LOSE_ANSWER, Fault.STALL_ANSWER})


@dataclass
class FaultProxy:
    """What it is asked to do, and what it saw."""

    url: str = ""
    seen: list[str] = field(default_factory=list[str])
    """The methods of all requests."""
    always: Callable[[str, str], Fault | None] = lambda method, path: None
    """Asked with method and path, when nothing is queued for the method."""
    ending: threading.Event = field(default_factory=threading.Event)
    _queued: dict[str, deque[Fault | None]] = field(default_factory=dict[str, deque[Fault | None]])
    _lock: threading.Condition = field(default_factory=threading.Condition)

    def next(self, method: str, *faults: Fault | None) -> None:
        """Do this to the next requests of the method, one each. None: nothing."""
        with self._lock:
            self._queued.setdefault(method, deque()).extend(faults)

    def wait_for(self, method: str) -> None:
        """Block until a request of the method has come."""
        with self._lock:
            assert self._lock.wait_for(lambda: method in self.seen, timeout=10), f"no {method} came"

    def fault_for(self, method: str, path: str) -> Fault | None:
        """For the proxy itself."""
        with self._lock:
            self.seen.append(method)
            self._lock.notify_all()
            queued = self._queued.get(method)
            return queued.popleft() if queued else self.always(method, path)


@contextlib.contextmanager
def fault_proxy(endpoint: str) -> Generator[FaultProxy]:
    """In front of an http endpoint on loopback."""
    proxy, upstream = FaultProxy(), endpoint

    class Handler(_Handler):
        faults = proxy
        endpoint = upstream

    with serving(Handler) as proxy.url:
        try:
            yield proxy
        finally:
            proxy.ending.set()


class _Handler(PassingOn):
    faults: FaultProxy

    def _serve(self) -> None:
        body = self.body()
        fault = self.faults.fault_for(self.command, self.path)
        if fault is Fault.STALL:
            self._stall()
            return
        if fault is Fault.PORTAL:
            self._answer(
                200, [("Content-Type", "text/html")], b"<html><body>Welcome to the Wi-Fi</body></html>"
            )
            return
        if fault is not None and fault in _ANSWERS and fault not in _AFTER:
            self._refuse(fault)
            return
        status, headers, answer = self.pass_on(body)
        if fault is Fault.BROKEN_AFTER:
            self._refuse(fault)
        elif fault is Fault.LOSE_ANSWER:
            self.close_connection = True
        elif fault is Fault.STALL_ANSWER:
            self._stall()
        elif fault in (Fault.CUT_BODY, Fault.STALL_BODY):
            self._answer(status, headers, answer[: len(answer) // 2], announced=len(answer))
            if fault is Fault.STALL_BODY:
                self._stall()
            self.close_connection = True
        elif fault is Fault.LONGER:
            self._answer(status, headers, answer, announced=len(answer) + 7)
            self.close_connection = True
        else:
            self._answer(status, headers, answer)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _serve  # noqa: N815

    def _refuse(self, fault: Fault) -> None:
        status, code = _ANSWERS[fault]
        text = f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code><Message>m</Message></Error>"
        self._answer(status, [("Content-Type", "application/xml")], text.encode())

    def _answer(
        self, status: int, headers: list[tuple[str, str]], body: bytes, *, announced: int | None = None
    ) -> None:
        self.send_response_only(status)
        length = None
        for name, value in headers:
            if name.lower() == "content-length":
                length = value
            elif name.lower() not in HOP:
                self.send_header(name, value)
        if self.command == "HEAD":
            self.send_header("Content-Length", length or "0")
        elif status != 204:
            self.send_header("Content-Length", str(len(body) if announced is None else announced))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
            self.wfile.flush()

    def _stall(self) -> None:
        self.faults.ending.wait(STALL_SECONDS)
        self.close_connection = True
