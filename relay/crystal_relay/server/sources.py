"""The numbers that parts of a relay keep by themselves, as sources of its metrics.

Read at each scrape and never before, so that whoever keeps a number does nothing for the metrics.
"""

from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Protocol, runtime_checkable

from crystal_relay.server.closing import Waits
from crystal_relay.server.metrics import MetricKind, MetricSource
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
) -> Iterator[MetricSource]:
    """All of one relay process."""
    installed = version("memory-crystal")
    yield MetricSource(
        "crystal_relay_info",
        "Always 1; which version runs.",
        MetricKind.GAUGE,
        ("version",),
        lambda: {(installed,): 1},
    )
    yield MetricSource(
        "crystal_relay_waits", "Long polls that sleep.", MetricKind.GAUGE, (), lambda: {(): waits.sleeping}
    )
    if isinstance(store, CountsOperations):
        yield MetricSource(
            "crystal_relay_store_operations",
            "Requests to the service behind the store, repeated ones included.",
            MetricKind.COUNTER,
            ("operation",),
            lambda: {(name,): count for name, count in tuple(store.operations.items())},
        )
    yield MetricSource(
        "crystal_relay_limited",
        "Requests that went over a limit, by whose limit it is.",
        MetricKind.COUNTER,
        ("limit",),
        lambda: {
            ("device",): rates.refused_devices,
            ("address",): rates.refused_addresses,
            ("unknown-credentials",): rates.refused_failures,
            ("quota",): usage.refused,
            ("waits",): waits.refused,
        },
    )
    yield MetricSource(
        "crystal_relay_quota_listings",
        "Vaults that were listed to count what they have.",
        MetricKind.COUNTER,
        (),
        lambda: {(): usage.listings},
    )
    yield from _of_sweeper(sweeper)
    if peers is not None:
        yield from _of_peers(peers)


def _of_sweeper(sweeper: Sweeper) -> Iterator[MetricSource]:
    yield MetricSource(
        "crystal_relay_sweeps", "Sweeps that ended.", MetricKind.COUNTER, (), lambda: {(): sweeper.sweeps}
    )
    yield MetricSource(
        "crystal_relay_sweep_failures",
        "Failures of the store during sweeps.",
        MetricKind.COUNTER,
        (),
        lambda: {(): sweeper.failures},
    )
    yield MetricSource(
        "crystal_relay_swept_objects",
        "Objects that sweeps deleted, by what named them.",
        MetricKind.COUNTER,
        ("kind",),
        lambda: {(kind,): count for kind, count in sweeper.deleted.items()},
    )


def _of_peers(peers: Peers) -> Iterator[MetricSource]:
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

    yield MetricSource(
        "crystal_relay_peers", "Other processes over the store.", MetricKind.GAUGE, ("state",), now
    )
    yield MetricSource(
        "crystal_relay_peer_messages",
        "Messages between processes.",
        MetricKind.COUNTER,
        ("outcome",),
        messages,
    )
