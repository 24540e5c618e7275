"""A result says which device recorded it, also what is pending here; its name is read once, and only with the keys."""

from pathlib import Path

import pytest

from crystal_core.search.search import Searcher
from crystal_mirror.operations import PutSource
from crystal_node.base.settings import resolve
from crystal_node.search.devices import LOOK_SECONDS, DeviceNames
from crystal_node.search.finding.recorders import recorder
from tests.core.builders import NOW, apply, capture, new_replica, origin, remember
from tests.node.search.finding.test_showing import PIECES, put
from tests.support.machine import Machine

DESKTOP, LAPTOP = bytes([1]) * 16, bytes([2]) * 16


@pytest.mark.parametrize(
    ("query", "device"),
    [("budget", DESKTOP), ("crane", LAPTOP), ("pilot", DESKTOP), ("tide", LAPTOP), ("handbook", LAPTOP)],
)
def test_every_kind_of_text_names_the_device_that_recorded_it(query: str, device: bytes) -> None:
    replica = new_replica()
    apply(
        replica,
        capture("The retry budget is eleven."),
        remember("The pilot is Njord.", created_at=NOW),
        device=DESKTOP,
    )
    apply(
        replica,
        capture("The crane is serviced on Tuesdays.", session="other"),
        PutSource("notes", "", (), (), NOW),
        put("1", PIECES),
        device=LAPTOP,
    )
    replica.index_provisional(origin(9, LAPTOP), remember("The tide turns at noon.", created_at=NOW + 1))
    hit = Searcher(replica.database).search(query, now_ms=NOW).hits[0]
    assert recorder(replica.database, hit) == device.hex()


def test_without_the_keys_a_device_has_the_beginning_of_its_id_and_is_not_looked_for_each_time(
    tmp_path: Path,
) -> None:
    clock = [0.0]
    looked: list[float] = []

    class Counting(DeviceNames):
        def _read(self, settings: object) -> dict[str, str]:
            looked.append(clock[0])
            return {}

    names = Counting(lambda: clock[0])
    settings = resolve(environment=Machine(tmp_path).environment | {"CRYSTAL_HOME": str(tmp_path)})
    for _ in range(3):
        assert names.name(settings, DESKTOP.hex()) == "01010101"
        assert names.name(settings, "") == ""
    clock[0] += LOOK_SECONDS
    names.name(settings, LAPTOP.hex())
    assert looked == [0.0, LOOK_SECONDS]
    assert DeviceNames().name(settings, DESKTOP.hex()) == "01010101", "a home that is not set up"
