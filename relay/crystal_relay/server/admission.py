"""Which connections are admitted, and what those may hold that have shown no valid credentials.

    proxy           of a declared proxy: many clients share it, so that only the total counts
    anonymous       has shown nothing valid yet: few in all and of one address; when all places are taken, the oldest idle one
                    makes room, so that strangers keep nobody out
    authenticated   has shown a device's token or another valid credential: counts in the total and for its address

Connections from loopback have no address, like their requests (`rates`).

Requests on anonymous connections begin in the order of their arrival, a few in each turn of the event loop: however many there
are, a turn stays short, and the requests of authenticated connections, which wait for no such place, are answered in time.
"""

import asyncio
import enum
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Protocol

from starlette.types import Scope

from crystal_relay.server.rates import address_of
from crystal_relay.server.settings import (
    ANONYMOUS_CONNECTIONS_MAX,
    ANONYMOUS_CONNECTIONS_OF_ADDRESS_MAX,
    CONNECTIONS_MAX,
    CONNECTIONS_OF_ADDRESS_MAX,
    WAITING_BYTES_MAX,
    WAITING_BYTES_OF_ADDRESS_MAX,
)

SCOPE_KEY = "crystal.connection"
_LOOKED_AT_MAX = 64
"""Connections that are asked whether they are idle, before a newcomer is refused instead."""
BEGUN_AT_ONCE = 4
"""Anonymous requests that begin in one turn of the loop, under a millisecond of work."""
QUEUED_TURNS_MAX = 64
"""Turns of the loop after which a long queue would be empty: so many of it begin in each. A turn accepts sixteen connections;
if fewer began, thousands of devices that come back at once would fill the places of strangers and be closed again."""


class Trust(enum.StrEnum):
    """What is known of a connection's other end."""

    PROXY = "proxy"
    ANONYMOUS = "anonymous"
    AUTHENTICATED = "authenticated"


class Closing(enum.StrEnum):
    """Why the relay ended a connection, for the metrics."""

    ADDRESS = "address"
    """The address has as many as it may."""
    FULL = "full"
    """All places are taken."""
    EVICTED = "evicted"
    """It was idle and anonymous, and its place was needed."""
    BYTES = "bytes"
    """More unprocessed bytes than fit."""
    REFUSED = "refused"
    """Anonymous, with one refused request after another."""
    HEAD = "head"
    """A head too large or too slow."""
    UNREAD = "unread"
    """It did not read its responses."""


class Refused(Exception):
    """The connection, or what it holds, exceeds a limit."""

    def __init__(self, closing: Closing) -> None:
        self.closing = closing
        super().__init__(closing.value)


class Limited(Protocol):
    """A connection as the limits see it."""

    @property
    def idle(self) -> bool:
        """Whether no request is being served on it."""
        ...

    def end(self, closing: Closing) -> None:
        """Close it at once."""
        ...

    def authenticated(self) -> None:
        """A request on it showed valid credentials."""
        ...

    def refused(self) -> bool:
        """Count a request that is answered with an error. Returns whether the connection should end with it."""
        ...


@dataclass(slots=True)
class Place:
    """What a connection counts as. `waiting`: its unprocessed bytes."""

    address: str | None
    trust: Trust
    waiting: int = 0


