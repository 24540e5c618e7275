"""The numbers that parts of a relay keep by themselves, as sources of its metrics.

Read at each scrape and never before, so that whoever keeps a number does nothing for the metrics.
"""

from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Protocol, runtime_checkable

from crystal_relay.server.closing import Waits
from crystal_relay.server.metrics import Kind, Source
from crystal_relay.server.peers import Peers
from crystal_relay.server.rates import Rates
from crystal_relay.server.sweeper import Sweeper
from crystal_relay.server.usage import Usage
from crystal_relay.store import Store


@runtime_checkable
class CountsOperations(Protocol):
    """A store that counts what it asks of the service behind it, by kind."""

    @property
    def operations(self) -> Mapping[str, int]: ...


def sources_of(
    *, store: Store, waits: Waits, rates: Rates, usage: Usage, sweeper: Sweeper, peers: Peers | None
) -> Iterator[Source]:
    """All of one relay process."""
    installed = version("memory-crystal")
    yield Source(
        "crystal_relay_info",
        "Always 1; which version runs.",
        Kind.GAUGE,
        ("version",),
        lambda: {(installed,): 1},
    )
    yield Source(
        "crystal_relay_waits", "Long polls that sleep.", Kind.GAUGE, (), lambda: {(): waits.sleeping}
    )
    if isinstance(store, CountsOperations):
        yield Source(
            "crystal_relay_store_operations",
            "Requests to the service behind the store, repeated ones included.",
            Kind.COUNTER,
            ("operation",),
            lambda: {(name,): count for name, count in tuple(store.operations.items())},
        )
    yield Source(
        "crystal_relay_limited",
        "Requests that went over a limit, by whose limit it is.",
        Kind.COUNTER,
        ("limit",),
        lambda: {
            ("device",): rates.refused_devices,
            ("address",): rates.refused_addresses,
            ("unknown-credentials",): rates.refused_failures,
            ("quota",): usage.refused,
            ("waits",): waits.refused,
        },
    )
    yield Source(
        "crystal_relay_quota_listings",
        "Vaults that were listed to count what they have.",
        Kind.COUNTER,
        (),
        lambda: {(): usage.listings},
    )
    yield from _of_sweeper(sweeper)
    if peers is not None:
        yield from _of_peers(peers)


def _of_sweeper(sweeper: Sweeper) -> Iterator[Source]:
    yield Source("crystal_relay_sweeps", "Sweeps that ended.", Kind.COUNTER, (), lambda: {(): sweeper.sweeps})
    yield Source(
        "crystal_relay_sweep_failures",
        "Failures of the store during sweeps.",
        Kind.COUNTER,
        (),
        lambda: {(): sweeper.failures},
    )
    yield Source(
        "crystal_relay_swept_objects",
        "Objects that sweeps deleted, by what named them.",
        Kind.COUNTER,
        ("kind",),
        lambda: {(kind,): count for kind, count in sweeper.deleted.items()},
    )


def _of_peers(peers: Peers) -> Iterator[Source]:
    def now() -> Mapping[tuple[str, ...], float]:
        status = peers.status()
        return {("known",): status.known, ("reached",): status.reached}

    def messages() -> Mapping[tuple[str, ...], float]:
        status = peers.status()
        return {
            ("told",): status.told,
            ("not-told",): status.not_told,
            ("heard",): status.heard,
            ("missed",): status.missed,
        }

    yield Source("crystal_relay_peers", "Other processes over the store.", Kind.GAUGE, ("state",), now)
    yield Source(
        "crystal_relay_peer_messages", "Messages between processes.", Kind.COUNTER, ("outcome",), messages
    )
