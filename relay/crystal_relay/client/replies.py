"""Reading responses: within limits, of the announced length, with our own errors for every failure.

`sender` names the server in messages. No message contains a URL or a header's value.
"""

import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import httpx

from crystal_relay.errors import BadReply, RelayError, StoreUnavailable
from crystal_relay.store import Object
from crystal_relay.wire import ERROR_JSON_BYTES_MAX, error_of_reply

_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,15})-([0-9]{1,15})/([0-9]{1,15})\Z")
_CONTENT_RANGE_UNMET = re.compile(r"bytes \*/([0-9]{1,15})\Z")


async def error_of(response: httpx.Response) -> RelayError:
    """The error for a relay's response."""
    body = await limited_body(response, ERROR_JSON_BYTES_MAX)
    return error_of_reply(response.status_code, body, retry_after=response.headers.get("Retry-After"))


async def limited_body(
    response: httpx.Response,
    limit: int,
    *,
    sender: str = "the relay",
    heard: Callable[[], None] | None = None,
) -> bytes:
    """The body of a small response. Raises BadReply beyond the limit. `heard` is called for each piece while all are blank."""
    text, only_blanks = bytearray(), True
    async with aclosing(_raw(response, sender)) as pieces:
        async for piece in pieces:
            text += piece
            only_blanks = only_blanks and piece.isspace()
            if heard is not None and only_blanks:
                heard()
            if len(text) > limit:
                raise BadReply(f"{sender}'s answer is longer than any that it gives")
    return bytes(text)


async def pieces_of(
    response: httpx.Response, count: int, *, sender: str = "the relay"
) -> AsyncGenerator[bytes]:
    """The body of exactly `count` bytes."""
    left = count
    async with aclosing(_raw(response, sender)) as pieces:
        async for piece in pieces:
            left -= len(piece)
            if left < 0:
                raise BadReply(f"{sender} sent more bytes than it announced")
            yield piece
    if left:
        raise StoreUnavailable(f"{sender}'s answer broke off")


async def beyond_the_end(response: httpx.Response, start: int) -> Object:
    """An empty part at the end of an object. HTTP has no empty range: the relay answers 416 with the size."""
    match = _CONTENT_RANGE_UNMET.match(response.headers.get("Content-Range", ""))
    if match is None:
        raise await error_of(response)
    if start < int(match[1]):
        raise BadReply("the relay refuses a part that the object has")
    await response.aclose()
    return Object.part(b"", size=int(match[1]), start=start)


def size_of(response: httpx.Response, start: int, *, sender: str = "the relay") -> int:
    """The size of the whole object from the headers. Raises BadReply, also for a part with another start."""
    if response.status_code == 200:
        return header_number(response, "Content-Length", sender=sender)
    match = _CONTENT_RANGE.match(response.headers.get("Content-Range", ""))
    if match is None or int(match[1]) != start:
        raise BadReply(f"{sender} sent another part than asked for")
    return int(match[3])


def header_number(response: httpx.Response, name: str, *, sender: str = "the relay") -> int:
    """A header that is a number. Raises BadReply."""
    text: str = response.headers.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise BadReply(f"{sender}'s answer has no usable {name}")
    return int(text)


async def _raw(response: httpx.Response, sender: str) -> AsyncGenerator[bytes]:
    try:
        async for piece in response.aiter_raw():
            yield piece
    except httpx.TimeoutException:
        raise StoreUnavailable(f"{sender} fell silent within an answer") from None
    except (httpx.RequestError, httpx.StreamError) as error:
        raise StoreUnavailable(f"the connection to {sender} broke ({type(error).__name__})") from None
