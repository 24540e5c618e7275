"""The load generator of docs/relay-sizing.md sends what it says, and counts it."""

import pytest

from bench import relay_sizing
from bench.bench_relay_costs import Operations

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def test_devices_wait_and_messages_reach_a_real_relay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_sizing, "MONTH_MESSAGES", relay_sizing.MONTH_SECONDS)  # one a second
    sized = relay_sizing.size(2, bucket=False, seconds=1.0)
    assert sized.waits == 4
    # Two messages of two entries, a listing, three questions and the reads of both devices; each entry wakes who waits.
    of_messages = 2 * (2 + 1 + 3 + 2 * relay_sizing.READS_OF_A_MESSAGE)
    assert sized.requests >= of_messages or sized.unanswered  # on a machine that stood still for 20 seconds
    assert sized.window_seconds >= 0.99, "two clocks"
    assert 20 < sized.megabytes < 1_000
    assert sized.processor_seconds >= 0
    assert sized.operations == Operations(), "a directory has none"


def test_a_months_requests_follow_from_the_window() -> None:
    sized = relay_sizing.Sized(
        10, "bucket", 20, 60.0, 61.0, 300.0, 310.0, 600, 0.0, 0, 3.0, Operations(2, 1, 100), 0
    )
    document = sized.document()
    assert document["core_percent"] == pytest.approx(1.0)
    assert document["milliseconds_a_request"] == pytest.approx(5.0)
    assert document["requests_a_second"] == pytest.approx(2.0)
    assert document["month"] == "17,280 PUT, 8,640 LIST, 864,000 GET"
    assert document["month_dollars_r2"] == pytest.approx(25_920 * 4.5e-6 + 864_000 * 0.36e-6)
