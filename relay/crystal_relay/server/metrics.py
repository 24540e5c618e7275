"""Metrics of the relay: counters, numbers read from other parts, and their exposition for Prometheus.

Counting runs for every request and is plain arithmetic. Only a scrape makes prometheus_client's families, so that library is
imported lazily. No label holds a vault, a device, a key or an address: metrics tell how much is done, not by whom. The number
of series is bounded whatever clients send.
"""

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from crystal_relay.distribution import installed_version
from crystal_relay.extra import require
from crystal_relay.server.admission import Admission, Closing, Trust
from crystal_relay.server.fair_store import FairStore
from crystal_relay.server.health import Health
from crystal_relay.server.histogram import Histogram
from crystal_relay.server.peers import PeerLink
from crystal_relay.server.rates import Rates
from crystal_relay.server.sweeper import Sweeper
from crystal_relay.server.usage import Usage
from crystal_relay.server.waits import Waits
from crystal_relay.store import DiskStatus, Store

if TYPE_CHECKING:
    from prometheus_client.core import Metric

SERIES_MAX = 2_000
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_METHODS = frozenset({"GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS", "PATCH"})
_OTHER = "other"
_WATCHED_CODES = ("internal", "damaged", "full", "unavailable", "busy", "quota")
"""Shown from the beginning: Prometheus sees no increase in a series that begins with 1."""


class MetricKind(enum.StrEnum):
    """How the numbers of a source behave."""

    COUNTER = "counter"
    """Only grows."""
    GAUGE = "gauge"


@dataclass(frozen=True, slots=True)
class MetricSource:
    """Numbers kept by another part, read at each scrape. `read` returns them by the values of `labels`.

    The `name` of a counter has no `_total`, which is added. `read` is called on the event loop and does no I/O.
    """

    name: str
    text: str
    kind: MetricKind
    labels: tuple[str, ...]
    read: Callable[[], Mapping[tuple[str, ...], float]]


@dataclass(frozen=True, slots=True)
class HistogramSource:
    """Histograms kept by another part, read as a `MetricSource` is. In seconds."""

    name: str
    text: str
    labels: tuple[str, ...]
    read: Callable[[], Mapping[tuple[str, ...], Histogram]]


class Metrics:
    """The counters of one relay process. Used on one event loop."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, str, int], _Series] = {}
        self._latencies: dict[str, _Latency] = {}
        self._errors: dict[str, int] = dict.fromkeys(_WATCHED_CODES, 0)
        self._sources: list[MetricSource | HistogramSource] = []

    def request(self, route: str, method: str, status: int, seconds: float, received: int, sent: int) -> None:
        """Count a request (status 0: unanswered). Bytes are those of the bodies."""
        series = self._series.get((route, method, status)) or self._new(route, method, status)
        series.count += 1
        latency = series.latency
        latency.histogram.observe(seconds)
        latency.received += received
        latency.sent += sent

    def error(self, code: str) -> None:
        """Count an error response by its `RelayError.code`."""
        self._errors[code] = self._errors.get(code, 0) + 1

    @property
    def series(self) -> int:
        """Number of combinations of route, method and status."""
        return len(self._series)

    def add(self, source: MetricSource | HistogramSource) -> None:
        """Expose the numbers of another part as well."""
        self._sources.append(source)

    def families(self) -> Iterator["Metric"]:
        """All metrics as prometheus_client's families."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        requests = CounterMetricFamily(
            "crystal_relay_requests", "Requests, by route and status.", labels=("route", "method", "status")
        )
        for (route, method, status), series in self._series.items():
            requests.add_metric((route, method, str(status)), series.count)
        yield requests

        seconds = HistogramMetricFamily(
            "crystal_relay_request_seconds",
            "From the head of a request to the end of its response.",
            labels=("route",),
        )
        received = CounterMetricFamily(
            "crystal_relay_received_bytes", "Bytes of request bodies.", labels=("route",)
        )
        sent = CounterMetricFamily("crystal_relay_sent_bytes", "Bytes of response bodies.", labels=("route",))
        for route, latency in self._latencies.items():
            seconds.add_metric((route,), latency.histogram.buckets(), latency.histogram.seconds)
            received.add_metric((route,), latency.received)
            sent.add_metric((route,), latency.sent)
        yield from (seconds, received, sent)

        errors = CounterMetricFamily(
            "crystal_relay_errors",
            "Error responses: unavailable, damaged and full come from the store; busy was shed;"
            " quota and too-many-requests exceeded a limit.",
            labels=("code",),
        )
        for code, count in self._errors.items():
            errors.add_metric((code,), count)
        yield errors

        for source in self._sources:
            if isinstance(source, HistogramSource):
                histograms = HistogramMetricFamily(source.name, source.text, labels=source.labels)
                for labels, histogram in source.read().items():
                    histograms.add_metric(labels, histogram.buckets(), histogram.seconds)
                yield histograms
                continue
            kind = CounterMetricFamily if source.kind is MetricKind.COUNTER else GaugeMetricFamily
            family = kind(source.name, source.text, labels=source.labels)
            for labels, value in source.read().items():
                family.add_metric(labels, value)
            yield family

    def _new(self, route: str, method: str, status: int) -> "_Series":
        """A new series, with labels from a bounded set."""
        name = (route, method if method in _METHODS else _OTHER, status)
        series = self._series.get(name)
        if series is None:
            if len(self._series) >= SERIES_MAX:
                name = (_OTHER, _OTHER, 0)
            latency = self._latencies.setdefault(name[0], _Latency())
            series = self._series.setdefault(name, _Series(latency))
        return series


