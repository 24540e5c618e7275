"""Mistakes with snapshots, retention, moving and files, put back one at a time: each is found, and nothing is without them."""

import pytest

from crystal_crypto.errors import CrystalError
from tests.sim import members_mistakes, mistakes
from tests.sim.measure import TOTALS
from tests.sim.mixed_mistakes import FOUND_BY, MISTAKES
from tests.sim.mixed_plots import run

MISTAKES_MIN = 30


@pytest.mark.parametrize("mistake", MISTAKES)
def test_every_plausible_mistake_is_found(mistake: str) -> None:
    plot = FOUND_BY[mistake]
    run(plot)
    with MISTAKES[mistake](), pytest.raises((AssertionError, CrystalError)) as seen:
        run(plot)
    assert "TypeError" not in str(seen.value), "the mistake itself is put back wrongly"
    TOTALS["mistakes caught"] += 1


def test_mistakes_of_every_kind_are_put_back() -> None:
    everything = {*mistakes.MISTAKES, *members_mistakes.MISTAKES, *MISTAKES}
    assert len(everything) >= MISTAKES_MIN
    assert len(everything) == len(mistakes.MISTAKES) + len(members_mistakes.MISTAKES) + len(MISTAKES)
