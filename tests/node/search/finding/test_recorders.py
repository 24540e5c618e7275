"""A result says which device recorded it, also what is pending here; its name is read once, and only with the keys."""

import pytest

from crystal_core.search.search import Searcher
from crystal_mirror.operations import PutSource
from crystal_node.search.devices import DeviceNames
from crystal_node.search.finding.recorders import recorder
from tests.core.builders import NOW, apply, capture, new_replica, origin, remember
from tests.node.search.finding.test_showing import PIECES, put
from tests.support.machine import Vault

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


def test_names_are_those_that_a_round_left_and_else_the_beginnings_of_ids(vault: Vault) -> None:
    laptop = vault.add()
    laptop.call("remember", "The tide turns at noon.")
    laptop.call("sync")
    pending = laptop.call("search", "tide", "--json").json["results"][0]
    assert pending["device_name"] == laptop.call("status", "--json").json["name"]
    vault.core.call("sync")
    found = vault.core.call("search", "tide", "--json").json["results"][0]
    assert (found["device"], found["device_name"]) == (pending["device"], pending["device_name"])
    vault.core.call("devices", "rename", found["device"][:8], "bench")
    vault.core.call("sync")
    assert vault.core.call("search", "tide", "--json").json["results"][0]["device_name"] == "bench"
    assert DeviceNames(new_replica().database).name(DESKTOP.hex()) == "01010101"
    assert DeviceNames(new_replica().database).name("") == ""
