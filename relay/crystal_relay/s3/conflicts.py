"""How often and how long to wait when others write the same key at the same moment."""

import random
from collections.abc import Iterator

TRIES = 7
FIRST_PAUSE_SECONDS = 0.02
PAUSE_SECONDS_MAX = 1.0


def conflict_pauses() -> Iterator[float]:
    """Seconds to wait after each try that met a conflict: growing, and different for each who asks."""
    for number in range(TRIES):
        longest = min(PAUSE_SECONDS_MAX, FIRST_PAUSE_SECONDS * 3**number)
        yield longest * random.uniform(0.5, 1.0)  # noqa: S311  (to be apart, not to be secret)
