"""Settings of a relay, and its limits on requests. Bytes and seconds."""

from dataclasses import dataclass, field
from ipaddress import ip_network

from crystal_relay.errors import BadRequest
from crystal_relay.limits import DELETION_SECONDS_MIN

HEAD_BYTES_MAX = 16 * 1024
"""URL and headers of a request together."""
HEADERS_MAX = 64
QUERY_BYTES_MAX = 2048
HEAD_SECONDS_MAX = 15.0
"""From the beginning of a request (or of the connection) to the end of its headers."""
KEEP_ALIVE_SECONDS = 75
SEND_STALL_SECONDS_MAX = 30.0
"""How long a client may read nothing of a response."""
UNREAD_BYTES_MAX = 16 * 1024 * 1024
"""An error is answered before the request's body was read. Up to this size the rest is skipped and the connection goes on;
beyond, it is closed."""
CONNECTIONS_MAX = 8192
CONNECTIONS_OF_ADDRESS_MAX = 1024
"""An eighth of all connections, so that no address can use them up."""
ANONYMOUS_CONNECTIONS_MAX = 2048
"""Connections that have shown no valid credentials. Beyond, the oldest idle one makes room for a new one."""
ANONYMOUS_CONNECTIONS_OF_ADDRESS_MAX = 128
ANONYMOUS_KEEP_ALIVE_SECONDS = 15
ANONYMOUS_REFUSED_MAX = 64
"""Refused requests on an anonymous connection; with the last of them it is closed."""
ANONYMOUS_UNSENT_BYTES = 16 * 1024
"""Beyond this the responses of an anonymous connection wait until its client reads."""
WAITING_BYTES_MAX = 64 * 1024 * 1024
"""Bytes received and not processed: pipelined requests, and bodies of requests that have shown no valid credentials yet."""
WAITING_BYTES_OF_ADDRESS_MAX = 16 * 1024 * 1024
LOOKUPS_MAX = 2048
"""Credentials being looked up in the store at once."""
LOOKUPS_OF_ADDRESS_MAX = 128
STORE_CONCURRENCY = 64
"""Store operations at once. A directory commits what arrives together in one go."""
STORE_CONCURRENCY_BUCKET = 16
"""The same for a bucket: as many as it has threads for small objects. Beyond, operations would wait there."""
QUEUED_OF_VAULT_MAX = 1024
"""Operations of one vault that wait for their turn at the store."""
QUEUED_SECONDS_MAX = 240.0
"""How long an operation waits for its turn. A dropped vault is deleted only when none of before can still be waiting."""
DRAIN_SECONDS = 5.0
"""How long a process on a bucket serves on after it was told to stop. Proxies ask once a second whether it is ready."""
LAST_REQUEST_SECONDS_MAX = 1.0
"""How long a connection that has shown no request yet stays open after a stop: its first request may be on the way."""
SHUTDOWN_SECONDS_MAX = 10
"""How long requests in flight may continue after the listener is closed."""
QUOTA_BYTES = 8 * 1024**3
"""Default quota of a vault. Two hundred of them fill 1.6 TB."""
SWEEP_SECONDS = 60.0
SWEEP_SECONDS_BUCKET = 300.0
"""The same for a bucket, where each sweep costs money."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySettings:
    """Settings of one relay. `enroll_token` is an enrolment token beside those whose hashes are in the store."""

    enroll_token: str | None = field(default=None, repr=False)
    body_idle_seconds: float = 20.0
    """How long a request's body may pause."""
    body_grace_seconds: float = 15.0
    body_bytes_per_second_min: int = 8 * 1024
    """A body of n bytes may take `body_grace_seconds` and n divided by this."""
    quota_bytes: int = QUOTA_BYTES
    """Bytes of a vault's objects; 0 for no limit."""
    quota_entries: int = 4_000_000
    cap_bytes: int = 0
    """Bytes of the objects of all vaults together; 0 for no limit."""
    foundings_per_hour: float = 0.0
    """New vaults in an hour by one enrolment token, and from one address; 0 for no limit."""
    rate_per_token: float = 500.0
    """Sustained requests per second of one device, with bursts of ten seconds' worth; 0 for no limit."""
    rate_per_address: float = 1_000.0
    rate_unauthorized: float = 10.0
    """Requests per second with unknown credentials from one address."""
    store_concurrency: int = STORE_CONCURRENCY
    """Store operations at once, of all vaults; 0 for no limit."""
    vault_concurrency: int = STORE_CONCURRENCY // 2
    """The same of one vault; 0 for no limit."""
    connections_max: int = CONNECTIONS_MAX
    sweep_seconds: float = SWEEP_SECONDS
    """Interval of the sweeper; 0 for none."""
    deletion_seconds_min: int = DELETION_SECONDS_MIN
    """How long a vault's deletion waits at least, once its owner has asked for it."""
    unused_days: int = 0
    """A vault that nobody used for so many days is closed; 0 for never."""
    metrics_token: str | None = field(default=None, repr=False)
    """Gives access to `/metrics`. None for no such route."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks of proxies whose X-Forwarded-For is trusted."""
    auth_cache_seconds: float = 300.0  # §R4.3-1
    """How long a token may stay valid after its revocation at a process that cannot be reached. Elsewhere it ends at once."""

    def body_seconds_max(self, size: int) -> float:
        """Time limit of a body of `size` bytes."""
        return self.body_grace_seconds + size / self.body_bytes_per_second_min


def network_of(text: str) -> str:
    """The network of a trusted proxy. Raises BadRequest, also for "*"."""
    try:
        return str(ip_network(text))
    except ValueError:
        raise BadRequest(
            f"{text}: not an address or a network", hint="Use --trusted-proxy 10.0.0.5 or 10.0.0.0/24."
        ) from None
