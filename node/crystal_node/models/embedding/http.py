"""Requests to embedding models: bounded, and retried where nothing can have been charged.

Like ``crystal_node.models.llm.http``, without an event loop::

    send ─┬─ 200 ─────────────────────────────► document
          ├─ not connected, 429, 500-503, 529 ─► wait (Retry-After, else 1, 2, 4 s) ─► send, within the retry budget
          ├─ other status ────────────────────► EmbedderRefused, InputTooLong
          └─ sent, and the answer got lost (or 504, 524) ─► EmbedderUnavailable, paid

A key goes to the address that it belongs to, never along a redirect. Neither keys nor texts appear in a message, log or repr.
"""

import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec

from crystal_core.embed.port import EmbedderClosed, EmbedderRefused, EmbedderUnavailable
from crystal_node.base.decoding import from_json
from crystal_node.models.llm.addresses import is_loopback
from crystal_node.models.llm.http import (
    BACKOFF_SECONDS,
    CONNECT_SECONDS_MAX,
    GIVEN_UP,
    OK,
    PASSING,
    PLAIN,
    TOO_LONG,
    TOO_MANY,
    TRIES_MAX,
    encoded,
    is_packed,
    reason_of,
    repeats,
    retry_after,
)

ANSWER_BYTES_MAX = 48 * 1024 * 1024
"""Vectors come as decimal numbers: 128 of 8,192 numbers have about 22 MiB."""

Pause = Callable[[float], None]
T = TypeVar("T")


class InputTooLong(EmbedderRefused):
    """The model does not accept a text of this length."""


class EmbedHttp:
    """One server. ``secret``: headers that hold the key, which are never shown. Thread-safe."""

    def __init__(
        self, base: str, *, secret: Mapping[str, str] | None = None, pause: Pause = time.sleep
    ) -> None:
        """Raises EmbedderRefused: the key would be readable on the network."""
        if secret and urlsplit(base).scheme != "https" and not is_loopback(base):
            raise EmbedderRefused(
                "a key is not sent over plain http to another machine",
                hint="Use an https address, or a tunnel that ends on this machine (ssh -L).",
            )
        self.base = base.rstrip("/")
        self.host = urlsplit(self.base).netloc.rpartition("@")[2]
        self._pause = pause
        self._secret = dict(secret or {})
        self._lock = threading.Lock()
        self._client: httpx.Client | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"EmbedHttp({self.host!r})"

    @property
    def local(self) -> bool:
        """Whether the server is on this machine."""
        return is_loopback(self.base)

    def post(
        self, path: str, body: Mapping[str, object], kind: type[T], *, seconds: float, patience: float
    ) -> T:
        """Sends ``body`` and returns the answer as a ``kind``. ``seconds``: for one try; ``patience``: for all pauses together.

        Raises:
            EmbedderUnavailable, EmbedderRefused, InputTooLong, EmbedderClosed.
        """
        sent = encoded(body)
        for tried in range(TRIES_MAX):
            try:
                return self._once(path, sent, kind, seconds)
            except _Passing as passing:
                wait = BACKOFF_SECONDS * 2**tried if passing.error.after is None else passing.error.after
                patience -= wait
                if patience < 0 or tried == TRIES_MAX - 1:
                    raise passing.error from passing.__cause__
                self._pause(wait)
        raise AssertionError("the last try raises or returns")

    def close(self) -> None:
        """Closes it for good."""
        with self._lock:
            client, self._client, self._closed = self._client, None, True
        if client is not None:
            client.close()

    def _once(self, path: str, sent: bytes, kind: type[T], seconds: float) -> T:
        client, late = self._opened(), threading.Event()
        # The web client's own limit is per read: a server that sends byte after byte would never be late.
        watch = threading.Timer(seconds, self._drop, (client, late))
        watch.daemon = True
        watch.start()
        try:
            with client.stream(
                "POST",
                self.base + path,
                content=sent,
                timeout=httpx.Timeout(seconds, connect=min(seconds, CONNECT_SECONDS_MAX)),
            ) as response:
                data = self._read(response, late)
        except (
            httpx.HTTPError,
            OSError,
            RuntimeError,
        ) as error:  # a client that is dropped fails by any of these
            raise self._lost(error, late) from error
        finally:
            watch.cancel()
        self._check(response, data, sent)
        try:
            return from_json(data, kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise EmbedderRefused(f"what {self.host} answers is not of its API") from error

    def _drop(self, client: httpx.Client, late: threading.Event) -> None:
        """Called by the timer's thread: ends what waits for that client's answer."""
        late.set()
        with self._lock:
            if self._client is client:
                self._client = None
        client.close()

    def _lost(self, error: Exception, late: threading.Event) -> Exception:
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout):
            return _Passing(EmbedderUnavailable(f"nobody answers at {self.host}"))
        if late.is_set() or isinstance(error, httpx.TimeoutException):
            return EmbedderUnavailable(f"{self.host} did not answer in time", paid=True)
        what = f"the connection to {self.host} broke: {type(error).__name__}"
        return EmbedderUnavailable(what, paid=True)

    def _read(self, response: httpx.Response, late: threading.Event) -> bytes:
        if is_packed(response):
            raise EmbedderRefused(f"{self.host} packs an answer that was to come as it is")
        data = bytearray()
        for chunk in response.iter_raw():
            data += chunk
            if len(data) > ANSWER_BYTES_MAX:
                raise EmbedderRefused(f"{self.host} answers with over {ANSWER_BYTES_MAX // 2**20} MiB")
            if late.is_set():
                raise EmbedderUnavailable(f"{self.host} did not answer in time", paid=True)
        return bytes(data)

    def _check(self, response: httpx.Response, data: bytes, sent: bytes) -> None:
        status = response.status_code
        if status == OK:
            return
        reason = reason_of(data, self._secret.values())
        shown = "" if not reason or repeats(reason, sent) else f": {reason}"
        what = f"{self.host} answers {status}{shown}"
        after = retry_after(response.headers.get("retry-after"))
        if status == TOO_MANY and "insufficient_quota" in reason:
            raise EmbedderRefused(what, hint="The provider's account has no credit left.")
        if status == TOO_MANY or status in PASSING:
            raise _Passing(EmbedderUnavailable(what, after=after))
        if status in GIVEN_UP:
            raise EmbedderUnavailable(what, paid=True)
        if status == 413 or (status in (400, 422) and TOO_LONG.search(reason)):
            raise InputTooLong(what)
        raise EmbedderRefused(what)

    def _opened(self) -> httpx.Client:
        with self._lock:
            if self._closed:
                raise EmbedderClosed("this embedder was closed")
            if self._client is None:
                self._client = httpx.Client(
                    headers={"Content-Type": "application/json", **PLAIN, **self._secret},
                    follow_redirects=False,
                    trust_env=not self.local,
                )
            return self._client


class _Passing(Exception):
    """A failure that may be retried."""

    def __init__(self, error: EmbedderUnavailable) -> None:
        super().__init__(str(error))
        self.error = error