class Exposition:
    """The metrics in Prometheus's text format, with those of the process: memory, CPU time, open files."""

    def __init__(self, metrics: Metrics) -> None:
        require("prometheus_client", "a relay with metrics")
        from prometheus_client import CollectorRegistry, ProcessCollector

        self._registry: CollectorRegistry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Collector(metrics))
        ProcessCollector(registry=self._registry)

    def text(self) -> bytes:
        """The response to a scrape, of type CONTENT_TYPE."""
        from prometheus_client.exposition import generate_latest

        return generate_latest(self._registry)


@runtime_checkable
class CountsOperations(Protocol):
    """A store that counts its requests to the service behind it, by kind."""

    @property
    def operations(self) -> Mapping[str, int]: ...


def sources_of(
    *,
    store: Store,
    fair_store: FairStore,
    health: Health,
    waits: Waits,
    rates: Rates,
    admission: Admission,
    usage: Usage,
    sweeper: Sweeper,
    peers: PeerLink | None,
) -> Iterator[MetricSource | HistogramSource]:
    """The sources of one relay process."""
    installed = installed_version()
    yield MetricSource(
        "crystal_relay_info",
        "Always 1; labelled with the version.",
        MetricKind.GAUGE,
        ("version",),
        lambda: {(installed,): 1},
    )
    yield MetricSource(
        "crystal_relay_waits",
        "Long polls that are waiting.",
        MetricKind.GAUGE,
        (),
        lambda: {(): waits.sleeping},
    )
    if isinstance(store, CountsOperations):
        yield MetricSource(
            "crystal_relay_store_operations",
            "Requests to the service behind the store, including retries.",
            MetricKind.COUNTER,
            ("operation",),
            lambda: {(name,): count for name, count in tuple(store.operations.items())},
        )
    yield MetricSource(
        "crystal_relay_limited",
        "Requests that exceeded a limit, by limit.",
        MetricKind.COUNTER,
        ("limit",),
        lambda: {
            ("device",): rates.refused_devices,
            ("address",): rates.refused_addresses,
            ("unknown-credentials",): rates.refused_failures,
            ("lookups",): rates.refused_lookups,
            ("quota",): usage.refused,
            ("cap",): usage.refused_by_cap,
            ("foundings",): rates.refused_foundings,
            ("waits",): waits.refused,
        },
    )
    yield MetricSource(
        "crystal_relay_quota_listings",
        "Listings of vaults to count their usage.",
        MetricKind.COUNTER,
        (),
        lambda: {(): usage.listings},
    )
    yield from _of_store(fair_store)
    yield from _of_health(health)
    yield from _of_vaults(usage)
    yield from _of_connections(admission)
    yield from _of_sweeper(sweeper)
    if peers is not None:
        yield from _of_peers(peers)


def _of_store(store: FairStore) -> Iterator[MetricSource | HistogramSource]:
    sizes = {("small",): store.small, ("large",): store.large}
    yield HistogramSource(
        "crystal_relay_store_seconds",
        "Time that requests' operations took in the store, without the queue before it.",
        ("operation",),
        lambda: {(name,): histogram for name, histogram in store.seconds.items()},
    )
    yield HistogramSource(
        "crystal_relay_store_queue_seconds",
        "Time that requests' operations waited for their turn at the store.",
        ("size",),
        lambda: {size: turns.queued for size, turns in sizes.items()},
    )
    yield MetricSource(
        "crystal_relay_store_running",
        "Requests' operations in the store.",
        MetricKind.GAUGE,
        ("size",),
        lambda: {size: turns.running for size, turns in sizes.items()},
    )
    yield MetricSource(
        "crystal_relay_store_queued",
        "Requests' operations that wait for their turn at the store.",
        MetricKind.GAUGE,
        ("size",),
        lambda: {size: turns.waiting for size, turns in sizes.items()},
    )


