"""How often one device and one address may ask: generic cell rate limiting, in this process's memory.

    device      every request with a token that is let in       Settings.rate_per_token
    address     every request but those for nothing at all      Settings.rate_per_address
    failures    requests with credentials that nobody knows     Settings.rate_unauthorized

Each may be used up for ten seconds ahead at once. For every key one number is kept, the time at which its credit is whole
again; the keys used longest ago are forgotten, which gives their owners a whole credit. An IPv6 customer has a /64 at least,
so that is one address here. Requests from this machine have no address: behind a proxy that was not declared, everybody
would be one.

Counting is per process: n processes behind a balancer let through up to n times as much.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import lru_cache
from ipaddress import IPv6Address, ip_address

from starlette.types import Scope

from crystal_relay.errors import TooManyRequests
from crystal_relay.server.scopes import Identity
from crystal_relay.server.settings import RelaySettings

BURST_SECONDS = 10.0
"""Worth of the rate that may be used at once."""
KEYS_MAX = 32_768
"""Remembered of each kind: about 150 bytes each."""
_ADDRESS_CHARS_MAX = 64
_PREFIX_BITS = 64


class Rates:
    """One for each relay process. Nothing here waits."""

    def __init__(self, settings: RelaySettings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._devices = _Credits(settings.rate_per_token)
        self._addresses = _Credits(settings.rate_per_address)
        self._failures = _Credits(settings.rate_unauthorized)
        self.refused_devices = 0
        self.refused_addresses = 0
        self.refused_failures = 0

    @property
    def remembered(self) -> int:
        """How many devices and addresses are in memory."""
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

    def before_lookup(self, scope: Scope) -> None:
        """Raises TooManyRequests if too many credentials of this address were unknown: the store is not asked for more."""
        address = address_of(scope)
        if address is None:
            return
        wait = self._failures.wait(address, self._clock())
        if wait:
            self.refused_failures += 1
            raise TooManyRequests(
                "too many requests with unknown credentials from this address", retry_after=wait
            )

    def failed(self, scope: Scope) -> None:
        """Count a request whose credentials nobody knows."""
        address = address_of(scope)
        if address is not None:
            self._failures.take(address, self._clock())


def address_of(scope: Scope) -> str | None:
    """What counts as the client's address. None: it has none that could be limited (this machine, a Unix socket)."""
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
    """The credit of many keys, all at one rate."""

    __slots__ = ("_interval", "_whole")

    def __init__(self, rate: float) -> None:
        """`rate`: requests a second; 0: no limit."""
        self._interval = 1 / rate if rate > 0 else 0.0
        self._whole: OrderedDict[Hashable, float] = OrderedDict()
        """When each key's credit is whole again."""

    def __len__(self) -> int:
        return len(self._whole)

    def take(self, key: Hashable, now: float) -> float:
        """Use one request of a key's credit and return 0; else the seconds until there is one, and nothing is used."""
        if not self._interval:
            return 0.0
        times = self._whole
        due = max(times.get(key, 0.0), now) + self._interval
        if due > now + max(BURST_SECONDS, self._interval):  # §R9.2-1
            return due - now - max(BURST_SECONDS, self._interval)
        times[key] = due
        times.move_to_end(key)
        if len(times) > KEYS_MAX:
            times.popitem(last=False)
        return 0.0

    def wait(self, key: Hashable, now: float) -> float:
        """Seconds until a key has credit for one request; 0: it has."""
        due = max(self._whole.get(key, 0.0), now) + self._interval
        return max(0.0, due - now - max(BURST_SECONDS, self._interval)) if self._interval else 0.0
