"""What the relay counts, how it is exposed, and what stays out of it."""

import time
from statistics import median

from prometheus_client.parser import text_string_to_metric_families

from crystal_relay.server.metrics import SERIES_MAX, Exposition, Kind, Metrics, Source

REQUEST_SECONDS_MAX = 2e-6


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = Exposition(metrics).text().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_requests_are_counted_by_route_method_and_status() -> None:
    metrics = Metrics()
    for _ in range(3):
        metrics.request("put_object", "PUT", 201, 0.004, 4096, 10)
    metrics.request("put_object", "PUT", 412, 0.2, 4096, 50)
    found = samples(metrics)
    labels = (("method", "PUT"), ("route", "put_object"))
    assert found["crystal_relay_requests_total", (*labels, ("status", "201"))] == 3
    assert found["crystal_relay_requests_total", (*labels, ("status", "412"))] == 1
    route = (("route", "put_object"),)
    assert found["crystal_relay_request_seconds_bucket", (("le", "0.0025"), *route)] == 0
    assert found["crystal_relay_request_seconds_bucket", (("le", "0.005"), *route)] == 3
    assert found["crystal_relay_request_seconds_bucket", (("le", "+Inf"), *route)] == 4
    assert found["crystal_relay_request_seconds_count", route] == 4
    assert abs(found["crystal_relay_request_seconds_sum", route] - 0.212) < 1e-9
    assert found["crystal_relay_received_bytes_total", route] == 4 * 4096
    assert found["crystal_relay_sent_bytes_total", route] == 80


def test_errors_and_other_sources_are_shown() -> None:
    metrics = Metrics()
    metrics.error("quota")
    metrics.error("quota")
    metrics.add(Source("crystal_relay_waits", "Sleeping waits.", Kind.GAUGE, (), lambda: {(): 7}))
    metrics.add(Source("crystal_relay_swept", "Removed.", Kind.COUNTER, ("kind",), lambda: {("invite",): 2}))
    found = samples(metrics)
    assert found["crystal_relay_errors_total", (("code", "quota"),)] == 2
    assert found["crystal_relay_waits", ()] == 7
    assert found["crystal_relay_swept_total", (("kind", "invite"),)] == 2
    assert ("process_resident_memory_bytes", ()) in found


def test_clients_cannot_make_series_without_end() -> None:
    metrics = Metrics()
    for number in range(10 * SERIES_MAX):
        metrics.request("none", f"METHOD{number}", 404, 0.0, 0, 0)
    assert len(samples(metrics)) < 50
    for number in range(2 * SERIES_MAX):
        metrics.request(f"route{number}", "GET", 404, 0.0, 0, 0)
    assert len(metrics._series) <= SERIES_MAX + 1
    counted = sum(
        value for (name, _), value in samples(metrics).items() if name == "crystal_relay_requests_total"
    )
    assert counted == 12 * SERIES_MAX


def test_counting_a_request_costs_less_than_two_microseconds() -> None:
    metrics = Metrics()
    rounds, calls = [], 20_000
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(calls):
            metrics.request("put_object", "PUT", 201, 0.004, 4096, 0)
        rounds.append((time.perf_counter() - began) / calls)
    assert median(rounds) < REQUEST_SECONDS_MAX
