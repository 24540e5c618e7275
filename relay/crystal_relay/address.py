"""Relay addresses and HTTP clients for them: where and how a token may be sent.

Plain HTTP is allowed to loopback only, unless set otherwise. Redirects are never followed: they could lead a token elsewhere.
Loopback addresses bypass the environment's proxies. TLS certificates are always verified.
"""

import ipaddress
import ssl
from urllib.parse import urlsplit

import httpx

from crystal_relay.errors import BadRequest

URL_CHARS_MAX = 2048


def check_relay_url(url: str, *, allow_insecure: bool = False) -> str:
    """Return the address without a trailing slash. Raises BadRequest with a hint."""
    form = "The relay's address looks like https://relay.example.org or http://127.0.0.1:18791."
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise BadRequest("the relay's address is not a URL", hint=form) from None
    if len(url) > URL_CHARS_MAX or not url.isascii() or not url.isprintable() or " " in url:
        raise BadRequest("the relay's address is not a URL", hint=form)
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise BadRequest("the relay's address is not an http or https URL", hint=form)
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise BadRequest("the relay's address holds a user, a query or a fragment", hint=form)
    if parts.scheme == "http" and not allow_insecure and not is_loopback(parts.hostname):
        raise BadRequest(
            "plain HTTP to another machine would expose the relay token on the network",
            hint="Use an https:// address, or allow insecure relays explicitly on a network that you trust.",
        )
    return url.rstrip("/")


def is_loopback(host: str) -> bool:
    """Whether a host is this machine: `localhost`, 127.0.0.0/8 or ::1. Names are not looked up."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class SecretUrl(httpx.URL):
    """A URL whose path and query are hidden, since httpx logs and quotes the URLs of requests."""

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}/..."

    def __repr__(self) -> str:
        return f"URL({str(self)!r})"


def http_client(
    base: str,
    *,
    connect: float,
    idle: float,
    connections_kept: int,
    transport: httpx.AsyncBaseTransport | None = None,
) -> httpx.AsyncClient:
    """A client for a checked address. Times are seconds. The caller limits concurrency."""
    parts = urlsplit(base)
    # Loading the system's certificates takes a tenth of a second and is useless for plain HTTP. A context without any still
    # verifies, and refuses all.
    verify: ssl.SSLContext | bool = (
        True if parts.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    )
    return httpx.AsyncClient(
        base_url=base,
        transport=transport,
        verify=verify,
        timeout=httpx.Timeout(idle, connect=connect, pool=idle),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=connections_kept),
        follow_redirects=False,
        trust_env=not is_loopback(parts.hostname or ""),
        # A compressing proxy would change the length that is checked; bodies are ciphertext anyway.
        headers={"Accept-Encoding": "identity", "User-Agent": "crystal"},
    )
