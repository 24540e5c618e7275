"""Signed requests that a relay hands out, checked before anything is sent: where to, with which headers, how much.

The relay is not trusted, so a grant is followed only if it can do no more than it is for.
"""

import base64
import re
from urllib.parse import urlsplit

import httpx

from crystal_relay.address import is_loopback
from crystal_relay.limits import BLOB_BYTES_MAX, DIRECT_BYTES_MIN
from crystal_relay.wire import Direction, TransferReply, TransferRequest

URL_CHARS_MAX = 8 * 1024
HEADERS_MAX = 16
HEADER_CHARS_MAX = 1024

_HEADER = re.compile(r"content-type|x-amz-[a-z0-9-]{1,64}")
_OURS = {"if-none-match", "content-md5", "content-length"}
"""Headers that say what is to be stored. The device sends its own; the relay may only repeat them."""


class Grant:
    """A signed request that was checked."""

    __slots__ = ("headers", "receipt", "size", "url")

    def __init__(self, url: str, headers: dict[str, str], size: int, receipt: str) -> None:
        self.url = url
        self.headers = headers
        self.size = size
        self.receipt = receipt


def checked_grant(reply: TransferReply, asked: TransferRequest, *, may_be_loopback: bool) -> Grant:
    """Raises Refused."""
    putting = asked.direction is Direction.PUT
    _check_url(reply.url, may_be_loopback=may_be_loopback)
    if reply.method != ("PUT" if putting else "GET"):
        raise GrantRefused
    if putting and (reply.size != asked.size or not 1 <= len(reply.receipt) <= 128):
        raise GrantRefused
    if not putting and not DIRECT_BYTES_MIN <= reply.size <= BLOB_BYTES_MAX:
        raise GrantRefused
    ours = {"if-none-match": "*", "content-length": str(asked.size)} if putting else {}
    if putting:
        ours["content-md5"] = base64.b64encode(bytes.fromhex(asked.md5)).decode()
    headers = {name.lower(): value for name, value in reply.headers.items()}
    if len(reply.headers) > HEADERS_MAX or len(headers) != len(reply.headers):
        raise GrantRefused
    for name, value in headers.items():
        if len(value) > HEADER_CHARS_MAX or not value.isascii() or not value.isprintable():
            raise GrantRefused
        if ours.get(name) != value if name in _OURS else _HEADER.fullmatch(name) is None:
            raise GrantRefused
    kept = {name: value for name, value in headers.items() if name not in _OURS}
    return Grant(reply.url, kept, reply.size, reply.receipt)


class GrantRefused(Exception):
    """A grant that this device does not follow."""


def _check_url(url: str, *, may_be_loopback: bool) -> None:
    if len(url) > URL_CHARS_MAX or not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise GrantRefused
    try:
        parts = urlsplit(url)
        port = parts.port
        parsed = httpx.URL(url)
    except (ValueError, httpx.InvalidURL):
        raise GrantRefused from None
    host = parts.hostname or ""
    if not host or port == 0 or "@" in parts.netloc or parts.fragment or parsed.host != host:
        raise GrantRefused
    local = is_loopback(host)
    if parts.scheme not in ("https", "http") or (parts.scheme == "http" and not local):
        raise GrantRefused
    if local and not may_be_loopback:
        raise GrantRefused
