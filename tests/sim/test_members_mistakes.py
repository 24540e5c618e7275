"""Old mistakes with keys and revocations, put back one at a time: the simulator finds each, and finds nothing without them."""

import pytest

from crystal_crypto.errors import CrystalError
from tests.sim.measure import TOTALS
from tests.sim.members_mistakes import FOUND_BY, MISTAKES, PLOTS
from tests.sim.members_script import SCRIPTS, play


def run(name: str) -> None:
    if name in SCRIPTS:
        play(name)
    else:
        PLOTS[name]()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_every_old_mistake_is_found(mistake: str) -> None:
    name = FOUND_BY[mistake]
    run(name)
    with MISTAKES[mistake](), pytest.raises((AssertionError, CrystalError)) as seen:
        run(name)
    assert "TypeError" not in str(seen.value), "the mistake itself is put back wrongly"
    TOTALS["mistakes caught"] += 1
