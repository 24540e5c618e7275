"""TLS 1.3 served by the relay itself: its certificate's file, and accepting connections within limits.

Until its handshake is over, a connection counts only towards these limits, so that strangers occupy little (§R9). When all
places for handshakes are taken, the oldest one makes room, so that strangers who never finish theirs keep nobody out.
"""

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from socket import SHUT_RDWR, socket

from crystal_relay.address import pinned
from crystal_relay.errors import Unusable
from crystal_relay.server.rates import address_of

CERTIFICATE_FILE = "tls.pem"
"""In the relay's directory: key and certificate."""
HANDSHAKES_MAX = 64
HANDSHAKES_OF_ADDRESS_MAX = 8
HANDSHAKE_SECONDS_MAX = 5.0
_REFUSED_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Handshakes:
    """Most handshakes at once: in all, and from one address. An IPv6 /64 counts as one address."""

    most: int = HANDSHAKES_MAX
    of_address: int = HANDSHAKES_OF_ADDRESS_MAX


def tls_context(certificate: Path) -> ssl.SSLContext:
    """TLS 1.3 with the key and the certificate of a PEM file. Raises OSError, ssl.SSLError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(certificate)
    return context


def renew_certificate(context: ssl.SSLContext, certificate: Path) -> None:
    """Have connections from now on use what the file holds. Raises OSError, ssl.SSLError, and leaves the context unchanged."""
    tls_context(certificate)  # a key that does not fit would leave the context with half of each
    context.load_cert_chain(certificate)


def pinned_url(host: str, port: int, certificate: Path) -> str:
    """The address of a relay, with the fingerprint of its certificate. Raises Unusable."""
    text = certificate.read_text(encoding="ascii", errors="replace")
    begin = text.find("-----BEGIN CERTIFICATE-----")
    if begin < 0:
        raise Unusable(
            f"{certificate} holds no certificate",
            hint="Delete that file: a new one is made, and every device then needs the new address.",
        )
    shown = f"[{host}]" if ":" in host else host
    return pinned(f"https://{shown}:{port}", ssl.PEM_cert_to_DER_cert(text[begin:]))


class TlsAcceptor:
    """Accepts connections on a listening socket until `aclose`, and gives each a protocol once its handshake is over."""

    def __init__(
        self,
        outside: socket,
        context: ssl.SSLContext,
        protocol: Callable[[], asyncio.Protocol],
        *,
        is_full: Callable[[], bool] = lambda: False,
        handshakes: Handshakes = Handshakes(),
    ) -> None:
        """Closes the socket at the end. `is_full`: whether to refuse connections now."""
        self._outside = outside
        self._context = context
        self._new_protocol = protocol
        self._is_full = is_full
        self._limits = handshakes
        self._shaking: Counter[str] = Counter()
        """Connections whose TLS handshake is not over, by address."""
        self._handshakes: dict[asyncio.Task[None], tuple[str, socket]] = {}
        """Each with its address and its connection, the oldest first."""
        self._accepting = asyncio.get_running_loop().create_task(self._accept())

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        with self._outside:
            while True:
                try:
                    caller, address = await loop.sock_accept(self._outside)
                except OSError:  # no descriptor is left
                    await asyncio.sleep(_REFUSED_SECONDS)
                    continue
                # Also what comes from loopback counts, unlike its requests.
                host = address_of({"client": address}) or str(address[0])
                if self._is_full() or self._shaking[host] >= self._limits.of_address:
                    caller.close()
                    continue
                self._shaking[host] += 1
                task = asyncio.create_task(self._shake(caller))
                self._handshakes[task] = host, caller
                task.add_done_callback(self._ended)
                if len(self._handshakes) > self._limits.most:
                    self._end_oldest()
                    await asyncio.sleep(0)  # it closes its connection

    async def _shake(self, caller: socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            caller.setblocking(False)
            await loop.connect_accepted_socket(
                self._new_protocol, caller, ssl=self._context, ssl_handshake_timeout=HANDSHAKE_SECONDS_MAX
            )
        except (OSError, ssl.SSLError):  # asyncio reports no more
            caller.close()

    def _end_oldest(self) -> None:
        oldest, (_, caller) = next(iter(self._handshakes.items()))
        with suppress(OSError):  # its other end has gone
            caller.shutdown(SHUT_RDWR)  # the handshake fails, however far it is
        self._ended(oldest)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """Count the end of a handshake. Idempotent."""
        host, _ = self._handshakes.pop(task, (None, None))
        if host is not None:
            self._shaking[host] -= 1
            if not self._shaking[host]:
                del self._shaking[host]

    async def aclose(self) -> None:
        """Stop accepting, and end the handshakes. Connections stay. Idempotent."""
        tasks = [self._accepting, *self._handshakes]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
