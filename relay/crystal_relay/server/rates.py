"""Rate limits of devices and addresses: generic cell rate algorithm, in this process's memory.

    device      requests with a valid token                     RelaySettings.rate_per_token
    address     all requests, also those that are refused       RelaySettings.rate_per_address
    failures    requests with unknown credentials               RelaySettings.rate_unauthorized
    foundings   new vaults, of a token and of an address        RelaySettings.foundings_per_hour

A burst may use ten seconds' worth of each at once, of the foundings an hour's. One number is kept for each key, the time at
which its credit is full again; the least recently used keys are forgotten, which gives their owners full credit. An IPv6 /64
counts as one address, since every customer has at least that. Requests from loopback have no address: behind an undeclared
proxy, all clients would share one.

Credentials that this process does not remember are looked up in the store. So many lookups run at once, in total and for an
address, that a store which is slow does not gather requests of strangers.

Counting is per process: n processes behind a balancer let through up to n times as much.
"""

import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager
from functools import lru_cache
from ipaddress import IPv6Address, ip_address

from starlette.types import Scope

from crystal_relay.errors import Busy, TooManyRequests
from crystal_relay.server.scopes import Identity
from crystal_relay.server.settings import LOOKUPS_MAX, LOOKUPS_OF_ADDRESS_MAX, RelaySettings

FOUNDING_SECONDS = 3600.0
"""Foundings are counted by the hour, and an hour's may come at once."""
BURST_SECONDS = 10.0
"""Size of a burst, in seconds of the rate."""
OBJECTS_OF_REQUEST = 8
"""Objects of a request for many that count as another request: one takes about an eighth of a request's time."""
KEYS_MAX = 32_768
"""Remembered keys of each kind: about 150 bytes each."""
_ADDRESS_CHARS_MAX = 64
_PREFIX_BITS = 64


