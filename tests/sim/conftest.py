"""Each test of the simulator reports what it did, so that the whole run can say so at its end."""

from collections import Counter
from collections.abc import Callable, Generator

import pytest

from tests.sim import measure


@pytest.fixture(autouse=True)
def measured(record_property: Callable[[str, object], None]) -> Generator[None]:
    before = Counter(measure.TOTALS)
    yield
    done = measure.TOTALS - before
    if done:
        record_property(measure.PROPERTY, dict(done))
