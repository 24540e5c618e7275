"""The seed of a random test: drawn anew each time, or the one that is to run again."""

import os
from random import SystemRandom


def seed() -> int:
    """CRYSTAL_TEST_SEED, else a new one. Whoever draws from it names it when something fails."""
    return int(os.environ.get("CRYSTAL_TEST_SEED", "0")) or SystemRandom().randrange(1, 2**32)