class Rates:
    """The rate limits of one relay process. Nothing here waits."""

    def __init__(self, settings: RelaySettings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._devices = _Credits(settings.rate_per_token)
        self._addresses = _Credits(settings.rate_per_address)
        self._failures = _Credits(settings.rate_unauthorized)
        self._foundings = _Credits(settings.foundings_per_hour / FOUNDING_SECONDS, FOUNDING_SECONDS)
        self.foundings_per_hour = settings.foundings_per_hour
        self.refused_devices = 0
        self.refused_addresses = 0
        self.refused_failures = 0
        self.refused_lookups = 0
        self.refused_foundings = 0
        self._lookups: Counter[str | None] = Counter()
        """Running ones by address; None for those without an address."""

    @property
    def remembered(self) -> int:
        """Number of devices and addresses in memory."""
        return len(self._devices) + len(self._addresses) + len(self._failures)

    def admit(self, scope: Scope) -> None:
        """Count a request of its address. Raises TooManyRequests."""
        address = address_of(scope)
        if address is None:
            return
        wait = self._addresses.take(address, self._clock())
        if wait:
            self.refused_addresses += 1
            raise TooManyRequests("too many requests from this address", retry_after=wait)

    def check(self, identity: Identity) -> None:
        """Count a request of a device. Raises TooManyRequests."""
        wait = self._devices.take((identity.vault, identity.device), self._clock())
        if wait:
            self.refused_devices += 1
            raise TooManyRequests("too many requests from this device", retry_after=wait)

    def check_batch(self, identity: Identity, objects: int) -> None:
        """Count what a request for many objects costs beyond a request. Raises TooManyRequests."""
        more = objects // OBJECTS_OF_REQUEST
        wait = self._devices.take((identity.vault, identity.device), self._clock(), more) if more else 0.0
        if wait:  # §R9.2-7
            self.refused_devices += 1
            raise TooManyRequests("too many requests from this device", retry_after=wait)

    def before_lookup(self, scope: Scope) -> None:
        """Raise TooManyRequests, before the store is asked, if this address has shown too many unknown credentials."""
        address = address_of(scope)
        if address is None:
            return
        wait = self._failures.wait(address, self._clock())
        if wait:
            self.refused_failures += 1
            raise TooManyRequests(
                "too many requests with unknown credentials from this address", retry_after=wait
            )

    @contextmanager
    def lookup(self, scope: Scope) -> Generator[None]:
        """Look up credentials in the store within it. Raises what `before_lookup` does; Busy."""
        self.before_lookup(scope)
        address = address_of(scope)
        if address is not None and self._lookups[address] >= LOOKUPS_OF_ADDRESS_MAX:  # §R9.2-5
            self.refused_lookups += 1
            raise TooManyRequests("too many unknown credentials at once from this address", retry_after=1.0)
        if self._lookups.total() >= LOOKUPS_MAX:  # §R9.2-5
            self.refused_lookups += 1
            raise Busy("the relay is looking up as many credentials as it can")
        self._lookups[address] += 1
        try:
            yield
        finally:
            self._lookups[address] -= 1
            if not self._lookups[address]:
                del self._lookups[address]

    def found(self, scope: Scope, token_hash: str) -> None:
        """Count a new vault of its enrolment token and of its address. Raises TooManyRequests."""
        address = address_of(scope)
        keys = [("token", token_hash)] + ([("address", address)] if address is not None else [])
        now = self._clock()
        for kind, name in keys:  # §R9.2-6
            wait = self._foundings.wait((kind, name), now)
            if wait:
                self.refused_foundings += 1
                what = "with this enrolment token" if kind == "token" else "from this address"
                raise TooManyRequests(
                    f"the relay takes {self.foundings_per_hour:g} new vaults {what} in an hour, and has taken them",
                    retry_after=wait,
                    hint=f"Try again in {math.ceil(wait / 60)} minutes.",
                )
        for key in keys:
            self._foundings.take(key, now)

    def failed(self, scope: Scope) -> None:
        """Count a request with unknown credentials."""
        address = address_of(scope)
        if address is not None:
            self._failures.take(address, self._clock())


def address_of(scope: Scope) -> str | None:
    """The client's address for limits. None if it cannot be limited (loopback, a Unix socket)."""
    client = scope.get("client")
    return _counted(client[0]) if client else None


@lru_cache(maxsize=8_192)
def _counted(host: str) -> str | None:
    try:
        address = ip_address(host)
    except ValueError:  # what a trusted proxy said
        return host[:_ADDRESS_CHARS_MAX]
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is None:
            bits = int(address) >> (128 - _PREFIX_BITS) << (128 - _PREFIX_BITS)
            return None if address.is_loopback else str(IPv6Address(bits))  # §R9.2-2
        address = address.ipv4_mapped
    return None if address.is_loopback else str(address)


class _Credits:
    """The credit of each key, at one rate."""

    __slots__ = ("_burst", "_interval", "_whole")

    def __init__(self, rate: float, burst_seconds: float = BURST_SECONDS) -> None:
        """`rate`: requests a second; 0: no limit. `burst_seconds`: of the rate, which may be used at once."""
        self._interval = 1 / rate if rate > 0 else 0.0
        self._burst = max(burst_seconds, self._interval)
        self._whole: OrderedDict[Hashable, float] = OrderedDict()
        """When each key's credit is full again."""

    def __len__(self) -> int:
        return len(self._whole)

    def take(self, key: Hashable, now: float, count: int = 1) -> float:
        """Use so many requests of a key's credit and return 0. Without credit, return the seconds until there is some."""
        if not self._interval:
            return 0.0
        times = self._whole
        due = max(times.get(key, 0.0), now) + min(self._interval * count, self._burst)
        if due > now + self._burst:  # §R9.2-1
            return due - now - self._burst
        times[key] = due
        times.move_to_end(key)
        if len(times) > KEYS_MAX:
            times.popitem(last=False)
        return 0.0

    def wait(self, key: Hashable, now: float) -> float:
        """Seconds until a key has credit for one request; 0 if it has."""
        due = max(self._whole.get(key, 0.0), now) + self._interval
        # Compared as in `take`: a difference would leave a rounding error, which is no wait.
        return due - now - self._burst if self._interval and due > now + self._burst else 0.0
