"""Relay addresses and HTTP clients for them: where and how a token may be sent.

Plain HTTP is allowed to loopback only, unless set otherwise. Redirects are never followed: they could lead a token elsewhere.
Loopback addresses bypass the environment's proxies.

TLS certificates are verified wherever a token is sent: by the authorities that this machine trusts (`certificates`), or, where
the address ends in ``#pin=<fingerprint>``, by that fingerprint alone. It is the beginning of the certificate's SHA-256, 128
bits, as 26 lower-case letters and digits of base32. So a relay needs neither a name nor an authority: whoever gives the address
gives its identity.
"""

import base64
import hashlib
import hmac
import ipaddress
import re
import ssl
from urllib.parse import urlsplit
from urllib.request import getproxies

import httpx

from crystal_relay.certificates import verifying_context
from crystal_relay.errors import BadRequest
from crystal_relay.http1 import Http1Client, Http1Transport

URL_CHARS_MAX = 2048
PIN_BYTES = 16
"""Nobody finds a second certificate for a given fingerprint of 128 bits."""
_PIN = re.compile(r"pin=([a-z2-7]{26})\Z")


_COPY = "Copy the address again, from https:// to the end of the fingerprint."


def check_relay_url(url: str, *, allow_insecure: bool = False) -> str:
    """Return the address without a trailing slash, but with its pin. Raises BadRequest with a hint."""
    form = "The relay's address looks like https://relay.example.org or http://127.0.0.1:18791."
    try:
        parts = urlsplit(url)
        port = parts.port
        httpx.URL(url).host  # noqa: B018  refuses names that no browser would take either
    except (ValueError, httpx.InvalidURL):
        raise BadRequest("the relay's address is not a URL", hint=form) from None
    if len(url) > URL_CHARS_MAX or not url.isascii() or not url.isprintable() or " " in url:
        raise BadRequest("the relay's address is not a URL", hint=form)
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise BadRequest("the relay's address is not an http or https URL", hint=form)
    if "@" in parts.netloc or parts.query:
        raise BadRequest("the relay's address holds a user or a query", hint=form)
    if parts.fragment and (parts.scheme != "https" or pin_of(url) is None):
        raise BadRequest(
            "what follows the # in the relay's address is no certificate's fingerprint", hint=_COPY
        )
    if parts.scheme == "http" and not allow_insecure and not is_loopback(parts.hostname):
        raise BadRequest(
            "plain HTTP to another machine would expose the relay token on the network",
            hint="Use an https:// address, or allow insecure relays explicitly on a network that you trust.",
        )
    plain, mark, pin = url.partition("#")
    return plain.rstrip("/") + mark + pin


def pin_of(url: str) -> bytes | None:
    """The fingerprint at the end of an address; None if there is none."""
    found = _PIN.fullmatch(url.partition("#")[2])
    return None if found is None else base64.b32decode(found[1].upper() + "======")


def pinned(url: str, certificate: bytes) -> str:
    """An https address with the fingerprint of the certificate (DER) that its relay shows."""
    text = base64.b32encode(fingerprint(certificate)).decode("ascii").rstrip("=").lower()
    return f"{url}#pin={text}"


def fingerprint(certificate: bytes) -> bytes:
    """16 bytes of a certificate (DER)."""
    return hashlib.sha256(certificate).digest()[:PIN_BYTES]


def is_loopback(host: str) -> bool:
    """Whether a host is this machine: `localhost`, 127.0.0.0/8 or ::1. Names are not looked up."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_private(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return False


class WrongCertificate(ssl.SSLCertVerificationError):
    """Another relay answers than the one that the address means."""


def is_wrong_certificate(error: BaseException | None) -> bool:
    """Whether an error of a request comes from a certificate with another fingerprint."""
    while error is not None and not isinstance(error, WrongCertificate):
        error = error.__cause__ or error.__context__
    return error is not None


def _pinning(pin: bytes) -> ssl.SSLContext:
    """A context that accepts one certificate, whatever its name, its dates and who signed it."""

    def check(certificate: bytes | None) -> None:
        if not hmac.compare_digest(fingerprint(certificate or b""), pin):
            raise WrongCertificate("the certificate is not the one that the relay's address names")

    class Pinned(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            check(self.getpeercert(binary_form=True))

    class PinnedSocket(ssl.SSLSocket):
        """For clients that are not asynchronous."""

        def do_handshake(self, block: bool = False) -> None:
            super().do_handshake(block)
            check(self.getpeercert(binary_form=True))

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.sslobject_class = Pinned
    context.sslsocket_class = PinnedSocket
    return context


class SecretUrl(httpx.URL):
    """A URL whose path and query are hidden, since httpx logs and quotes the URLs of requests."""

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}/..."

    def __repr__(self) -> str:
        return f"URL({str(self)!r})"


def _accepting() -> ssl.SSLContext:
    """A context that accepts every certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def tls_context(base: str, *, anybody: bool = False) -> ssl.SSLContext | None:
    """What verifies an address's certificate; None for plain HTTP, where loading the system's certificates would waste a tenth
    of a second. `anybody`: take every certificate. Raises BadRequest if SSL_CERT_FILE names no certificates."""
    if not base.startswith("https:"):
        return None
    if anybody:
        return _accepting()
    pin = pin_of(base)
    return verifying_context() if pin is None else _pinning(pin)


def http_client(
    base: str,
    *,
    connect: float,
    idle: float,
    connections_kept: int,
    transport: httpx.AsyncBaseTransport | None = None,
    anybody: bool = False,
) -> httpx.AsyncClient:
    """A client for a checked address. Times are seconds. The caller limits concurrency. If the environment names a proxy, it
    uses httpx's own transport, otherwise ours. Raises BadRequest if SSL_CERT_FILE names no certificates.

    `anybody`: take the answer of every server, whatever its certificate. Only for what needs no trust and shows no secret. An
    address in a private network is then asked directly, as one with a pin is, since it may be a relay in a home.
    """
    host = urlsplit(base).hostname or ""
    direct = is_loopback(host) or pin_of(base) is not None or (anybody and _is_private(host))
    environment = not direct
    proxied = environment and bool(getproxies())
    verify = tls_context(base, anybody=anybody) if transport is None else None
    url = base.partition("#")[0]
    timeout = httpx.Timeout(idle, connect=connect, pool=idle)
    # A compressing proxy would change the length that is checked; bodies are ciphertext anyway.
    headers = {"Accept-Encoding": "identity", "User-Agent": "crystal"}
    if transport is None and not proxied:
        made = Http1Transport(verify=verify, kept=connections_kept)
        return Http1Client(base_url=url, transport=made, timeout=timeout, headers=headers)
    return httpx.AsyncClient(
        base_url=url,
        transport=transport,
        verify=True if verify is None else verify,
        timeout=timeout,
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=connections_kept),
        follow_redirects=False,
        trust_env=environment,
        headers=headers,
    )