class Admission:
    """The connections of one server. Used on one event loop; nothing here waits."""

    def __init__(self, proxies: tuple[str, ...] = ()) -> None:
        """`proxies`: addresses and networks of declared proxies."""
        self.connections_max = CONNECTIONS_MAX
        self.closed: Counter[Closing] = Counter()
        self.waiting_bytes = 0
        self._proxies: list[IPv4Network | IPv6Network] = [ip_network(each) for each in proxies]
        self._count: Counter[Trust] = Counter()
        self._of_address: Counter[str] = Counter()
        self._anonymous_of_address: Counter[str] = Counter()
        self._waiting_of_address: Counter[str] = Counter()
        self._anonymous: OrderedDict[Limited, None] = OrderedDict()
        """Oldest first."""
        self._queue: deque[Callable[[], None]] = deque()
        """Requests on anonymous connections that have not begun."""
        self._beginning = False

    def count(self, trust: Trust) -> int:
        """Number of open connections of that kind."""
        return self._count[trust]

    @property
    def is_full(self) -> bool:
        """Whether a newcomer would be refused, wherever it comes from: nobody would make room for it."""
        return self._count.total() >= self.connections_max and self._oldest_idle() is None

    def enter(self, connection: Limited, client: tuple[str, int] | None) -> Place:
        """Count a new connection, which may end another. Raises Refused; else call `leave` when it is closed."""
        if client is not None and self._is_proxy(client[0]):
            place = Place(None, Trust.PROXY)
        else:
            place = Place(address_of({"client": client}), Trust.ANONYMOUS)
        if place.address is not None and (
            self._of_address[place.address] >= CONNECTIONS_OF_ADDRESS_MAX  # §R9-7
            or self._anonymous_of_address[place.address] >= ANONYMOUS_CONNECTIONS_OF_ADDRESS_MAX  # §R9-13
        ):
            raise Refused(Closing.ADDRESS)
        crowded = place.trust is Trust.ANONYMOUS and len(self._anonymous) >= ANONYMOUS_CONNECTIONS_MAX
        if (crowded or self._count.total() >= self.connections_max) and not self._evict():  # §R9-7, §R9-13
            raise Refused(Closing.FULL)
        self._count[place.trust] += 1
        if place.trust is Trust.ANONYMOUS:
            self._anonymous[connection] = None
        if place.address is not None:
            self._of_address[place.address] += 1
            self._anonymous_of_address[place.address] += 1
        return place

    def authenticate(self, connection: Limited, place: Place) -> None:
        """The connection is anonymous no more."""
        if place.trust is Trust.ANONYMOUS:
            self._not_anonymous(connection, place)
            place.trust = Trust.AUTHENTICATED
            self._count[place.trust] += 1

    def leave(self, connection: Limited, place: Place) -> None:
        """Count the end of a connection."""
        self.wait(place, 0)
        if place.trust is Trust.ANONYMOUS:
            self._not_anonymous(connection, place)
        else:
            self._count[place.trust] -= 1
        if place.address is not None:
            _take(self._of_address, place.address, 1)

    def begin(self, request: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
        """Call `request`, which begins an anonymous request, when its turn has come."""
        self._queue.append(request)
        if not self._beginning:
            self._beginning = True
            loop.call_soon(self._begin_some, loop)

    def wait(self, place: Place, size: int) -> None:
        """Set the number of unprocessed bytes that a connection holds. Raises Refused if they do not fit, and counts none."""
        added, place.waiting = size - place.waiting, size
        self.waiting_bytes += added
        address = place.address
        if address is not None and added:
            self._waiting_of_address[address] += added
            if not self._waiting_of_address[address]:
                del self._waiting_of_address[address]
        if added > 0 and (
            self.waiting_bytes > WAITING_BYTES_MAX  # §R9-14
            or (address is not None and self._waiting_of_address[address] > WAITING_BYTES_OF_ADDRESS_MAX)
        ):
            self.wait(place, 0)
            raise Refused(Closing.BYTES)

    def _begin_some(self, loop: asyncio.AbstractEventLoop) -> None:
        queued = len(self._queue)
        try:
            for _ in range(min(queued, max(BEGUN_AT_ONCE, queued // QUEUED_TURNS_MAX))):  # §R9-17
                self._queue.popleft()()
        finally:  # else one that fails would be the last that ever began
            self._beginning = bool(self._queue)
            if self._beginning:
                loop.call_soon(self._begin_some, loop)

    def _not_anonymous(self, connection: Limited, place: Place) -> None:
        self._count[Trust.ANONYMOUS] -= 1
        self._anonymous.pop(connection, None)
        if place.address is not None:
            _take(self._anonymous_of_address, place.address, 1)

    def _evict(self) -> bool:
        """End the oldest anonymous connection that is idle. Returns whether there was one."""
        connection = self._oldest_idle()
        if connection is None:
            return False
        del self._anonymous[connection]
        connection.end(Closing.EVICTED)
        return True

    def _oldest_idle(self) -> Limited | None:
        first = zip(range(_LOOKED_AT_MAX), self._anonymous, strict=False)
        return next((connection for _, connection in first if connection.idle), None)

    def _is_proxy(self, host: str) -> bool:
        try:
            address = ip_address(host)
        except ValueError:
            return False
        return any(address in network for network in self._proxies)


def authenticated(scope: Scope) -> None:
    """The request showed valid credentials: its connection is anonymous no more."""
    connection: Limited | None = scope.get(SCOPE_KEY)
    if connection is not None:
        connection.authenticated()


def _take(counter: Counter[str], key: str, number: int) -> None:
    counter[key] -= number
    if counter[key] <= 0:
        del counter[key]