def _of_health(health: Health) -> Iterator[MetricSource]:
    def disk(read: Callable[[DiskStatus], float]) -> Callable[[], Mapping[tuple[str, ...], float]]:
        return lambda: {} if health.disk is None else {(): read(health.disk)}

    yield MetricSource(
        "crystal_relay_store_up",
        "1 if the store answered the latest request or check; a scrape does not check a bucket.",
        MetricKind.GAUGE,
        (),
        lambda: {} if health.answers is None else {(): health.answers},
    )
    yield MetricSource(
        "crystal_relay_disk_free_bytes",
        "Free space of the disk under a directory.",
        MetricKind.GAUGE,
        (),
        disk(lambda status: status.free_bytes),
    )
    yield MetricSource(
        "crystal_relay_disk_size_bytes",
        "Size of that disk.",
        MetricKind.GAUGE,
        (),
        disk(lambda status: status.size_bytes),
    )
    yield MetricSource(
        "crystal_relay_disk_full",
        "1 if that disk takes no new objects.",
        MetricKind.GAUGE,
        (),
        disk(lambda status: status.full),
    )


def _of_vaults(usage: Usage) -> Iterator[MetricSource]:
    def numbers() -> Mapping[tuple[str, ...], float]:
        totals = usage.totals()
        return {("counted",): totals.vaults, ("full",): totals.full_vaults}

    yield MetricSource(
        "crystal_relay_vaults",
        "Vaults that this process has counted, each after its first write, and those of them at their quota.",
        MetricKind.GAUGE,
        ("state",),
        numbers,
    )
    yield MetricSource(
        "crystal_relay_vault_objects",
        "Objects of the counted vaults.",
        MetricKind.GAUGE,
        (),
        lambda: {(): usage.totals().entries},
    )
    yield MetricSource(
        "crystal_relay_vault_bytes",
        "Bytes of the counted vaults.",
        MetricKind.GAUGE,
        (),
        lambda: {(): usage.totals().bytes},
    )


def _of_connections(admission: Admission) -> Iterator[MetricSource]:
    yield MetricSource(
        "crystal_relay_connections",
        "Open connections, by what is known of the other end.",
        MetricKind.GAUGE,
        ("trust",),
        lambda: {(trust.value,): admission.count(trust) for trust in Trust},
    )
    yield MetricSource(
        "crystal_relay_connections_closed",
        "Connections that the relay ended, by reason.",
        MetricKind.COUNTER,
        ("reason",),
        lambda: {(reason.value,): admission.closed[reason] for reason in Closing},
    )
    yield MetricSource(
        "crystal_relay_waiting_bytes",
        "Bytes received and not processed.",
        MetricKind.GAUGE,
        (),
        lambda: {(): admission.waiting_bytes},
    )


def _of_sweeper(sweeper: Sweeper) -> Iterator[MetricSource]:
    yield MetricSource(
        "crystal_relay_sweeps", "Completed sweeps.", MetricKind.COUNTER, (), lambda: {(): sweeper.sweeps}
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
        "Objects deleted by sweeps, by kind of expiry record.",
        MetricKind.COUNTER,
        ("kind",),
        lambda: {(kind,): count for kind, count in sweeper.deleted.items()},
    )


def _of_peers(peers: PeerLink) -> Iterator[MetricSource]:
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
        "crystal_relay_peers", "Other relay processes on the same store.", MetricKind.GAUGE, ("state",), now
    )
    yield MetricSource(
        "crystal_relay_peer_messages",
        "Messages between relay processes.",
        MetricKind.COUNTER,
        ("outcome",),
        messages,
    )


@dataclass(slots=True)
class _Latency:
    """Histogram of one route, and its bytes."""

    histogram: Histogram = field(default_factory=Histogram)
    received: int = 0
    sent: int = 0


class _Series:
    """Requests of one route, method and status."""

    __slots__ = ("count", "latency")

    def __init__(self, latency: _Latency) -> None:
        self.count = 0
        self.latency = latency


class _Collector:
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator["Metric"]:
        return self._metrics.families()
