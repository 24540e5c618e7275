"""Two devices of a vault have two names."""

import pytest

from crystal_mirror.devicelog.records import DETAIL_CHARS_MAX
from crystal_mirror.errors import NameTaken
from crystal_mirror.membership.administration import rename
from crystal_mirror.membership.names import free_name
from crystal_mirror.membership.status import device_name
from tests.mirror.household import Household


@pytest.mark.parametrize(
    ("wanted", "taken", "free"),
    [
        ("laptop", [], "laptop"),
        ("laptop", ["desktop"], "laptop"),
        ("laptop", ["laptop"], "laptop-2"),
        ("laptop", ["Laptop", "laptop-2", "laptop-4"], "laptop-3"),
        ("Straße", ["STRASSE"], "Straße-2"),
        ("x" * DETAIL_CHARS_MAX, ["x" * DETAIL_CHARS_MAX], "x" * (DETAIL_CHARS_MAX - 2) + "-2"),
    ],
)
def test_a_taken_name_gets_the_next_free_number(wanted: str, taken: list[str], free: str) -> None:
    assert free_name(wanted, taken) == free


def test_a_device_that_is_added_with_a_taken_name_gets_a_number_and_a_revoked_one_frees_its_own() -> None:
    home = Household()
    first = home.add("phone")
    names = {device_name(home.core, home.add(f"another {at}", called="phone").device_id) for at in range(2)}
    assert names == {"phone-2", "phone-3"}
    home.revoke(first)
    late = home.add("late", called="PHONE")
    assert device_name(home.core, late.device_id) == "PHONE"


def test_a_device_that_joins_by_the_root_gets_a_number_too() -> None:
    home = Household()
    second = home.by_kit("second")
    home.sync(home.core)
    first = device_name(home.core, home.core.device_id)
    assert device_name(home.core, second.device_id) == f"{first}-2"


def test_no_device_is_renamed_to_the_name_of_another_one() -> None:
    home = Household()
    bench, phone = home.add("bench"), home.add("phone")
    with pytest.raises(NameTaken, match="another device") as raised:
        home.store.run(rename(home.core, phone.device_id, "Bench", now_ms=3))
    assert "Bench-2" in str(raised.value.hint)
    assert home.store.run(rename(home.core, bench.device_id, "BENCH", now_ms=3)), "its own, in another case"
