"""What a relay can be told, and its limits on requests. Bytes and seconds."""

from dataclasses import dataclass, field
from ipaddress import ip_network

from crystal_relay.errors import BadRequest

HEAD_BYTES_MAX = 16 * 1024
"""Of a request's address and headers together."""
HEADERS_MAX = 64
QUERY_BYTES_MAX = 2048
HEAD_SECONDS_MAX = 15.0
"""From the beginning of a request (or of the connection) to the end of its headers."""
KEEP_ALIVE_SECONDS = 75
SEND_STALL_SECONDS_MAX = 30.0
"""How long a client may take no byte of an answer."""
UNREAD_BYTES_MAX = 16 * 1024 * 1024
"""An error is answered before the request's body was read. Up to this size the rest is skipped and the connection goes on;
beyond, it is closed."""
CONNECTIONS_MAX = 8192
CONNECTIONS_OF_ADDRESS_MAX = 1024
"""An eighth of all: nobody shuts the others out by keeping connections open."""
SHUTDOWN_SECONDS_MAX = 10
"""How long requests in flight may go on after the relay was told to stop."""
SWEEP_SECONDS = 60.0
SWEEP_SECONDS_BUCKET = 300.0
"""Over a bucket, where each look costs money."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySettings:
    """Of one relay. `enroll_token`: the only one that creates vaults; None: those whose hashes the store holds do."""

    enroll_token: str | None = field(default=None, repr=False)
    body_idle_seconds: float = 20.0
    """How long a request's body may pause."""
    body_grace_seconds: float = 15.0
    body_bytes_per_second_min: int = 8 * 1024
    """A body of n bytes may take `body_grace_seconds` and n divided by this."""
    quota_bytes: int = 64 * 1024**3
    """Of a vault's objects together; 0: none."""
    quota_entries: int = 4_000_000
    rate_per_token: float = 500.0
    """Requests a second of one device, for long; ten seconds' worth at once. 0: no limit."""
    rate_per_address: float = 1_000.0
    rate_unauthorized: float = 10.0
    """Requests with credentials that nobody knows, of one address."""
    sweep_seconds: float = SWEEP_SECONDS
    """Between two rounds of the sweeper; 0: none."""
    metrics_token: str | None = field(default=None, repr=False)
    """Who may read `/metrics`. None: there is no such route."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks of proxies whose word on a client's address counts."""
    auth_cache_seconds: float = 300.0  # §R4.3-1
    """How long a revocation may go unnoticed at a process that the revoking one cannot reach. Elsewhere it counts at once."""

    def body_seconds_max(self, size: int) -> float:
        """The longest time that a body of `size` bytes may take."""
        return self.body_grace_seconds + size / self.body_bytes_per_second_min


def network_of(text: str) -> str:
    """An address or a network, as a proxy to trust. Raises BadRequest; "*" is none."""
    try:
        return str(ip_network(text))
    except ValueError:
        raise BadRequest(
            f"{text}: not an address or a network", hint="Use --trusted-proxy 10.0.0.5 or 10.0.0.0/24."
        ) from None
