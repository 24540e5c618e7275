"""Requests to language models: bounded in time and size, retried where nothing can have been charged.

    send ─┬─ 200 ─────────────────────────────► document
          ├─ not connected, 429, 500-503, 529 ─► wait (Retry-After, else 1, 2, 4 s) ─► send, TRIES_MAX times in all
          ├─ other status ────────────────────► Refused, TooLong
          └─ sent, and the answer got lost (or 504, 524: a proxy gave up on the model) ─► Unavailable, paid

Keys are sent to the address that they belong to, never along a redirect, and never shown: a server's words on an error are
shortened, stripped of everything that looks like a key, and left out if they repeat what was sent.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import TypeVar, cast
from urllib.parse import urlsplit

import httpx
import msgspec

from crystal_core.llm.errors import LlmError, MalformedAnswer, RateLimited, Refused, TooLong, Unavailable
from crystal_node.base.clock import now_ms
from crystal_node.base.decoding import from_json
from crystal_node.models.llm.addresses import is_loopback

TRIES_MAX = 4
BACKOFF_SECONDS = 1.0
RETRY_AFTER_SECONDS_MAX = 120.0
"""A longer wait that a server asks for is an error."""
CONNECT_SECONDS_MAX = 5.0
ANSWER_BYTES_MAX = 8 * 1024 * 1024
REASON_CHARS_MAX = 160
ECHO_CHARS = 20

OK = 200
PLAIN = {"Accept-Encoding": "identity"}
"""Answers are not decompressed: kilobytes could become gigabytes in one step, past all limits."""
PASSING = frozenset({500, 502, 503, 529})
GIVEN_UP = frozenset({504, 524})
TOO_MANY = 429
_SECRET = re.compile(r"(?:sk|key|gsk|xai)-[\w*.-]{4,}|Bearer\s+\S+", re.IGNORECASE)
TOO_LONG = re.compile(
    r"context.{0,20}(length|window|size)|prompt is too long|too many tokens|maximum context", re.IGNORECASE
)

Pause = Callable[[float], Awaitable[None]]
T = TypeVar("T")


class LlmHttp:
    """One server. ``secret``: headers that hold the key, which are never shown."""

    def __init__(
        self,
        base: str,
        *,
        secret: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        pause: Pause = asyncio.sleep,
    ) -> None:
        """Raises Refused: the key would be readable on the network."""
        if secret and urlsplit(base).scheme != "https" and not is_loopback(base):
            raise Refused(
                "a key is not sent over plain http to another machine",
                hint="Use an https address, or a tunnel that ends on this machine (ssh -L).",
            )
        self.base = base.rstrip("/")
        self.host = urlsplit(self.base).netloc
        self._pause = pause
        self._secrets = tuple((secret or {}).values())
        self._headers = {**(headers or {}), **(secret or {})}
        self._client: httpx.AsyncClient | None = None

    def __repr__(self) -> str:
        return f"LlmHttp({self.base!r})"

    @property
    def local(self) -> bool:
        """Whether the server is on this machine."""
        return is_loopback(self.base)

    async def post(self, path: str, body: Mapping[str, object], kind: type[T], *, seconds_max: float) -> T:
        """Sends ``body`` and returns the answer as a ``kind``. Raises LlmError."""
        deadline = asyncio.get_running_loop().time() + seconds_max
        last: LlmError | None = None
        for tried in range(TRIES_MAX):
            left = deadline - asyncio.get_running_loop().time()
            try:
                return await self._once(path, body, kind, left)
            except _Passing as passing:
                last = passing.error
                wait = BACKOFF_SECONDS * 2**tried if passing.after is None else passing.after
                left = deadline - asyncio.get_running_loop().time()
                if wait > min(RETRY_AFTER_SECONDS_MAX, left) or tried == TRIES_MAX - 1:
                    break
                await self._pause(wait)
        assert last is not None
        raise last

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def __aenter__(self) -> "LlmHttp":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _once(self, path: str, body: Mapping[str, object], kind: type[T], seconds: float) -> T:
        sent = encoded(body)
        try:
            async with (
                asyncio.timeout(max(seconds, 0.001)),
                self._opened().stream("POST", self.base + path, content=sent) as response,
            ):
                if is_packed(response):
                    raise MalformedAnswer(f"{self.host} packs an answer that was to come as it is", paid=True)
                data = bytearray()
                async for chunk in response.aiter_raw():
                    data += chunk
                    if len(data) > ANSWER_BYTES_MAX:
                        raise MalformedAnswer(
                            f"{self.host} answers with over {ANSWER_BYTES_MAX // 2**20} MiB", paid=True
                        )
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise _Passing(Unavailable(f"nobody answers at {self.host}")) from error
        except (TimeoutError, httpx.TimeoutException) as error:
            raise Unavailable(f"{self.host} did not answer in time", paid=True) from error
        except httpx.HTTPError as error:
            raise Unavailable(
                f"the connection to {self.host} broke: {type(error).__name__}", paid=True
            ) from error
        self._check(response, bytes(data), sent)
        try:
            return from_json(data, kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise MalformedAnswer(f"what {self.host} answers is not of its API", paid=True) from error

    def _check(self, response: httpx.Response, data: bytes, sent: bytes) -> None:
        status = response.status_code
        if status == OK:
            return
        reason = reason_of(data, self._secrets)
        shown = "" if repeats(reason, sent) else f": {reason}" if reason else ""
        what = f"{self.host} answers {status}{shown}"
        if status == TOO_MANY and "insufficient_quota" in reason:
            raise Refused(what, hint="The provider's account has no credit left.")
        if status == TOO_MANY:
            raise _Passing(RateLimited(what), retry_after(response.headers.get("retry-after")))
        if status in PASSING:
            raise _Passing(Unavailable(what), retry_after(response.headers.get("retry-after")))
        if status in GIVEN_UP:
            raise Unavailable(what, paid=True)
        if status in (400, 413, 422) and (status == 413 or TOO_LONG.search(reason)):
            raise TooLong(what)
        raise Refused(what)

    def _opened(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = httpx.AsyncClient(
                headers={"Content-Type": "application/json", **PLAIN, **self._headers},
                timeout=httpx.Timeout(None, connect=CONNECT_SECONDS_MAX),
                follow_redirects=False,
                trust_env=not self.local,
            )
        return self._client


class _Passing(Exception):
    """A failure that may be retried, and when."""

    def __init__(self, error: LlmError, after: float | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.after = after


def reason_of(data: bytes, secrets: Iterable[str]) -> str:
    """A server's own words on an error, shortened and without anything that could be a key."""
    try:
        document: object = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    fields = _fields(document)
    found = fields.get("error", document)
    parts = [_fields(found).get(name) for name in ("code", "type", "status", "message")]
    text = found if isinstance(found, str) else " ".join(part for part in parts if isinstance(part, str))
    for secret in secrets:
        text = text.replace(secret.removeprefix("Bearer "), "…")
    plain = "".join(char if char.isprintable() else " " for char in _SECRET.sub("…", text))
    return plain[:REASON_CHARS_MAX]


def repeats(reason: str, sent: bytes) -> bool:
    """Whether a server's words repeat part of the request: no message or log may quote a conversation."""
    text = sent.decode("utf-8", "replace")
    return any(reason[at : at + ECHO_CHARS] in text for at in range(len(reason) - ECHO_CHARS + 1))


def _fields(document: object) -> dict[str, object]:
    return cast("dict[str, object]", document) if isinstance(document, dict) else {}


def encoded(body: Mapping[str, object]) -> bytes:
    """The body as JSON; lone surrogates become question marks."""
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")


def is_packed(response: httpx.Response) -> bool:
    """Whether an answer claims to be compressed."""
    return response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity")


def retry_after(value: str | None) -> float | None:
    """Seconds to wait, from a number of seconds or a date; None if it is neither."""
    if value is None:
        return None
    if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", value):
        return float(value)
    try:
        moment = parsedate_to_datetime(value).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
    return max(moment - now_ms() / 1000, 0.0)
